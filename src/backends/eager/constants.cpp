#include "backends/eager/constants.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

namespace precast::eager {
namespace {

using c10::IValue;
using Boxed = std::optional<IValue>;
using ir::Operand;

std::optional<at::Scalar> as_scalar(const Operand& operand) {
  if (const bool* flag = std::get_if<bool>(&operand.is)) return at::Scalar(*flag);
  if (const std::int64_t* number = std::get_if<std::int64_t>(&operand.is)) return at::Scalar(*number);
  if (const double* number = std::get_if<double>(&operand.is)) return at::Scalar(*number);
  return std::nullopt;
}

Boxed box_scalar(const Operand& operand) {
  if (const auto scalar = as_scalar(operand)) return IValue(*scalar);
  return std::nullopt;
}

/// None is an undefined tensor. A number is wrapped, so that it takes part in type promotion as a Python number does.
Boxed box_as_tensor(const Operand& operand) {
  if (std::holds_alternative<ir::None>(operand.is)) return IValue(at::Tensor());
  const auto scalar = as_scalar(operand);
  if (!scalar) return std::nullopt;
  at::Tensor tensor = c10::scalar_to_tensor(*scalar);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return IValue(std::move(tensor));
}

template <class T>
Boxed box_exactly(const Operand& operand) {
  if (const T* value = std::get_if<T>(&operand.is)) return IValue(*value);
  return std::nullopt;
}

Boxed box_real(const Operand& operand) {
  if (const std::int64_t* number = std::get_if<std::int64_t>(&operand.is)) return IValue(static_cast<double>(*number));
  return box_exactly<double>(operand);
}

Boxed box_dtype(const Operand& operand) {
  const ir::Dtype* dtype = std::get_if<ir::Dtype>(&operand.is);
  if (dtype == nullptr) return std::nullopt;
  const auto& known = c10::getStringToDtypeMap();
  const auto found = known.find(dtype->name);
  if (found == known.end()) return std::nullopt;
  return IValue(static_cast<std::int64_t>(found->second));
}

template <class Enum, std::size_t N>
Boxed box_named(const std::array<std::pair<std::string_view, Enum>, N>& names, const std::string& name) {
  const auto found = std::ranges::find(names, name, &std::pair<std::string_view, Enum>::first);
  if (found == names.end()) return std::nullopt;
  return IValue(static_cast<std::int64_t>(found->second));
}

Boxed box_layout(const Operand& operand) {
  static constexpr std::array<std::pair<std::string_view, c10::Layout>, 8> kNames = {{{"strided", c10::Layout::Strided},
                                                                                      {"sparse_coo", c10::Layout::Sparse},
                                                                                      {"sparse_csr", c10::Layout::SparseCsr},
                                                                                      {"sparse_csc", c10::Layout::SparseCsc},
                                                                                      {"sparse_bsr", c10::Layout::SparseBsr},
                                                                                      {"sparse_bsc", c10::Layout::SparseBsc},
                                                                                      {"_mkldnn", c10::Layout::Mkldnn},
                                                                                      {"jagged", c10::Layout::Jagged}}};
  const ir::Layout* layout = std::get_if<ir::Layout>(&operand.is);
  return layout == nullptr ? std::nullopt : box_named(kNames, layout->name);
}

Boxed box_memory_format(const Operand& operand) {
  static constexpr std::array<std::pair<std::string_view, c10::MemoryFormat>, 4> kNames = {
      {{"contiguous_format", c10::MemoryFormat::Contiguous},
       {"preserve_format", c10::MemoryFormat::Preserve},
       {"channels_last", c10::MemoryFormat::ChannelsLast},
       {"channels_last_3d", c10::MemoryFormat::ChannelsLast3d}}};
  const ir::MemoryFormat* format = std::get_if<ir::MemoryFormat>(&operand.is);
  return format == nullptr ? std::nullopt : box_named(kNames, format->name);
}

/// Without an index: the kernel takes the current device of that kind, so one text serves every rank.
Boxed box_device(const Operand& operand) {
  const ir::Device* device = std::get_if<ir::Device>(&operand.is);
  if (device == nullptr) return std::nullopt;
  static constexpr std::array<std::pair<std::string_view, c10::DeviceType>, 7> kTypes = {{{"cpu", c10::DeviceType::CPU},
                                                                                          {"cuda", c10::DeviceType::CUDA},
                                                                                          {"meta", c10::DeviceType::Meta},
                                                                                          {"xpu", c10::DeviceType::XPU},
                                                                                          {"hpu", c10::DeviceType::HPU},
                                                                                          {"mps", c10::DeviceType::MPS},
                                                                                          {"mtia", c10::DeviceType::MTIA}}};
  const auto found = std::ranges::find(kTypes, device->type, &std::pair<std::string_view, c10::DeviceType>::first);
  if (found == kTypes.end()) return std::nullopt;
  return IValue(c10::Device(found->second));
}

/// How an operand is boxed for a schema type that is neither optional nor a list.
struct Rule {
  c10::TypeKind kind;
  Boxed (*box)(const Operand&);
};
constexpr std::array kRules = {
    Rule{c10::TypeKind::TensorType, box_as_tensor},
    Rule{c10::TypeKind::NumberType, box_scalar},
    Rule{c10::TypeKind::IntType, box_exactly<std::int64_t>},
    Rule{c10::TypeKind::SymIntType, box_exactly<std::int64_t>},
    Rule{c10::TypeKind::FloatType, box_real},
    Rule{c10::TypeKind::BoolType, box_exactly<bool>},
    Rule{c10::TypeKind::SymBoolType, box_exactly<bool>},
    Rule{c10::TypeKind::StringType, box_exactly<std::string>},
    Rule{c10::TypeKind::ScalarTypeType, box_dtype},
    Rule{c10::TypeKind::LayoutType, box_layout},
    Rule{c10::TypeKind::MemoryFormatType, box_memory_format},
    Rule{c10::TypeKind::DeviceObjType, box_device},
    Rule{c10::TypeKind::AnyType, box_literal},
};

/// `declared` tells enumerations from integers, `boxed` is what the stack has in their place.
Boxed box(const Operand& operand, const c10::Type& declared, const c10::Type& boxed) {
  if (const auto* optional = declared.castRaw<c10::OptionalType>()) {
    if (std::holds_alternative<ir::None>(operand.is)) return IValue();
    return box(operand, *optional->getElementType(), *boxed.expectRef<c10::OptionalType>().getElementType());
  }
  if (const auto* list_type = declared.castRaw<c10::ListType>()) {
    const Operand::List* items = std::get_if<Operand::List>(&operand.is);
    if (items == nullptr) return std::nullopt;
    const c10::TypePtr& element = boxed.expectRef<c10::ListType>().getElementType();
    c10::impl::GenericList list(element);
    list.reserve(items->size());
    for (const Operand& item : *items) {
      Boxed value = box(item, *list_type->getElementType(), *element);
      if (!value) return std::nullopt;
      list.push_back(std::move(*value));
    }
    return IValue(std::move(list));
  }
  const auto rule = std::ranges::find(kRules, declared.kind(), &Rule::kind);
  return rule == kRules.end() ? std::nullopt : rule->box(operand);
}

const c10::ListType* list_of(const c10::TypePtr& type) {
  const auto* optional = type->castRaw<c10::OptionalType>();
  return (optional == nullptr ? type : optional->getElementType())->castRaw<c10::ListType>();
}

}  // namespace

Boxed box_literal(const Operand& operand) {
  if (std::holds_alternative<ir::None>(operand.is)) return IValue();
  if (Boxed scalar = box_scalar(operand)) return scalar;
  return box_exactly<std::string>(operand);
}

Boxed box_constant(const Operand& operand, const c10::Argument& argument) {
  if (argument.N() && list_of(argument.real_type()) != nullptr && as_scalar(operand))
    return box({Operand::List(static_cast<std::size_t>(*argument.N()), operand)}, *argument.real_type(), *argument.type());
  return box(operand, *argument.real_type(), *argument.type());
}

bool holds_values(const Operand& operand) {
  const Operand::List* items = std::get_if<Operand::List>(&operand.is);
  return items != nullptr &&
         std::ranges::any_of(*items, [](const Operand& item) { return std::holds_alternative<ir::ValueId>(item.is); });
}

Boxed box_element(const Operand& operand, const c10::Argument& argument) {
  return box(operand, *list_of(argument.real_type())->getElementType(), *list_of(argument.type())->getElementType());
}

c10::TypePtr element_type(const c10::Argument& argument) {
  const c10::ListType* list = list_of(argument.type());
  return list == nullptr ? nullptr : list->getElementType();
}

std::string describe(const Operand& operand) {
  struct Describe {
    std::string operator()(const ir::None&) const { return "None"; }
    std::string operator()(const ir::ValueId&) const { return "a value"; }
    std::string operator()(bool flag) const { return flag ? "True" : "False"; }
    std::string operator()(std::int64_t number) const { return fmt::format("the integer {}", number); }
    std::string operator()(double number) const { return fmt::format("the float {}", number); }
    std::string operator()(const std::string& text) const { return fmt::format("the string '{}'", text); }
    std::string operator()(const ir::Dtype& dtype) const { return fmt::format("the dtype torch.{}", dtype.name); }
    std::string operator()(const ir::Layout& layout) const { return fmt::format("the layout torch.{}", layout.name); }
    std::string operator()(const ir::MemoryFormat& format) const { return fmt::format("the memory format torch.{}", format.name); }
    std::string operator()(const ir::Device& device) const { return fmt::format("the device '{}'", device.type); }
    std::string operator()(const Operand::List& items) const {
      std::vector<std::string> parts;
      for (const Operand& item : items) parts.push_back(describe(item));
      return fmt::format("a list [{}]", fmt::join(parts, ", "));
    }
  };
  return std::visit(Describe(), operand.is);
}

}  // namespace precast::eager
