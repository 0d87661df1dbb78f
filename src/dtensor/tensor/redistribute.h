#pragma once

#include "dtensor/tensor/layout.h"

#include <ATen/core/Tensor.h>

namespace precast::dtensor {

/// The local tensor of a tensor of `global_sizes` after a change of placements, by the steps of plan_redistribution. Collective
/// over the mesh dimensions that change, unless they only slice. Below autograd. The result may be `local` itself or a view of it.
/// @throws PrecompileError refused_capture  a capture is on and a placement is uneven: the program would differ from rank to rank.
at::Tensor redistribute_local(const at::Tensor& local, at::IntArrayRef global_sizes, const DeviceMesh& mesh, const Placements& from,
                              const Placements& to);

}  // namespace precast::dtensor
