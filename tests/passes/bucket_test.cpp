#include "passes/toy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace precast::passes {
namespace {

using test::Builder;
using test::operators;
using ::testing::ElementsAre;

bool bucket_checked(ir::Program& program, std::size_t max_bytes = 1000) {
  const ir::Program before = program;
  const bool changed = bucket_collectives(program, test::toy_effects(), {.max_bytes = max_bytes});
  test::expect_valid(program);
  EXPECT_EQ(changed, program != before);
  for (const test::Reads reads : {test::Reads::when_issued, test::Reads::when_waited})
    EXPECT_EQ(test::run_toy(program, reads).outcome, test::run_toy(before, reads).outcome);
  return changed;
}

/// Two collectives on two inputs, each waited for at once.
ir::Program two(const std::function<ir::ValueId(Builder&, ir::ValueId)>& first,
                const std::function<ir::ValueId(Builder&, ir::ValueId)>& second, const std::string& note = "f32[4]") {
  Builder b;
  const auto x = b.input("x", note), y = b.input("y", note);
  const auto a = b.wait(first(b, x)), c = b.wait(second(b, y));
  return b.returning({a, c});
}

TEST(Bucket, MakesOneCallOfEachKind) {
  const auto reduce = [](Builder& b, ir::ValueId value) { return b.all_reduce(value); };
  const auto gather = [](Builder& b, ir::ValueId value) { return b.all_gather(value); };
  const auto scatter = [](Builder& b, ir::ValueId value) { return b.reduce_scatter(value); };
  ir::Program program = two(reduce, reduce);
  EXPECT_TRUE(bucket_checked(program));
  EXPECT_THAT(operators(program), ElementsAre("all_reduce_coalesced", "[0]", "[1]", "wait_tensor", "wait_tensor"));
  const ir::Call expected{
      .name = "_c10d_functional::all_reduce_coalesced",
      .overload = "",
      .arguments = {{ir::Operand::List{{program.inputs[0]}, {program.inputs[1]}}}, {std::string("sum")}, {std::string("dp")}},
      .keywords = {}};
  EXPECT_EQ(std::get<ir::Call>(program.statements[0].is), expected);
  program = two(gather, gather);
  EXPECT_TRUE(bucket_checked(program));
  EXPECT_EQ(operators(program)[0], "all_gather_into_tensor_coalesced");
  program = two(scatter, scatter);
  EXPECT_TRUE(bucket_checked(program));
  EXPECT_EQ(operators(program)[0], "reduce_scatter_tensor_coalesced");
}

TEST(Bucket, KeepsApartWhatDiffers) {
  const auto reduce = [](Builder& b, ir::ValueId value) { return b.all_reduce(value); };
  const auto other_kind = [](Builder& b, ir::ValueId value) { return b.all_gather(value); };
  const auto other_group = [](Builder& b, ir::ValueId value) { return b.all_reduce(value, "tp"); };
  const auto other_reduction = [](Builder& b, ir::ValueId value) { return b.all_reduce(value, "dp", "product"); };
  const auto other_dtype = [](Builder& b, ir::ValueId value) {
    return b.all_reduce(b.call("toy::triple", {{value}}, "f64[4]"), "dp", "sum", "f64[4]");
  };
  for (const auto& other :
       {std::function<ir::ValueId(Builder&, ir::ValueId)>(other_kind), {other_group}, {other_reduction}, {other_dtype}}) {
    ir::Program program = two(reduce, other);
    EXPECT_FALSE(bucket_checked(program));
  }
  ir::Program unknown_size = two(reduce, reduce, "");
  EXPECT_FALSE(bucket_checked(unknown_size));
}

TEST(Bucket, KeepsApartWhatHasAnotherCollectiveBetween) {
  Builder b;
  const auto x = b.input("x"), y = b.input("y"), z = b.input("z");
  const auto first = b.all_reduce(x), between = b.all_gather(y), last = b.all_reduce(z);
  ir::Program program = b.returning({b.wait(first), b.wait(between), b.wait(last)});
  EXPECT_FALSE(bucket_checked(program));
}

TEST(Bucket, KeepsApartWhatNeedsTheOther) {
  Builder b;
  const auto x = b.input("x");
  const auto first = b.wait(b.all_reduce(x));
  const auto second = b.wait(b.all_reduce(b.call("toy::triple", {{first}})));
  ir::Program program = b.returning({first, second});
  EXPECT_FALSE(bucket_checked(program));
}

TEST(Bucket, KeepsApartWhatAWriteOrders) {  // the second's operand is written after the first has read it
  Builder b;
  const auto x = b.input("x"), y = b.input("y");
  const auto z = b.call("toy::triple", {{x}});
  const auto first = b.wait(b.all_reduce(z));
  b.call("aten::add_", {{z}, {y}});
  ir::Program program = b.returning({first, b.wait(b.all_reduce(z))});
  EXPECT_FALSE(bucket_checked(program));
}

TEST(Bucket, KeepsApartWhatRandomNumbersOrder) {
  Builder b;
  const auto x = b.input("x");
  const auto first = b.wait(b.all_reduce(x));
  const auto one = b.call("toy::random", {{first}}), two = b.call("toy::random", {{x}});
  ir::Program program = b.returning({one, b.wait(b.all_reduce(two))});
  EXPECT_FALSE(bucket_checked(program));
}

TEST(Bucket, WhatTheFirstGivesIsUsedBehindTheBucket) {
  Builder b;
  const auto x = b.input("x"), y = b.input("y");
  const auto first = b.wait(b.all_reduce(x));
  const auto user = b.call("toy::triple", {{first}});
  const auto operand = b.call("toy::add", {{y}, {y}});
  ir::Program program = b.returning({user, b.wait(b.all_reduce(operand))});
  EXPECT_TRUE(bucket_checked(program));
  EXPECT_THAT(operators(program), ElementsAre("add", "all_reduce_coalesced", "[0]", "[1]", "wait_tensor", "triple", "wait_tensor"));
}

TEST(Bucket, HoldsAtMostItsBytes) {
  Builder b;
  std::vector<ir::ValueId> results;
  const auto x = b.input("x");
  for (int i = 0; i < 5; ++i) results.push_back(b.all_reduce(x));  // of 16 bytes
  for (ir::ValueId& result : results) result = b.wait(result);
  ir::Program program = b.returning(results), copy = program;
  EXPECT_TRUE(bucket_checked(program, 47));
  EXPECT_THAT(std::vector<std::string>(operators(program)),
              ElementsAre("all_reduce_coalesced", "[0]", "[1]", "all_reduce_coalesced", "[0]", "[1]", "all_reduce", "wait_tensor",
                          "wait_tensor", "wait_tensor", "wait_tensor", "wait_tensor"));
  EXPECT_FALSE(bucket_checked(copy, 31));
}

TEST(Bucket, CountsAGatherAfterIt) {
  const auto gather = [](Builder& b, ir::ValueId value) { return b.all_gather(value); };  // 16 bytes become 32
  ir::Program program = two(gather, gather);
  EXPECT_FALSE(bucket_checked(program, 63));
  EXPECT_TRUE(bucket_checked(program, 64));
}

}  // namespace
}  // namespace precast::passes
