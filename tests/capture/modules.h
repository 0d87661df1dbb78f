#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

namespace precast::test {

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(double dropout = 0.0) : dropout(dropout) {
    fc1 = register_module("fc1", torch::nn::Linear(8, 16));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})));
    fc2 = register_module("fc2", torch::nn::Linear(16, 4));
  }
  at::Tensor forward(const at::Tensor& x) { return fc2(torch::dropout(torch::gelu(norm(fc1(x))), dropout, is_training())); }
  double dropout;
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};
TORCH_MODULE(Mlp);

struct NormNetImpl : torch::nn::Module {
  NormNetImpl() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1)));
    bn = register_module("bn", torch::nn::BatchNorm2d(4));
    head = register_module("head", torch::nn::Linear(4, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return head(torch::relu(bn(conv(x))).mean({2, 3})); }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d bn{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(NormNet);

/// A second model with the same values: what LibTorch eager trains.
template <class Holder>
Holder copy_of(const Holder& model, Holder fresh) {
  const torch::NoGradGuard no_grad;
  const auto parameters = model->parameters();
  const auto buffers = model->buffers();
  for (std::size_t i = 0; i < parameters.size(); ++i) fresh->parameters()[i].copy_(parameters[i]);
  for (std::size_t i = 0; i < buffers.size(); ++i) fresh->buffers()[i].copy_(buffers[i]);
  fresh->train(model->is_training());
  return fresh;
}

}  // namespace precast::test
