#include "backends/inductor/split.h"

#include "aten/op_effects.h"
#include "ir/renumber.h"
#include "ir/visit.h"
#include "precast/error.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace precast::inductor {
namespace {

using ir::Call;
using ir::GetItem;
using ir::Operand;
using ir::Program;
using ir::ValueId;

[[noreturn]] void refuse(const std::string& what) {
  throw PrecompileError(ErrorCode::refused_capture, what + "; use backend 'eager', which runs it as it is");
}

/// Where a value's memory comes from.
struct Origin {
  std::optional<ValueId> viewed;  ///< The value it is a view of, or nothing: its memory is its own, or it is an input.
  bool is_same = false;           ///< It is `viewed` itself: the result of an operator that works in place.
  bool is_list = false;           ///< Several results, or a list: only its parts are tensors.
  std::optional<std::size_t> statement;
};

class Splitter {
 public:
  explicit Splitter(const Program& program) : program_(program), origins_(program.values.size()) {
    for (std::size_t i = 0; i < program.statements.size(); ++i) find_origin(i);
  }

  Split split() {
    check_inputs();
    for (const Operand& output : program_.outputs) check_output(output);
    split_.compiled = program_;
    split_.compiled.outputs.clear();
    start_views();
    for (const ValueId exported : exports()) add_export(exported);
    for (const Operand& output : program_.outputs) {
      const ValueId* value = std::get_if<ValueId>(&output.is);
      split_.views.outputs.push_back(value == nullptr ? output : Operand{replay(*value)});
    }
    if (split_.compiled.outputs.empty() && !writes_inputs_)
      refuse("the program computes nothing that could be compiled: its results are inputs, views of them, or constants");
    finish();
    return std::move(split_);
  }

 private:
  void find_origin(std::size_t statement);
  void find_origin(const Call& call, Origin& origin);
  void check_inputs();
  void check_output(const Operand& output) const;
  void start_views();
  void add_export(ValueId value);
  void finish();
  [[nodiscard]] std::vector<ValueId> exports() const;
  [[nodiscard]] ValueId base_of(ValueId value) const;
  [[nodiscard]] bool can_replay(ValueId value) const;
  ValueId replay(ValueId value);

  [[nodiscard]] bool is_input(ValueId value) const { return std::ranges::find(program_.inputs, value) != program_.inputs.end(); }
  [[nodiscard]] const Origin& origin(ValueId value) const { return origins_[static_cast<std::size_t>(value.index)]; }
  [[nodiscard]] const std::string& name(ValueId value) const { return program_.values[static_cast<std::size_t>(value.index)].name; }
  ValueId add_view_value(ValueId like) {
    split_.views.values.push_back(program_.values[static_cast<std::size_t>(like.index)]);
    return {static_cast<int>(split_.views.values.size()) - 1};
  }

  const Program& program_;
  std::vector<Origin> origins_;
  bool writes_inputs_ = false;
  Split split_;
  std::map<int, ValueId> replayed_;  ///< By the index of the program's value.
};

const Operand* argument_of(const Call& call, const c10::FunctionSchema& schema, std::size_t i) {
  if (i < call.arguments.size()) return &call.arguments[i];
  const auto keyword = std::ranges::find(call.keywords, schema.arguments()[i].name(), [](const auto& pair) { return pair.first; });
  return keyword == call.keywords.end() ? nullptr : &keyword->second;
}

const c10::OperatorHandle& checked(const std::optional<c10::OperatorHandle>& op, const Call& call) {
  if (!op)
    throw PrecompileError(
        ErrorCode::invalid_artifact,
        fmt::format("python_code: unknown operator {}.{}; register it in this process", call.name, call.overload));
  return *op;
}

void Splitter::find_origin(std::size_t statement) {
  const ir::Statement& is = program_.statements[statement];
  Origin& found = origins_[static_cast<std::size_t>(is.result.index)];
  found.statement = statement;
  if (const GetItem* item = std::get_if<GetItem>(&is.is))
    found.viewed = origin(item->source).viewed;
  else
    find_origin(std::get<Call>(is.is), found);
}

void Splitter::find_origin(const Call& call, Origin& found) {
  const auto op = c10::Dispatcher::singleton().findSchema({call.name, call.overload});
  const c10::FunctionSchema& schema = checked(op, call).schema();
  const auto value_at = [&](std::size_t i) -> const ValueId* {
    const Operand* operand = argument_of(call, schema, i);
    return operand == nullptr ? nullptr : std::get_if<ValueId>(&operand->is);
  };
  const auto is_false = [&](std::size_t i) {
    const Operand* operand = argument_of(call, schema, i);
    const bool* flag = operand == nullptr ? nullptr : std::get_if<bool>(&operand->is);
    return flag != nullptr && !*flag;
  };
  const std::vector<std::uint32_t> written = aten::written_arguments(schema, is_false);
  for (const std::uint32_t i : written)
    if (const ValueId* value = value_at(i)) writes_inputs_ = writes_inputs_ || is_input(base_of(*value));
  found.is_list = schema.returns().size() != 1 || schema.returns()[0].type()->kind() == c10::TypeKind::ListType;
  for (const c10::Argument& returned : schema.returns())
    for (const std::uint32_t i : aten::aliased_arguments(schema, returned)) {
      const ValueId* value = value_at(i);
      if (value == nullptr || found.viewed) continue;
      found.viewed = *value;
      found.is_same = !op->hasTag(at::Tag::inplace_view) && std::ranges::find(written, i) != written.end();
    }
}

void Splitter::check_inputs() {
  const ir::Metadata& metadata = program_.metadata;
  const std::size_t n_lifted = metadata.params.size() + metadata.buffers.size();
  for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
    const bool is_leaf = i >= n_lifted && i - n_lifted < metadata.inputs.size();
    if (is_leaf && metadata.inputs[i - n_lifted].is_generator)
      refuse(fmt::format("input leaf {} ({}) is a random generator, which backend 'inductor' cannot pass on", i - n_lifted,
                         metadata.inputs[i - n_lifted].path));
    if (!is_leaf || metadata.inputs[i - n_lifted].shape) split_.tensor_inputs.push_back(i);
  }
}

