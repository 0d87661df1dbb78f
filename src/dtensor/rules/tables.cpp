#include "dtensor/rules/tables.h"

namespace precast::dtensor {

std::vector<std::span<const RuleRow>> rule_tables() {
  return {pointwise_rules(), contraction_rules(), reduction_rules(), view_rules(),
          shape_rules(),     indexing_rules(),    network_rules()};
}

std::string letters(std::size_t n, char first) {
  std::string text(n, first);
  for (std::size_t i = 0; i < n; ++i) text[i] = static_cast<char>(first + i);
  return text;
}

}  // namespace precast::dtensor
