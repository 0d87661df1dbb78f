#include "dtensor/rules/tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

namespace precast::dtensor {

std::vector<std::span<const RuleRow>> rule_tables() {
  return {pointwise_rules(), elementwise_rules(), contraction_rules(), reduction_rules(),
          view_rules(),      shape_rules(),       indexing_rules(),    network_rules()};
}

std::string letters(std::size_t n, char first) {
  std::string text(n, first);
  for (std::size_t i = 0; i < n; ++i) text[i] = static_cast<char>(first + i);
  return text;
}

std::string shape_text(const Sizes& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool is_in_place(const OpCall& call) {
  const std::string_view name = std::string_view(call.op).substr(0, call.op.find('.'));
  return name.ends_with('_') && !name.ends_with("__");
}

std::string broadcast_letters(const Sizes& shape, const Sizes& result, const std::string& labels) {
  const auto refuse = [&] {
    throw std::invalid_argument(fmt::format("shape {} does not broadcast to {}", shape_text(shape), shape_text(result)));
  };
  if (shape.size() > result.size()) refuse();
  const std::size_t lead = result.size() - shape.size();
  std::string text = labels.substr(lead);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == result[lead + i]) continue;
    if (shape[i] != 1) refuse();
    text[i] = '1';
  }
  return text;
}

}  // namespace precast::dtensor
