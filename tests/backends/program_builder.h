#pragma once

#include "ir/program.h"
#include "module/lift.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace precast::test {

/// An operand as a test writes it: a value, a number, a string, None; braces are a list.
struct Arg {
  ir::Operand operand;
  Arg(ir::ValueId value) : operand{value} {}
  Arg(ir::None none) : operand{none} {}
  Arg(bool flag) : operand{flag} {}
  Arg(int number) : operand{static_cast<std::int64_t>(number)} {}
  Arg(double number) : operand{number} {}
  Arg(const char* text) : operand{std::string(text)} {}
  Arg(ir::Dtype dtype) : operand{std::move(dtype)} {}
  Arg(ir::Layout layout) : operand{std::move(layout)} {}
  Arg(ir::MemoryFormat format) : operand{std::move(format)} {}
  Arg(ir::Device device) : operand{std::move(device)} {}
  Arg(std::initializer_list<Arg> items) {
    ir::Operand::List list;
    for (const Arg& item : items) list.push_back(item.operand);
    operand.is = std::move(list);
  }
};

inline std::vector<std::int64_t> shape_of(const at::Tensor& tensor) {
  return tensor.sizes().vec();
}
inline std::string dtype_of(const at::Tensor& tensor) {
  return std::string(c10::getDtypeNames(tensor.scalar_type()).first);
}

/// Writes programs by hand. Parameters, buffers and inputs come first, in this order.
class ProgramBuilder {
 public:
  ProgramBuilder() {
    program_.metadata.in_spec = TreeSpec{.type = "builtins.tuple", .keys = {}, .children = {}};
    program_.metadata.out_spec.type = "builtins.tuple";
  }

  /// Lifts modules that a call will pass at the first positions.
  std::vector<ir::ValueId> modules(const module::Modules& modules) {
    std::vector<ir::ValueId> values;
    const auto parameters = module::lift_parameters(modules);
    for (const auto& lifted : parameters) {
      program_.metadata.params.push_back(meta(lifted));
      values.push_back(add_input());
    }
    for (const auto& lifted : module::lift_buffers(modules, parameters)) {
      program_.metadata.buffers.push_back(meta(lifted));
      values.push_back(add_input());
    }
    for (const auto& mode : module::training_modes(modules))
      program_.metadata.module_training.push_back({mode.name, mode.training});
    for (const auto& module : modules) program_.metadata.module_positions.push_back(module.position);
    program_.metadata.num_positional_args += static_cast<int>(modules.size());
    return values;
  }

  ir::ValueId input(const at::Tensor& example) {
    const std::vector<std::int64_t> shape = shape_of(example);
    return add_leaf({.path = next_path(),
                     .shape = std::vector<std::optional<std::int64_t>>(shape.begin(), shape.end()),
                     .dtype = dtype_of(example),
                     .device = "cpu",
                     .value = {},
                     .is_generator = false});
  }
  ir::ValueId generator() {
    return add_leaf({.path = next_path(), .shape = {}, .dtype = {}, .device = {}, .value = {}, .is_generator = true});
  }
  ir::ValueId plain(ir::Literal value) {
    return add_leaf(
        {.path = next_path(), .shape = {}, .dtype = {}, .device = {}, .value = std::move(value), .is_generator = false});
  }

  /// `op` as in "aten::add.Tensor"; without a dot, the default overload.
  ir::ValueId call(const std::string& op, std::initializer_list<Arg> arguments,
                   std::initializer_list<std::pair<std::string, Arg>> keywords = {}) {
    const auto dot = op.find('.');
    ir::Call call{
        .name = op.substr(0, dot), .overload = dot == std::string::npos ? "" : op.substr(dot + 1), .arguments = {}, .keywords = {}};
    for (const Arg& argument : arguments) call.arguments.push_back(argument.operand);
    for (const auto& [name, argument] : keywords) call.keywords.emplace_back(name, argument.operand);
    return add(std::move(call));
  }
  ir::ValueId item(ir::ValueId source, std::int64_t index) { return add(ir::GetItem{source, index}); }

  /// A leaf of the result tuple.
  ProgramBuilder& output(const Arg& leaf) {
    program_.outputs.push_back(leaf.operand);
    program_.metadata.out_spec.children.emplace_back();
    return *this;
  }
  ProgramBuilder& param_gradient(int index, ir::ValueId value) {
    program_.outputs.push_back({value});
    program_.metadata.grad_param_indices.push_back(index);
    return *this;
  }
  ProgramBuilder& input_gradient(int index, ir::ValueId value) {
    program_.outputs.push_back({value});
    program_.metadata.grad_input_indices.push_back(index);
    return *this;
  }

  ir::Program& program() { return program_; }

 private:
  static ir::TensorMeta meta(const module::LiftedTensor& lifted) {
    return {.name = lifted.name, .shape = shape_of(lifted.tensor), .dtype = dtype_of(lifted.tensor), .device = "cpu"};
  }
  std::string next_path() const { return "argument " + std::to_string(program_.metadata.num_positional_args); }
  ir::ValueId add_value() {
    const int index = static_cast<int>(program_.values.size());
    program_.values.push_back({.name = "v" + std::to_string(index), .note = ""});
    return {index};
  }
  ir::ValueId add_input() { return program_.inputs.emplace_back(add_value()); }
  ir::ValueId add_leaf(ir::InputMeta meta) {
    program_.metadata.inputs.push_back(std::move(meta));
    ++program_.metadata.num_positional_args;
    program_.metadata.in_spec->children.emplace_back();
    return add_input();
  }
  template <class Is>
  ir::ValueId add(Is is) {
    const ir::ValueId result = add_value();
    program_.statements.push_back(
        {.result = result, .is = std::move(is), .line = 100 + static_cast<int>(program_.statements.size())});
    return result;
  }

  ir::Program program_;
};

}  // namespace precast::test
