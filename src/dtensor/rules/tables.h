#pragma once

#include "dtensor/rule.h"

#include <span>
#include <string_view>
#include <vector>

namespace precast::dtensor {

/// One operator and what gives its rule. The form that writes into its first operand ("aten::add_.Tensor") shares the row.
struct RuleRow {
  std::string_view op;
  Rule (*rule)(const OpCall& call);
};

/// One table for each family of operators, each in its own file of this folder.
std::span<const RuleRow> pointwise_rules();
std::span<const RuleRow> contraction_rules();
std::span<const RuleRow> reduction_rules();
std::span<const RuleRow> view_rules();
std::span<const RuleRow> shape_rules();
std::span<const RuleRow> indexing_rules();
std::span<const RuleRow> network_rules();

std::vector<std::span<const RuleRow>> rule_tables();

/// The first n letters, from `first` on: "abc".
std::string letters(std::size_t n, char first = 'a');

}  // namespace precast::dtensor
