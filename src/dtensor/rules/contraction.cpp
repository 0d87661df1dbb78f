#include "dtensor/rules/tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace precast::dtensor {
namespace {

/// "mk,kn->mn" taken apart.
struct Einsum {
  std::vector<std::string> factors;
  std::string result;
};

Einsum parse(const std::string& text) {
  Einsum einsum;
  const std::size_t arrow = text.find("->");
  for (std::size_t begin = 0; begin < arrow;) {
    const std::size_t end = std::min(text.find(',', begin), arrow);
    einsum.factors.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  einsum.result = text.substr(arrow + 2);
  return einsum;
}

/// The size of each letter. @throws std::invalid_argument  the factors do not fit: their shards might, on some ranks.
std::map<char, std::int64_t> sizes_of(const Einsum& einsum, std::span<const Sizes> factors) {
  std::map<char, std::int64_t> sizes;
  const auto refuse = [&] {
    std::string shapes;
    for (const Sizes& shape : factors) shapes += (shapes.empty() ? "" : " and ") + shape_text(shape);
    throw std::invalid_argument(fmt::format("shapes {} do not fit a product of {}", shapes, fmt::join(einsum.factors, " and ")));
  };
  for (std::size_t i = 0; i < einsum.factors.size(); ++i) {
    if (factors[i].size() != einsum.factors[i].size()) refuse();
    for (std::size_t d = 0; d < factors[i].size(); ++d)
      if (sizes.try_emplace(einsum.factors[i][d], factors[i][d]).first->second != factors[i][d]) refuse();
  }
  return sizes;
}

const std::vector<Reduction> kSums = {Reduction::sum, Reduction::avg};

/// A product is linear in each factor: one may be a sum still to be made where the other is whole.
Rule product(const OpCall& call, const std::string& text) {
  const Einsum einsum = parse(text);
  static_cast<void>(sizes_of(einsum, call.tensors));
  Rule rule{.inputs = einsum.factors, .outputs = {einsum.result}, .over_missing = {Missing::sum}, .computes = true};
  for (const Reduction reduction : kSums)
    for (std::size_t i = 0; i < rule.inputs.size(); ++i) {
      Alternative alternative{.inputs = std::vector<Placement>(rule.inputs.size()), .outputs = {Partial(reduction)}};
      alternative.inputs[i] = Partial(reduction);
      rule.alternatives.push_back(std::move(alternative));
    }
  return rule;
}

/// beta * bias + the product. Where a contracted dimension is sharded the bias becomes a partial sum with the product: one rank
/// adds it.
Rule add_product(const OpCall& call, const std::string& text) {
  const Einsum einsum = parse(text);
  const std::map<char, std::int64_t> sizes = sizes_of(einsum, std::span(call.tensors).subspan(1));
  Sizes result;
  for (const char letter : einsum.result) result.push_back(sizes.at(letter));
  const Sizes& bias = call.tensors[0];
  if (is_in_place(call) && bias != result)
    throw std::invalid_argument(fmt::format("a product of shape {} is added in place to {}", shape_text(result), shape_text(bias)));

  // A contracted letter by itself would leave the bias whole on every rank, and add it once a rank: so it has no over_missing.
  Rule rule{.inputs = {broadcast_letters(bias, result, einsum.result)}, .outputs = {einsum.result}, .computes = true};
  rule.inputs.insert(rule.inputs.end(), einsum.factors.begin(), einsum.factors.end());
  for (const auto& [letter, size] : sizes) {
    if (einsum.result.find(letter) != std::string::npos) continue;
    Alternative alternative{.inputs = {Partial()}, .outputs = {Partial()}};
    for (const std::string& factor : einsum.factors) {
      const std::size_t dim = factor.find(letter);
      alternative.inputs.push_back(dim == std::string::npos ? Placement(Replicate()) : Shard(static_cast<std::int64_t>(dim)));
    }
    rule.alternatives.push_back(std::move(alternative));
  }
  for (const Reduction reduction : kSums) {
    const Partial partial(reduction);
    rule.alternatives.push_back({.inputs = {partial, partial, Replicate()}, .outputs = {partial}});
    rule.alternatives.push_back({.inputs = {partial, Replicate(), partial}, .outputs = {partial}});
  }
  return rule;
}

Rule mm(const OpCall& call) {
  return product(call, "mk,kn->mn");
}
Rule bmm(const OpCall& call) {
  return product(call, "bmk,bkn->bmn");
}
Rule mv(const OpCall& call) {
  return product(call, "mk,k->m");
}
Rule dot(const OpCall& call) {
  return product(call, "k,k->");
}
Rule addmm(const OpCall& call) {
  return add_product(call, "mk,kn->mn");
}
Rule baddbmm(const OpCall& call) {
  return add_product(call, "bmk,bkn->bmn");
}
Rule addbmm(const OpCall& call) {
  return add_product(call, "bmk,bkn->mn");
}
/// Without elements in the matrix addmv forgets to broadcast its bias, and gives a result of the bias's shape: no rank may be left
/// so.
Rule addmv(const OpCall& call) {
  Rule rule = add_product(call, "mk,k->m");
  return call.tensors[0].size() == 1 && rule.inputs[0] == "m"
             ? rule
             : Rule{.inputs = {std::string(call.tensors[0].size(), '.'), "..", "."}, .outputs = {"."}, .computes = true};
}
Rule addr(const OpCall& call) {
  return add_product(call, "m,n->mn");
}

constexpr RuleRow kTable[] = {
    {"aten::mm", mm},       {"aten::bmm", bmm},         {"aten::mv", mv},         {"aten::dot", dot},     {"aten::vdot", dot},
    {"aten::addmm", addmm}, {"aten::baddbmm", baddbmm}, {"aten::addbmm", addbmm}, {"aten::addmv", addmv}, {"aten::addr", addr},
};

}  // namespace

std::span<const RuleRow> contraction_rules() {
  return kTable;
}

}  // namespace precast::dtensor
