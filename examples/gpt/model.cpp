#include "model.h"

#include "data.h"

#include "precast/dtensor.h"

#include <cmath>

namespace gpt {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using torch::Tensor;

AttentionImpl::AttentionImpl(const Config::Model& config)
    : heads(config.heads),
      dropout(config.dropout),
      c_attn(register_module("c_attn", nn::Linear(config.width, 3 * config.width))),
      c_proj(register_module("c_proj", nn::Linear(config.width, config.width))),
      resid_dropout(register_module("resid_dropout", nn::Dropout(config.dropout))) {}

Tensor AttentionImpl::forward(const Tensor& x) {
  const auto batch = x.size(0), sequence = x.size(1), width = x.size(2);
  // Query, key and value of a head lie together, so that a part of the projection's rows is a number of whole heads.
  const auto qkv = c_attn(x).view({batch, sequence, heads, 3, width / heads}).transpose(1, 2).unbind(3);
  const precast::ImplicitReplication causal_mask;  // which attention with dropout makes, the same on every rank
  const Tensor y = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, is_training() ? dropout : 0.0, /*is_causal=*/true);
  return resid_dropout(c_proj(y.transpose(1, 2).contiguous().view({batch, sequence, width})));
}

MlpImpl::MlpImpl(const Config::Model& config)
    : c_fc(register_module("c_fc", nn::Linear(config.width, 4 * config.width))),
      c_proj(register_module("c_proj", nn::Linear(4 * config.width, config.width))),
      dropout(register_module("dropout", nn::Dropout(config.dropout))) {}

Tensor MlpImpl::forward(const Tensor& x) {
  return dropout(c_proj(torch::gelu(c_fc(x))));
}

BlockImpl::BlockImpl(const Config::Model& config)
    : ln_1(register_module("ln_1", nn::LayerNorm(nn::LayerNormOptions({config.width})))),
      attn(register_module("attn", Attention(config))),
      ln_2(register_module("ln_2", nn::LayerNorm(nn::LayerNormOptions({config.width})))),
      mlp(register_module("mlp", Mlp(config))) {}

Tensor BlockImpl::forward(const Tensor& x) {
  const Tensor y = x + attn(ln_1(x));
  return y + mlp(ln_2(y));
}

TransformerImpl::TransformerImpl(const Config::Model& config, std::int64_t sequence)
    : wte(register_module("wte", nn::Embedding(kVocabulary, config.width))),
      wpe(register_module("wpe", nn::Embedding(sequence, config.width))),
      drop(register_module("drop", nn::Dropout(config.dropout))),
      h(register_module("h", nn::ModuleList())),
      ln_f(register_module("ln_f", nn::LayerNorm(nn::LayerNormOptions({config.width})))) {
  for (std::int64_t layer = 0; layer < config.layers; ++layer) h->push_back(Block(config));
}

Tensor TransformerImpl::forward(const Tensor& tokens) {
  Tensor x = drop(wte(tokens) + wpe->weight.narrow(0, 0, tokens.size(1)));
  for (const auto& block : *h) x = block->as<Block>()->forward(x);
  return ln_f(x);
}

GptImpl::GptImpl(const Config::Model& config, std::int64_t sequence)
    : transformer(register_module("transformer", Transformer(config, sequence))) {
  if (!config.tied) lm_head = register_module("lm_head", nn::Linear(nn::LinearOptions(config.width, kVocabulary).bias(false)));
  const torch::NoGradGuard no_grad;
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
  for (auto& parameter : named_parameters()) {
    const bool writes_residual = parameter.key().ends_with("c_proj.weight");
    if (parameter.value().dim() >= 2) parameter.value().normal_(0.0, writes_residual ? residual : 0.02);
    if (parameter.key().ends_with(".bias")) parameter.value().zero_();
  }
}

std::int64_t n_parameters(const Config::Model& config, std::int64_t sequence) {
  const std::int64_t width = config.width, norm = 2 * width, embeddings = (config.tied ? 1 : 2) * kVocabulary + sequence;
  const std::int64_t attention = 4 * width * width + 4 * width, mlp = 8 * width * width + 5 * width;
  return embeddings * width + config.layers * (2 * norm + attention + mlp) + norm;
}

Tensor GptImpl::forward(const Tensor& tokens) {
  const Tensor x = transformer(tokens);
  return lm_head.is_empty() ? F::linear(x, transformer->wte->weight) : lm_head(x);
}

}  // namespace gpt
