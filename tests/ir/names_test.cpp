#include "ir/names.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace precast::ir {
namespace {

TEST(Names, DotsBecomeUnderscores) {
  EXPECT_EQ(NameTable().unique("fc1.weight"), "fc1_weight");
}

TEST(Names, NamesOfPythonAndOfTheTextAreNeverHandedOut) {  // C76
  NameTable names;
  for (const std::string name : {"class", "def", "None", "True", "lambda", "match", "call", "forward", "torch", "args", "device",
                                 "inf", "nan", "pytree", "sum"})
    EXPECT_NE(names.unique(name), name);
}

TEST(Names, MetadataNamesAreNeverHandedOut) {  // C76
  NameTable names;
  for (const std::string name : {"BACKEND", "PARAM_NAMES", "OUT_SPEC", "MODULE_TRAINING"}) EXPECT_NE(names.unique(name), name);
}

TEST(Names, NamesAreUnique) {
  NameTable names;
  std::set<std::string> seen;
  for (const std::string name : {"add", "add", "add_1", "add.1", "add_1", "add", "class", "class_", "class_1", "class"})
    EXPECT_TRUE(seen.insert(names.unique(name)).second) << name;
}

TEST(Names, AnythingBecomesAnAsciiIdentifier) {  // C76
  NameTable names;
  for (const std::string wanted : {"", "0", "0.weight", "a-b", "a b", "caf\xc3\xa9", "\xff", "'; import os", "...", "_", "\n"}) {
    const std::string name = names.unique(wanted);
    EXPECT_FALSE(name.empty()) << wanted;
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"), std::string::npos) << name;
    EXPECT_FALSE(std::isdigit(static_cast<unsigned char>(name.front()))) << name;
  }
}

TEST(Names, TheSameRequestsGiveTheSameNames) {  // C41
  NameTable one, two;
  for (const std::string name : {"x", "x", "class", "a.b", "a_b"}) EXPECT_EQ(one.unique(name), two.unique(name));
}

}  // namespace
}  // namespace precast::ir
