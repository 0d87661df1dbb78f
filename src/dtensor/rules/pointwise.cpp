#include "dtensor/rules/tables.h"

#include <algorithm>
#include <stdexcept>

namespace precast::dtensor {
namespace {

/// The shape of tensors broadcast together.
Sizes broadcast_shape(const std::vector<Sizes>& shapes) {
  Sizes result;
  for (const Sizes& shape : shapes) {
    if (shape.size() > result.size()) result.insert(result.begin(), shape.size() - result.size(), 1);
    for (std::size_t i = 0; i < shape.size(); ++i) {
      std::int64_t& size = result[result.size() - shape.size() + i];
      if (size == 1) size = shape[i];
    }
  }
  return result;
}

/// Letters of an operand broadcast to `result`, whose letters are a, b, c...
std::string broadcast_letters(const Sizes& shape, const Sizes& result) {
  std::string text = letters(result.size()).substr(result.size() - shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] == 1 && result[result.size() - shape.size() + i] != 1) text[i] = '1';
  return text;
}

/// Element by element over operands that are broadcast together.
Rule pointwise(const OpCall& call) {
  const Sizes shape = broadcast_shape(call.tensors);
  Rule rule;
  for (const Sizes& operand : call.tensors) rule.inputs.push_back(broadcast_letters(operand, shape));
  rule.outputs = {letters(shape.size())};
  return rule;
}

/// Operands that are partial as `inputs` says give a result that is partial alike.
void add_partial(Rule& rule, const std::vector<bool>& inputs, const std::vector<Reduction>& reductions) {
  for (const Reduction reduction : reductions) {
    Alternative alternative;
    for (std::size_t i = 0; i < rule.inputs.size(); ++i)
      alternative.inputs.push_back(inputs[i] ? Placement(Partial(reduction)) : Placement(Replicate()));
    alternative.outputs.assign(rule.outputs.size(), Partial(reduction));
    rule.alternatives.push_back(std::move(alternative));
  }
}

const std::vector<Reduction> kSums = {Reduction::sum, Reduction::avg};
const std::vector<Reduction> kAll = {Reduction::sum, Reduction::avg, Reduction::max, Reduction::min};

/// f(x + y) = f(x) + f(y) in all operands together: add, sub, neg, copies from one floating dtype to another.
Rule linear(const OpCall& call) {
  Rule rule = pointwise(call);
  add_partial(rule, std::vector<bool>(rule.inputs.size(), true), kSums);
  return rule;
}

/// The value itself, in a new tensor: whatever it is a reduction of.
Rule identity(const OpCall& call) {
  Rule rule = pointwise(call);
  add_partial(rule, std::vector<bool>(rule.inputs.size(), true), kAll);
  return rule;
}

/// Linear in each operand alone: one may be partial where the others are whole.
Rule bilinear(const OpCall& call) {
  Rule rule = pointwise(call);
  for (std::size_t i = 0; i < rule.inputs.size(); ++i) {
    std::vector<bool> one(rule.inputs.size(), false);
    one[i] = true;
    add_partial(rule, one, kSums);
  }
  return rule;
}

/// Linear in the first operand: division.
Rule linear_in_first(const OpCall& call) {
  Rule rule = pointwise(call);
  std::vector<bool> first(rule.inputs.size(), false);
  first[0] = true;
  add_partial(rule, first, kSums);
  return rule;
}

/// where(condition, x, y).
Rule select(const OpCall& call) {
  Rule rule = pointwise(call);
  if (rule.inputs.size() == 3) add_partial(rule, {false, true, true}, kSums);
  return rule;
}

/// masked_fill(self, mask, value): by zero it is linear in self.
Rule masked_fill(const OpCall& call) {
  Rule rule = pointwise(call);
  const auto is_zero = [](const OpCall::Argument& value) {
    const auto* integer = std::get_if<std::int64_t>(&value);
    const auto* number = std::get_if<double>(&value);
    return (integer != nullptr && *integer == 0) || (number != nullptr && *number == 0);
  };
  if (is_zero(call.arguments[2])) add_partial(rule, {true, false}, kSums);
  return rule;
}

/// self + value * (a op b): the product is linear in one of its factors, and self must be partial with it.
Rule multiply_add(const OpCall& call) {
  Rule rule = pointwise(call);
  add_partial(rule, {true, true, false}, kSums);
  if (call.op.find("addcmul") != std::string::npos) add_partial(rule, {true, false, true}, kSums);
  return rule;
}

/// A new tensor of the same shape whose values are not those of the operand. Partial operands give a whole one.
Rule like(const OpCall& call) {
  const std::string all = letters(call.tensors[0].size());
  Rule rule{.inputs = {all}, .outputs = {all}};
  for (const Reduction reduction : kAll) rule.alternatives.push_back({.inputs = {Partial(reduction)}, .outputs = {Replicate()}});
  return rule;
}

/// zero_ and fill_ by zero leave a partial sum a partial sum.
Rule zero_in_place(const OpCall& call) {
  Rule rule = pointwise(call);
  add_partial(rule, {true}, kSums);
  return rule;
}

/// Written over by the source, whatever was there: both lie alike.
Rule copy_in_place(const OpCall& call) {
  if (broadcast_shape(call.tensors) != call.tensors[0]) throw std::invalid_argument("the source does not broadcast to the target");
  return identity(call);
}

/// _to_copy(self, dtype, ...): to whole numbers or bool it is not linear. The dtypes are c10's numbers of half, float, double,
/// bfloat16.
Rule convert(const OpCall& call) {
  constexpr std::int64_t kFloating[] = {5, 6, 7, 15};
  const bool to_floating = call.is_none(1) || std::ranges::find(kFloating, call.integer(1)) != std::end(kFloating);
  return to_floating ? linear(call) : pointwise(call);
}

constexpr RuleRow kTable[] = {
    // Linear.
    {"aten::add.Tensor", linear},
    {"aten::sub.Tensor", linear},
    {"aten::neg", linear},
    {"aten::mul.Scalar", linear},
    {"aten::div.Scalar", linear},
    {"aten::_to_copy", convert},
    {"aten::clone", identity},
    {"aten::detach", identity},
    {"aten::alias", identity},
    {"aten::contiguous", identity},
    {"aten::positive", identity},
    {"aten::copy_", copy_in_place},
    {"aten::zero_", zero_in_place},
    {"aten::mul.Tensor", bilinear},
    {"aten::div.Tensor", linear_in_first},
    {"aten::where.self", select},
    {"aten::masked_fill.Scalar", masked_fill},
    {"aten::masked_fill.Tensor", pointwise},
    {"aten::addcmul", multiply_add},
    {"aten::addcdiv", multiply_add},
    {"aten::threshold_backward", linear_in_first},
    {"aten::native_dropout_backward", linear_in_first},

    // New tensors of the same shape.
    {"aten::zeros_like", like},
    {"aten::ones_like", like},
    {"aten::full_like", like},
    {"aten::empty_like", like},

    // Not linear.
    {"aten::add.Scalar", pointwise},
    {"aten::sub.Scalar", pointwise},
    {"aten::rsub.Scalar", pointwise},
    {"aten::rsub.Tensor", linear},
    {"aten::fill_.Scalar", pointwise},
    {"aten::fill_.Tensor", pointwise},
    {"aten::div.Tensor_mode", pointwise},
    {"aten::div.Scalar_mode", pointwise},
    {"aten::floor_divide", pointwise},
    {"aten::remainder.Scalar", pointwise},
    {"aten::remainder.Tensor", pointwise},
    {"aten::fmod.Scalar", pointwise},
    {"aten::fmod.Tensor", pointwise},
    {"aten::pow.Tensor_Scalar", pointwise},
    {"aten::pow.Tensor_Tensor", pointwise},
    {"aten::pow.Scalar", pointwise},
    {"aten::sqrt", pointwise},
    {"aten::rsqrt", pointwise},
    {"aten::reciprocal", pointwise},
    {"aten::exp", pointwise},
    {"aten::exp2", pointwise},
    {"aten::expm1", pointwise},
    {"aten::log", pointwise},
    {"aten::log2", pointwise},
    {"aten::log10", pointwise},
    {"aten::log1p", pointwise},
    {"aten::sin", pointwise},
    {"aten::cos", pointwise},
    {"aten::tan", pointwise},
    {"aten::asin", pointwise},
    {"aten::acos", pointwise},
    {"aten::atan", pointwise},
    {"aten::atan2", pointwise},
    {"aten::sinh", pointwise},
    {"aten::cosh", pointwise},
    {"aten::tanh", pointwise},
    {"aten::tanh_backward", linear_in_first},
    {"aten::sigmoid", pointwise},
    {"aten::sigmoid_backward", linear_in_first},
    {"aten::erf", pointwise},
    {"aten::erfc", pointwise},
    {"aten::erfinv", pointwise},
    {"aten::abs", pointwise},
    {"aten::sgn", pointwise},
    {"aten::sign", pointwise},
    {"aten::floor", pointwise},
    {"aten::ceil", pointwise},
    {"aten::round", pointwise},
    {"aten::trunc", pointwise},
    {"aten::frac", pointwise},
    {"aten::square", pointwise},
    {"aten::relu", pointwise},
    {"aten::gelu", pointwise},
    {"aten::gelu_backward", linear_in_first},
    {"aten::silu", pointwise},
    {"aten::silu_backward", linear_in_first},
    {"aten::mish", pointwise},
    {"aten::mish_backward", linear_in_first},
    {"aten::elu", pointwise},
    {"aten::elu_backward", linear_in_first},
    {"aten::leaky_relu", pointwise},
    {"aten::leaky_relu_backward", linear_in_first},
    {"aten::softplus", pointwise},
    {"aten::softplus_backward", linear_in_first},
    {"aten::hardtanh", pointwise},
    {"aten::hardtanh_backward", linear_in_first},
    {"aten::hardsigmoid", pointwise},
    {"aten::hardsigmoid_backward", linear_in_first},
    {"aten::hardswish", pointwise},
    {"aten::hardswish_backward", linear_in_first},
    {"aten::logit", pointwise},
    {"aten::threshold", pointwise},
    {"aten::clamp", pointwise},
    {"aten::clamp.Tensor", pointwise},
    {"aten::clamp_min", pointwise},
    {"aten::clamp_min.Tensor", pointwise},
    {"aten::clamp_max", pointwise},
    {"aten::clamp_max.Tensor", pointwise},
    {"aten::maximum", pointwise},
    {"aten::minimum", pointwise},
    {"aten::fmax", pointwise},
    {"aten::fmin", pointwise},
    {"aten::lerp.Scalar", linear},
    {"aten::lerp.Tensor", pointwise},
    {"aten::eq.Scalar", pointwise},
    {"aten::eq.Tensor", pointwise},
    {"aten::ne.Scalar", pointwise},
    {"aten::ne.Tensor", pointwise},
    {"aten::lt.Scalar", pointwise},
    {"aten::lt.Tensor", pointwise},
    {"aten::le.Scalar", pointwise},
    {"aten::le.Tensor", pointwise},
    {"aten::gt.Scalar", pointwise},
    {"aten::gt.Tensor", pointwise},
    {"aten::ge.Scalar", pointwise},
    {"aten::ge.Tensor", pointwise},
    {"aten::logical_and", pointwise},
    {"aten::logical_or", pointwise},
    {"aten::logical_xor", pointwise},
    {"aten::logical_not", pointwise},
    {"aten::bitwise_and.Tensor", pointwise},
    {"aten::bitwise_and.Scalar", pointwise},
    {"aten::bitwise_or.Tensor", pointwise},
    {"aten::bitwise_or.Scalar", pointwise},
    {"aten::bitwise_xor.Tensor", pointwise},
    {"aten::bitwise_xor.Scalar", pointwise},
    {"aten::bitwise_not", pointwise},
    {"aten::isnan", pointwise},
    {"aten::isinf", pointwise},
    {"aten::isfinite", pointwise},
    {"aten::nan_to_num", pointwise},
};

}  // namespace

std::span<const RuleRow> pointwise_rules() {
  return kTable;
}

}  // namespace precast::dtensor
