// Random numbers on DTensors: the same however the tensor lies, on one rank as on many.
#include "dtensor/placed.h"
#include "precast/error.h"

namespace precast::test {
namespace {

std::vector<Placements> layouts() {
  return {{Replicate(), Replicate()}, {Shard(0), Replicate()}, {Replicate(), Shard(1)}, {Shard(0), Shard(1)}, {Shard(1), Shard(1)}};
}

/// What `draw` gives on a tensor that is whole, and expects the same of every layout.
template <class Draw>
at::Tensor expect_independent_of_layout(const Draw& draw, at::IntArrayRef sizes = {12, 8}) {
  const DeviceMesh mesh = grid();
  at::Tensor first;
  for (const Placements& placements : layouts()) {
    torch::manual_seed(42);
    const at::Tensor drawn = full_tensor(draw(distribute_tensor(torch::zeros(sizes), mesh, placements)));
    if (!first.defined()) first = drawn;
    EXPECT_TRUE(at::equal(drawn, first)) << to_string(placements);
  }
  return first;
}

TEST(DTensorRandom, NumbersDoNotDependOnTheLayout) {  // C160
  const at::Tensor uniform = expect_independent_of_layout([](const at::Tensor& x) { return torch::rand_like(x); });
  EXPECT_GE(uniform.min().item<float>(), 0.0F);
  EXPECT_LT(uniform.max().item<float>(), 1.0F);
  expect_independent_of_layout([](const at::Tensor& x) { return torch::randn_like(x); }, {7, 5});
  expect_independent_of_layout([](at::Tensor x) { return x.normal_(1.0, 2.0); });
  expect_independent_of_layout([](at::Tensor x) { return x.uniform_(-1.0, 1.0); });
  expect_independent_of_layout([](const at::Tensor& x) { return torch::dropout(x + 1, 0.3, true); });
}

TEST(DTensorRandom, ASeedGivesTheSameNumbersOnAnyNumberOfRanks) {
  torch::manual_seed(9);
  const at::Tensor drawn =
      full_tensor(torch::rand_like(distribute_tensor(torch::zeros({2, 3}, at::kDouble), grid(), {Shard(0), Shard(1)})));
  torch::manual_seed(9);
  const at::Tensor again =
      full_tensor(torch::rand_like(distribute_tensor(torch::zeros({2, 3}, at::kDouble), line(), {Replicate()})));
  EXPECT_TRUE(at::equal(drawn, again));
}

TEST(DTensorRandom, DistributionsAreWhatTheySay) {
  torch::manual_seed(1);
  const at::Tensor zeros = distribute_tensor(torch::zeros({400, 500}), grid(), {Shard(0), Shard(1)});
  const at::Tensor uniform = full_tensor(torch::rand_like(zeros)), normal = full_tensor(torch::randn_like(zeros));
  EXPECT_NEAR(uniform.mean().item<double>(), 0.5, 4e-3);
  EXPECT_NEAR(uniform.var().item<double>(), 1.0 / 12, 2e-3);
  EXPECT_NEAR(normal.mean().item<double>(), 0.0, 1e-2);
  EXPECT_NEAR(normal.var().item<double>(), 1.0, 2e-2);
  EXPECT_NEAR(normal.pow(4).mean().item<double>(), 3.0, 0.1);
  const at::Tensor neighbours = (uniform.narrow(1, 0, 499) - 0.5) * (uniform.narrow(1, 1, 499) - 0.5);
  EXPECT_NEAR(neighbours.mean().item<double>() * 12, 0.0, 2e-2) << "neighbouring elements are uncorrelated";
  EXPECT_NEAR(full_tensor(torch::dropout(zeros + 1, 0.25, true)).ne(0).to(at::kFloat).mean().item<double>(), 0.75, 5e-3);
}

TEST(DTensorRandom, DrawsDifferFromCallToCallAndMoveTheGenerator) {  // C161
  torch::manual_seed(3);
  const at::Tensor zeros = distribute_tensor(torch::zeros({6, 4}), grid(), {Shard(0), Replicate()});
  const at::Tensor first = full_tensor(torch::rand_like(zeros)), second = full_tensor(torch::rand_like(zeros));
  EXPECT_FALSE(at::equal(first, second));
  torch::manual_seed(3);
  EXPECT_TRUE(at::equal(full_tensor(torch::rand_like(zeros)), first));
}

TEST(DTensorRandom, PartialTensorsAndUnknownDistributionsAreRefused) {
  const at::Tensor sum = place(torch::ones({4}), line(), {Partial()}),
                   whole = distribute_tensor(torch::ones({4}), line(), {Replicate()});
  EXPECT_THROW(static_cast<void>(torch::rand_like(sum)), PrecompileError);
  EXPECT_THROW(static_cast<void>(at::Tensor(whole).exponential_()), PrecompileError);
}

}  // namespace
}  // namespace precast::test
