#include "dtensor/rules/tables.h"

#include <algorithm>

namespace precast::dtensor {
namespace {

std::size_t wrapped(std::int64_t dim, std::size_t n) {
  return static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(n) : dim);
}

/// Letters of a result that lacks `dims`, or has them with size one.
std::string without(const std::string& from, const std::vector<bool>& dims, bool keep) {
  std::string result;
  for (std::size_t i = 0; i < from.size(); ++i)
    if (!dims[i])
      result += from[i];
    else if (keep)
      result += '.';
  return result;
}

/// A reduction over `dims` (none: all), argument 1, with keepdim as argument 2 where there is one.
Rule reduce(const OpCall& call, Missing missing, bool over_all = false) {
  const std::size_t n = call.tensors[0].size();
  std::vector<bool> dims(n, false);
  const Sizes given = over_all || call.arguments.size() < 2 ? Sizes() : call.integers(1);
  for (const std::int64_t dim : given) dims[wrapped(dim, n)] = true;
  if (given.empty()) dims.assign(n, true);
  const bool keep = !over_all && call.arguments.size() > 2 && std::holds_alternative<bool>(call.arguments[2]) && call.flag(2);
  std::string in = letters(n);
  if (missing == Missing::none)
    for (std::size_t i = 0; i < n; ++i)
      if (dims[i]) in[i] = '.';
  Rule rule{.inputs = {in}, .outputs = {without(in, dims, keep)}, .over_missing = {missing}};
  // The largest of nothing does not exist.
  if (missing == Missing::max || missing == Missing::min)
    for (std::size_t i = 0; i < n; ++i)
      if (dims[i]) rule.never_empty += in[i];
  return rule;
}

Rule with_partial(Rule rule, const std::vector<Reduction>& reductions) {
  for (const Reduction reduction : reductions)
    rule.alternatives.push_back({.inputs = {Partial(reduction)}, .outputs = {Partial(reduction)}});
  return rule;
}

Rule sum(const OpCall& call) {
  return with_partial(reduce(call, Missing::sum, /*over_all=*/call.op == "aten::sum"), {Reduction::sum, Reduction::avg});
}
Rule mean(const OpCall& call) {
  return with_partial(reduce(call, Missing::avg, call.op == "aten::mean"), {Reduction::sum, Reduction::avg});
}
Rule amax(const OpCall& call) {
  return with_partial(reduce(call, Missing::max, call.op == "aten::max"), {Reduction::max});
}
Rule amin(const OpCall& call) {
  return with_partial(reduce(call, Missing::min, call.op == "aten::min"), {Reduction::min});
}
/// What local results of do not add up: only the dimensions that stay may be sharded.
Rule whole_reduction(const OpCall& call) {
  return reduce(call, Missing::none);
}
Rule whole_reduction_over_all(const OpCall& call) {
  return reduce(call, Missing::none, true);
}
/// Values and indices along dimension 1 of the arguments.
Rule values_and_indices(const OpCall& call) {
  Rule rule = reduce(call, Missing::none);
  rule.outputs.push_back(rule.outputs[0]);
  return rule;
}

/// linalg_vector_norm(self, ord, dim, keepdim) and norm: the norm of the parts is not additive, its power is. That is its local
/// form.
Rule vector_norm(const OpCall& call) {
  const std::size_t n = call.tensors[0].size();
  std::vector<bool> dims(n, false);
  const bool has_dims = call.arguments.size() > 2;
  const Sizes given = has_dims ? call.integers(2) : Sizes();
  for (const std::int64_t dim : given) dims[wrapped(dim, n)] = true;
  if (given.empty()) dims.assign(n, true);
  Rule rule{
      .inputs = {letters(n)}, .outputs = {without(letters(n), dims, has_dims && call.flag(3))}, .over_missing = {Missing::whole}};
  for (std::size_t i = 0; i < n; ++i)
    if (dims[i]) rule.local_form_letters += rule.inputs[0][i];
  return rule;
}

constexpr RuleRow kTable[] = {
    {"aten::sum", sum},
    {"aten::sum.dim_IntList", sum},
    {"aten::mean", mean},
    {"aten::mean.dim", mean},
    {"aten::amax", amax},
    {"aten::amin", amin},
    {"aten::max", amax},
    {"aten::min", amin},
    {"aten::max.dim", values_and_indices},
    {"aten::min.dim", values_and_indices},
    {"aten::argmax", whole_reduction},
    {"aten::argmin", whole_reduction},
    {"aten::prod", whole_reduction_over_all},
    {"aten::prod.dim_int", whole_reduction},
    {"aten::all", whole_reduction_over_all},
    {"aten::all.dim", whole_reduction},
    {"aten::any", whole_reduction_over_all},
    {"aten::any.dim", whole_reduction},
    {"aten::logsumexp", whole_reduction},
    {"aten::linalg_vector_norm", vector_norm},
    {"aten::norm.Scalar", vector_norm},
    {"aten::norm.ScalarOpt_dim", vector_norm},
};

}  // namespace

std::span<const RuleRow> reduction_rules() {
  return kTable;
}

}  // namespace precast::dtensor
