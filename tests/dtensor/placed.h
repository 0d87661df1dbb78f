#pragma once

#include "precast/data_parallel.h"
#include "precast/dtensor.h"
#include "precast/parallel_plan.h"
#include "rank_test.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

namespace precast::test {

/// All ranks in one dimension, "x".
inline DeviceMesh line() {
  return {rank_test::communicator(), {rank_test::communicator().size()}, {"x"}, "line"};
}

/// 2 x 2 on four ranks, else one row.
inline DeviceMesh grid() {
  const std::int64_t n = rank_test::communicator().size();
  return {
      rank_test::communicator(), n == 4 ? std::vector<std::int64_t>{2, 2} : std::vector<std::int64_t>{1, n}, {"dp", "tp"}, "grid"};
}

/// `whole`, the same on all ranks, as a DTensor: also as a sum or extreme that is still to be made, to which the ranks contribute
/// unevenly.
inline at::Tensor place(const at::Tensor& whole, const DeviceMesh& mesh, const Placements& placements) {
  Placements sliced = placements;
  at::Tensor share = whole;
  for (int m = 0; m < mesh.ndim(); ++m) {
    const auto* partial = std::get_if<Partial>(&placements[static_cast<std::size_t>(m)]);
    if (partial == nullptr) continue;
    sliced[static_cast<std::size_t>(m)] = Replicate();
    const auto n = static_cast<double>(mesh.size(m)), k = static_cast<double>(mesh.coordinate(m));
    if (partial->reduction == Reduction::sum) share = share * ((k + 1) / (n * (n + 1) / 2));
    if (partial->reduction == Reduction::avg) share = share * ((k + 1) / ((n + 1) / 2));
    if (partial->reduction == Reduction::max) share = share - (n - 1 - k);
    if (partial->reduction == Reduction::min) share = share + (n - 1 - k);
  }
  const at::Tensor local = local_part(distribute_tensor(share, mesh, sliced));
  return from_local(local, mesh, placements, whole.sizes().vec());
}

inline ::testing::AssertionResult close(const at::Tensor& got, const at::Tensor& expected, double tolerance = 1e-5) {
  if (got.sizes() != expected.sizes())
    return ::testing::AssertionFailure() << "shape " << got.sizes() << ", expected " << expected.sizes();
  if (got.scalar_type() != expected.scalar_type())
    return ::testing::AssertionFailure() << "dtype " << got.scalar_type() << ", expected " << expected.scalar_type();
  if (at::allclose(got.to(at::kDouble), expected.to(at::kDouble), tolerance, tolerance, /*equal_nan=*/true))
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "got\n" << got << "\nexpected\n" << expected;
}

}  // namespace precast::test
