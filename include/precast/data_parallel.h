#pragma once

#include "precast/communicator.h"

#include <torch/nn/module.h>

namespace precast {

struct ScatterOptions {
  std::size_t bucket_bytes =
      std::size_t{25} << 20;  ///< Gradients of one dtype and device are reduced in buckets of about this size.
  std::chrono::milliseconds deadline = std::chrono::minutes(1);
};

/// Sends rank 0's parameters and buffers to all ranks, in place. Collective.
/// @throws PrecompileError rank_mismatch: names the first parameter or buffer whose name, shape or dtype differs, on every rank.
void broadcast_module(torch::nn::Module& module, const Communicator& comm,
                      std::chrono::milliseconds deadline = std::chrono::minutes(1));

/// Averages the plain gradients of `module` over the ranks of `comm`, in place, by bucketed all-reduces: one per optimizer step,
/// however many micro-batches accumulated. Parameters without `.grad` are left alone. Gradients that this function already averaged
/// and that no step has changed since are not reduced again. Gradients that are DTensors are laid out as their parameters: sums
/// over a mesh dimension that are still to be made are reduced, or reduced and scattered, in buckets too, and nothing is averaged.
/// Collective.
void scatter_gradients(torch::nn::Module& module, const Communicator& comm, const ScatterOptions& options = {});

}  // namespace precast
