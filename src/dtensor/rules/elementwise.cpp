#include "dtensor/rules/tables.h"

#include <fmt/format.h>

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

/// Element by element and nothing more: not linear, so that partial operands become whole.
constexpr RuleRow kTable[] = {
    {"aten::_prelu_kernel", pointwise},
    {"aten::add.Scalar", pointwise},
    {"aten::sub.Scalar", pointwise},
    {"aten::rsub.Scalar", pointwise},
    {"aten::div.Tensor_mode", pointwise},
    {"aten::div.Scalar_mode", pointwise},
    {"aten::floor_divide", pointwise},
    {"aten::remainder.Scalar", pointwise},
    {"aten::remainder.Tensor", pointwise},
    {"aten::remainder.Scalar_Tensor", pointwise},
    {"aten::fmod.Scalar", pointwise},
    {"aten::fmod.Tensor", pointwise},
    {"aten::pow.Tensor_Scalar", pointwise},
    {"aten::pow.Tensor_Tensor", pointwise},
    {"aten::pow.Scalar", pointwise},
    {"aten::pow_.Tensor", pointwise},
    {"aten::sqrt", pointwise},
    {"aten::rsqrt", pointwise},
    {"aten::reciprocal", pointwise},
    {"aten::square", pointwise},
    {"aten::exp", pointwise},
    {"aten::exp2", pointwise},
    {"aten::expm1", pointwise},
    {"aten::log", pointwise},
    {"aten::log2", pointwise},
    {"aten::log10", pointwise},
    {"aten::log1p", pointwise},
    {"aten::logaddexp", pointwise},
    {"aten::logaddexp2", pointwise},
    {"aten::xlogy.Tensor", pointwise},
    {"aten::xlogy.Scalar_Self", pointwise},
    {"aten::xlogy.Scalar_Other", pointwise},
    {"aten::hypot", pointwise},
    {"aten::ldexp.Tensor", pointwise},
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
    {"aten::asinh", pointwise},
    {"aten::acosh", pointwise},
    {"aten::atanh", pointwise},
    {"aten::sinc", pointwise},
    {"aten::sigmoid", pointwise},
    {"aten::logit", pointwise},
    {"aten::erf", pointwise},
    {"aten::erfc", pointwise},
    {"aten::erfinv", pointwise},
    {"aten::special_erfcx", pointwise},
    {"aten::lgamma", pointwise},
    {"aten::digamma", pointwise},
    {"aten::polygamma", pointwise},
    {"aten::mvlgamma", pointwise},
    {"aten::i0", pointwise},
    {"aten::special_i0e", pointwise},
    {"aten::special_i1", pointwise},
    {"aten::special_i1e", pointwise},
    {"aten::special_entr", pointwise},
    {"aten::special_ndtri", pointwise},
    {"aten::special_log_ndtr", pointwise},
    {"aten::abs", pointwise},
    {"aten::angle", pointwise},
    {"aten::sgn", pointwise},
    {"aten::sign", pointwise},
    {"aten::signbit", pointwise},
    {"aten::copysign.Tensor", pointwise},
    {"aten::copysign.Scalar", pointwise},
    {"aten::heaviside", pointwise},
    {"aten::floor", pointwise},
    {"aten::ceil", pointwise},
    {"aten::round", pointwise},
    {"aten::round.decimals", pointwise},
    {"aten::trunc", pointwise},
    {"aten::frac", pointwise},
    {"aten::gcd", pointwise},
    {"aten::lcm", pointwise},
    {"aten::relu", pointwise},
    {"aten::gelu", pointwise},
    {"aten::silu", pointwise},
    {"aten::mish", pointwise},
    {"aten::elu", pointwise},
    {"aten::celu", pointwise},
    {"aten::leaky_relu", pointwise},
    {"aten::softplus", pointwise},
    {"aten::threshold", pointwise},
    {"aten::hardtanh", pointwise},
    {"aten::hardsigmoid", pointwise},
    {"aten::hardswish", pointwise},
    {"aten::hardshrink", pointwise},
    {"aten::softshrink", pointwise},
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
    {"aten::bitwise_and.Scalar_Tensor", pointwise},
    {"aten::bitwise_or.Tensor", pointwise},
    {"aten::bitwise_or.Scalar", pointwise},
    {"aten::bitwise_or.Scalar_Tensor", pointwise},
    {"aten::bitwise_xor.Tensor", pointwise},
    {"aten::bitwise_xor.Scalar", pointwise},
    {"aten::bitwise_xor.Scalar_Tensor", pointwise},
    {"aten::bitwise_not", pointwise},
    {"aten::bitwise_left_shift.Tensor", pointwise},
    {"aten::bitwise_left_shift.Tensor_Scalar", pointwise},
    {"aten::bitwise_left_shift.Scalar_Tensor", pointwise},
    {"aten::bitwise_right_shift.Tensor", pointwise},
    {"aten::bitwise_right_shift.Tensor_Scalar", pointwise},
    {"aten::bitwise_right_shift.Scalar_Tensor", pointwise},
    {"aten::isnan", pointwise},
    {"aten::isinf", pointwise},
    {"aten::isfinite", pointwise},
    {"aten::isposinf", pointwise},
    {"aten::isneginf", pointwise},
    {"aten::nan_to_num", pointwise},
};

}  // namespace

Rule pointwise(const OpCall& call) {
  const Sizes shape = broadcast_shape(call.tensors);
  // Local tensors might broadcast where the whole ones do not.
  if (is_in_place(call) && shape != call.tensors[0])
    throw std::invalid_argument(fmt::format("a result of shape {} does not fit the operand of shape {} that it is written to",
                                            shape_text(shape), shape_text(call.tensors[0])));
  Rule rule{.outputs = {letters(shape.size())}};
  for (const Sizes& operand : call.tensors) rule.inputs.push_back(broadcast_letters(operand, shape, rule.outputs[0]));
  return rule;
}

std::span<const RuleRow> elementwise_rules() {
  return kTable;
}

}  // namespace precast::dtensor
