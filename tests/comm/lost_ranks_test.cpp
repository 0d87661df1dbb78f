#include "comm/lost_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace precast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const RankStatus kMine{7, "broadcast", {}};

TEST(LostRanks, SilentRanksAreNamedWithPhaseAndOperation) {  // C195
  EXPECT_THAT(lost_ranks_text(0, kMine, "all_gather", "the deadline passed", {kMine, std::nullopt, kMine, std::nullopt}),
              AllOf(HasSubstr("rank 0 of 4, broadcast: all_gather: the deadline passed"), HasSubstr("lost ranks 1, 3"),
                    Not(HasSubstr("\n"))));
  EXPECT_THAT(lost_ranks_text(0, kMine, "all_gather", "the deadline passed", {kMine, std::nullopt}), HasSubstr("lost rank 1:"));
}

TEST(LostRanks, ARankThatIsElsewhereIsNamedWithItsPhase) {  // C206
  EXPECT_THAT(lost_ranks_text(1, kMine, "barrier", "another rank gave up", {RankStatus{3, "capture", {}}, kMine}),
              AllOf(HasSubstr("rank 0 at collective 3 in phase 'capture'"), HasSubstr("this rank is at collective 7"),
                    Not(HasSubstr("lost rank "))));
}

TEST(LostRanks, AllThereMeansTooLittleTime) {  // C202
  EXPECT_THAT(lost_ranks_text(1, kMine, "barrier", "the deadline passed", {kMine, kMine}),
              HasSubstr("every rank that was waited for answered"));
}

TEST(LostRanks, RanksOfOtherGroupsMayBeSilent) {  // C195
  // Ranks 2 and 3 compute; rank 1 waits for rank 0, which has ended.
  const RankStatus mine{7, "run", {0, 1}};
  EXPECT_THAT(lost_ranks_text(1, mine, "all_reduce", "the deadline passed", {std::nullopt, mine, std::nullopt, std::nullopt}),
              AllOf(HasSubstr("rank 1 of 4, run: all_reduce among ranks 0, 1: the deadline passed"), HasSubstr("lost rank 0:")));
}

TEST(LostRanks, ARankThatGaveUpAsAnotherHadNamesWhomThatOneWaitedFor) {  // C195
  const RankStatus mine{7, "run", {}}, first{7, "run", {0, 1}};
  EXPECT_THAT(lost_ranks_text(2, mine, "all_reduce", "another rank gave up", {std::nullopt, first, mine, std::nullopt}),
              AllOf(HasSubstr("rank 2 of 4, run: all_reduce: another rank gave up"), HasSubstr("lost rank 0:")));
}

TEST(RankStatusText, IsReadAsItWasWritten) {
  for (const RankStatus& status : {kMine, RankStatus{0, "", {0}}, RankStatus{~std::uint64_t{0}, "a phase with spaces", {1, 3, 12}}})
    EXPECT_EQ(status_from_text(to_text(status)), status);
}

TEST(RankStatusText, ForeignBytesAreNoStatus) {
  for (const char* text : {"", "broadcast", "7", "7 ", "7 broadcast", "7 -", "7 -broadcast", "7 1, broadcast", "7 1,2",
                           "-1 - broadcast", "99999999999999999999 - broadcast", "7 99999999999 broadcast"})
    EXPECT_EQ(status_from_text(text), std::nullopt) << text;
}

}  // namespace
}  // namespace precast
