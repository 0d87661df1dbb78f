#include "capture/op_checks.h"

#include "aten/op_effects.h"
#include "precast/error.h"

#include <ATen/core/enum_tag.h>
#include <ATen/core/jit_type.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <string_view>

namespace precast::capture {
namespace {

[[noreturn]] void refuse(const c10::FunctionSchema& schema, std::string_view why) {
  const auto backward = torch::autograd::get_current_node();
  throw PrecompileError(ErrorCode::refused_capture,
                        fmt::format("{}{} {}", op_name(schema), backward ? " (called by " + backward->name() + ")" : "", why));
}

bool is_assertion(const c10::FunctionSchema& schema) {
  return schema.name().find("_assert") != std::string::npos || schema.name() == "aten::_linalg_check_errors";
}

/// torch::tensor({a, b}) allocates with the Autograd keys alone switched off, which no user call and no autograd kernel does.
bool is_tensor_literal(const c10::FunctionSchema& schema) {
  if (schema.name() != "aten::empty" && schema.name() != "aten::scalar_tensor") return false;
  const c10::DispatchKeySet excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
  return excluded.has(c10::DispatchKey::AutogradFunctionality) && !excluded.has(c10::DispatchKey::ADInplaceOrView);
}

/// index carries the tag of a shape that depends on values for the sake of masks; with integer indices it has a fixed one.
bool indexes_by_position(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  if (schema.name() != "aten::index" && schema.name() != "aten::_unsafe_index") return false;
  return std::ranges::none_of(arguments[1].toListRef(), [](const c10::IValue& index) {
    return index.isTensor() && index.toTensor().defined() &&
           (index.toTensor().scalar_type() == at::kBool || index.toTensor().scalar_type() == at::kByte);
  });
}

/// Of the user's own operators: those of LibTorch that return numbers are known not to depend on values, or are tagged.
bool gives_numbers(const c10::FunctionSchema& schema) {
  const std::string_view name = schema.name();
  if (name.starts_with("aten::") || name.starts_with("_c10d_functional::")) return false;
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& returned) {
    const auto& type = *returned.type();
    return !type.isSubtypeOf(*c10::OptionalType::ofTensor()) && !type.isSubtypeOf(*c10::ListType::ofTensors());
  });
}

}  // namespace

std::string op_name(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

void check_op(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  const c10::FunctionSchema& schema = op.schema();
  if (op.hasTag(at::Tag::data_dependent_output))
    refuse(schema,
           "reads the value of a tensor, which would be frozen into the program (item, a conversion to bool, printing); return the "
           "tensor "
           "and read it after the step");
  if (op.hasTag(at::Tag::dynamic_output_shape) && !indexes_by_position(schema, arguments))
    refuse(schema, "gives a shape that depends on values, which a captured program cannot have; use a masked form (where) instead");
  if (is_tensor_literal(schema))
    refuse(schema, "builds a tensor literal inside the step; build it outside and pass it as an argument");
  if (gives_numbers(schema)) refuse(schema, "returns a plain value, which would be frozen into the program; return it as a tensor");
  if (schema.returns().empty() && !is_assertion(schema) && written_by_call(schema, arguments).empty())
    refuse(schema, "has an effect outside its tensors, which a captured program would not repeat; call it outside the step");
}

bool must_stay(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::nondeterministic_seeded) || is_assertion(op.schema());
}

bool is_uninitialized_factory(const c10::FunctionSchema& schema) {
  const std::string_view name = schema.name();
  return (name.starts_with("aten::empty") || name.starts_with("aten::new_empty")) && schema.returns().size() == 1;
}

bool reads_shapes_only(const c10::FunctionSchema& schema) {
  const std::string_view name = schema.name();
  return name.ends_with("_like") || name.starts_with("aten::new_");
}

std::vector<std::uint32_t> written_by_call(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  return aten::written_arguments(schema, [&](std::size_t i) { return arguments[i].isBool() && !arguments[i].toBool(); });
}

}  // namespace precast::capture
