#include "comm/same_on_all_ranks.h"

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <vector>

namespace precast {

Verdict same_on_all_ranks(const Communicator& comm, std::string_view phase, const std::string& mine, std::string_view advice,
                          Deadline deadline) {
  const auto texts = comm.all_gather(std::as_bytes(std::span(mine)), deadline);
  const auto text_of = [&](std::size_t rank) {
    return std::string_view(reinterpret_cast<const char*>(texts[rank].data()), texts[rank].size());
  };
  for (std::size_t rank = 1; rank < texts.size(); ++rank)
    if (texts[rank] != texts[0])
      return {ErrorCode::rank_mismatch, fmt::format("rank {} of {}, {}: expected {} (as rank 0 has it), found {}; {}", rank,
                                                    comm.size(), phase, text_of(0), text_of(rank), advice)};
  return {};
}

}  // namespace precast
