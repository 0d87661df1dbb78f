#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gpt {

/// Where the job stands: `losses` holds one number a step done so far, so that its length is also the position in the data.
struct Curve {
  std::vector<double> losses, eval_losses;
  [[nodiscard]] std::int64_t step() const { return static_cast<std::int64_t>(losses.size()); }
};

/// What must be equal for a run to go on where the checkpoint stopped: setting -> value, as text.
using Identity = std::map<std::string, std::string>;

/// The whole tensors of model and optimizer, by name, and the optimizer's step.
struct TrainingState {
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  std::int64_t optimizer_step = 0;
};

/// Collective where parameters are distributed.
TrainingState whole_state(const torch::nn::Module& model, torch::optim::AdamW& optimizer);

/// Parameters, AdamW's state, the curve, and the state of each rank's generator, in one block of bytes: a line that names the
/// format, the sha256 of all that follows, a JSON header, and the tensors' raw bytes. Nothing in it is executed by reading.
std::vector<std::byte> pack_checkpoint(const Identity& identity, const TrainingState& state, const Curve& curve,
                                       const std::vector<torch::Tensor>& generators);

/// What unpack_checkpoint gives back besides what it writes into model and optimizer.
struct Resumed {
  Curve curve;
  torch::Tensor generator;  ///< This rank's state.
};

/// Checks everything (digest first), and only then copies parameters into `model` and state into `optimizer`.
/// @throws JobError  no checkpoint, damaged, of another run: names the setting or tensor, expected, found; nothing has changed.
Resumed unpack_checkpoint(std::span<const std::byte> bytes, const Identity& identity, torch::nn::Module& model,
                          torch::optim::AdamW& optimizer, int rank);

}  // namespace gpt
