#include "passes/collectives.h"
#include "passes/toy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace precast::passes {
namespace {

using test::Builder;
using test::operators;
using ::testing::ElementsAre;

/// Runs the pass and expects the same outcome, and the same collectives on the same values in the same order.
bool overlap_checked(ir::Program& program, const OverlapOptions& options = {}) {
  const ir::Program before = program;
  const bool changed = overlap_collectives(program, test::toy_effects(), options);
  test::expect_valid(program);
  EXPECT_EQ(changed, program != before);
  for (const test::Reads reads : {test::Reads::when_issued, test::Reads::when_waited}) {
    const test::Run expected = test::run_toy(before, reads), found = test::run_toy(program, reads);
    EXPECT_EQ(found.outcome, expected.outcome);
    EXPECT_EQ(found.collectives, expected.collectives);
  }
  return changed;
}

TEST(Overlap, IssuesEarlyAndWaitsLate) {
  Builder b;
  const auto x = b.input("x"), y = b.input("y");
  const auto other = b.call("toy::triple", {{y}});
  const auto reduced = b.wait(b.all_reduce(x));
  const auto another = b.call("toy::pair", {{other}});
  const auto sum = b.call("toy::add", {{reduced}, {other}});
  ir::Program program = b.returning({sum, b.item(another, 0)});
  EXPECT_TRUE(overlap_checked(program));
  EXPECT_THAT(operators(program), ElementsAre("all_reduce", "triple", "pair", "[0]", "wait_tensor", "add"));
}

TEST(Overlap, WhatACollectiveNeedsComesFirst) {
  Builder b;
  const auto x = b.input("x"), y = b.input("y");
  const auto other = b.call("toy::triple", {{y}});
  const auto operand = b.call("toy::add", {{x}, {x}});
  const auto reduced = b.wait(b.all_reduce(operand));
  ir::Program program = b.returning({other, reduced});
  EXPECT_TRUE(overlap_checked(program));
  EXPECT_THAT(operators(program), ElementsAre("add", "all_reduce", "triple", "wait_tensor"));
}

TEST(Overlap, WhatReadsAResultMovesWithItsWait) {  // an average: the sum over the ranks, divided in place at once
  Builder b;
  const auto x = b.input("x"), y = b.input("y");
  const auto reduced = b.wait(b.reduce_scatter(x));
  b.call("aten::add_", {{reduced}, {x}}, "f32[2]");
  const auto other = b.call("toy::triple", {{y}});
  ir::Program program = b.returning({reduced, other});
  EXPECT_TRUE(overlap_checked(program));
  EXPECT_THAT(operators(program), ElementsAre("reduce_scatter_tensor", "triple", "wait_tensor", "add_"));
}

TEST(Overlap, TheResultThatIsUsedFirstIsWaitedForFirst) {
  Builder b;
  const auto x = b.input("x"), y = b.input("y");
  const auto unused = b.wait(b.all_reduce(x));
  const auto used = b.wait(b.all_reduce(y));
  const auto user = b.call("toy::triple", {{used}});
  ir::Program program = b.returning({unused, user});
  EXPECT_TRUE(overlap_checked(program));
  EXPECT_THAT(operators(program), ElementsAre("all_reduce", "all_reduce", "wait_tensor", "triple", "wait_tensor"));
}

TEST(Overlap, CollectivesKeepTheirOrder) {
  Builder b;
  const auto x = b.input("x"), y = b.input("y");
  const auto first = b.wait(b.all_reduce(x, "dp"));
  const auto second = b.all_reduce(first, "dp");
  const auto third = b.all_reduce(y, "tp");  // could be issued before the first is waited for
  ir::Program program = b.returning({b.wait(second), b.wait(third)});
  EXPECT_FALSE(overlap_checked(program));
}

TEST(Overlap, ACollectiveStaysBehindAWriteToItsOperand) {
  for (const std::string write : {"aten::add_", "toy::bump", "toy::add.out"}) {
    Builder b;
    const auto x = b.input("x"), y = b.input("y");
    const auto z = b.call("toy::triple", {{y}}), other = b.call("toy::triple", {{y}});
    const auto view = b.call("toy::half", {{z}}, "f32[2]");
    if (write == "aten::add_") b.call(write, {{view}, {x}});  // through a view
    if (write == "toy::bump") b.call(write, {{x}, {z}});      // unseen by name
    if (write == "toy::add.out") b.call(write, {{x}, {x}}, "", {{"out", {z}}});
    ir::Program program = b.returning({b.wait(b.all_reduce(z)), other});
    EXPECT_TRUE(overlap_checked(program));
    EXPECT_THAT(operators(program), ElementsAre("triple", "half",
                                                write == "aten::add_"  ? "add_"
                                                : write == "toy::bump" ? "bump"
                                                                       : "add",
                                                "all_reduce", "triple", "wait_tensor"))
        << write;
  }
}

TEST(Overlap, AWaitStaysBeforeAWriteToWhatTheCollectiveReads) {
  Builder b;
  const auto x = b.input("x"), y = b.input("y");
  const auto z = b.call("toy::triple", {{y}});
  const auto gathered = b.wait(b.all_gather(z));
  b.call("aten::add_", {{z}, {x}});
  ir::Program program = b.returning({z, gathered});
  EXPECT_FALSE(overlap_checked(program));
  EXPECT_THAT(operators(program), ElementsAre("triple", "all_gather_into_tensor", "wait_tensor", "add_"));
}

TEST(Overlap, AWriteToAResultStaysBehindItsReaders) {
  Builder b;
  const auto x = b.input("x"), y = b.input("y");
  const auto reduced = b.wait(b.all_reduce(x));
  const auto before = b.call("toy::triple", {{reduced}});
  b.call("aten::add_", {{reduced}, {y}});
  const auto after = b.call("toy::triple", {{reduced}});
  const auto sent = b.wait(b.all_reduce(after));
  ir::Program program = b.returning({before, sent});
  EXPECT_FALSE(overlap_checked(program));
}

TEST(Overlap, InPlaceCollectivesWriteTheirOperand) {
  Builder b;
  const auto x = b.input("x");
  const auto z = b.call("toy::triple", {{x}});
  const auto before = b.call("toy::triple", {{z}});
  const auto reduced = b.wait(b.call("_c10d_functional::all_reduce_", {{z}, {std::string("sum")}, {std::string("dp")}}));
  const auto after = b.call("toy::triple", {{z}});
  ir::Program program = b.returning({before, reduced, after});
  EXPECT_FALSE(overlap_checked(program));
}

TEST(Overlap, InputsOfTheUserMayOverlapEachOther) {
  Builder b;
  const auto x = b.input("x"), y = b.input("y");
  b.call("aten::add_", {{x}, {x}});
  ir::Program program = b.returning({b.wait(b.all_reduce(y))});
  EXPECT_FALSE(overlap_checked(program));
}

TEST(Overlap, ParametersLieApartUnlessTheyAreOneTensor) {
  using Pairs = std::vector<std::pair<int, int>>;
  for (const Pairs& aliases : {Pairs{}, Pairs{{0, 1}}, Pairs{{0, 2}}, Pairs{{0, 2}, {1, 2}}}) {
    Builder b;
    const auto x = b.input("x"), y = b.input("y"), z = b.input("z");
    b.program.metadata.params.resize(2);
    b.program.metadata.buffers.resize(1);
    b.program.metadata.input_aliases = aliases;
    b.call("aten::add_", {{x}, {x}});
    ir::Program program = b.returning({b.wait(b.all_reduce(y)), b.wait(b.all_reduce(z))});
    overlap_checked(program);
    const std::vector<std::string> names = operators(program);
    const auto place = std::ranges::find(names, "add_") - names.begin();
    EXPECT_EQ(place, aliases.empty() ? 2 : aliases[0].second == 1 || aliases.size() == 2 ? 0 : 1) << aliases.size();
  }
}

TEST(Overlap, RandomCallsKeepTheirOrder) {
  Builder b;
  const auto x = b.input("x");
  const auto first = b.call("toy::random", {{x}}), second = b.call("toy::random", {{x}});
  const auto reduced = b.wait(b.all_reduce(second));
  ir::Program program = b.returning({first, reduced});
  EXPECT_FALSE(overlap_checked(program));

  Builder c;  // the same without random numbers
  const auto y = c.input("x");
  const auto third = c.call("toy::triple", {{y}}), fourth = c.call("toy::triple", {{y}});
  ir::Program free = c.returning({third, c.wait(c.all_reduce(fourth))});
  EXPECT_TRUE(overlap_checked(free));
}

TEST(Overlap, ItemsOfACoalescedCallAreWaitedForOneByOne) {
  Builder b;
  const auto x = b.input("x"), y = b.input("y");
  const auto all = b.call("_c10d_functional::all_reduce_coalesced",
                          {{ir::Operand::List{{x}, {y}}}, {std::string("sum")}, {std::string("dp")}}, "");
  const auto first = b.item(all, 0), second = b.item(all, 1);
  const auto a = b.wait(first), c = b.wait(second);
  const auto user = b.call("toy::triple", {{a}});
  ir::Program program = b.returning({user, c});
  EXPECT_TRUE(overlap_checked(program));
  EXPECT_THAT(operators(program), ElementsAre("all_reduce_coalesced", "[0]", "[1]", "wait_tensor", "triple", "wait_tensor"));
}

/// Blocks that gather a parameter, compute with it, and go on with what they computed.
ir::Program blocks(int n) {
  Builder b;
  std::vector<ir::ValueId> weights;
  for (int i = 0; i < n; ++i) weights.push_back(b.input("w"));
  auto x = b.input("x");
  for (const ir::ValueId weight : weights) {
    const auto operand = b.call("toy::triple", {{weight}});
    x = b.call("toy::add", {{x}, {b.wait(b.all_gather(operand))}});
  }
  return b.returning({x});
}

TEST(Overlap, UnlimitedAllIsGatheredAtFirst) {
  ir::Program program = blocks(3);
  EXPECT_TRUE(overlap_checked(program));
  EXPECT_THAT(operators(program),
              ElementsAre("triple", "all_gather_into_tensor", "triple", "all_gather_into_tensor", "triple",
                          "all_gather_into_tensor", "wait_tensor", "add", "wait_tensor", "add", "wait_tensor", "add"));
}

TEST(Overlap, ALimitGathersOneBlockAhead) {
  ir::Program program = blocks(4);
  EXPECT_TRUE(overlap_checked(program, {.max_in_flight = 2}));
  EXPECT_THAT(operators(program), ElementsAre("triple", "all_gather_into_tensor", "triple", "all_gather_into_tensor", "triple",
                                              "wait_tensor", "all_gather_into_tensor", "triple", "add", "wait_tensor",
                                              "all_gather_into_tensor", "add", "wait_tensor", "add", "wait_tensor", "add"));
}

TEST(Overlap, ALimitOfNoneStillEnds) {
  ir::Program program = blocks(3);
  overlap_checked(program, {.max_in_flight = 0});
}

TEST(Overlap, GivesTheSameProgramTwice) {
  ir::Program program = blocks(5);
  ir::Program same = program;
  EXPECT_TRUE(overlap_checked(program));
  overlap_collectives(same, test::toy_effects());
  EXPECT_EQ(program, same);
  EXPECT_FALSE(overlap_checked(program));  // and has nothing left to do
}

TEST(Notes, TellBytes) {
  EXPECT_EQ(note_bytes("f32[16, 8]"), 512U);
  EXPECT_EQ(note_bytes("bf16[3]"), 6U);
  EXPECT_EQ(note_bytes("b8[]"), 1U);
  EXPECT_EQ(note_bytes("i64[0, 4]"), 0U);
  EXPECT_EQ(note_bytes("f8_e4m3fn[2]"), 2U);
  for (const char* unclear : {"", "f32", "f32[", "f32[x]", "f32[-1]", "f32[2,3]", "f[2]", "f32[4294967296, 4294967296]", "f999[1]"})
    EXPECT_EQ(note_bytes(unclear), std::nullopt) << unclear;
}

}  // namespace
}  // namespace precast::passes
