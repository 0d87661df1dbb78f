#pragma once

#include "dtensor/shards.h"
#include "dtensor/tensor/layout.h"

#include <ATen/core/Tensor.h>

namespace precast::dtensor {

/// The global index at which this rank's part of tensor dimension `dim` begins: 0-dim int64. Made of the mesh's coordinate tensors
/// where the parts are even, so that a captured program holds the formula and not this rank's number.
/// @throws PrecompileError refused_capture  a capture is on and the parts are uneven.
at::Tensor shard_offset(const DeviceMesh& mesh, const Placements& placements, at::IntArrayRef global_sizes, std::int64_t dim);

/// Sizes of the mesh's dimensions, and this rank's place on each.
Sizes mesh_sizes(const DeviceMesh& mesh);
Sizes mesh_coordinates(const DeviceMesh& mesh);

/// @throws PrecompileError refused_capture  a capture is on and the tensor lies unevenly: the program would differ from rank to
/// rank.
void check_recordable(const DeviceMesh& mesh, const Placements& placements, at::IntArrayRef global_sizes);

}  // namespace precast::dtensor
