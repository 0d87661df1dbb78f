#include "dtensor/rules/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace precast::dtensor {
namespace {

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

std::vector<bool> only(std::size_t operand, const Rule& rule) {
  std::vector<bool> operands(rule.inputs.size(), false);
  operands[operand] = true;
  return operands;
}

const std::vector<Reduction> kSums = {Reduction::sum, Reduction::avg};
const std::vector<Reduction> kAll = {Reduction::sum, Reduction::avg, Reduction::max, Reduction::min};

/// f(x + y) = f(x) + f(y) in all operands together: add, sub, neg.
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

/// Linear in each operand alone: one may be partial where the others are whole. In place only the one that is written: a whole one
/// cannot become partial.
Rule bilinear(const OpCall& call) {
  Rule rule = pointwise(call);
  for (std::size_t i = 0; i < (is_in_place(call) ? 1 : rule.inputs.size()); ++i) add_partial(rule, only(i, rule), kSums);
  return rule;
}

/// Linear in the first operand: division, and the gradients of what is applied element by element.
Rule linear_in_first(const OpCall& call) {
  Rule rule = pointwise(call);
  add_partial(rule, only(0, rule), kSums);
  return rule;
}

/// _prelu_kernel_backward(gradient, self, weight): gradients of both, linear in the first.
Rule linear_in_first_two_results(const OpCall& call) {
  Rule rule = pointwise(call);
  rule.outputs.push_back(rule.outputs[0]);
  add_partial(rule, only(0, rule), kSums);
  return rule;
}

/// frexp: mantissa and exponent.
Rule two_results(const OpCall& call) {
  Rule rule = pointwise(call);
  rule.outputs.push_back(rule.outputs[0]);
  return rule;
}

/// where(condition, x, y): an extreme of x and of y is chosen between as they are.
Rule select(const OpCall& call) {
  Rule rule = pointwise(call);
  add_partial(rule, {false, true, true}, kAll);
  return rule;
}

/// lerp(self, end, weight) is linear in self and end together.
Rule lerp(const OpCall& call) {
  Rule rule = pointwise(call);
  add_partial(rule, {true, true, false}, kSums);
  return rule;
}

bool is_zero(const OpCall::Argument& value) {
  const auto* integer = std::get_if<std::int64_t>(&value);
  const auto* number = std::get_if<double>(&value);
  return (integer != nullptr && *integer == 0) || (number != nullptr && *number == 0);
}

/// masked_fill(self, mask, value): with a number it is linear in self where that is zero, with a tensor in both.
Rule masked_fill(const OpCall& call) {
  Rule rule = pointwise(call);
  if (call.has_tensor(2))
    add_partial(rule, {true, false, true}, kAll);
  else if (is_zero(call.arguments[2]))
    add_partial(rule, {true, false}, kSums);
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

/// zero_, and fill_ by zero, leave a partial sum a partial sum.
Rule zero_in_place(const OpCall& call) {
  Rule rule = pointwise(call);
  if (call.arguments.size() == 1 || is_zero(call.arguments[1])) add_partial(rule, {true}, kSums);
  return rule;
}

/// _to_copy(self, dtype, ...): to whole numbers or bool it is not linear. The dtypes are c10's numbers of half, float, double,
/// bfloat16.
Rule convert(const OpCall& call) {
  constexpr std::int64_t kFloating[] = {5, 6, 7, 15};
  const bool to_floating = call.is_none(1) || std::ranges::find(kFloating, call.integer(1)) != std::end(kFloating);
  return to_floating ? identity(call) : pointwise(call);
}

/// glu(self, dim) halves a dimension, in which the halves belong together.
Rule gated(const OpCall& call, std::size_t dim_argument) {
  const auto n = static_cast<std::int64_t>(call.tensors[0].size());
  const std::int64_t given = call.integer(dim_argument), dim = given < 0 ? given + n : given;
  if (dim < 0 || dim >= n) throw std::invalid_argument(fmt::format("dimension {} of shape {}", given, shape_text(call.tensors[0])));
  std::string all = letters(call.tensors[0].size());
  all[static_cast<std::size_t>(dim)] = '.';
  return {.inputs = std::vector<std::string>(call.tensors.size(), all), .outputs = {all}};
}
Rule glu(const OpCall& call) {
  return gated(call, 1);
}
/// glu_backward(gradient, self, dim).
Rule glu_backward(const OpCall& call) {
  Rule rule = gated(call, 2);
  add_partial(rule, only(0, rule), kSums);
  return rule;
}

constexpr RuleRow kTable[] = {
    // Linear.
    {"aten::add.Tensor", linear},
    {"aten::sub.Tensor", linear},
    {"aten::rsub.Tensor", linear},
    {"aten::neg", linear},
    {"aten::mul.Scalar", linear},
    {"aten::div.Scalar", linear},
    {"aten::lerp.Scalar", linear},
    {"aten::deg2rad", linear},
    {"aten::rad2deg", linear},
    {"aten::conj_physical", linear},
    {"aten::_conj_physical", linear},
    {"aten::clone", identity},
    {"aten::detach", identity},
    {"aten::alias", identity},
    {"aten::contiguous", identity},
    {"aten::positive", identity},
    {"aten::copy_", identity},
    {"aten::fill_.Tensor", identity},
    {"aten::_to_copy", convert},
    {"aten::zero_", zero_in_place},
    {"aten::fill_.Scalar", zero_in_place},
    {"aten::mul.Tensor", bilinear},
    {"aten::div.Tensor", linear_in_first},
    {"aten::where.self", select},
    {"aten::lerp.Tensor", lerp},
    {"aten::masked_fill.Scalar", masked_fill},
    {"aten::masked_fill.Tensor", masked_fill},
    {"aten::addcmul", multiply_add},
    {"aten::addcdiv", multiply_add},

    // Gradients.
    {"aten::threshold_backward", linear_in_first},
    {"aten::native_dropout_backward", linear_in_first},
    {"aten::tanh_backward", linear_in_first},
    {"aten::sigmoid_backward", linear_in_first},
    {"aten::logit_backward", linear_in_first},
    {"aten::gelu_backward", linear_in_first},
    {"aten::silu_backward", linear_in_first},
    {"aten::mish_backward", linear_in_first},
    {"aten::elu_backward", linear_in_first},
    {"aten::leaky_relu_backward", linear_in_first},
    {"aten::softplus_backward", linear_in_first},
    {"aten::hardtanh_backward", linear_in_first},
    {"aten::hardsigmoid_backward", linear_in_first},
    {"aten::hardswish_backward", linear_in_first},
    {"aten::hardshrink_backward", linear_in_first},
    {"aten::softshrink_backward", linear_in_first},
    {"aten::_prelu_kernel_backward", linear_in_first_two_results},
    {"aten::glu_backward", glu_backward},

    // New tensors of the same shape.
    {"aten::zeros_like", like},
    {"aten::ones_like", like},
    {"aten::full_like", like},
    {"aten::empty_like", like},

    // Not linear.
    {"aten::glu", glu},
    {"aten::frexp.Tensor", two_results},
};

}  // namespace

std::span<const RuleRow> pointwise_rules() {
  return kTable;
}

}  // namespace precast::dtensor
