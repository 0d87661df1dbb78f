#include "comm/byte_collectives.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>

namespace precast {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;  // a length beyond this is damage, not data

/// One number of each rank, by rank.
std::vector<std::int64_t> all_gather_number(Transport& transport, std::int64_t mine, Deadline deadline) {
  const at::Tensor out = at::empty({transport.size()}, at::kLong);
  transport.all_gather(out, at::full({1}, mine, at::kLong), deadline);
  const auto* numbers = out.const_data_ptr<std::int64_t>();
  return {numbers, numbers + out.numel()};
}

/// Root's length, once all ranks have heard the same.
std::int64_t agree_on_length(Transport& transport, std::int64_t mine, int root, Deadline deadline) {
  const at::Tensor length = at::full({1}, mine, at::kLong);
  transport.broadcast(length, root, deadline);
  const auto heard = all_gather_number(transport, length.item<std::int64_t>(), deadline);
  const std::int64_t expected = heard[static_cast<std::size_t>(root)];
  for (int rank = 0; rank < transport.size(); ++rank) {
    const std::int64_t found = heard[static_cast<std::size_t>(rank)];
    if (found != expected || found < 0 || found > kMostBytes)
      throw PrecompileError(
          ErrorCode::artifact_mismatch,
          fmt::format("rank {} of {}, {}: a broadcast announced {} bytes, rank {} sent {}; the transfer was damaged, try again",
                      rank, transport.size(), transport.phase(), found, root, expected));
  }
  return expected;
}

}  // namespace

void broadcast_bytes(Transport& transport, std::vector<std::byte>& bytes, int root, Deadline deadline, std::int64_t chunk_bytes) {
  const bool is_root = transport.rank() == root;
  if (!is_root) bytes.clear();
  try {
    const std::int64_t length = agree_on_length(transport, static_cast<std::int64_t>(bytes.size()), root, deadline);
    if (!is_root) bytes.resize(static_cast<std::size_t>(length));
    for (std::int64_t start = 0; start < length; start += chunk_bytes) {
      const std::int64_t n = std::min(chunk_bytes, length - start);
      // Through memory that the collective itself holds: one that never ends may still use it after the caller's bytes are gone.
      const at::Tensor chunk = at::empty({n}, at::kByte);
      auto* const chunk_begin = static_cast<std::byte*>(chunk.data_ptr());
      if (is_root) std::copy_n(bytes.data() + start, n, chunk_begin);
      transport.broadcast(chunk, root, deadline);
      if (!is_root) std::copy_n(chunk_begin, n, bytes.data() + start);
    }
  } catch (const PrecompileError&) {
    if (!is_root) bytes.clear();
    throw;
  }
}

std::vector<std::vector<std::byte>> all_gather_bytes(Transport& transport, std::span<const std::byte> bytes, Deadline deadline) {
  const auto lengths = all_gather_number(transport, static_cast<std::int64_t>(bytes.size()), deadline);
  const std::int64_t longest = std::ranges::max(lengths);
  std::vector<std::vector<std::byte>> all(lengths.size());
  if (longest == 0) return all;
  const at::Tensor mine = at::zeros({longest}, at::kByte), out = at::empty({longest * transport.size()}, at::kByte);
  std::ranges::copy(bytes, static_cast<std::byte*>(mine.data_ptr()));
  transport.all_gather(out, mine, deadline);
  const auto* gathered = static_cast<const std::byte*>(out.const_data_ptr());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::byte* start = gathered + static_cast<std::int64_t>(rank) * longest;
    all[rank].assign(start, start + lengths[rank]);
  }
  return all;
}

}  // namespace precast
