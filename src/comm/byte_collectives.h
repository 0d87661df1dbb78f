#pragma once

#include "comm/transport.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace precast {

inline constexpr std::int64_t kChunkBytes = std::int64_t{1} << 26;  ///< Also what a broadcast takes on top of the bytes themselves.

/// Communicator::broadcast of bytes: the length, which all ranks compare before any of them allocates, then chunks.
/// @param chunk_bytes  equal on all ranks, at least 1. Others than the default are for tests.
void broadcast_bytes(Transport& transport, std::vector<std::byte>& bytes, int root, Deadline deadline,
                     std::int64_t chunk_bytes = kChunkBytes);

/// Communicator::all_gather.
std::vector<std::vector<std::byte>> all_gather_bytes(Transport& transport, std::span<const std::byte> bytes, Deadline deadline);

}  // namespace precast
