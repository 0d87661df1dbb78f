#pragma once

#include "precast/placement.h"

#include <cstdint>
#include <span>
#include <vector>

namespace precast::dtensor {

using Sizes = std::vector<std::int64_t>;

/// Global indices of a tensor dimension, half-open.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t size() const noexcept { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

/// The part of [0, size) that part `index` of `parts` holds. Split as torch.chunk does: blocks of ceil(size / parts), the last ones
/// short or empty. Example: 5 over 4 parts gives [0,2) [2,4) [4,5) [5,5).
IndexRange chunk(std::int64_t size, std::int64_t index, std::int64_t parts);

/// The mesh dimensions that shard tensor dimension `dim`, in the order in which they split it. Example: [Shard(0), Shard(0)] gives
/// {0, 1}; with the first strided it gives {1, 0}.
std::vector<int> split_order(const Placements& placements, std::int64_t dim);

/// What the rank at `coordinates` holds of a dimension of `size` that the mesh dimensions `order` split one after the other.
IndexRange local_range(std::int64_t size, const std::vector<int>& order, std::span<const std::int64_t> mesh,
                       std::span<const std::int64_t> coordinates);

/// Shape of the local tensor of the rank at `coordinates`. @param mesh  sizes of the mesh's dimensions.
Sizes local_shape(std::span<const std::int64_t> global_shape, const Placements& placements, std::span<const std::int64_t> mesh,
                  std::span<const std::int64_t> coordinates);

/// Whether every rank holds equally much.
bool is_even(std::span<const std::int64_t> global_shape, const Placements& placements, std::span<const std::int64_t> mesh);

}  // namespace precast::dtensor
