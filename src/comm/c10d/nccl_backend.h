#pragma once

#include "comm/environment.h"

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

namespace precast {

/// Whether this rank could use NCCL: built with it, and a GPU of this node for each of its ranks.
[[nodiscard]] bool nccl_is_usable(const JobEnvironment& job);

/// NCCL's collectives on CUDA tensors between the `size` ranks that share `store`, connected at their first use. Where
/// nccl_is_usable() only.
/// @param longest  after which NCCL itself gives a collective up, and with it the process: longer than any deadline of ours.
[[nodiscard]] c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                                  std::chrono::milliseconds longest);

}  // namespace precast
