#include "capture/operands.h"

#include "aten/names.h"
#include "precast/error.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace precast::capture {
namespace {

/// "f32" for float32: the first letter of the kind, and the bits. b8 is bool, bf16 bfloat16.
std::string short_name(const std::string& dtype) {
  if (dtype == "bool") return "b8";
  const std::size_t digits = dtype.find_first_of("0123456789");
  if (digits == std::string::npos) return dtype;
  return (dtype.starts_with("bfloat") ? "bf" : dtype.substr(0, 1)) + dtype.substr(digits);
}

std::string layout_name(at::Layout layout) {
  if (layout == at::kStrided) return "strided";
  throw PrecompileError(ErrorCode::refused_capture, "only strided tensors can be captured; convert the others before the step");
}

std::string memory_format_name(at::MemoryFormat format) {
  switch (format) {
    case at::MemoryFormat::Contiguous: return "contiguous_format";
    case at::MemoryFormat::Preserve: return "preserve_format";
    case at::MemoryFormat::ChannelsLast: return "channels_last";
    case at::MemoryFormat::ChannelsLast3d: return "channels_last_3d";
    default: throw PrecompileError(ErrorCode::internal, "unknown memory format");
  }
}

/// A dtype, layout or memory format lies on the stack as an int; only the argument's real type tells which it is.
ir::Operand integer_operand(std::int64_t value, const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::ScalarTypeType: return {ir::Dtype{aten::dtype_name(static_cast<at::ScalarType>(value))}};
    case c10::TypeKind::LayoutType: return {ir::Layout{layout_name(static_cast<at::Layout>(value))}};
    case c10::TypeKind::MemoryFormatType: return {ir::MemoryFormat{memory_format_name(static_cast<at::MemoryFormat>(value))}};
    default: return {value};
  }
}

ir::Operand operand(const c10::IValue& value, const c10::Type& type, const Resolver& resolver) {
  if (type.kind() == c10::TypeKind::OptionalType && !value.isNone())
    return operand(value, *type.expectRef<c10::OptionalType>().getElementType(), resolver);
  if (value.isNone()) return {ir::None{}};
  if (value.isTensor()) return value.toTensor().defined() ? resolver.tensor(value.toTensor()) : ir::Operand{ir::None{}};
  if (value.isBool()) return {value.toBool()};
  if (value.isInt()) return integer_operand(value.toInt(), type);
  if (value.isSymInt()) return {value.toSymInt().guard_int(__FILE__, __LINE__)};
  if (value.isDouble()) return {value.toDouble()};
  if (value.isString()) return {value.toStringRef()};
  if (value.isDevice()) return {ir::Device{c10::DeviceTypeName(value.toDevice().type(), /*lower_case=*/true)}};
  if (value.isGenerator()) return resolver.generator(value.toGenerator());
  if (value.isList()) {
    // Any[] and its like have no element type of their own worth asking.
    const c10::TypePtr element =
        type.kind() == c10::TypeKind::ListType ? type.expectRef<c10::ListType>().getElementType() : nullptr;
    ir::Operand::List list;
    for (const c10::IValue& item : value.toListRef()) list.push_back(operand(item, element ? *element : type, resolver));
    return {std::move(list)};
  }
  throw PrecompileError(ErrorCode::refused_capture,
                        fmt::format("an argument of kind {} cannot be written into a program", value.tagKind()));
}

bool is_default(const c10::Argument& argument, const c10::IValue& value) {
  if (!argument.default_value()) return false;
  const c10::IValue& expected = *argument.default_value();
  if (value.isTensor() || expected.isTensor()) return value.isTensor() && !value.toTensor().defined() && expected.isNone();
  if (value.isNone() || expected.isNone()) return value.isNone() && expected.isNone();
  // An equal number of another kind (1 for 1.0) would be read back as that other kind.
  return value.tagKind() == expected.tagKind() && !value.isGenerator() && value == expected;
}

}  // namespace

std::string shape_note(const at::Tensor& tensor) {
  return fmt::format("{}[{}]", short_name(aten::dtype_name(tensor.scalar_type())), fmt::join(tensor.sizes(), ", "));
}

void write_arguments(ir::Call& call, const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
                     const Resolver& resolver) {
  std::size_t n_positional = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (!schema.arguments()[i].kwarg_only() && !is_default(schema.arguments()[i], arguments[i])) n_positional = i + 1;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.kwarg_only() ? is_default(argument, arguments[i]) : i >= n_positional) continue;
    if (arguments[i].isComplexDouble())
      throw PrecompileError(
          ErrorCode::refused_capture,
          fmt::format("{}: its argument '{}' is a complex number, which a program cannot hold; pass it as a 0-dim tensor",
                      call.name, argument.name()));
    ir::Operand written = operand(arguments[i], *argument.real_type(), resolver);
    if (argument.kwarg_only())
      call.keywords.emplace_back(argument.name(), std::move(written));
    else
      call.arguments.push_back(std::move(written));
  }
}

}  // namespace precast::capture
