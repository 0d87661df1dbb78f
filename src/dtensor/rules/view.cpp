#include "dtensor/rules/tables.h"

#include <numeric>
#include <stdexcept>

namespace precast::dtensor {
namespace {

std::size_t wrapped(std::int64_t dim, std::size_t n) {
  return static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(n) : dim);
}

std::int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

/// One operand to results that show the same values: whatever it is a reduction of, they are.
Rule same_values(std::string input, std::vector<std::string> outputs) {
  Rule rule{.inputs = {std::move(input)}, .outputs = std::move(outputs)};
  for (const Reduction reduction : {Reduction::sum, Reduction::avg, Reduction::max, Reduction::min})
    rule.alternatives.push_back(
        {.inputs = {Partial(reduction)}, .outputs = std::vector<Placement>(rule.outputs.size(), Partial(reduction))});
  return rule;
}

/// The size that view is to find out (-1).
Sizes resolved(Sizes sizes, std::int64_t n_elements) {
  for (std::int64_t& size : sizes)
    if (size == -1) {
      size = 1;
      const std::int64_t rest = product(sizes);
      size = rest == 0 ? 0 : n_elements / rest;
    }
  return sizes;
}

/// Dimensions of two shapes fall into groups of equal product, from left to right. Within a group the outermost dimension may be
/// sharded, where the shards divide it on both sides; a dimension that stays alone in its group may be sharded anyhow.
class Regrouping {
 public:
  Regrouping(const Sizes& from, const Sizes& to) : from_(from), to_(to), in_(from.size(), '.'), out_(to.size(), '.') {
    std::size_t i = 0, j = 0;
    while (i < from.size() || j < to.size()) {
      const std::size_t first_in = i, first_out = j;
      std::int64_t left = i < from.size() ? from[i++] : 1, right = j < to.size() ? to[j++] : 1;
      while (left != right)
        if (left < right && i < from.size())
          left *= from[i++];
        else if (j < to.size())
          right *= to[j++];
        else
          return;  // sizes of zero: nothing to shard
      group(first_in, i, first_out, j);
    }
  }

  Rule rule() const {
    Rule rule = same_values(in_, {out_});
    rule.divisible = divisible_;
    return rule;
  }

 private:
  void group(std::size_t in_begin, std::size_t in_end, std::size_t out_begin, std::size_t out_end) {
    while (in_begin < in_end && from_[in_begin] == 1) ++in_begin;  // a dimension of size one splits nothing
    while (out_begin < out_end && to_[out_begin] == 1) ++out_begin;
    if (in_begin == in_end || out_begin == out_end) return;
    const char letter = static_cast<char>('a' + n_letters_++);
    in_[in_begin] = out_[out_begin] = letter;
    const std::int64_t outer_in = from_[in_begin], outer_out = to_[out_begin];
    if (outer_in != outer_out) divisible_[letter] = std::gcd(outer_in, outer_out);
  }

  const Sizes &from_, &to_;
  std::string in_, out_;
  std::map<char, std::int64_t> divisible_;
  int n_letters_ = 0;
};

Rule view(const OpCall& call) {
  const Sizes& from = call.tensors[0];
  const Sizes to = resolved(call.integers(1), product(from));
  if (product(from) != product(to)) throw std::invalid_argument("the sizes hold another number of elements");
  Rule rule =
      product(from) == 0 ? same_values(std::string(from.size(), '.'), {std::string(to.size(), '.')}) : Regrouping(from, to).rule();
  rule.always_local_form = true;
  rule.shape_arguments = {{.argument = 1, .output = 0}};
  return rule;
}

/// The dimensions of the operand in another order.
Rule reordered(const OpCall& call, const std::vector<std::size_t>& order) {
  const std::string in = letters(call.tensors[0].size());
  std::string out;
  for (const std::size_t dim : order) out += in[dim];
  return same_values(in, {out});
}

Rule t(const OpCall& call) {
  return call.tensors[0].size() < 2
             ? reordered(call, call.tensors[0].empty() ? std::vector<std::size_t>() : std::vector<std::size_t>{0})
             : reordered(call, {1, 0});
}

Rule transpose(const OpCall& call) {
  std::vector<std::size_t> order(call.tensors[0].size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!order.empty()) std::swap(order[wrapped(call.integer(1), order.size())], order[wrapped(call.integer(2), order.size())]);
  return reordered(call, order);
}

Rule permute(const OpCall& call) {
  std::vector<std::size_t> order;
  for (const std::int64_t dim : call.integers(1)) order.push_back(wrapped(dim, call.tensors[0].size()));
  return reordered(call, order);
}

Rule unsqueeze(const OpCall& call) {
  const std::string in = letters(call.tensors[0].size());
  std::string out = in;
  out.insert(wrapped(call.integer(1), in.size() + 1), 1, '.');
  return same_values(in, {out});
}

/// squeeze: all dimensions of size one, or those given.
Rule squeeze(const OpCall& call) {
  const Sizes& shape = call.tensors[0];
  std::vector<bool> chosen(shape.size(), call.arguments.size() < 2);
  if (call.arguments.size() > 1)
    for (const std::int64_t dim : call.integers(1)) chosen[wrapped(dim, shape.size())] = true;
  std::string in = letters(shape.size()), out;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) in[i] = '.';  // a rank that holds nothing of it would squeeze nothing
    if (!(chosen[i] && shape[i] == 1)) out += in[i];
  }
  return same_values(in, {out});
}

