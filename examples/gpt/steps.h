#pragma once

#include "model.h"

namespace gpt {

/// Mean loss of one batch in nats per byte; with `bfloat16`, the forward pass runs under autocast.
torch::Tensor loss_of(Gpt& model, const torch::Tensor& tokens, const torch::Tensor& targets, bool bfloat16);

/// The step that is compiled: forward, loss, backward of one micro-batch. The loss is divided by the number of micro-batches, so
/// that gradients accumulated over all of them are those of the mean.
inline auto make_train_step(const Config::Train& config) {
  return [accumulate = config.accumulate, bfloat16 = config.dtype == "bfloat16"](Gpt& model, const torch::Tensor& tokens,
                                                                                 const torch::Tensor& targets) {
    torch::Tensor loss = loss_of(model, tokens, targets, bfloat16) / accumulate;
    loss.backward();
    return loss.detach();
  };
}

/// The second compiled program: the loss alone.
inline auto make_eval_step(const Config::Train& config) {
  return [bfloat16 = config.dtype == "bfloat16"](Gpt& model, const torch::Tensor& tokens, const torch::Tensor& targets) {
    const torch::NoGradGuard no_grad;
    return loss_of(model, tokens, targets, bfloat16);
  };
}

}  // namespace gpt