void Splitter::check_output(const Operand& output) const {
  const auto refuse_leaf = [&](std::string_view type) {
    const auto i = &output - program_.outputs.data();
    refuse(fmt::format("result leaf {} is a {}, which backend 'inductor' does not return", i, type));
  };
  if (std::holds_alternative<double>(output.is)) refuse_leaf("double");
  if (std::holds_alternative<std::string>(output.is)) refuse_leaf("string");
}

ValueId Splitter::base_of(ValueId value) const {
  while (origin(value).viewed) value = *origin(value).viewed;
  return value;
}

/// Whether nothing but views, which need no other tensor, leads from the base to the value.
bool Splitter::can_replay(ValueId value) const {
  for (; origin(value).viewed; value = *origin(value).viewed) {
    const Origin& from = origin(value);
    if (from.is_same) continue;
    const ir::Statement& statement = program_.statements[*from.statement];
    const GetItem* item = std::get_if<GetItem>(&statement.is);
    if (item == nullptr && from.is_list) return false;
    const ir::Statement& made_by = item == nullptr ? statement : program_.statements[*origin(item->source).statement];
    const Call& call = std::get<Call>(made_by.is);
    if (c10::Dispatcher::singleton().findSchema({call.name, call.overload})->hasTag(at::Tag::inplace_view)) return false;
    bool needs_others = false;
    ir::visit_uses(made_by, [&](const ValueId& used) { needs_others = needs_others || used != *from.viewed; });
    if (needs_others) return false;
  }
  return true;
}

/// What the compiled part returns: an output itself where nothing else shares its memory, else the memory's owner.
std::vector<ValueId> Splitter::exports() const {
  std::map<int, std::vector<ValueId>> outputs_of_base;
  for (const Operand& output : program_.outputs) {
    const ValueId* value = std::get_if<ValueId>(&output.is);
    if (value == nullptr) continue;
    auto& outputs = outputs_of_base[base_of(*value).index];
    if (std::ranges::find(outputs, *value) == outputs.end()) outputs.push_back(*value);
  }
  std::vector<ValueId> exports;
  for (const auto& [base, outputs] : outputs_of_base) {
    if (is_input({base})) {
      for (const ValueId output : outputs)
        if (!can_replay(output))
          refuse(fmt::format("the result '{}' shares memory with the input '{}' in a way that views alone cannot give",
                             name(output), name({base})));
      continue;
    }
    const bool owner_is_tensor = !origin({base}).is_list;
    if (outputs.size() > 1 && owner_is_tensor && std::ranges::all_of(outputs, [&](ValueId v) { return can_replay(v); }))
      exports.push_back({base});
    else
      exports.insert(exports.end(), outputs.begin(), outputs.end());
  }
  return exports;
}

/// The program's inputs, in their order, as flat leaves.
void Splitter::start_views() {
  ir::Metadata& metadata = split_.views.metadata;
  metadata.in_spec.reset();
  for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
    const bool is_tensor = std::ranges::find(split_.tensor_inputs, i) != split_.tensor_inputs.end();
    metadata.inputs.emplace_back();
    if (is_tensor) metadata.inputs.back().shape.emplace();
    split_.views.inputs.push_back(replayed_[program_.inputs[i].index] = add_view_value(program_.inputs[i]));
  }
}

void Splitter::add_export(ValueId value) {
  split_.compiled.outputs.push_back({value});
  split_.views.metadata.inputs.emplace_back().shape.emplace();
  split_.views.inputs.push_back(replayed_[value.index] = add_view_value(value));
}

ValueId Splitter::replay(ValueId value) {
  if (const auto known = replayed_.find(value.index); known != replayed_.end()) return known->second;
  const Origin& from = origin(value);
  if (from.is_same) return replayed_[value.index] = replay(*from.viewed);
  ir::Statement statement = program_.statements[*from.statement];
  ir::visit_uses(statement, [&](ValueId& used) { used = replay(used); });
  statement.result = add_view_value(value);
  split_.views.statements.push_back(statement);
  return replayed_[value.index] = statement.result;
}

void Splitter::finish() {
  ir::Metadata& metadata = split_.compiled.metadata;
  metadata.grad_param_indices.clear();
  metadata.grad_input_indices.clear();
  metadata.output_dtensors.clear();
  metadata.out_spec = {.type = "builtins.list", .keys = {}, .children = std::vector<TreeSpec>(split_.compiled.outputs.size())};
  ir::renumber(split_.views);
}

}  // namespace

Split split(const Program& program) {
  return Splitter(program).split();
}

bool has_collectives(const Program& program) {
  return std::ranges::any_of(program.statements, [](const ir::Statement& statement) {
    const Call* call = std::get_if<Call>(&statement.is);
    return call != nullptr && call->name.starts_with("_c10d_functional::");
  });
}

}  // namespace precast::inductor
