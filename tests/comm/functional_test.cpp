// The functional collectives of a captured program, over the group that the communicator registers: c10d finds it by name, and each
// op must give what arithmetic says, over MPI as over Gloo.
#include "comm/group_checks.h"
#include "rank_test.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace precast {
namespace {

using rank_test::call_functional;
using rank_test::communicator;
using ::testing::Contains;
using ::testing::Pair;

int rank() {
  return communicator().rank();
}
int size() {
  return communicator().size();
}

class Functional : public testing::Test {
 protected:
  void SetUp() override { communicator().register_group(kGroup); }
  const std::string kGroup = "test.world";
};

const std::vector<at::ScalarType> kDtypes = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt};

TEST_F(Functional, AllReduceSumsAveragesAndFindsExtremes) {
  const int n = size();
  for (const auto dtype : kDtypes) {
    const auto base = at::arange(6, at::kLong).view({2, 3}).mul(2);
    const auto mine = base.mul(rank() + 1).to(dtype);
    const auto reduced = [&](const std::string& how) { return call_functional("all_reduce", {mine, how, kGroup}); };
    EXPECT_TRUE(at::equal(reduced("sum"), base.mul(n * (n + 1) / 2).to(dtype))) << dtype;
    EXPECT_TRUE(at::equal(reduced("max"), base.mul(n).to(dtype))) << dtype;
    EXPECT_TRUE(at::equal(reduced("min"), base.to(dtype))) << dtype;
    if (at::isFloatingType(dtype)) {
      EXPECT_TRUE(at::equal(reduced("avg"), base.mul(n + 1).div(2).to(dtype))) << dtype;
    }
    EXPECT_TRUE(at::equal(mine, base.mul(rank() + 1).to(dtype))) << "the input is left alone";
  }
  const auto product = call_functional("all_reduce", {at::full({2}, rank() + 1.0), std::string("product"), kGroup});
  double factorial = 1;
  for (int i = 2; i <= n; ++i) factorial *= i;
  EXPECT_EQ(product[0].item<double>(), factorial);
}

TEST_F(Functional, AllReduceTakesStridedInput) {
  const auto mine = at::arange(6, at::kFloat).view({2, 3}).t();
  EXPECT_TRUE(at::equal(call_functional("all_reduce", {mine, std::string("sum"), kGroup}), mine.mul(size())));
}

TEST_F(Functional, AllGatherPutsTheRanksOneBelowTheOther) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong, at::kBool}) {
    const auto mine = at::arange(6, at::kLong).view({3, 2}).t().add(rank()).remainder(2).to(dtype);  // not contiguous
    const auto gathered = call_functional("all_gather_into_tensor", {mine, int64_t{size()}, kGroup});
    std::vector<at::Tensor> parts;
    for (int other = 0; other < size(); ++other)
      parts.push_back(at::arange(6, at::kLong).view({3, 2}).t().add(other).remainder(2).to(dtype));
    EXPECT_TRUE(at::equal(gathered, at::cat(parts))) << dtype;
  }
}

TEST_F(Functional, ReduceScatterGivesEachRankItsPartOfTheSum) {
  const auto mine = at::arange(4 * size(), at::kFloat).view({2 * size(), 2}).mul(rank() + 1);
  const auto part = call_functional("reduce_scatter_tensor", {mine, std::string("sum"), int64_t{size()}, kGroup});
  const auto total = at::arange(4 * size(), at::kFloat).view({2 * size(), 2}).mul(size() * (size() + 1) / 2);
  EXPECT_TRUE(at::equal(part, total.narrow(0, 2 * rank(), 2)));
}

TEST_F(Functional, AllToAllSendsUnevenRows) {
  // Rank r sends other + 1 rows filled with 10 r + other to each other rank, and so receives r + 1 rows of each.
  std::vector<int64_t> sent, received(static_cast<std::size_t>(size()), rank() + 1);
  std::vector<at::Tensor> rows, expected;
  for (int other = 0; other < size(); ++other) {
    sent.push_back(other + 1);
    rows.push_back(at::full({other + 1, 2}, 10.0 * rank() + other));
    expected.push_back(at::full({rank() + 1, 2}, 10.0 * other + rank()));
  }
  const auto result = call_functional("all_to_all_single", {at::cat(rows), received, sent, kGroup});
  EXPECT_TRUE(at::equal(result, at::cat(expected))) << result;
}

TEST_F(Functional, BroadcastGivesEveryRankTheSourcesTensor) {
  const int source = size() - 1;
  const auto result = call_functional("broadcast", {at::full({3}, rank()), int64_t{source}, kGroup});
  EXPECT_TRUE(at::equal(result, at::full({3}, source)));
}

TEST_F(Functional, AGroupOfAllRanksIsListedOnce) {
  communicator().register_group(kGroup);
  EXPECT_THAT(communicator().groups(), Contains(Pair(kGroup, size())));
}

}  // namespace
}  // namespace precast
