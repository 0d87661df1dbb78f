#include "optimizer.h"

#include <cmath>
#include <numbers>

namespace gpt {

torch::optim::AdamW make_optimizer(const torch::nn::Module& model, const Config::Optimizer& config) {
  std::vector<torch::Tensor> matrices, vectors;
  for (const torch::Tensor& parameter : model.parameters()) (parameter.dim() >= 2 ? matrices : vectors).push_back(parameter);
  const auto options = [&](double weight_decay) {
    return torch::optim::AdamWOptions(config.lr).betas({config.beta1, config.beta2}).eps(config.eps).weight_decay(weight_decay);
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(matrices, std::make_unique<torch::optim::AdamWOptions>(options(config.weight_decay)));
  groups.emplace_back(vectors, std::make_unique<torch::optim::AdamWOptions>(options(0.0)));
  return torch::optim::AdamW(groups, options(0.0));
}

double learning_rate(const Config::Optimizer& config, std::int64_t step) {
  if (step < config.warmup) return config.lr * static_cast<double>(step + 1) / static_cast<double>(config.warmup);
  if (step >= config.decay_steps) return config.min_lr;
  const double done = static_cast<double>(step - config.warmup) / static_cast<double>(config.decay_steps - config.warmup);
  return config.min_lr + 0.5 * (1.0 + std::cos(std::numbers::pi * done)) * (config.lr - config.min_lr);
}

void update(torch::nn::Module& model, torch::optim::AdamW& optimizer, const Config::Optimizer& config, std::int64_t step) {
  if (config.clip > 0) torch::nn::utils::clip_grad_norm_(model.parameters(), config.clip);
  for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate(config, step));
  optimizer.step();
  optimizer.zero_grad();
}

}  // namespace gpt
