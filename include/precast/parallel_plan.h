#pragma once

#include "precast/device_mesh.h"
#include "precast/placement.h"

#include <torch/nn/module.h>

#include <string>
#include <vector>

namespace precast {

/// How parameters lie on a mesh. Patterns are matched against parameter names ("transformer.h.0.attn.c_attn.weight"), a '*'
/// standing for any characters, dots too. The first pattern that matches counts; a parameter that none matches is replicated.
struct ParallelPlan {
  struct Parameters {
    std::string pattern;
    Placements placements;
  };
  std::vector<Parameters> parameters;
};

/// Turns the parameters of `module` into DTensors on `mesh`, in place: names, ties, requires_grad and the module's own members
/// stay. Every rank keeps its part of the values that it has, so they must be equal on all ranks (broadcast_module). Buffers stay
/// plain, and gradients are dropped. Collective in that all ranks pass the same plan.
/// @throws PrecompileError argument_mismatch  a pattern matches nothing, a placement has no dimension to shard, or a parameter is a
/// DTensor already: names it; nothing has changed then.
void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan);

}  // namespace precast
