#include "comm/lost_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

namespace precast {
namespace {

/// A number at the start of `text`, which moves on behind it.
template <class Number>
bool read_number(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool read_character(std::string_view& text, char expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(1);
  return true;
}

/// Ranks that someone who gave up waited for. Where nobody says any, all are.
std::vector<bool> awaited_ranks(const RankStatus& mine, const std::vector<std::optional<RankStatus>>& statuses) {
  std::vector<bool> awaited(statuses.size());
  const auto add = [&](const RankStatus& status) {
    for (const int rank : status.waits_for)
      if (rank >= 0 && rank < static_cast<int>(awaited.size())) awaited[static_cast<std::size_t>(rank)] = true;
  };
  add(mine);
  for (const auto& status : statuses)
    if (status) add(*status);
  if (std::ranges::find(awaited, true) == awaited.end()) awaited.assign(awaited.size(), true);
  return awaited;
}

}  // namespace

std::string lost_ranks_text(int rank, const RankStatus& mine, std::string_view operation, std::string_view cause,
                            const std::vector<std::optional<RankStatus>>& statuses) {
  const int size = static_cast<int>(statuses.size());
  const std::vector<bool> awaited = awaited_ranks(mine, statuses);
  std::vector<int> missing;
  std::vector<std::string> elsewhere;
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    const auto& status = statuses[other];
    if (!status) {
      if (awaited[static_cast<std::size_t>(other)]) missing.push_back(other);
    } else if (status->collective != mine.collective || status->phase != mine.phase)
      elsewhere.push_back(fmt::format("rank {} at collective {} in phase '{}'", other, status->collective, status->phase));
  }
  const bool in_part = !mine.waits_for.empty() && static_cast<int>(mine.waits_for.size()) < size;
  std::string text = fmt::format("rank {} of {}, {}: {}", rank, size, mine.phase, operation);
  if (in_part) text += fmt::format(" among ranks {}", fmt::join(mine.waits_for, ", "));
  text += fmt::format(": {}", cause);
  if (!missing.empty())
    text += fmt::format("; lost {} {}: expected in phase '{}', did not come", missing.size() == 1 ? "rank" : "ranks",
                        fmt::join(missing, ", "), mine.phase);
  else if (elsewhere.empty())
    text += "; every rank that was waited for answered: this one or another came too late, so allow more time";
  if (!elsewhere.empty()) text += fmt::format("; this rank is at collective {}, {}", mine.collective, fmt::join(elsewhere, ", "));
  return text + "; make a new communicator";
}

std::string to_text(const RankStatus& status) {
  return status.waits_for.empty() ? fmt::format("{} - {}", status.collective, status.phase)
                                  : fmt::format("{} {} {}", status.collective, fmt::join(status.waits_for, ","), status.phase);
}

std::optional<RankStatus> status_from_text(std::string_view text) {
  RankStatus status;
  if (!read_number(text, status.collective) || !read_character(text, ' ')) return std::nullopt;
  if (!read_character(text, '-')) {
    do {
      if (!read_number(text, status.waits_for.emplace_back())) return std::nullopt;
    } while (read_character(text, ','));
  }
  if (!read_character(text, ' ')) return std::nullopt;
  status.phase = text;
  return status;
}

}  // namespace precast
