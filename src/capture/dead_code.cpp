#include "capture/dead_code.h"

#include "ir/names.h"

#include <algorithm>
#include <utility>

namespace precast::capture {
namespace {

template <class Visit>
void visit_values(ir::Operand& operand, const Visit& visit) {
  if (auto* value = std::get_if<ir::ValueId>(&operand.is)) visit(*value);
  if (auto* list = std::get_if<ir::Operand::List>(&operand.is))
    for (ir::Operand& item : *list) visit_values(item, visit);
}

template <class Visit>
void visit_uses(ir::Statement& statement, const Visit& visit) {
  if (auto* item = std::get_if<ir::GetItem>(&statement.is)) return visit(item->source);
  auto& call = std::get<ir::Call>(statement.is);
  for (ir::Operand& argument : call.arguments) visit_values(argument, visit);
  for (auto& [name, argument] : call.keywords) visit_values(argument, visit);
}

/// Marks what is needed, from the outputs backwards.
class Liveness {
 public:
  explicit Liveness(const Trace& trace) : trace_(trace), values_(trace.values.size()), storages_(count_storages(trace)) {
    for (const ir::ValueId input : trace.inputs) need(input);
  }

  void need(ir::ValueId value) {
    values_[value.index] = true;
    if (const int storage = trace_.storage_of_value[value.index]; storage >= 0) storages_[storage] = true;
  }

  [[nodiscard]] bool alive(std::size_t i) const {
    const Effects& effects = trace_.effects[i];
    return effects.keep || values_[trace_.statements[i].result.index] ||
           std::ranges::any_of(effects.written_storages, [this](int storage) { return storages_[storage]; });
  }

 private:
  static std::size_t count_storages(const Trace& trace) {
    int n = 0;
    for (const int storage : trace.storage_of_value) n = std::max(n, storage + 1);
    for (const Effects& effects : trace.effects)
      for (const int storage : effects.written_storages) n = std::max(n, storage + 1);
    return static_cast<std::size_t>(n);
  }

  const Trace& trace_;
  std::vector<bool> values_;
  std::vector<bool> storages_;
};

std::vector<ir::Statement> living_statements(Trace& trace, std::vector<ir::Operand>& outputs) {
  Liveness liveness(trace);
  const auto need = [&](ir::ValueId value) { liveness.need(value); };
  for (ir::Operand& output : outputs) visit_values(output, need);
  std::vector<ir::Statement> living;
  for (std::size_t i = trace.statements.size(); i-- > 0;) {
    if (!liveness.alive(i)) continue;
    visit_uses(trace.statements[i], need);
    living.push_back(std::move(trace.statements[i]));
  }
  std::ranges::reverse(living);
  return living;
}

/// Gives values their final index and name in order of definition.
class Renumbering {
 public:
  explicit Renumbering(const Trace& trace, ir::Program& program)
      : trace_(trace), program_(program), new_index_(trace.values.size(), -1) {}

  ir::ValueId define(ir::ValueId old) {
    const ir::Value& value = trace_.values[old.index];
    new_index_[old.index] = static_cast<int>(program_.values.size());
    program_.values.push_back({names_.unique(value.name), value.note});
    return {new_index_[old.index]};
  }

  void rename(ir::ValueId& value) const { value.index = new_index_[value.index]; }

 private:
  const Trace& trace_;
  ir::Program& program_;
  ir::NameTable names_;
  std::vector<int> new_index_;
};

}  // namespace

ir::Program make_program(Trace trace, std::vector<ir::Operand> outputs, ir::Metadata metadata) {
  ir::Program program;
  program.metadata = std::move(metadata);
  std::vector<ir::Statement> living = living_statements(trace, outputs);

  Renumbering renumbering(trace, program);
  const auto rename = [&](ir::ValueId& value) { renumbering.rename(value); };
  for (const ir::ValueId input : trace.inputs) program.inputs.push_back(renumbering.define(input));
  for (ir::Statement& statement : living) {
    visit_uses(statement, rename);
    statement.result = renumbering.define(statement.result);
  }
  for (ir::Operand& output : outputs) visit_values(output, rename);
  program.statements = std::move(living);
  program.outputs = std::move(outputs);
  return program;
}

}  // namespace precast::capture
