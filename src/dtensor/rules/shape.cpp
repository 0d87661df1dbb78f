#include "dtensor/rules/tables.h"

namespace precast::dtensor {
namespace {

std::size_t wrapped(std::int64_t dim, std::size_t n) {
  return static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(n) : dim);
}

/// Operands and result partial alike: the op moves values and computes none.
void allow_partial(Rule& rule, std::initializer_list<Reduction> reductions) {
  for (const Reduction reduction : reductions)
    rule.alternatives.push_back({.inputs = std::vector<Placement>(rule.inputs.size(), Partial(reduction)),
                                 .outputs = std::vector<Placement>(rule.outputs.size(), Partial(reduction))});
}

/// The dimensions that `whole` names must be; the others may be sharded.
std::string letters_but(std::size_t n, const Sizes& whole) {
  std::string text = letters(n);
  for (const std::int64_t dim : whole) text[wrapped(dim, n)] = '.';
  return text;
}

Rule cat(const OpCall& call) {
  Rule rule;
  std::size_t n = 0;
  for (const Sizes& shape : call.tensors) n = std::max(n, shape.size());
  const std::string all = letters_but(n, {call.integer(1)});
  for (const Sizes& shape : call.tensors) rule.inputs.push_back(shape.size() == n ? all : std::string(shape.size(), '.'));
  rule.outputs = {all};
  allow_partial(rule, {Reduction::sum, Reduction::avg, Reduction::max, Reduction::min});
  return rule;
}

Rule stack(const OpCall& call) {
  const std::size_t n = call.tensors[0].size();
  Rule rule{.inputs = std::vector<std::string>(call.tensors.size(), letters(n)), .outputs = {letters(n)}};
  rule.outputs[0].insert(wrapped(call.integer(1), n + 1), 1, '.');
  allow_partial(rule, {Reduction::sum, Reduction::avg, Reduction::max, Reduction::min});
  return rule;
}

Rule repeat(const OpCall& call) {
  const Sizes repeats = call.integers(1);
  const std::size_t n = call.tensors[0].size();
  Rule rule{.inputs = {letters(n)}, .outputs = {std::string(repeats.size(), '.')}};
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t place = repeats.size() - n + i;
    if (repeats[place] == 1)
      rule.outputs[0][place] = rule.inputs[0][i];
    else
      rule.inputs[0][i] = '.';
  }
  allow_partial(rule, {Reduction::sum, Reduction::avg});
  return rule;
}

/// One tensor to one of the same dimensions, of which `whole` must be.
Rule keeps_dims(const OpCall& call, const Sizes& whole, bool linear, std::size_t n_outputs = 1) {
  const std::string all = letters_but(call.tensors[0].size(), whole);
  Rule rule{.inputs = std::vector<std::string>(call.tensors.size(), all), .outputs = std::vector<std::string>(n_outputs, all)};
  if (linear) allow_partial(rule, {Reduction::sum, Reduction::avg});
  return rule;
}

Rule flip(const OpCall& call) {
  return keeps_dims(call, call.integers(1), true);
}
Rule roll(const OpCall& call) {
  const Sizes dims = call.integers(2);
  if (!dims.empty()) return keeps_dims(call, dims, true);
  Rule rule = keeps_dims(call, {}, true);
  rule.inputs[0] = rule.outputs[0] = std::string(call.tensors[0].size(), '.');
  return rule;
}
Rule triangle(const OpCall& call) {
  return keeps_dims(call, {-2, -1}, true);
}
Rule along_dim_1(const OpCall& call) {
  return keeps_dims(call, {call.integer(1)}, true);
}
Rule sort(const OpCall& call) {
  return keeps_dims(call, {call.integer(1)}, false, 2);
}
Rule topk(const OpCall& call) {
  return keeps_dims(call, {call.integer(2)}, false, 2);
}

