#include "ir/text.h"

#include "ir/example_program.h"
#include "ir/literal_text.h"
#include "precast/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>

namespace precast::ir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Program read_back(const Program& program) {
  return read_python_code(write_python_code(program));
}

/// A program that returns one operand.
Program returning(Operand operand) {
  Program program;
  program.metadata.in_spec = TreeSpec{.type = "builtins.tuple", .keys = {}, .children = {}};
  program.outputs = {std::move(operand)};
  return program;
}

/// A program with one plain input leaf.
Program taking(Literal value) {
  Program program = returning({None{}});
  program.metadata.num_positional_args = 1;
  program.metadata.in_spec->children.emplace_back();
  program.metadata.inputs = {
      {.path = "argument 0", .shape = {}, .dtype = {}, .device = {}, .value = std::move(value), .is_generator = false}};
  program.values = {{"leaf", ""}};
  program.inputs = {{0}};
  return program;
}

TEST(Text, ReadsBackTheProgramThatWasWritten) {
  const Program program = test::example_program();
  EXPECT_EQ(read_back(program), program);
}

TEST(Text, WritesTheSameBytesAfterReading) {  // C41
  const std::string text = write_python_code(test::example_program());
  EXPECT_EQ(write_python_code(read_python_code(text)), text);
}

TEST(Text, DoublesSurviveToTheBit) {  // C77
  const double inf = std::numeric_limits<double>::infinity();
  for (const double value : {0.0, -0.0, inf, -inf, 0.1, 1.0 / 3, 0.1 + 0.2, 1e300, 1e-300, 5e-324, 1.7976931348623157e308, 1e22,
                             123456789.0, 9007199254740993.0, -2.5}) {
    const auto operand = read_back(returning({value})).outputs.at(0);
    ASSERT_TRUE(std::holds_alternative<double>(operand.is)) << value;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(std::get<double>(operand.is)), std::bit_cast<std::uint64_t>(value)) << value;
    const auto leaf = read_back(taking({value})).metadata.inputs.at(0).value;
    ASSERT_TRUE(leaf && std::holds_alternative<double>(leaf->is)) << value;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(std::get<double>(leaf->is)), std::bit_cast<std::uint64_t>(value)) << value;
  }
}

TEST(Text, NanStaysNan) {  // C77
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(std::get<double>(read_back(returning({nan})).outputs.at(0).is)));
  EXPECT_TRUE(std::isnan(std::get<double>(read_back(taking({nan})).metadata.inputs.at(0).value->is)));
}

TEST(Text, AValueThatWasNotRecordedStaysUnknown) {
  Program program = taking({true});
  program.metadata.inputs.at(0).value.reset();
  EXPECT_EQ(read_back(program), program);
}

TEST(Text, TheWholeRangeOfInt64Survives) {  // C77
  for (const std::int64_t value :
       {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min(), std::int64_t{0}, std::int64_t{-1}}) {
    EXPECT_EQ(read_back(returning({value})).outputs.at(0), Operand{value});
    EXPECT_EQ(read_back(taking({value})).metadata.inputs.at(0).value, Literal{value});
  }
}

TEST(Text, StringsSurvive) {  // C77
  for (const std::string value :
       {"", "'", "\"", "'''", "\\", "\\n", "a\nb\r\t", "\x01\x7f", "caf\xc3\xa9 \xf0\x9f\x8e\x89", "# no comment", "((("}) {
    EXPECT_EQ(read_back(returning({value})).outputs.at(0), Operand{value});
    EXPECT_EQ(read_back(taking({value})).metadata.inputs.at(0).value, Literal{value});
  }
}

TEST(Text, AStringThatIsNotUtf8IsRefused) {
  for (const std::string value : {"\xff", "\xc3", "\xed\xa0\x80", "\xc0\xaf", "\xf5\x80\x80\x80"})
    EXPECT_THROW(write_python_code(returning({value})), PrecompileError);
}

TEST(Text, ADeviceNameIsQuoted) {
  EXPECT_EQ(read_back(returning({Device{"it's"}})).outputs.at(0), Operand{Device{"it's"}});
}

TEST(Text, AValueIsDeletedAfterItsLastUse) {
  EXPECT_THAT(write_python_code(test::example_program()), HasSubstr("pair[0];  pair = None"));
}

TEST(Text, HoldsNoDeviceIndexAndNoUnnamedModules) {
  std::string text = write_python_code(test::example_program());
  EXPECT_THAT(text, Not(HasSubstr("cpu:")));
  EXPECT_THAT(text, Not(HasSubstr("pickle")));
}

TEST(Text, TheMembersOfADictSpecAreThePythonReferencesJson) {
  // What torch.utils._pytree.treespec_dumps(tree_structure(({"x": 1},))) gives.
  const TreeSpec spec{"builtins.tuple", {}, {{"builtins.dict", {"x"}, {{}}}}};
  EXPECT_EQ(
      write_treespec(spec),
      R"([1, {"type": "builtins.tuple", "context": "null", "children_spec": [{"type": "builtins.dict", "context": "[\"x\"]", )"
      R"("children_spec": [{"type": null, "context": null, "children_spec": []}]}]}])");
  EXPECT_EQ(read_treespec(write_treespec(spec)), spec);
}

}  // namespace
}  // namespace precast::ir
