#pragma once

#include "dtensor/rule.h"

#include <span>
#include <string>
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
std::span<const RuleRow> elementwise_rules();
std::span<const RuleRow> contraction_rules();
std::span<const RuleRow> reduction_rules();
std::span<const RuleRow> view_rules();
std::span<const RuleRow> shape_rules();
std::span<const RuleRow> indexing_rules();
std::span<const RuleRow> network_rules();

std::vector<std::span<const RuleRow>> rule_tables();

/// Element by element over operands that are broadcast together, without partial ones.
Rule pointwise(const OpCall& call);

/// The first n letters, from `first` on: "abc".
std::string letters(std::size_t n, char first = 'a');

/// "[4, 6]", for messages.
std::string shape_text(const Sizes& shape);

/// Whether the call writes its first operand: then no possibility may leave the result lying otherwise than that operand.
bool is_in_place(const OpCall& call);

/// Letters of an operand of `shape` broadcast to `result`, which has the letters `labels`; "1" where it is broadcast.
/// @throws std::invalid_argument  it does not broadcast. A rank's own shards might, and give a wrong number without an error.
std::string broadcast_letters(const Sizes& shape, const Sizes& result, const std::string& labels);

}  // namespace precast::dtensor
