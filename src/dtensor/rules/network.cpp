#include "dtensor/rules/tables.h"

#include <algorithm>
#include <stdexcept>

namespace precast::dtensor {
namespace {

// Values of at::Reduction.
constexpr std::int64_t kNone = 0, kMean = 1;

std::size_t wrapped(std::int64_t dim, std::size_t n) {
  return static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(n) : dim);
}

/// softmax and log_softmax: along a sharded dimension the ranks exchange the largest value and the sum.
Rule softmax_along(const OpCall& call, std::size_t dim_argument) {
  const std::string all = letters(call.tensors[0].size());
  Rule rule{.inputs = std::vector<std::string>(call.tensors.size(), all), .outputs = {all}, .computes = true};
  if (!all.empty()) rule.local_form_letters = all[wrapped(call.integer(dim_argument), all.size())];
  return rule;
}
Rule softmax(const OpCall& call) {
  return softmax_along(call, 1);
}
/// _safe_softmax(self, dim, dtype): whole along the dimension.
Rule safe_softmax(const OpCall& call) {
  Rule rule = softmax_along(call, 1);
  for (std::string* labels : {&rule.inputs[0], &rule.outputs[0]})
    std::ranges::replace_if(
        *labels, [&](char c) { return rule.local_form_letters.find(c) != std::string::npos; }, '.');
  rule.local_form_letters.clear();
  return rule;
}
Rule softmax_backward(const OpCall& call) {
  return softmax_along(call, 2);
}

/// Letters of the dimensions before the normalised ones, which are whole.
std::string norm_letters(std::size_t n_dims, std::size_t n_normalized) {
  return letters(n_dims - n_normalized) + std::string(n_normalized, '.');
}

/// native_layer_norm(input, normalized_shape, weight, bias, eps): result, mean, rstd.
Rule layer_norm(const OpCall& call) {
  const std::size_t n = call.tensors[0].size(), normalized = call.integers(1).size();
  const std::string all = norm_letters(n, normalized);
  Rule rule{.inputs = {all}, .outputs = {all, all, all}, .computes = true};
  for (std::size_t i = 1; i < call.tensors.size(); ++i) rule.inputs.emplace_back(normalized, '.');
  return rule;
}

/// native_layer_norm_backward(gradient, input, normalized_shape, mean, rstd, weight, bias, mask): gradients of input, weight and
/// bias.
Rule layer_norm_backward(const OpCall& call) {
  const std::size_t n = call.tensors[0].size(), normalized = call.integers(2).size();
  const std::string all = norm_letters(n, normalized), whole(normalized, '.');
  Rule rule{.inputs = {all, all, all, all},
            .outputs = {all, whole, whole},
            .over_missing = {Missing::none, Missing::sum, Missing::sum},
            .computes = true};
  for (std::size_t i = 4; i < call.tensors.size(); ++i) rule.inputs.push_back(whole);
  return rule;
}

/// Batch n, channels c, and dimensions that are whole.
std::string image(std::size_t n_dims, bool batch, bool channels) {
  std::string text(n_dims, '.');
  if (n_dims > 0 && batch) text[0] = 'n';
  if (n_dims > 1 && channels) text[1] = 'c';
  return text;
}

/// native_batch_norm(input, weight, bias, running_mean, running_var, training, ...): statistics of a batch need all of it; with
/// running ones each sample stands for itself.
Rule batch_norm(const OpCall& call) {
  const bool training = call.flag(5);
  const std::string all = image(call.tensors[0].size(), !training, true);
  Rule rule{.inputs = {all}, .outputs = {all, training ? "c" : ".", training ? "c" : "."}, .computes = true};
  if (!training) rule.over_missing = {Missing::none, Missing::whole, Missing::whole};
  for (std::size_t i = 1; i < call.tensors.size(); ++i) rule.inputs.emplace_back("c");
  return rule;
}

/// native_batch_norm_backward(gradient, input, weight, running_mean, running_var, save_mean, save_invstd, train, ...).
Rule batch_norm_backward(const OpCall& call) {
  const std::string all = image(call.tensors[0].size(), false, true);
  Rule rule{.inputs = {all, all}, .outputs = {all, "c", "c"}, .computes = true};
  for (std::size_t i = 2; i < call.tensors.size(); ++i)
    rule.inputs.emplace_back(call.tensors[i].size(), call.tensors[i].size() == 1 && call.tensors[i][0] > 0 ? 'c' : '.');
  return rule;
}

/// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups): samples, and output channels
/// where there is one group.
Rule convolution(const OpCall& call) {
  const std::size_t n = call.tensors[0].size();
  const bool by_channel = !call.flag(6) && call.integer(8) == 1;
  Rule rule{.inputs = {image(n, true, false), std::string(n, '.')}, .outputs = {image(n, true, by_channel)}, .computes = true};
  if (by_channel) rule.inputs[1][0] = 'c';
  if (call.has_tensor(2)) rule.inputs.emplace_back(by_channel ? "c" : ".");
  return rule;
}

/// convolution_backward(gradient, input, weight, ...): gradients of input, weight and bias.
Rule convolution_backward(const OpCall& call) {
  const std::size_t n = call.tensors[0].size();
  const std::string samples = image(n, true, false);
  return {.inputs = {samples, samples, std::string(n, '.')},
          .outputs = {samples, std::string(n, '.'), "."},
          .over_missing = {Missing::none, Missing::sum, Missing::sum},
          .computes = true};
}

/// Pooling windows lie within a sample and a channel. An image without a batch has only channels.
Rule pool(const OpCall& call, std::size_t n_outputs) {
  const std::size_t n = call.tensors[0].size();
  const std::string all = n == 4 ? "nc.." : n == 3 ? "c.." : std::string(n, '.');
  return {.inputs = std::vector<std::string>(call.tensors.size(), all),
          .outputs = std::vector<std::string>(n_outputs, all),
          .never_empty = "nc"};
}
Rule pool_with_indices(const OpCall& call) {
  return pool(call, 2);
}
Rule pool_alone(const OpCall& call) {
  return pool(call, 1);
}

/// Letters of a mask that is broadcast to [b, h, query, key].
std::string mask_letters(const Sizes& mask, const Sizes& query) {
  std::string text(mask.size(), '.');
  for (std::size_t i = 0; i < 2 && mask.size() == 4; ++i) text[i] = mask[i] == 1 && query[i] != 1 ? '1' : "bh"[i];
  if (mask.size() == 3) text[0] = mask[0] == 1 && query[1] != 1 ? '1' : 'h';
  return text;
}

/// Attention by heads and samples: query, key and value are [b, h, length, size]. `n_plain` operands come before the mask, all but
/// the log of the sums (`sums`) of four dimensions.
Rule attention(const OpCall& call, std::size_t n_plain, std::size_t sums, std::vector<std::string> outputs) {
  const bool same_heads = call.tensors[n_plain == 3 ? 0 : 1][1] == call.tensors[n_plain == 3 ? 1 : 2][1];
  const std::string all = same_heads ? "bh.." : "b...";
  Rule rule{.outputs = std::move(outputs), .computes = true};
  for (std::size_t i = 0; i < call.tensors.size(); ++i)
    rule.inputs.push_back(i >= n_plain ? mask_letters(call.tensors[i], call.tensors[n_plain == 3 ? 0 : 1])
                          : i == sums  ? all.substr(0, 3)
                                       : all);
  rule.never_empty = "bh";
  if (!same_heads)
    for (std::string& labels : rule.outputs) labels[1] = '.';
  if (!same_heads && call.tensors.size() > n_plain) std::ranges::replace(rule.inputs.back(), 'h', '.');
  return rule;
}
void refuse_dropout(const OpCall& call, std::size_t argument) {
  if (std::get<double>(call.arguments.at(argument)) != 0)
    throw std::invalid_argument(
        "it drops attention weights by random numbers of its own, which each rank would draw alone; use no dropout "
        "inside attention");
}
Rule flash_attention(const OpCall& call) {
  refuse_dropout(call, 3);
  return attention(call, 3, 9, {"bh..", "bh."});
}
Rule flash_attention_backward(const OpCall& call) {
  refuse_dropout(call, 6);
  return attention(call, 6, 5, {"bh..", "bh..", "bh.."});
}

/// nll_loss_forward(self, target, weight, reduction, ignored): samples n, classes c. The total weight is that of the whole batch,
/// which takes an exchange; so does a class that another rank has.
Rule nll_loss(const OpCall& call) {
  const bool batch = call.tensors[0].size() == 2, none = call.integer(3) == kNone;
  Rule rule{.inputs = {batch ? "nc" : "c", batch ? "n" : ""},
            .outputs = {none && batch ? "n" : "", ""},
            .over_missing = {Missing::sum, Missing::whole},
            .local_form_letters = none ? "c" : "nc"};
  if (call.has_tensor(2)) rule.inputs.emplace_back(".");
  return rule;
}

/// nll_loss_backward(gradient, self, target, weight, reduction, ignored, total_weight).
Rule nll_loss_backward(const OpCall& call) {
  const bool batch = call.tensors[1].size() == 2, none = call.integer(4) == kNone;
  Rule rule{.inputs = {none && batch ? "n" : "", batch ? "nc" : "c", batch ? "n" : ""},
            .outputs = {batch ? "nc" : "c"},
            .local_form_letters = "c"};
  if (call.has_tensor(3)) rule.inputs.emplace_back(".");
  rule.inputs.emplace_back("");
  return rule;
}

/// A loss of two tensors, element by element, then reduced: (self, target, ..., reduction at `argument`).
Rule loss(const OpCall& call, std::size_t argument) {
  const std::string all = letters(call.tensors[0].size());
  const std::int64_t reduction = call.integer(argument);
  Rule rule{.inputs = std::vector<std::string>(call.tensors.size(), all), .outputs = {reduction == kNone ? all : ""}};
  if (reduction != kNone) rule.over_missing = {reduction == kMean ? Missing::avg : Missing::sum};
  if (call.tensors.size() > 1 && call.tensors[1] != call.tensors[0])  // operands that are broadcast: whole
    for (std::size_t i = 0; i < call.tensors.size(); ++i) rule.inputs[i].assign(call.tensors[i].size(), '.');
  return rule;
}
Rule loss_reduction_2(const OpCall& call) {
  return loss(call, 2);
}
Rule loss_reduction_3(const OpCall& call) {
  return loss(call, 3);
}

/// (gradient, self, target, reduction at `argument`): a mean divides by the number of all elements, which a rank's kernel does not
/// know.
Rule loss_backward(const OpCall& call, std::size_t argument) {
  const std::string all = letters(call.tensors[1].size());
  const std::int64_t reduction = call.integer(argument);
  Rule rule{.inputs = {call.tensors[0].empty() ? "" : all, all, all}, .outputs = {all}};
  if (reduction == kMean) rule.local_form_letters = all;
  if (call.tensors[2] != call.tensors[1])
    rule.inputs = {std::string(call.tensors[0].size(), '.'), std::string(all.size(), '.'),
                   std::string(call.tensors[2].size(), '.')};
  if (call.tensors[2] != call.tensors[1]) rule.outputs = {std::string(all.size(), '.')};
  return rule;
}
Rule loss_backward_3(const OpCall& call) {
  return loss_backward(call, 3);
}

constexpr RuleRow kTable[] = {
    {"aten::_softmax", softmax},
    {"aten::_log_softmax", softmax},
    {"aten::_safe_softmax", safe_softmax},
    {"aten::_softmax_backward_data", softmax_backward},
    {"aten::_log_softmax_backward_data", softmax_backward},
    {"aten::native_layer_norm", layer_norm},
    {"aten::native_layer_norm_backward", layer_norm_backward},
    {"aten::native_batch_norm", batch_norm},
    {"aten::native_batch_norm_backward", batch_norm_backward},
    {"aten::convolution", convolution},
    {"aten::convolution_backward", convolution_backward},
    {"aten::max_pool2d_with_indices", pool_with_indices},
    {"aten::max_pool2d_with_indices_backward", pool_alone},
    {"aten::avg_pool2d", pool_alone},
    {"aten::avg_pool2d_backward", pool_alone},
    {"aten::_adaptive_avg_pool2d", pool_alone},
    {"aten::_adaptive_avg_pool2d_backward", pool_alone},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", flash_attention},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", flash_attention_backward},
    {"aten::nll_loss_forward", nll_loss},
    {"aten::nll_loss_backward", nll_loss_backward},
    {"aten::mse_loss", loss_reduction_2},
    {"aten::mse_loss_backward", loss_backward_3},
    {"aten::smooth_l1_loss", loss_reduction_2},
    {"aten::huber_loss", loss_reduction_2},
    {"aten::binary_cross_entropy", loss_reduction_3},
};

}  // namespace

std::span<const RuleRow> network_rules() {
  return kTable;
}

}  // namespace precast::dtensor
