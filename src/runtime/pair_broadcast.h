#pragma once

#include "precast/artifact.h"
#include "precast/communicator.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace precast::runtime {

/// What rank 0 announces before the pair travels: sizes and digests, or why there is no pair.
struct PairHeader {
  std::uint64_t code_size = 0, cache_size = 0;
  std::string code_digest, cache_digest;  ///< sha256, lower-case hex.
  Finding failure;                        ///< Of capture or lowering.
};

/// Larger than any program and kernel package of ours; a header that announces more is damaged.
inline constexpr std::uint64_t kMaxPairBytes = std::uint64_t{1} << 36;

PairHeader header_of(const Artifact& artifact);
std::string write_header(const PairHeader& header);

/// Reads foreign bytes. @throws std::runtime_error  what does not fit: another format, an absurd size.
PairHeader read_header(std::string_view bytes);

/// What this rank thinks of the pair, or the cache alone, that it received: nothing of it has been parsed.
Finding check_pair(const Artifact& artifact, const PairHeader& header);
Finding check_cache(std::span<const std::byte> cache, const PairHeader& header);

/// Collective: root's header on every rank. A damaged one is a finding, so that the ranks decide together.
/// @throws PrecompileError artifact_mismatch, the same on every rank; lost_rank.
PairHeader exchange_header(const Communicator& comm, const PairHeader& mine, int root, Deadline deadline);

/// Collective: root's pair on every rank. Nothing of it is checked. @throws PrecompileError lost_rank.
Artifact exchange_pair(const Communicator& comm, Artifact mine, int root, Deadline deadline);

}  // namespace precast::runtime
