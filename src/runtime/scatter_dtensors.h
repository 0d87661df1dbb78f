#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace precast::runtime {

/// Lays the gradients of DTensor parameters out as the parameters lie: what is still a sum over a mesh dimension is reduced, or
/// reduced and scattered, in buckets of about `bucket_bytes`. Collective over the mesh dimensions concerned. Parameters whose
/// gradient already lies so, or that have none, are left alone.
void scatter_dtensor_gradients(const std::vector<at::Tensor>& parameters, std::size_t bucket_bytes);

}  // namespace precast::runtime
