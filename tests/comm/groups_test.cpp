// Groups of some of the ranks: each rank's own group stands under a name that is the same on all of them.
#include "comm/group_checks.h"
#include "comm/transport.h"
#include "rank_test.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <algorithm>
#include <numeric>

namespace precast {
namespace {

using rank_test::communicator;
using rank_test::error_on_every_rank;
using rank_test::expect_collectives_among;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

int rank() {
  return communicator().rank();
}
int size() {
  return communicator().size();
}

std::vector<int> ranks_from(int first, int last, int step = 1) {
  std::vector<int> ranks;
  for (int rank = first; rank <= last; rank += step) ranks.push_back(rank);
  return ranks;
}

Partition without_empty(Partition partition) {
  std::erase_if(partition, [](const auto& ranks) { return ranks.empty(); });
  return partition;
}

const std::vector<int>& my_list(const Partition& partition) {
  return *std::ranges::find_if(partition, [](const auto& ranks) { return std::ranges::find(ranks, rank()) != ranks.end(); });
}

Partition even_and_odd() {
  return without_empty({ranks_from(0, size() - 1, 2), ranks_from(1, size() - 1, 2)});
}
Partition first_and_rest() {
  return without_empty({{0}, ranks_from(1, size() - 1)});
}
Partition each_alone() {
  Partition partition;
  for (int r = 0; r < size(); ++r) partition.push_back({r});
  return partition;
}

TEST(Groups, CollectivesRunWithinEachRanksOwnList) {  // C153
  communicator().register_group("groups.parity", even_and_odd());
  communicator().register_group("groups.rest", first_and_rest());
  communicator().register_group("groups.alone", each_alone());
  expect_collectives_among(my_list(even_and_odd()), "groups.parity");
  expect_collectives_among(my_list(first_and_rest()), "groups.rest");
  expect_collectives_among({rank()}, "groups.alone");
}

TEST(Groups, AListsOrderIsThatOfItsGroup) {
  std::vector<int> downwards = ranks_from(0, size() - 1);
  std::ranges::reverse(downwards);
  communicator().register_group("groups.downwards", {downwards});
  expect_collectives_among(downwards, "groups.downwards");
}

TEST(Groups, GroupsOfOneNameDoNotWaitForEachOther) {
  communicator().register_group("groups.unequal", first_and_rest());
  // Rank 0, alone in its group, runs none of the collectives that the others run.
  if (rank() != 0)
    for (int i = 0; i < 3; ++i) expect_collectives_among(my_list(first_and_rest()), "groups.unequal");
}

TEST(Groups, AreListedWithTheSizeOfThisRanksGroup) {  // C149
  communicator().register_group("groups.sizes", first_and_rest());
  EXPECT_THAT(communicator().groups(), Contains(Pair("groups.sizes", rank() == 0 ? 1 : size() - 1)));
}

TEST(Groups, TheSameAgainChangesNothing) {
  communicator().register_group("groups.again", even_and_odd());
  const auto group = c10d::resolve_process_group("groups.again");
  communicator().register_group("groups.again", even_and_odd());
  EXPECT_EQ(c10d::resolve_process_group("groups.again"), group);
}

TEST(Groups, AnotherPartitionUnderANameIsRefusedOnEveryRank) {
  if (size() < 3) GTEST_SKIP() << "needs 3 ranks";
  communicator().register_group("groups.taken", first_and_rest());
  // Rank 0's own list stays {0}.
  EXPECT_THAT(error_on_every_rank([] { communicator().register_group("groups.taken", each_alone()); }),
              AllOf(HasSubstr("environment: "), HasSubstr("'groups.taken'"), HasSubstr("stands for the ranks [[0], [1, 2"),
                    HasSubstr("found [[0], [1], [2]"), HasSubstr("choose another name")));
  EXPECT_THAT(error_on_every_rank([] { communicator().register_group("groups.taken"); }), HasSubstr("environment: "));
  expect_collectives_among(my_list(first_and_rest()), "groups.taken");
}

TEST(Groups, RanksThatDisagreeAllSaySo) {
  if (size() == 1) GTEST_SKIP() << "needs 2 ranks";
  const std::string last = "rank " + std::to_string(size() - 1) + " of " + std::to_string(size());
  const bool differs = rank() == size() - 1;
  EXPECT_THAT(error_on_every_rank([&] {
                communicator().register_group("groups.split", differs ? each_alone() : Partition{ranks_from(0, size() - 1)});
              }),
              AllOf(HasSubstr("rank mismatch: " + last), HasSubstr("expected 'groups.split' = [[0, 1"),
                    HasSubstr("found 'groups.split' = [[0], [1]")));
  EXPECT_THAT(error_on_every_rank([&] { communicator().register_group(differs ? "groups.b" : "groups.a", each_alone()); }),
              AllOf(HasSubstr("rank mismatch: " + last), HasSubstr("expected 'groups.a'"), HasSubstr("found 'groups.b'")));
  EXPECT_FALSE(communicator().groups().contains("groups.split"));
}

TEST(Groups, ListsThatAreNoPartitionAreRefused) {
  const std::vector<int> all = ranks_from(0, size() - 1);
  const std::vector<Partition> wrong = {
      {}, {all, {}}, {all, {0}}, {ranks_from(1, size() - 1)}, {all, {size()}}, {ranks_from(-1, size() - 1)}};
  for (const Partition& partition : wrong)
    EXPECT_THAT(error_on_every_rank([&] { communicator().register_group("groups.wrong", partition); }),
                AllOf(HasSubstr("environment: "), HasSubstr("each of the ranks 0 to " + std::to_string(size() - 1) + " once"),
                      HasSubstr("'groups.wrong' = ")))
        << testing::PrintToString(partition);
}

TEST(Groups, ANameThatIsTakenInOneProcessIsRefusedOnEveryRank) {
  const bool taken_here = rank() == size() - 1;
  const auto foreign = rank_test::transport().process_group();
  if (taken_here) c10d::register_process_group("groups.foreign", foreign);
  EXPECT_THAT(error_on_every_rank([] { communicator().register_group("groups.foreign", each_alone()); }),
              AllOf(HasSubstr("environment: rank " + std::to_string(size() - 1) + " of"),
                    HasSubstr("'groups.foreign' is the name of another group")));
  if (taken_here) c10d::unregister_process_group("groups.foreign");
}

TEST(Groups, EndWithTheirCommunicator) {
  {
    const Communicator single = Communicator::single();
    single.register_group("groups.ending", {{0}});
    EXPECT_TRUE(c10d::is_process_group_registered("groups.ending"));
  }
  EXPECT_FALSE(c10d::is_process_group_registered("groups.ending"));
}

}  // namespace
}  // namespace precast
