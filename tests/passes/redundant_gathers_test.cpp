#include "passes/toy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace precast::passes {
namespace {

using test::Builder;
using test::operators;
using ::testing::ElementsAre;

bool remove_checked(ir::Program& program) {
  const ir::Program before = program;
  const bool changed = remove_redundant_gathers(program, test::toy_effects());
  test::expect_valid(program);
  EXPECT_EQ(changed, program != before);
  for (const test::Reads reads : {test::Reads::when_issued, test::Reads::when_waited})
    EXPECT_EQ(test::run_toy(program, reads).outcome, test::run_toy(before, reads).outcome);
  return changed;
}

TEST(RedundantGathers, TheFirstResultServesAgain) {
  Builder b;
  const auto w = b.input("w"), x = b.input("x");
  const auto forward = b.call("toy::add", {{x}, {b.wait(b.all_gather(w))}});
  const auto backward = b.call("toy::add", {{forward}, {b.wait(b.all_gather(w))}});
  const auto third = b.call("toy::add", {{backward}, {b.wait(b.all_gather(w))}});
  ir::Program program = b.returning({third});
  EXPECT_TRUE(remove_checked(program));
  EXPECT_THAT(operators(program), ElementsAre("all_gather_into_tensor", "wait_tensor", "add", "add", "add"));
}

TEST(RedundantGathers, TheFirstWaitStays) {
  Builder b;
  const auto w = b.input("w"), x = b.input("x");
  const auto first = b.all_gather(w), second = b.all_gather(w);
  const auto b_second = b.wait(second);
  const auto user = b.call("toy::add", {{x}, {b_second}});
  const auto b_first = b.wait(first);
  ir::Program program = b.returning({user, b.call("toy::add", {{x}, {b_first}})});
  EXPECT_TRUE(remove_checked(program));
  EXPECT_THAT(operators(program), ElementsAre("all_gather_into_tensor", "wait_tensor", "add", "add"));
}

TEST(RedundantGathers, OneResultMayLeaveTheProgramButNotTwo) {
  for (const bool both : {false, true}) {
    Builder b;
    const auto w = b.input("w"), x = b.input("x");
    const auto first = b.wait(b.all_gather(w)), second = b.wait(b.all_gather(w));
    const auto user = b.call("toy::add", {{x}, {first}});
    ir::Program program = both ? b.returning({b.call("toy::half", {{first}}, ""), second}) : b.returning({user, second});
    EXPECT_EQ(remove_checked(program), !both);
  }
}

TEST(RedundantGathers, AnotherGroupIsAnotherGather) {
  Builder b;
  const auto w = b.input("w"), x = b.input("x");
  const auto first = b.call("toy::add", {{x}, {b.wait(b.all_gather(w, "dp"))}});
  ir::Program program = b.returning({b.call("toy::add", {{first}, {b.wait(b.all_gather(w, "tp"))}})});
  EXPECT_FALSE(remove_checked(program));
}

TEST(RedundantGathers, AWriteToTheSourceInBetweenKeepsBoth) {
  for (const std::string place : {"before", "between", "view", "after"}) {
    Builder b;
    const auto w = b.input("w"), x = b.input("x");
    const auto source = b.call("toy::triple", {{w}});
    const auto view = b.call("toy::half", {{source}}, "f32[2]");
    if (place == "before") b.call("aten::add_", {{source}, {x}});
    const auto first = b.call("toy::add", {{x}, {b.wait(b.all_gather(source))}});
    if (place == "between") b.call("toy::bump", {{x}, {source}});
    if (place == "view") b.call("aten::add_", {{view}, {x}});
    const auto second = b.call("toy::add", {{first}, {b.wait(b.all_gather(source))}});
    if (place == "after") b.call("aten::add_", {{source}, {x}});
    ir::Program program = b.returning({second, source});
    EXPECT_EQ(remove_checked(program), place == "before" || place == "after") << place;
  }
}

TEST(RedundantGathers, AfterAWriteTheNewGatherServes) {
  Builder b;
  const auto w = b.input("w"), x = b.input("x");
  const auto source = b.call("toy::triple", {{w}});
  auto sum = b.call("toy::add", {{x}, {b.wait(b.all_gather(source))}});
  b.call("aten::add_", {{source}, {x}});
  sum = b.call("toy::add", {{sum}, {b.wait(b.all_gather(source))}});
  sum = b.call("toy::add", {{sum}, {b.wait(b.all_gather(source))}});
  ir::Program program = b.returning({sum});
  EXPECT_TRUE(remove_checked(program));
  EXPECT_EQ(std::ranges::count(operators(program), "all_gather_into_tensor"), 2);
}

TEST(RedundantGathers, AResultThatIsWrittenIsNotShared) {
  for (const bool write_first : {false, true}) {
    Builder b;
    const auto w = b.input("w"), x = b.input("x");
    const auto first = b.wait(b.all_gather(w)), second = b.wait(b.all_gather(w));
    b.call("aten::add_", {{write_first ? first : second}, {x}});
    ir::Program program = b.returning({b.call("toy::add", {{x}, {first}}), b.call("toy::add", {{x}, {second}})});
    EXPECT_FALSE(remove_checked(program));
  }
}

/// Takes this rank's block of the whole, as a capture does.
ir::ValueId take_own(Builder& b, ir::ValueId whole, ir::ValueId rank, std::int64_t dim) {
  const auto n = std::int64_t{2};
  const auto blocks =
      b.call("aten::unflatten.int", {{whole}, {dim}, {ir::Operand::List{{n}, {dim == 0 ? std::int64_t{4} : n}}}}, "");
  const auto index = b.call("aten::view", {{rank}, {ir::Operand::List{{std::int64_t{1}}}}}, "i64[1]");
  const auto selected = b.call("aten::index_select", {{blocks}, {dim}, {index}}, "");
  return b.call("aten::squeeze.dim", {{selected}, {dim}}, "");
}

TEST(OwnShard, IsCopiedInsteadOfGathered) {
  Builder b;
  const auto x = b.input("x"), rank = b.input("rank", "i64[]");
  b.program.metadata.mesh_inputs = {"dp"};
  ir::Program program = b.returning({take_own(b, b.wait(b.all_gather(x)), rank, 0)});
  EXPECT_TRUE(remove_checked(program));
  EXPECT_THAT(operators(program), ElementsAre("stack", "squeeze"));
}

TEST(OwnShard, AlongAnotherDimensionToo) {
  Builder b;
  const auto x = b.input("x"), dp = b.input("mesh_dp", "i64[]"), tp = b.input("mesh_tp", "i64[]");
  b.program.metadata.mesh_inputs = {"dp", "tp"};
  const auto square = b.call("aten::view", {{x}, {ir::Operand::List{{std::int64_t{2}}, {std::int64_t{2}}}}}, "f32[2, 2]");
  const auto chunks = b.call("aten::chunk", {{b.wait(b.all_gather(square, "tp"))}, {std::int64_t{2}}}, "");
  const auto first = b.item(chunks, 0), second = b.item(chunks, 1);
  const auto whole = b.call("aten::cat", {{ir::Operand::List{{first}, {second}}}, {std::int64_t{1}}}, "");
  ir::Program program = b.returning({take_own(b, whole, tp, 1), dp});
  EXPECT_TRUE(remove_checked(program));
  EXPECT_THAT(operators(program), ElementsAre("view", "stack", "squeeze"));
}

TEST(OwnShard, ChunksInAnotherOrderAreNotTheWhole) {
  Builder b;
  const auto x = b.input("x"), rank = b.input("rank", "i64[]");
  b.program.metadata.mesh_inputs = {"dp"};
  const auto square = b.call("aten::view", {{x}, {ir::Operand::List{{std::int64_t{2}}, {std::int64_t{2}}}}}, "f32[2, 2]");
  const auto chunks = b.call("aten::chunk", {{b.wait(b.all_gather(square))}, {std::int64_t{2}}}, "");
  const auto first = b.item(chunks, 0), second = b.item(chunks, 1);
  const auto whole = b.call("aten::cat", {{ir::Operand::List{{second}, {first}}}, {std::int64_t{1}}}, "");
  ir::Program program = b.returning({take_own(b, whole, rank, 1)});
  EXPECT_FALSE(remove_checked(program));
}

TEST(OwnShard, TheGatherStaysWhereOthersUseIt) {
  Builder b;
  const auto x = b.input("x"), rank = b.input("rank", "i64[]");
  b.program.metadata.mesh_inputs = {"dp"};
  const auto whole = b.wait(b.all_gather(x));
  ir::Program program = b.returning({take_own(b, whole, rank, 0), b.call("toy::triple", {{whole}})});
  EXPECT_TRUE(remove_checked(program));
  EXPECT_THAT(operators(program), ElementsAre("all_gather_into_tensor", "wait_tensor", "stack", "squeeze", "triple"));
}

TEST(OwnShard, TheRankOfAnotherGroupTakesAnotherShard) {
  Builder b;
  const auto x = b.input("x"), dp = b.input("mesh_dp", "i64[]"), tp = b.input("mesh_tp", "i64[]");
  b.program.metadata.mesh_inputs = {"dp", "tp"};
  ir::Program program = b.returning({take_own(b, b.wait(b.all_gather(x, "dp")), tp, 0), dp});
  EXPECT_FALSE(remove_checked(program));
}

TEST(OwnShard, AWriteInBetweenKeepsTheGather) {
  for (const std::string written : {"source", "gathered", "whole", "nothing"}) {
    Builder b;
    const auto x = b.input("x"), rank = b.input("rank", "i64[]");
    b.program.metadata.mesh_inputs = {"dp"};
    b.program.metadata.params.resize(1);  // of the user's inputs, the rank could be one that overlaps what is written
    const auto source = b.call("toy::triple", {{x}});
    const auto square = b.call("aten::view", {{source}, {ir::Operand::List{{std::int64_t{2}}, {std::int64_t{2}}}}}, "f32[2, 2]");
    const auto gathered = b.wait(b.all_gather(square));
    if (written == "source") b.call("aten::add_", {{source}, {x}});
    if (written == "gathered") b.call("aten::add_", {{gathered}, {x}});
    const auto chunks = b.call("aten::chunk", {{gathered}, {std::int64_t{2}}}, "");
    const auto first = b.item(chunks, 0), second = b.item(chunks, 1);
    const auto whole = b.call("aten::cat", {{ir::Operand::List{{first}, {second}}}, {std::int64_t{1}}}, "");
    if (written == "whole") b.call("aten::add_", {{whole}, {x}});
    ir::Program program = b.returning({take_own(b, whole, rank, 1)});
    EXPECT_EQ(remove_checked(program), written == "nothing") << written;
  }
}

}  // namespace
}  // namespace precast::passes
