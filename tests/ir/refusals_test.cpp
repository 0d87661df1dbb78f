#include "ir/example_program.h"
#include "ir/literal_text.h"
#include "ir/text.h"
#include "precast/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace precast::ir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text() {
  return write_python_code(test::example_program());
}

std::string replaced(std::string whole, std::string_view from, std::string_view to) {
  const std::size_t at = whole.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return whole.replace(at, from.size(), to);
}

/// The text of the refusal, "accepted" if there is none. Any other exception fails the test.
std::string refusal(std::string_view code) {
  try {
    read_python_code(code);
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_artifact);
    return error.what();
  }
  return "accepted";
}

/// The assignment of a metadata literal, with its line end.
std::string assignment(const std::string& name) {
  const std::string whole = text();
  const std::size_t start = whole.find("\n" + name + " = ") + 1;
  return whole.substr(start, whole.find('\n', start) + 1 - start);
}

TEST(Refusals, TextThatIsNotPythonIsNoArtifact) {  // C58
  for (const std::string_view code : {"x = (", "x = 'open", "x = )", "\"\"\"", "x = $",
                                      "\x7f"
                                      "ELF",
                                      "x = [(])"})
    EXPECT_THAT(refusal(code), AllOf(HasSubstr("is not a Precast artifact"), HasSubstr("not valid Python"))) << code;
}

TEST(Refusals, BytesThatPythonCannotReadAsSourceAreNoArtifact) {  // C58
  for (const std::string& bytes : {std::string("\xff"), std::string("\xc0\xaf"), std::string(1, '\0')})
    EXPECT_THAT(refusal(replaced(text(), "# Written", "# " + bytes)), HasSubstr("not valid Python"));
}

TEST(Refusals, MissingLiteralsAreAllNamed) {  // C59
  EXPECT_THAT(refusal(""), AllOf(HasSubstr("BACKEND"), HasSubstr("USER_INPUT_BOUNDS")));
  EXPECT_THAT(refusal(replaced(text(), assignment("PARAM_NAMES"), "")), HasSubstr("PARAM_NAMES"));
}

TEST(Refusals, AnExpressionAsAValueIsNamed) {  // C60
  for (const std::string value :
       {"print('run')", "1 + 1", "[x for x in []]", "f'x'", "b'x'", "BACKEND", "lambda: 0", "'a'.upper()", "open", ""})
    EXPECT_THAT(refusal(replaced(text(), assignment("BACKEND"), "BACKEND = " + value + "\n")), HasSubstr("BACKEND")) << value;
}

TEST(Refusals, TheLastAssignmentCounts) {  // C61
  EXPECT_EQ(read_python_code(text() + "\nBACKEND = 'other'\n").metadata.backend, "other");
  EXPECT_THAT(refusal(text() + "\nBACKEND = f()\n"), HasSubstr("BACKEND"));
  EXPECT_EQ(read_python_code("BACKEND = f()\n" + text()), test::example_program());
}

TEST(Refusals, UnknownModuleLevelNamesAreIgnored) {  // C61
  EXPECT_EQ(read_python_code("import os\nOTHER = os.getcwd()\n" + text() + "\nMORE = {1: f'{2}'}\n"), test::example_program());
}

TEST(Refusals, ALineOutsideTheGrammarIsNamed) {  // C62
  for (const std::string line :
       {"import os", "t = torch.add(fc_weight, x)", "t = fc_weight + x", "t += x", "if x: pass", "t = x.y", "print(x)", "return x",
        "t = torch.ops.aten.t.default(*x)", "t = torch.ops.aten.t.default(x if x else x)"})
    EXPECT_THAT(refusal(replaced(text(), "t = torch.ops.aten.t.default(fc_weight)", line)), HasSubstr("line ")) << line;
}

TEST(Refusals, AValueUsedBeforeItIsDefinedIsNamedWithItsOperator) {  // C62
  EXPECT_THAT(refusal(replaced(text(), "aten.t.default(fc_weight)", "aten.t.default(later)")),
              AllOf(HasSubstr("later"), HasSubstr("aten::t"), HasSubstr("line ")));
}

TEST(Refusals, AValueDefinedTwiceIsNamed) {  // C62
  EXPECT_THAT(refusal(replaced(text(), "    t = torch", "    x = torch")), AllOf(HasSubstr("'x'"), HasSubstr("twice")));
}

TEST(Refusals, ADeletedValueIsUndefined) {  // C62
  EXPECT_THAT(refusal(replaced(text(), "aten.t.default(fc_weight)", "aten.t.default(fc_weight);  x = None")), HasSubstr("'x'"));
}

