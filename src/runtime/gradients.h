#pragma once

#include <ATen/core/Tensor.h>

namespace precast::runtime {

/// Adds `gradient` to `.grad` of `target`, as backward() does: set where it is undefined (with the target's memory layout, never
/// sharing memory with anything else), else added in place to the tensor that is there. Whether the target requires grad makes no
/// difference. Calls from several threads sum.
void accumulate_gradient(const at::Tensor& target, at::Tensor gradient);

}  // namespace precast::runtime