/// constant_pad_nd(self, pad, value): pairs from the last dimension on.
Rule pad(const OpCall& call) {
  const Sizes padding = call.integers(1);
  Sizes whole;
  for (std::size_t i = 0; i < padding.size() / 2; ++i)
    if (padding[2 * i] != 0 || padding[2 * i + 1] != 0) whole.push_back(-1 - static_cast<std::int64_t>(i));
  return keeps_dims(call, whole, false);
}

/// slice_backward(gradient, input_sizes, dim, ...): the gradient in its place among zeros.
Rule slice_backward(const OpCall& call) {
  Rule rule = keeps_dims(call, {call.integer(2)}, true);
  rule.shape_arguments = {{.argument = 1, .output = 0}};
  return rule;
}

/// select_backward(gradient, input_sizes, dim, index).
Rule select_backward(const OpCall& call) {
  const std::size_t n = call.tensors[0].size();
  Rule rule{.inputs = {letters(n)}, .outputs = {letters(n)}, .shape_arguments = {{.argument = 1, .output = 0}}};
  rule.outputs[0].insert(wrapped(call.integer(2), n + 1), 1, '.');
  allow_partial(rule, {Reduction::sum, Reduction::avg});
  return rule;
}

/// select_scatter(self, src, dim, index) and slice_scatter(self, src, dim, ...).
Rule select_scatter(const OpCall& call) {
  Rule rule = keeps_dims(call, {call.integer(2)}, true);
  rule.inputs[1].erase(wrapped(call.integer(2), rule.inputs[0].size()), 1);
  return rule;
}
Rule slice_scatter(const OpCall& call) {
  return keeps_dims(call, {call.integer(2)}, true);
}

/// new_zeros(self, size, ...) and its kind: of self only the dtype counts. Of self's own shape the result lies as self does; of
/// another it is whole, however self lies.
Rule make_new(const OpCall& call) {
  const Sizes& self = call.tensors[0];
  const bool strided = call.op == "aten::new_empty_strided";
  if (call.integers(1) == self) {
    Rule rule = keeps_dims(call, {}, strided);
    rule.shape_arguments = {{.argument = 1, .output = 0}};
    if (strided) rule.shape_arguments.push_back({.argument = 2, .output = 0, .is_strides = true});
    if (!strided)
      for (const Reduction reduction : {Reduction::sum, Reduction::avg, Reduction::max, Reduction::min})
        rule.alternatives.push_back({.inputs = {Partial(reduction)}, .outputs = {Replicate()}});
    return rule;
  }
  Rule rule{.inputs = {std::string(self.size(), '.')}, .outputs = {std::string(call.integers(1).size(), '.')}};
  for (std::size_t dim = 0; dim < self.size(); ++dim)
    for (const bool stored : {false, true})
      for (const bool strides : {false, true}) {
        Shard shard(static_cast<std::int64_t>(dim));
        shard.stored = stored;
        shard.strided = strides;
        rule.alternatives.push_back({.inputs = {shard}, .outputs = {Replicate()}});
      }
  for (const Reduction reduction : {Reduction::sum, Reduction::avg, Reduction::max, Reduction::min})
    rule.alternatives.push_back({.inputs = {Partial(reduction)}, .outputs = {Replicate()}});
  return rule;
}

constexpr RuleRow kTable[] = {
    {"aten::cat", cat},
    {"aten::stack", stack},
    {"aten::repeat", repeat},
    {"aten::flip", flip},
    {"aten::roll", roll},
    {"aten::tril", triangle},
    {"aten::triu", triangle},
    {"aten::cumsum", along_dim_1},
    {"aten::sort", sort},
    {"aten::topk", topk},
    {"aten::constant_pad_nd", pad},
    {"aten::slice_backward", slice_backward},
    {"aten::select_backward", select_backward},
    {"aten::select_scatter", select_scatter},
    {"aten::slice_scatter", slice_scatter},
    {"aten::new_zeros", make_new},
    {"aten::new_ones", make_new},
    {"aten::new_full", make_new},
    {"aten::new_empty", make_new},
    {"aten::new_empty_strided", make_new},
};

}  // namespace

std::span<const RuleRow> shape_rules() {
  return kTable;
}

}  // namespace precast::dtensor