TEST(Refusals, AnotherNumberOfInputsOrOutputsThanTheMetadataNames) {
  EXPECT_THAT(refusal(replaced(text(), assignment("USER_INPUT_SHAPES"), "USER_INPUT_SHAPES = [None]\n")), HasSubstr("USER_INPUT_"));
  EXPECT_THAT(refusal(replaced(text(), assignment("GRAD_PARAM_INDICES"), "GRAD_PARAM_INDICES = []\n")),
              HasSubstr("GRAD_PARAM_INDICES"));
}

TEST(Refusals, AnIndexOutOfRangeIsNamed) {
  EXPECT_THAT(refusal(replaced(text(), assignment("GRAD_PARAM_INDICES"), "GRAD_PARAM_INDICES = [2]\n")),
              HasSubstr("GRAD_PARAM_INDICES"));
  EXPECT_THAT(refusal(replaced(text(), assignment("MODULE_POSITIONS"), "MODULE_POSITIONS = [-1]\n")),
              HasSubstr("MODULE_POSITIONS"));
  EXPECT_THAT(refusal(replaced(text(), assignment("INPUT_ALIASES"), "INPUT_ALIASES = [(0, 9)]\n")), HasSubstr("INPUT_ALIASES"));
}

TEST(Refusals, AModuleNamedTwiceIsRefused) {
  EXPECT_THAT(refusal(replaced(text(), assignment("MODULE_POSITIONS"), "MODULE_POSITIONS = [0, 0]\n")),
              HasSubstr("MODULE_POSITIONS"));
}

TEST(Refusals, AValueOfALeafIsNoTuple) {
  EXPECT_THAT(refusal(replaced(text(), assignment("USER_INPUT_VALUES"), "USER_INPUT_VALUES = [None, (1, 2)]\n")),
              HasSubstr("USER_INPUT_VALUES"));
}

TEST(Refusals, ATextCutAnywhereNeverPassesForAnother) {
  const std::string whole = text();
  const std::size_t metadata_end = whole.find("\nUSER_INPUT_NAMES");  // what follows is optional
  for (std::size_t n = 0; n < metadata_end; ++n) {
    const std::string found = refusal(std::string_view(whole).substr(0, n));
    EXPECT_NE(found, "accepted") << n << " bytes";
  }
}

TEST(Refusals, ASubstitutedByteIsReadOrRefused) {
  std::string whole = text();
  const std::size_t driver = whole.find("def _lift");
  for (std::size_t i = 0; i < whole.size(); i += i < driver ? 1 : 23) {  // the driver is only cut into lines
    const char before = whole[i];
    for (const char c : {'\0', '\n', '\'', '"', '\\', '(', ')', ']', '#', '=', '9', '\xff'}) {
      whole[i] = c;
      refusal(whole);  // PrecompileError or nothing: another exception ends the test
    }
    whole[i] = before;
  }
}

std::string repeated(std::string_view part, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += part;
  return out;
}

TEST(Refusals, NestingIsBounded) {
  constexpr int kDeep = 200'000;
  for (const char* open : {"[", "(", "{", "{1:", "-("}) {
    EXPECT_NE(refusal("BACKEND = " + repeated(open, kDeep)), "accepted") << open;
    EXPECT_NE(refusal(replaced(text(), "default(fc_weight)", "default(" + repeated(open, kDeep))), "accepted") << open;
  }
  EXPECT_NE(refusal("BACKEND = " + repeated("[", kDeep) + repeated("]", kDeep)), "accepted");
}

TEST(Refusals, NestingInsideATreeSpecIsBounded) {
  constexpr int kDeep = 200'000;
  EXPECT_THROW(read_treespec("[1, " + repeated("[", kDeep) + repeated("]", kDeep) + "]"), std::runtime_error);
  EXPECT_THROW(read_treespec("[1, " + repeated(R"({"type": "builtins.list", "context": "null", "children_spec": [)", kDeep)),
               std::runtime_error);
  // The keys of a dict are JSON inside a JSON string, where brackets can be spelled as escapes.
  const std::string keys = repeated("\\u005b", kDeep) + repeated("\\u005d", kDeep);
  EXPECT_THROW(read_treespec(R"([1, {"type": "builtins.dict", "context": ")" + keys +
                             R"(", "children_spec": [{"type": null, "context": "null", "children_spec": []}]}])"),
               std::runtime_error);
}

TEST(Refusals, NumbersOutsideOf64BitsAreRefused) {  // C77
  EXPECT_NE(refusal(replaced(text(), "alpha=0.1", "alpha=9223372036854775808")), "accepted");
  EXPECT_NE(refusal(replaced(text(), "alpha=0.1", "alpha=1_0x")), "accepted");
}

}  // namespace
}  // namespace precast::ir
