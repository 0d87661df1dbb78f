#pragma once

#include "config.h"

#include "precast/communicator.h"
#include "precast/dtensor.h"
#include "precast/parallel_plan.h"

#include <torch/torch.h>

#include <optional>

namespace gpt {

/// How the job is spread over its ranks: by the mesh and plan of the config, or, without a plan, by data alone and plain tensors.
struct Parallel {
  std::optional<precast::DeviceMesh> mesh;
  precast::ParallelPlan plan;
  precast::Placements batch;  ///< Of tokens and targets.
  int n_data_ranks = 1, data_rank = 0;

  /// Tokens or targets of this rank as the step takes them.
  [[nodiscard]] torch::Tensor place(const torch::Tensor& local) const;
  /// Turns the parameters into DTensors, where there is a mesh.
  void distribute(torch::nn::Module& model) const;
};

/// Collective. @throws PrecompileError  the mesh does not cover the ranks.
Parallel make_parallel(const precast::Communicator& comm, const Config& config);

/// The whole tensor on every rank. Collective for a DTensor.
torch::Tensor whole(const torch::Tensor& tensor);
/// Writes the whole tensor `values` into `tensor`, of which each rank takes its part.
void assign(const torch::Tensor& tensor, const torch::Tensor& values);

}  // namespace gpt
