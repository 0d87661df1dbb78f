#include "dtensor/rules/tables.h"

namespace precast::dtensor {
namespace {

/// The letters of each side of "mk,kn->mn".
Rule einsum(const std::string& text) {
  Rule rule;
  rule.computes = true;
  const std::size_t arrow = text.find("->");
  for (std::size_t begin = 0; begin < arrow;) {
    const std::size_t end = std::min(text.find(',', begin), arrow);
    rule.inputs.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  rule.outputs = {text.substr(arrow + 2)};
  rule.over_missing = {Missing::sum};
  return rule;
}

/// A product is linear in each factor: one may be a sum still to be made where the other is whole.
Rule product(const std::string& text) {
  Rule rule = einsum(text);
  for (const Reduction reduction : {Reduction::sum, Reduction::avg})
    for (std::size_t i = 0; i < rule.inputs.size(); ++i) {
      Alternative alternative{.inputs = std::vector<Placement>(rule.inputs.size()), .outputs = {Partial(reduction)}};
      alternative.inputs[i] = Partial(reduction);
      rule.alternatives.push_back(std::move(alternative));
    }
  return rule;
}

Rule mm(const OpCall&) {
  return product("mk,kn->mn");
}
Rule bmm(const OpCall&) {
  return product("bmk,bkn->bmn");
}
Rule mv(const OpCall&) {
  return product("mk,k->m");
}
Rule dot(const OpCall&) {
  return product("k,k->");
}

/// beta * bias + the product. Where the contracted dimension is sharded the bias becomes a partial sum with the product: one rank
/// adds it.
Rule add_product(const OpCall& call, const std::string& factors, const std::string& result) {
  const Sizes& bias = call.tensors[0];
  std::string bias_letters = result.substr(result.size() - std::min(bias.size(), result.size()));
  Sizes out;  // sizes of the result's dimensions, to see what the bias broadcasts over
  for (const char letter : result) {
    const auto place = factors.find(letter);
    const std::size_t comma = factors.find(',');
    out.push_back(place < comma ? call.tensors[1][place] : call.tensors[2][place - comma - 1]);
  }
  for (std::size_t i = 0; i < bias.size(); ++i)
    if (bias[i] == 1 && out[out.size() - bias.size() + i] != 1) bias_letters[i] = '1';
  Rule rule = einsum(factors + "->" + result);
  rule.inputs.insert(rule.inputs.begin(), bias_letters);
  // `k` by itself would leave the bias whole on every rank, and add it once a rank.
  rule.over_missing = {Missing::none};
  const std::size_t comma = factors.find(',');
  const auto k = static_cast<std::int64_t>(factors.find('k')), k2 = static_cast<std::int64_t>(factors.find('k', comma) - comma - 1);
  rule.alternatives.push_back({.inputs = {Partial(), Shard(k), Shard(k2)}, .outputs = {Partial()}});
  rule.alternatives.push_back({.inputs = {Partial(), Partial(), Replicate()}, .outputs = {Partial()}});
  rule.alternatives.push_back({.inputs = {Partial(), Replicate(), Partial()}, .outputs = {Partial()}});
  return rule;
}

Rule addmm(const OpCall& call) {
  return add_product(call, "mk,kn", "mn");
}
Rule baddbmm(const OpCall& call) {
  return add_product(call, "bmk,bkn", "bmn");
}
Rule addmv(const OpCall& call) {
  return add_product(call, "mk,k", "m");
}

constexpr RuleRow kTable[] = {
    {"aten::mm", mm},       {"aten::bmm", bmm},         {"aten::mv", mv},       {"aten::dot", dot},
    {"aten::addmm", addmm}, {"aten::baddbmm", baddbmm}, {"aten::addmv", addmv},
};

}  // namespace

std::span<const RuleRow> contraction_rules() {
  return kTable;
}

}  // namespace precast::dtensor
