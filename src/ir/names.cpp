#include "ir/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace precast::ir {
namespace {

// Python's keywords, and the names that the text itself uses at module level or inside `call`.
constexpr std::array kReserved = {
    "False", "None",   "True",  "and",      "as",     "assert",  "async",   "await", "break",  "case",   "class",  "continue",
    "def",   "del",    "elif",  "else",     "except", "finally", "for",     "from",  "global", "if",     "import", "in",
    "is",    "lambda", "match", "nonlocal", "not",    "or",      "pass",    "print", "raise",  "return", "try",    "type",
    "while", "with",   "yield", "args",     "call",   "device",  "forward", "inf",   "nan",    "torch",  "pytree", "sum",
    "max",   "min",    "abs",   "all",      "any",    "pow",     "round",   "range", "len",    "list",   "tuple",  "dict",
    "set",   "zip",    "map",   "filter",   "sorted", "slice",   "str",     "int",   "float",  "bool",   "repr",   "iter",
    "next",  "hash",   "id",    "input",    "object", "super",   "vars",
};

std::string sanitize(std::string_view wanted) {
  std::string name;
  for (const char c : wanted) {
    const bool good = std::isalnum(static_cast<unsigned char>(c)) != 0 && static_cast<unsigned char>(c) < 128;
    if (good)
      name += c;
    else if (!name.empty() && name.back() != '_')
      name += '_';
    else if (name.empty())
      name += '_';
  }
  while (name.size() > 1 && name.back() == '_' && wanted.back() != '_') name.pop_back();
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front())) != 0) name = fmt::format("_{}", name);
  // Upper-case names belong to the metadata literals.
  if (std::ranges::none_of(name, [](unsigned char c) { return std::islower(c); }))
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

}  // namespace

NameTable::NameTable() {
  taken_.insert(kReserved.begin(), kReserved.end());
}

std::string NameTable::unique(std::string_view wanted) {
  std::string base = sanitize(wanted);
  if (taken_.insert(base).second) return base;
  for (int& suffix = next_suffix_[base];;) {
    std::string name = base + "_" + std::to_string(++suffix);
    if (taken_.insert(name).second) return name;
  }
}

}  // namespace precast::ir
