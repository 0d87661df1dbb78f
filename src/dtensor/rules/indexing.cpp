#include "dtensor/rules/tables.h"

#include <algorithm>
#include <optional>

namespace precast::dtensor {
namespace {

std::size_t wrapped(std::int64_t dim, std::size_t n) {
  return static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(n) : dim);
}

/// embedding(weight, indices): rows of a vocabulary v. Where v is sharded each rank looks up its own rows, and the sum is the
/// result.
Rule embedding(const OpCall& call) {
  const std::string batch = letters(call.tensors[1].size());
  return {.inputs = {"vk", batch},
          .outputs = {batch + "k"},
          .over_missing = {Missing::sum},
          .local_form_letters = "v",
          .computes = true};
}

/// embedding_dense_backward(gradient, indices, rows, padding, scale by frequency): how often an index occurs is known to all only
/// where the indices are whole.
Rule embedding_backward(const OpCall& call) {
  const std::size_t n = call.tensors[1].size();
  const bool counts = call.flag(4);
  const std::string batch = counts ? std::string(n, '.') : letters(n);
  Rule rule{.inputs = {batch + "k", batch}, .outputs = {".k"}, .over_missing = {Missing::sum}, .computes = true};
  for (const Reduction reduction : {Reduction::sum, Reduction::avg})
    rule.alternatives.push_back({.inputs = {Partial(reduction), Replicate()}, .outputs = {Partial(reduction)}});
  return rule;
}

/// A letter for each dimension in which all tensors have the same size, but for `dim`.
std::string shared_letters(const std::vector<Sizes>& shapes, std::size_t dim) {
  std::string text = letters(shapes[0].size());
  for (std::size_t i = 0; i < text.size(); ++i)
    if (i == dim || !std::ranges::all_of(shapes, [&](const Sizes& shape) { return shape.at(i) == shapes[0][i]; })) text[i] = '.';
  return text;
}

/// gather(self, dim, index): the dimension that is looked into is whole; that of the index is the result's own.
Rule gather(const OpCall& call) {
  if (call.tensors[0].empty()) return {.inputs = std::vector<std::string>(call.tensors.size()), .outputs = {""}};
  const std::size_t dim = wrapped(call.integer(1), call.tensors[0].size());
  const std::string shared = shared_letters(call.tensors, dim);
  Rule rule{.inputs = {shared, shared}, .outputs = {shared}};
  rule.inputs[1][dim] = rule.outputs[0][dim] = 'z';
  for (const Reduction reduction : {Reduction::sum, Reduction::avg})
    rule.alternatives.push_back({.inputs = {Partial(reduction), Replicate()}, .outputs = {Partial(reduction)}});
  return rule;
}

/// scatter and scatter_add (self, dim, index, source or value).
Rule scatter(const OpCall& call) {
  if (call.tensors[0].empty()) return {.inputs = std::vector<std::string>(call.tensors.size()), .outputs = {""}};
  const std::string shared = shared_letters(call.tensors, wrapped(call.integer(1), call.tensors[0].size()));
  return {.inputs = std::vector<std::string>(call.tensors.size(), shared), .outputs = {shared}};
}

/// index_select(self, dim, index), and index_add(self, dim, index, source).
Rule index_select(const OpCall& call) {
  std::string in = letters(call.tensors[0].size());
  if (!in.empty()) in[wrapped(call.integer(1), in.size())] = '.';
  Rule rule{.inputs = {in, std::string(call.tensors[1].size(), '.')}, .outputs = {in}};
  for (const Reduction reduction : {Reduction::sum, Reduction::avg})
    rule.alternatives.push_back({.inputs = {Partial(reduction), Replicate()}, .outputs = {Partial(reduction)}});
  return rule;
}
Rule index_add(const OpCall& call) {
  std::string in = letters(call.tensors[0].size());
  if (!in.empty()) in[wrapped(call.integer(1), in.size())] = '.';
  return {.inputs = {in, std::string(call.tensors[1].size(), '.'), in}, .outputs = {in}};
}

/// index(self, indices): dimensions that are not indexed may be sharded. The indices' own dimensions stand where the indexed ones
/// did if those are neighbours, else in front.
Rule index(const OpCall& call) {
  const auto& indices = std::get<std::vector<OpCall::TensorIndex>>(call.arguments.at(1));
  std::string in = letters(call.tensors[0].size());
  std::size_t index_dims = 0;
  std::vector<std::size_t> indexed;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i].index < 0) continue;
    indexed.push_back(i);
    index_dims = std::max(index_dims, call.tensors[static_cast<std::size_t>(indices[i].index)].size());
    if (i < in.size()) in[i] = '.';
  }
  Rule rule{.inputs = {in}};
  for (std::size_t i = 1; i < call.tensors.size(); ++i) rule.inputs.emplace_back(call.tensors[i].size(), '.');
  const bool neighbours = !indexed.empty() && indexed.back() - indexed.front() + 1 == indexed.size();
  std::string out;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (std::ranges::find(indexed, i) == indexed.end())
      out += in[i];
    else if (neighbours && i == indexed.front())
      out += std::string(index_dims, '.');
  }
  rule.outputs = {neighbours ? out : std::string(index_dims, '.') + out};
  return rule;
}

/// index_put and _index_put_impl_(self, indices, values, accumulate): on whole tensors only.
Rule index_put(const OpCall& call) {
  Rule rule;
  for (const Sizes& shape : call.tensors) rule.inputs.emplace_back(shape.size(), '.');
  rule.outputs = {rule.inputs[0]};
  return rule;
}

constexpr RuleRow kTable[] = {
    {"aten::embedding", embedding},    {"aten::embedding_dense_backward", embedding_backward},
    {"aten::gather", gather},          {"aten::scatter.src", scatter},
    {"aten::scatter.value", scatter},  {"aten::scatter_.src", scatter},
    {"aten::scatter_.value", scatter}, {"aten::scatter_add", scatter},
    {"aten::scatter_add_", scatter},   {"aten::index_select", index_select},
    {"aten::index_add", index_add},    {"aten::index_add_", index_add},
    {"aten::index.Tensor", index},     {"aten::index_put", index_put},
    {"aten::index_put_", index_put},   {"aten::_index_put_impl_", index_put},
};

}  // namespace

std::span<const RuleRow> indexing_rules() {
  return kTable;
}

}  // namespace precast::dtensor
