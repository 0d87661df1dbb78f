#include "dtensor/rules/tables.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

namespace precast::dtensor {
namespace {

constexpr int kNoArgument = -1;

/// Which dimensions the argument names; none named, or no such argument: all.
std::vector<bool> reduced_dims(const OpCall& call, int argument) {
  const auto n = static_cast<std::int64_t>(call.tensors[0].size());
  const Sizes named = argument == kNoArgument ? Sizes() : call.integers(static_cast<std::size_t>(argument));
  std::vector<bool> dims(static_cast<std::size_t>(n), named.empty());
  // A tensor without dimensions may be reduced along dimension 0 or -1 all the same.
  for (const std::int64_t dim : named) {
    const std::int64_t limit = n == 0 ? 1 : n;
    if (dim < -limit || dim >= limit)
      throw std::invalid_argument(fmt::format("dimension {} of shape {}", dim, shape_text(call.tensors[0])));
    if (n > 0) dims[static_cast<std::size_t>(dim < 0 ? dim + n : dim)] = true;
  }
  return dims;
}

bool keeps_dims(const OpCall& call, int argument) {
  return argument != kNoArgument && call.flag(static_cast<std::size_t>(argument));
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

/// What the results of a reduction become where a reduced dimension is sharded; `none`: local results do not add up, and only the
/// dimensions that stay may be sharded.
Rule reduce(std::vector<Missing> missing, const std::vector<bool>& dims, bool keep) {
  std::string in = letters(dims.size()), reduced;
  bool needs_elements = false;
  for (const Missing m : missing) needs_elements = needs_elements || m == Missing::max || m == Missing::min;
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (dims[i]) {
      if (missing[0] == Missing::none) in[i] = '.';
      reduced += in[i];
    }
  Rule rule{.inputs = {in}, .outputs = std::vector<std::string>(missing.size(), without(in, dims, keep)), .over_missing = missing};
  // The largest of nothing does not exist.
  if (needs_elements) rule.never_empty = reduced;
  return rule;
}

/// A reduction that commutes with those of `missing` is taken of partial operands too.
template <Missing missing, int dims_argument = kNoArgument, int keep_argument = kNoArgument>
Rule commuting(const OpCall& call) {
  Rule rule = reduce({missing}, reduced_dims(call, dims_argument), keeps_dims(call, keep_argument));
  const auto of_partial = [&](Reduction reduction) {
    rule.alternatives.push_back({.inputs = {Partial(reduction)}, .outputs = {Partial(reduction)}});
  };
  if constexpr (missing == Missing::sum || missing == Missing::avg) {
    of_partial(Reduction::sum);
    of_partial(Reduction::avg);
  }
  if constexpr (missing == Missing::max) of_partial(Reduction::max);
  if constexpr (missing == Missing::min) of_partial(Reduction::min);
  return rule;
}

/// Counts, and sums that leave elements out: they add up, but are not those of a sum.
template <int dims_argument = kNoArgument, int keep_argument = kNoArgument>
Rule additive(const OpCall& call) {
  return reduce({Missing::sum}, reduced_dims(call, dims_argument), keeps_dims(call, keep_argument));
}

/// What needs all of each reduced dimension, with one result or several (values and indices).
template <int dims_argument = kNoArgument, int keep_argument = kNoArgument, int n_results = 1>
Rule of_whole(const OpCall& call) {
  return reduce(std::vector<Missing>(n_results, Missing::none), reduced_dims(call, dims_argument), keeps_dims(call, keep_argument));
}

/// all and any over several dims: none named (None) is all of them, an empty list none.
Rule of_listed_dims(const OpCall& call) {
  if (call.is_none(1) || !call.integers(1).empty()) return of_whole<1, 2>(call);
  return pointwise(call);
}

/// aminmax(self, dim, keepdim): the smallest and the largest.
Rule aminmax(const OpCall& call) {
  return reduce({Missing::min, Missing::max}, reduced_dims(call, 1), keeps_dims(call, 2));
}

/// The exponent p of a norm; None is 2.
double exponent(const OpCall::Argument& argument) {
  if (const auto* integer = std::get_if<std::int64_t>(&argument)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&argument)) return *number;
  return 2;
}

/// Norms of the parts for p = 0 (how many are not zero) and 1 add up, for infinities the extreme of them is the norm. For other p
/// their powers add up: that is the local form. Arguments: self, p, and for some dims, keepdim, dtype.
template <int dims_argument = kNoArgument, int keep_argument = kNoArgument, int dtype_argument = kNoArgument>
Rule vector_norm(const OpCall& call) {
  const std::vector<bool> dims = reduced_dims(call, dims_argument);
  const bool keep = keeps_dims(call, keep_argument);
  const double p = exponent(call.arguments.at(1));
  if (std::isinf(p)) return reduce({p > 0 ? Missing::max : Missing::min}, dims, keep);
  if (p == 0 || p == 1) return reduce({Missing::sum}, dims, keep);
  // The local form computes in the operand's dtype.
  if (dtype_argument != kNoArgument && !call.is_none(dtype_argument)) return reduce({Missing::none}, dims, keep);
  Rule rule = reduce({Missing::whole}, dims, keep);
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (dims[i]) rule.local_form_letters += rule.inputs[0][i];
  return rule;
}

constexpr RuleRow kTable[] = {
    // What local results become where a reduced dimension is sharded; the arguments that hold dims and keepdim.
    {"aten::sum", commuting<Missing::sum>},
    {"aten::sum.dim_IntList", commuting<Missing::sum, 1, 2>},
    {"aten::mean", commuting<Missing::avg>},
    {"aten::mean.dim", commuting<Missing::avg, 1, 2>},
    {"aten::max", commuting<Missing::max>},
    {"aten::amax", commuting<Missing::max, 1, 2>},
    {"aten::min", commuting<Missing::min>},
    {"aten::amin", commuting<Missing::min, 1, 2>},
    {"aten::aminmax", aminmax},
    {"aten::nansum", additive<1, 2>},
    {"aten::count_nonzero", additive<1>},
    {"aten::count_nonzero.dim_IntList", additive<1>},

    // The arguments that hold dims and keepdim, the number of results.
    {"aten::max.dim", of_whole<1, 2, 2>},
    {"aten::min.dim", of_whole<1, 2, 2>},
    {"aten::argmax", of_whole<1, 2>},
    {"aten::argmin", of_whole<1, 2>},
    {"aten::prod", of_whole<>},
    {"aten::prod.dim_int", of_whole<1, 2>},
    {"aten::all", of_whole<>},
    {"aten::all.dim", of_whole<1, 2>},
    {"aten::all.dims", of_listed_dims},
    {"aten::any", of_whole<>},
    {"aten::any.dim", of_whole<1, 2>},
    {"aten::any.dims", of_listed_dims},
    {"aten::logsumexp", of_whole<1, 2>},
    {"aten::var.correction", of_whole<1, 3>},
    {"aten::std.correction", of_whole<1, 3>},
    {"aten::var_mean.correction", of_whole<1, 3, 2>},
    {"aten::std_mean.correction", of_whole<1, 3, 2>},
    {"aten::median", of_whole<>},
    {"aten::median.dim", of_whole<1, 2, 2>},
    {"aten::nanmedian", of_whole<>},
    {"aten::nanmedian.dim", of_whole<1, 2, 2>},
    {"aten::mode", of_whole<1, 2, 2>},
    {"aten::kthvalue", of_whole<2, 3, 2>},

    {"aten::linalg_vector_norm", vector_norm<2, 3, 4>},
    {"aten::norm.Scalar", vector_norm<>},
    {"aten::norm.ScalarOpt_dim", vector_norm<2, 3>},
};

}  // namespace

std::span<const RuleRow> reduction_rules() {
  return kTable;
}

}  // namespace precast::dtensor