Rule expand(const OpCall& call) {
  const Sizes& from = call.tensors[0];
  const Sizes to = call.integers(1);
  std::string in = letters(from.size()), out(to.size(), '.');
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::int64_t size = to[to.size() - from.size() + i];
    if (from[i] == 1 && size != 1 && size != -1)
      in[i] = '1';
    else
      out[to.size() - from.size() + i] = in[i];
  }
  Rule rule = same_values(in, {out});
  rule.shape_arguments = {{.argument = 1, .output = 0}};
  return rule;
}

/// Takes something out of dimension `dim`, which therefore is whole, and drops it or not.
Rule cut(const OpCall& call, std::int64_t dim, bool drops, std::size_t n_outputs = 1) {
  std::string in = letters(call.tensors[0].size());
  const std::size_t place = wrapped(dim, in.size());
  in[place] = '.';
  std::string out = in;
  if (drops) out.erase(place, 1);
  return same_values(in, std::vector<std::string>(n_outputs, out));
}

Rule select(const OpCall& call) {
  return cut(call, call.integer(1), true);
}
Rule slice(const OpCall& call) {
  const std::int64_t dim = call.integer(1), size = call.tensors[0].at(wrapped(dim, call.tensors[0].size()));
  const bool from_start = call.is_none(2) || call.integer(2) == 0, to_end = call.is_none(3) || call.integer(3) >= size;
  if (from_start && to_end && call.integer(4) == 1)
    return same_values(letters(call.tensors[0].size()), {letters(call.tensors[0].size())});
  return cut(call, dim, false);
}
Rule split(const OpCall& call) {
  const std::int64_t dim = call.integer(2), size = call.tensors[0].at(wrapped(dim, call.tensors[0].size()));
  const std::int64_t part = call.integer(1);
  return cut(call, dim, false, static_cast<std::size_t>(part == 0 || size == 0 ? 1 : (size + part - 1) / part));
}
Rule split_with_sizes(const OpCall& call) {
  return cut(call, call.integer(2), false, call.integers(1).size());
}
Rule unbind(const OpCall& call) {
  const std::int64_t dim = call.integer(1);
  return cut(call, dim, true, static_cast<std::size_t>(call.tensors[0].at(wrapped(dim, call.tensors[0].size()))));
}

constexpr RuleRow kTable[] = {
    {"aten::view", view},
    {"aten::_unsafe_view", view},
    {"aten::_reshape_alias", view},
    {"aten::t", t},
    {"aten::transpose.int", transpose},
    {"aten::permute", permute},
    {"aten::unsqueeze", unsqueeze},
    {"aten::squeeze", squeeze},
    {"aten::squeeze.dim", squeeze},
    {"aten::squeeze.dims", squeeze},
    {"aten::expand", expand},
    {"aten::select.int", select},
    {"aten::slice.Tensor", slice},
    {"aten::split.Tensor", split},
    {"aten::split_with_sizes", split_with_sizes},
    {"aten::unbind.int", unbind},
};

}  // namespace

std::span<const RuleRow> view_rules() {
  return kTable;
}

}  // namespace precast::dtensor
