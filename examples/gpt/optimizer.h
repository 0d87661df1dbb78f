#pragma once

#include "config.h"

#include <torch/torch.h>

namespace gpt {

/// AdamW with two groups: matrices decay, biases and norms do not.
torch::optim::AdamW make_optimizer(const torch::nn::Module& model, const Config::Optimizer& config);

/// Learning rate of a step counted from 0: a straight line up over `warmup` steps, a half cosine down to min_lr at `decay_steps`,
/// and min_lr from there. Example, lr 1, min_lr 0, warmup 2, decay_steps 6: 0.5, 1, 1, 0.85, 0.5, 0.15, 0, 0, ...
double learning_rate(const Config::Optimizer& config, std::int64_t step);

/// Clips the norm of all gradients together, steps with the learning rate of `step`, and clears the gradients.
void update(torch::nn::Module& model, torch::optim::AdamW& optimizer, const Config::Optimizer& config, std::int64_t step);

}  // namespace gpt
