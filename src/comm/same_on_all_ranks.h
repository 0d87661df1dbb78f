#pragma once

#include "precast/communicator.h"

#include <string>
#include <string_view>

namespace precast {

/// Compares what each rank has. Collective; the same verdict on every rank, so that all of them may act on `mine` or throw.
/// @param mine  what must be equal, in words for a message.
/// @param advice  what to do where it is not: "give all ranks the same mesh".
/// @returns ok, or rank_mismatch: the first rank that differs from rank 0, and both texts.
[[nodiscard]] Verdict same_on_all_ranks(const Communicator& comm, std::string_view phase, const std::string& mine,
                                        std::string_view advice, Deadline deadline);

}  // namespace precast
