#include "comm/lost_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

namespace precast {

std::string lost_ranks_text(int rank, const RankStatus& mine, std::string_view operation, std::string_view cause,
                            const std::vector<std::optional<RankStatus>>& statuses) {
  const int size = static_cast<int>(statuses.size());
  std::vector<int> missing;
  std::vector<std::string> elsewhere;
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    const auto& status = statuses[other];
    if (!status)
      missing.push_back(other);
    else if (*status != mine)
      elsewhere.push_back(fmt::format("rank {} at collective {} in phase '{}'", other, status->collective, status->phase));
  }
  std::string text = fmt::format("rank {} of {}, {}: {}: {}", rank, size, mine.phase, operation, cause);
  if (!missing.empty())
    text += fmt::format("; lost {} {}: expected in phase '{}', did not come", missing.size() == 1 ? "rank" : "ranks",
                        fmt::join(missing, ", "), mine.phase);
  else if (elsewhere.empty())
    text += "; every rank answered: this one or another came too late, so allow more time";
  if (!elsewhere.empty()) text += fmt::format("; this rank is at collective {}, {}", mine.collective, fmt::join(elsewhere, ", "));
  return text + "; make a new communicator";
}

std::string to_text(const RankStatus& status) {
  return fmt::format("{} {}", status.collective, status.phase);
}

std::optional<RankStatus> status_from_text(std::string_view text) {
  RankStatus status;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), status.collective);
  if (error != std::errc() || end == text.data() + text.size() || *end != ' ') return std::nullopt;
  status.phase = text.substr(static_cast<std::size_t>(end - text.data()) + 1);
  return status;
}

}  // namespace precast
