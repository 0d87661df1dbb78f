#include "dtensor/rule.h"

#include "dtensor/rules/tables.h"

#include <algorithm>
#include <unordered_map>

namespace precast::dtensor {
namespace {

const std::unordered_map<std::string_view, const RuleRow*>& all_rules() {
  static const auto rules = [] {
    std::unordered_map<std::string_view, const RuleRow*> by_op;
    for (const std::span<const RuleRow> table : rule_tables())
      for (const RuleRow& row : table) by_op.emplace(row.op, &row);
    return by_op;
  }();
  return rules;
}

/// "aten::add.Tensor" for "aten::add_.Tensor": written into its first operand, the result lies as it does otherwise.
std::string out_of_place(std::string op) {
  const std::size_t end = std::min(op.find('.'), op.size());
  if (op[end - 1] == '_') op.erase(end - 1, 1);
  return op;
}

}  // namespace

const Sizes& OpCall::shape(std::size_t i) const {
  return tensors.at(static_cast<std::size_t>(std::get<TensorIndex>(arguments.at(i)).index));
}

bool OpCall::has_tensor(std::size_t i) const {
  const auto* tensor = i < arguments.size() ? std::get_if<TensorIndex>(&arguments[i]) : nullptr;
  return tensor != nullptr && tensor->index >= 0;
}

std::vector<Sizes> OpCall::shapes(std::size_t i) const {
  std::vector<Sizes> out;
  for (const TensorIndex tensor : std::get<std::vector<TensorIndex>>(arguments.at(i)))
    if (tensor.index >= 0) out.push_back(tensors.at(static_cast<std::size_t>(tensor.index)));
  return out;
}

Sizes OpCall::integers(std::size_t i) const {
  if (is_none(i)) return {};
  if (const auto* one = std::get_if<std::int64_t>(&arguments[i])) return {*one};
  return std::get<Sizes>(arguments[i]);
}

bool OpCall::is_none(std::size_t i) const {
  return std::holds_alternative<std::monostate>(arguments.at(i));
}

std::optional<Rule> find_rule(const OpCall& call) {
  auto row = all_rules().find(call.op);
  if (row == all_rules().end()) row = all_rules().find(out_of_place(call.op));
  if (row == all_rules().end()) return std::nullopt;
  return row->second->rule(call);
}

std::vector<std::string> ops_with_rules() {
  std::vector<std::string> ops;
  for (const auto& [op, row] : all_rules()) ops.emplace_back(op);
  std::ranges::sort(ops);
  return ops;
}

}  // namespace precast::dtensor
