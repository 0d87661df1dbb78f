#include "dtensor/tensor/redistribute.h"

#include "dispatch/interposer.h"
#include "dtensor/redistribute_plan.h"
#include "dtensor/shards.h"
#include "dtensor/tensor/collectives.h"
#include "dtensor/tensor/shard_offset.h"

#include <ATen/Functions.h>

namespace precast::dtensor {
namespace {

/// Zeros behind the last row, up to `size` rows of dimension `dim`.
at::Tensor pad(const at::Tensor& tensor, std::int64_t dim, std::int64_t size) {
  if (tensor.size(dim) == size) return tensor;
  auto missing = tensor.sizes().vec();
  missing[static_cast<std::size_t>(dim)] = size - tensor.size(dim);
  return at::cat({tensor, tensor.new_zeros(missing)}, dim);
}

at::Tensor first(const at::Tensor& tensor, std::int64_t dim, std::int64_t size) {
  return tensor.size(dim) == size ? tensor : tensor.narrow(dim, 0, size);
}

/// The n blocks of dimension `dim` one after the other in dimension 0, which is what collectives split.
at::Tensor blocks_to_rows(const at::Tensor& tensor, std::int64_t dim, std::int64_t n) {
  return dim == 0 ? tensor : at::cat(tensor.chunk(n, dim), 0);
}

/// The reverse: n blocks of rows side by side in dimension `dim`.
at::Tensor rows_to_blocks(const at::Tensor& tensor, std::int64_t dim, std::int64_t n) {
  return dim == 0 ? tensor : at::cat(tensor.chunk(n, 0), dim);
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Runs the steps on one tensor.
class Redistribution {
 public:
  Redistribution(at::IntArrayRef global_sizes, const DeviceMesh& mesh)
      : global_sizes_(global_sizes), mesh_(mesh), mesh_sizes_(mesh_sizes(mesh)), coordinates_(mesh_coordinates(mesh)) {}

  at::Tensor run(const RedistributeStep& step, const at::Tensor& local) const {
    const std::int64_t n = mesh_sizes_[static_cast<std::size_t>(step.mesh_dim)];
    if (n == 1) return local;  // one rank holds all of it, however it lies
    switch (step.kind) {
      case RedistributeStep::Kind::all_reduce: return all_reduce(local, step.reduction, mesh_, step.mesh_dim);
      case RedistributeStep::Kind::all_gather: {
        const std::int64_t whole = length_after(step, step.from_dim);
        const at::Tensor rows = all_gather(pad(local, step.from_dim, ceil_div(whole, n)), mesh_, step.mesh_dim);
        return first(rows_to_blocks(rows, step.from_dim, n), step.from_dim, whole);
      }
      case RedistributeStep::Kind::reduce_scatter: {
        const at::Tensor padded = pad(local, step.to_dim, n * ceil_div(local.size(step.to_dim), n));
        const at::Tensor mine = reduce_scatter(blocks_to_rows(padded, step.to_dim, n), step.reduction, mesh_, step.mesh_dim);
        return first(mine, step.to_dim, length_after(step, step.to_dim));
      }
      case RedistributeStep::Kind::all_to_all: {
        const std::int64_t whole = length_after(step, step.from_dim);
        at::Tensor padded = pad(local, step.from_dim, ceil_div(whole, n));
        padded = pad(padded, step.to_dim, n * ceil_div(local.size(step.to_dim), n));
        const at::Tensor rows = all_to_all(blocks_to_rows(padded, step.to_dim, n), mesh_, step.mesh_dim);
        return first(first(rows_to_blocks(rows, step.from_dim, n), step.from_dim, whole), step.to_dim,
                     length_after(step, step.to_dim));
      }
      case RedistributeStep::Kind::slice: return slice(local, step.to_dim, step.mesh_dim, n);
      case RedistributeStep::Kind::make_partial: return make_partial(local, step);
    }
    return local;
  }

 private:
  /// What this rank holds of a tensor dimension once the step is done.
  [[nodiscard]] std::int64_t length_after(const RedistributeStep& step, std::int64_t dim) const {
    return local_range(global_sizes_[static_cast<std::size_t>(dim)], split_order(step.after, dim), mesh_sizes_, coordinates_)
        .size();
  }

  [[nodiscard]] at::Tensor slice(const at::Tensor& local, std::int64_t dim, int mesh_dim, std::int64_t n) const {
    if (dispatch::is_recording()) {  // the coordinate is an input of the program
      const std::int64_t block = local.size(dim) / n;
      const at::Tensor blocks = local.unflatten(dim, {n, block});
      return at::index_select(blocks, dim, mesh_.coordinate_tensor(mesh_dim).view({1})).squeeze(dim);
    }
    const IndexRange mine = chunk(local.size(dim), coordinates_[static_cast<std::size_t>(mesh_dim)], n);
    return local.narrow(dim, mine.begin, mine.size()).clone(at::MemoryFormat::Contiguous);
  }

  [[nodiscard]] at::Tensor make_partial(const at::Tensor& local, const RedistributeStep& step) const {
    if (step.reduction != Reduction::sum) return local;
    if (dispatch::is_recording()) return at::where(mesh_.coordinate_tensor(step.mesh_dim).eq(0), local, at::zeros_like(local));
    return coordinates_[static_cast<std::size_t>(step.mesh_dim)] == 0 ? local : at::zeros_like(local);
  }

  at::IntArrayRef global_sizes_;
  const DeviceMesh& mesh_;
  Sizes mesh_sizes_, coordinates_;
};

}  // namespace

at::Tensor redistribute_local(const at::Tensor& local, at::IntArrayRef global_sizes, const DeviceMesh& mesh, const Placements& from,
                              const Placements& to) {
  const std::vector<RedistributeStep> steps = plan_redistribution(from, to);
  if (steps.empty()) return local;
  const Redistribution redistribution(global_sizes, mesh);
  check_recordable(mesh, from, global_sizes);
  check_recordable(mesh, to, global_sizes);
  at::Tensor result = local;
  for (const RedistributeStep& step : steps) result = redistribution.run(step, result);
  return result;
}

}  // namespace precast::dtensor
