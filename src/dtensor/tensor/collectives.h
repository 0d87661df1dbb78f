#pragma once

#include "precast/device_mesh.h"
#include "precast/reduction.h"

#include <ATen/core/Tensor.h>

namespace precast::dtensor {

/// Functional collectives over one mesh dimension, waited for. All ranks of that dimension call them in one order, with tensors of
/// one shape. While a capture records they are recorded, not run. @throws PrecompileError lost_rank.

at::Tensor all_reduce(const at::Tensor& tensor, Reduction reduction, const DeviceMesh& mesh, int mesh_dim);
/// [n, ...] of each rank to [ranks * n, ...], in the order of the ranks.
at::Tensor all_gather(const at::Tensor& tensor, const DeviceMesh& mesh, int mesh_dim);
/// [ranks * n, ...] to this rank's [n, ...] of the reduction.
at::Tensor reduce_scatter(const at::Tensor& tensor, Reduction reduction, const DeviceMesh& mesh, int mesh_dim);
/// Row block r of [ranks * n, ...] goes to rank r; returns the blocks that the ranks sent here, in their order.
at::Tensor all_to_all(const at::Tensor& tensor, const DeviceMesh& mesh, int mesh_dim);

}  // namespace precast::dtensor
