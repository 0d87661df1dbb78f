#pragma once

#include "ir/program.h"

#include <type_traits>
#include <utility>
#include <variant>

namespace precast::ir {

/// Calls `visit(ValueId&)` (const& where `operand` is const) for each value in an operand, those in its lists too.
template <class OperandType, class Visit>
requires std::is_same_v<std::remove_const_t<OperandType>, Operand>
void visit_values(OperandType& operand, const Visit& visit) {
  if (auto* value = std::get_if<ValueId>(&operand.is)) visit(*value);
  if (auto* list = std::get_if<Operand::List>(&operand.is))
    for (auto& item : *list) visit_values(item, visit);
}

/// The same for the values that a statement reads, in the order of the text.
template <class StatementType, class Visit>
requires std::is_same_v<std::remove_const_t<StatementType>, Statement>
void visit_uses(StatementType& statement, const Visit& visit) {
  if (auto* item = std::get_if<GetItem>(&statement.is)) return visit(item->source);
  auto& call = std::get<Call>(statement.is);
  for (auto& argument : call.arguments) visit_values(argument, visit);
  for (auto& [name, argument] : call.keywords) visit_values(argument, visit);
}

}  // namespace precast::ir
