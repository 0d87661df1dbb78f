#pragma once

#include "config.h"

#include <torch/torch.h>

namespace gpt {

/// Causal self-attention of one block: x [batch, sequence, width] to the same shape.
struct AttentionImpl : torch::nn::Module {
  explicit AttentionImpl(const Config::Model& config);
  torch::Tensor forward(const torch::Tensor& x);

  std::int64_t heads;
  double dropout;
  torch::nn::Linear c_attn, c_proj;
  torch::nn::Dropout resid_dropout;
};
TORCH_MODULE(Attention);

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(const Config::Model& config);
  torch::Tensor forward(const torch::Tensor& x);

  torch::nn::Linear c_fc, c_proj;
  torch::nn::Dropout dropout;
};
TORCH_MODULE(Mlp);

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const Config::Model& config);
  torch::Tensor forward(const torch::Tensor& x);

  torch::nn::LayerNorm ln_1;
  Attention attn;
  torch::nn::LayerNorm ln_2;
  Mlp mlp;
};
TORCH_MODULE(Block);

/// Embeddings, blocks and the last norm: tokens int64 [batch, sequence] to [batch, sequence, width].
struct TransformerImpl : torch::nn::Module {
  TransformerImpl(const Config::Model& config, std::int64_t sequence);
  torch::Tensor forward(const torch::Tensor& tokens);

  torch::nn::Embedding wte, wpe;
  torch::nn::Dropout drop;
  torch::nn::ModuleList h;
  torch::nn::LayerNorm ln_f;
};
TORCH_MODULE(Transformer);

/// A GPT over bytes with pre-norm blocks. Parameter names are nanoGPT's ("transformer.h.0.attn.c_attn.weight"); a tied head has no
/// parameter of its own. Weights are drawn from the default generator: normal, 0.02, those that write to the residual stream
/// divided by sqrt(2 layers).
struct GptImpl : torch::nn::Module {
  GptImpl(const Config::Model& config, std::int64_t sequence);

  /// tokens int64 [batch, sequence], at most the sequence of construction; returns logits [batch, sequence, 256].
  torch::Tensor forward(const torch::Tensor& tokens);

  Transformer transformer;
  torch::nn::Linear lm_head = nullptr;  ///< Empty where the head is tied to the token embedding.
};
TORCH_MODULE(Gpt);

/// Elements of all parameters of a Gpt, known before one is made.
std::int64_t n_parameters(const Config::Model& config, std::int64_t sequence);

}  // namespace gpt
