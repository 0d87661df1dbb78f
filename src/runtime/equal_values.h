#pragma once

#include "precast/communicator.h"
#include "precast/step.h"

namespace precast::runtime {

/// Collective: whether parameters and buffers hold the same bytes on all ranks.
/// @returns ok, or rank_mismatch: the first tensor that differs from rank 0's, and the rank.
Verdict compare_values(const Communicator& comm, const detail::CallArguments& arguments, Deadline deadline);

}  // namespace precast::runtime
