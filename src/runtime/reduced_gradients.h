#pragma once

#include <ATen/core/Tensor.h>

namespace precast::runtime {

/// Whether this very tensor was averaged over the ranks and nothing has written into it since. Any write counts (a step that
/// accumulates, zero_grad without set_to_none, clipping): what is written afterwards is taken for this rank's own. Thread-safe.
bool is_reduced(const at::Tensor& gradient);

void mark_reduced(const at::Tensor& gradient);

}  // namespace precast::runtime
