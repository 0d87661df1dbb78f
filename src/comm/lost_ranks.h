#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace precast {

/// What a rank that gave up says of itself to the others.
struct RankStatus {
  std::uint64_t collective = 0;  ///< Number of the collective in which it waits, counted from its connection.
  std::string phase;
  /// Ranks of the group of that collective, itself among them. Empty: it waited for none, but gave up as another rank had.
  std::vector<int> waits_for;

  bool operator==(const RankStatus&) const = default;
};

/// One line for the log of `rank`: which ranks did not answer though one that gave up waited for them, and where the others were.
/// Ranks of other groups may be busy elsewhere: they are not lost for being silent. Example: ranks 2 and 3 compute, rank 1 waits
/// for 0 and 1, and rank 0 has ended: "... all_reduce among ranks 0, 1: the deadline passed; lost rank 0: ...".
/// @param statuses  by rank; none for a rank that did not answer.
/// @param cause  why this rank gave up, for example "the deadline passed".
std::string lost_ranks_text(int rank, const RankStatus& mine, std::string_view operation, std::string_view cause,
                            const std::vector<std::optional<RankStatus>>& statuses);

/// As one short text for a message between ranks: "17 0,1 broadcast", or "17 - broadcast" from one that waited for none.
std::string to_text(const RankStatus& status);
std::optional<RankStatus> status_from_text(std::string_view text);

}  // namespace precast
