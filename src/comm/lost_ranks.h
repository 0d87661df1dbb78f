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

  bool operator==(const RankStatus&) const = default;
};

/// One line for the log of `rank`: which ranks did not answer, and where the others were.
/// @param statuses  by rank; none for a rank that did not answer.
/// @param cause  why this rank gave up, for example "the deadline passed".
std::string lost_ranks_text(int rank, const RankStatus& mine, std::string_view operation, std::string_view cause,
                            const std::vector<std::optional<RankStatus>>& statuses);

/// As one short text for a message between ranks: "17 broadcast".
std::string to_text(const RankStatus& status);
std::optional<RankStatus> status_from_text(std::string_view text);

}  // namespace precast
