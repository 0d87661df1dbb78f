#include "capture/modules.h"
#include "forwarding_transport.h"
#include "precast/precast.h"
#include "rank_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

namespace precast::test {
namespace {

using rank_test::communicator;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

at::Tensor inputs_of(int rank) {
  torch::manual_seed(100 + rank);
  return torch::randn({5, 8});
}

void backward(Mlp& model, const at::Tensor& x) {
  model->forward(x).pow(2).mean().backward();
}

/// What the average must be: every rank's gradient, computed here by eager.
std::vector<at::Tensor> average_of_all_ranks(const Mlp& model) {
  std::vector<at::Tensor> sum;
  for (int rank = 0; rank < communicator().size(); ++rank) {
    Mlp copy = copy_of(model, Mlp());
    backward(copy, inputs_of(rank));
    for (std::size_t i = 0; i < copy->parameters().size(); ++i) {
      const at::Tensor gradient = copy->parameters()[i].grad();
      if (rank == 0)
        sum.push_back(gradient.clone());
      else
        sum[i] += gradient;
    }
  }
  for (at::Tensor& gradient : sum) gradient /= communicator().size();
  return sum;
}

Mlp seeded_model(int seed) {
  torch::manual_seed(seed);
  return Mlp();
}

TEST(BroadcastModule, GivesEveryRankTheValuesOfRank0) {
  Mlp model = seeded_model(communicator().rank()), expected = seeded_model(0);
  broadcast_module(*model, communicator());
  for (std::size_t i = 0; i < model->parameters().size(); ++i)
    EXPECT_TRUE(torch::equal(model->parameters()[i], expected->parameters()[i]));
}

TEST(BroadcastModule, NamesAParameterThatDiffersOnEveryRank) {
  if (communicator().size() == 1) GTEST_SKIP() << "one rank differs from no other";
  torch::nn::Sequential model(torch::nn::Linear(4, communicator().rank() == 0 ? 3 : 2));
  try {
    broadcast_module(*model, communicator());
    FAIL() << "not refused";
  } catch (const PrecompileError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'0.weight'"), HasSubstr("[3, 4]"), HasSubstr("[2, 4]")));
  }
}

TEST(ScatterGradients, AveragesOverTheRanksInPlace) {
  Mlp model = seeded_model(1);
  const auto expected = average_of_all_ranks(model);
  backward(model, inputs_of(communicator().rank()));
  const auto* before = model->fc1->weight.grad().unsafeGetTensorImpl();
  scatter_gradients(*model, communicator(), {.bucket_bytes = 100});  // several buckets
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(torch::allclose(model->parameters()[i].grad(), expected[i], 1e-5, 1e-6)) << i;
  EXPECT_EQ(model->fc1->weight.grad().unsafeGetTensorImpl(), before);
}

TEST(ScatterGradients, ASecondCallWithoutANewStepChangesNothing) {
  Mlp model = seeded_model(1);
  backward(model, inputs_of(communicator().rank()));
  const auto transport = std::make_shared<CountingTransport>(rank_test::transport());
  const Communicator comm(transport);
  scatter_gradients(*model, comm);
  const auto once = model->fc1->weight.grad().clone();
  const std::size_t reductions = transport->reduced.size();
  EXPECT_EQ(reductions, comm.size() == 1 ? 0U : 1U);
  scatter_gradients(*model, comm);
  EXPECT_EQ(transport->reduced.size(), reductions);
  EXPECT_TRUE(torch::equal(model->fc1->weight.grad(), once));
}

TEST(ScatterGradients, ABucketHoldsAtMostItsBytesOrOneGradient) {
  if (communicator().size() == 1) GTEST_SKIP() << "one rank reduces nothing";
  Mlp model = seeded_model(1);
  backward(model, inputs_of(communicator().rank()));
  const auto transport = std::make_shared<CountingTransport>(rank_test::transport());
  scatter_gradients(*model, Communicator(transport), {.bucket_bytes = 200});  // 50 floats
  // fc1 [16, 8] and [16], norm [16] and [16], fc2 [4, 16] and [4], in the order of registration
  EXPECT_THAT(transport->reduced, ElementsAre(128, 16 + 16 + 16, 64, 4));
}

TEST(ScatterGradients, MicroBatchesAreReducedOnce) {
  Mlp model = seeded_model(1);
  const auto expected = average_of_all_ranks(model);
  for (int i = 0; i < 3; ++i) backward(model, inputs_of(communicator().rank()));
  scatter_gradients(*model, communicator());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(torch::allclose(model->parameters()[i].grad(), 3 * expected[i], 1e-4, 1e-6)) << i;
}

TEST(ScatterGradients, LeavesAnUndefinedGradientAlone) {
  Mlp model = seeded_model(1);
  model->fc1(inputs_of(communicator().rank())).sum().backward();
  scatter_gradients(*model, communicator());
  EXPECT_FALSE(model->fc2->weight.grad().defined());
}

TEST(ScatterGradients, ANewBackwardIsReducedAgain) {
  Mlp model = seeded_model(1);
  const auto expected = average_of_all_ranks(model);
  for (const bool set_to_none : {false, true}) {
    backward(model, inputs_of(communicator().rank()));
    scatter_gradients(*model, communicator());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(torch::allclose(model->parameters()[i].grad(), expected[i], 1e-5, 1e-6)) << i;
    model->zero_grad(set_to_none);
  }
}

TEST(ScatterGradients, RanksThatDisagreeGetOneError) {
  if (communicator().size() == 1) GTEST_SKIP() << "one rank differs from no other";
  Mlp model = seeded_model(1);
  const auto x = inputs_of(0);
  if (communicator().rank() == 0)
    backward(model, x);
  else
    model->fc1(x).sum().backward();
  try {
    scatter_gradients(*model, communicator());
    FAIL() << "not refused";
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), ErrorCode::rank_mismatch);
    // Before anything was summed, and before the ranks could wait in different collectives.
    EXPECT_THAT(error.what(), AllOf(HasSubstr("gradient of 'norm.weight'"), HasSubstr("nothing")));
  }
}

}  // namespace
}  // namespace precast::test
