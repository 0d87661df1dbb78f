#include "ir/renumber.h"

#include "ir/names.h"
#include "ir/visit.h"

#include <utility>

namespace precast::ir {
namespace {

/// Gives values their final index and name in order of definition.
class Renumbering {
 public:
  Renumbering(std::vector<Value> old, Names names) : kind_(names), old_(std::move(old)), new_index_(old_.size(), -1) {}

  void define(ValueId& value) {
    Value& old = old_[value.index];
    new_index_[value.index] = static_cast<int>(values_.size());
    if (kind_ == Names::wishes || !names_.take(old.name)) old.name = names_.unique(old.name);
    values_.push_back(std::move(old));
    rename(value);
  }

  void rename(ValueId& value) const { value.index = new_index_[value.index]; }

  std::vector<Value> take_values() { return std::move(values_); }

 private:
  Names kind_;
  std::vector<Value> old_, values_;
  NameTable names_;
  std::vector<int> new_index_;
};

}  // namespace

void renumber(Program& program, Names names) {
  Renumbering renumbering(std::move(program.values), names);
  const auto rename = [&](ValueId& value) { renumbering.rename(value); };
  for (ValueId& input : program.inputs) renumbering.define(input);
  for (Statement& statement : program.statements) {
    visit_uses(statement, rename);
    renumbering.define(statement.result);
  }
  for (Operand& output : program.outputs) visit_values(output, rename);
  program.values = renumbering.take_values();
}

}  // namespace precast::ir
