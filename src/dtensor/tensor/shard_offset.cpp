#include "dtensor/tensor/shard_offset.h"

#include "dispatch/interposer.h"
#include "precast/error.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace precast::dtensor {

Sizes mesh_sizes(const DeviceMesh& mesh) {
  Sizes sizes;
  for (int m = 0; m < mesh.ndim(); ++m) sizes.push_back(mesh.size(m));
  return sizes;
}

Sizes mesh_coordinates(const DeviceMesh& mesh) {
  Sizes coordinates;
  for (int m = 0; m < mesh.ndim(); ++m) coordinates.push_back(mesh.coordinate(m));
  return coordinates;
}

void check_recordable(const DeviceMesh& mesh, const Placements& placements, at::IntArrayRef global_sizes) {
  if (!dispatch::is_recording() || is_even(global_sizes, placements, mesh_sizes(mesh))) return;
  throw PrecompileError(
      ErrorCode::refused_capture,
      fmt::format("a tensor of shape [{}] lies unevenly on {} with {}, so the program would differ from rank to rank; give its "
                  "sharded dimensions a size that the ranks divide",
                  fmt::join(global_sizes, ", "), to_string(mesh.layout()), to_string(placements)));
}

at::Tensor shard_offset(const DeviceMesh& mesh, const Placements& placements, at::IntArrayRef global_sizes, std::int64_t dim) {
  check_recordable(mesh, placements, global_sizes);
  const std::vector<int> order = split_order(placements, dim);
  const Sizes sizes = mesh_sizes(mesh);
  const auto options = at::TensorOptions(at::kLong);
  if (!is_even(global_sizes, placements, sizes))
    return at::full({}, local_range(global_sizes[static_cast<std::size_t>(dim)], order, sizes, mesh_coordinates(mesh)).begin,
                    options);
  std::int64_t block = global_sizes[static_cast<std::size_t>(dim)];
  at::Tensor offset;
  for (const int m : order) {
    block /= sizes[static_cast<std::size_t>(m)];
    const at::Tensor part = mesh.coordinate_tensor(m).mul(block);
    offset = offset.defined() ? offset.add(part) : part;
  }
  return offset.defined() ? offset : at::zeros({}, options);
}

}  // namespace precast::dtensor
