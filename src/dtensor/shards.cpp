#include "dtensor/shards.h"

#include <algorithm>

namespace precast::dtensor {

IndexRange chunk(std::int64_t size, std::int64_t index, std::int64_t parts) {
  const std::int64_t block = (size + parts - 1) / parts;
  return {.begin = std::min(size, block * index), .end = std::min(size, block * (index + 1))};
}

std::vector<int> split_order(const Placements& placements, std::int64_t dim) {
  std::vector<int> order;
  for (int mesh_dim = static_cast<int>(placements.size()) - 1; mesh_dim >= 0; --mesh_dim) {
    const auto* shard = std::get_if<Shard>(&placements[static_cast<std::size_t>(mesh_dim)]);
    if (shard == nullptr || shard->dim != dim) continue;
    order.insert(shard->strided ? order.end() : order.begin(), mesh_dim);
  }
  return order;
}

IndexRange local_range(std::int64_t size, const std::vector<int>& order, std::span<const std::int64_t> mesh,
                       std::span<const std::int64_t> coordinates) {
  IndexRange range{.begin = 0, .end = size};
  for (const int mesh_dim : order) {
    const auto m = static_cast<std::size_t>(mesh_dim);
    const IndexRange part = chunk(range.size(), coordinates[m], mesh[m]);
    range = {.begin = range.begin + part.begin, .end = range.begin + part.end};
  }
  return range;
}

Sizes local_shape(std::span<const std::int64_t> global_shape, const Placements& placements, std::span<const std::int64_t> mesh,
                  std::span<const std::int64_t> coordinates) {
  Sizes shape(global_shape.begin(), global_shape.end());
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    shape[dim] = local_range(shape[dim], split_order(placements, static_cast<std::int64_t>(dim)), mesh, coordinates).size();
  return shape;
}

bool is_even(std::span<const std::int64_t> global_shape, const Placements& placements, std::span<const std::int64_t> mesh) {
  Sizes parts(global_shape.size(), 1);
  for (std::size_t m = 0; m < placements.size(); ++m)
    if (const auto* shard = std::get_if<Shard>(&placements[m])) parts[static_cast<std::size_t>(shard->dim)] *= mesh[m];
  return std::ranges::equal(global_shape, parts, [](std::int64_t size, std::int64_t n) { return size % n == 0; });
}

}  // namespace precast::dtensor
