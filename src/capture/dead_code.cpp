#include "capture/dead_code.h"

#include "ir/renumber.h"
#include "ir/visit.h"

#include <algorithm>
#include <utility>

namespace precast::capture {
namespace {

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
  for (ir::Operand& output : outputs) ir::visit_values(output, need);
  std::vector<ir::Statement> living;
  for (std::size_t i = trace.statements.size(); i-- > 0;) {
    if (!liveness.alive(i)) continue;
    ir::visit_uses(trace.statements[i], need);
    living.push_back(std::move(trace.statements[i]));
  }
  std::ranges::reverse(living);
  return living;
}

}  // namespace

ir::Program make_program(Trace trace, std::vector<ir::Operand> outputs, ir::Metadata metadata) {
  ir::Program program;
  program.metadata = std::move(metadata);
  program.statements = living_statements(trace, outputs);
  program.values = std::move(trace.values);
  program.inputs = std::move(trace.inputs);
  program.outputs = std::move(outputs);
  ir::renumber(program, ir::Names::wishes);
  return program;
}

}  // namespace precast::capture
