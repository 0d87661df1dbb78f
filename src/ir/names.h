#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace precast::ir {

/// Hands out unique Python identifiers: "fc1.weight" -> fc1_weight, "class" -> class_1, a second "addmm" -> addmm_1.
/// Never a keyword, a builtin or module-level name that the text uses (call, forward, torch, BACKEND, ...).
class NameTable {
 public:
  NameTable();
  std::string unique(std::string_view wanted);
  /// Takes a name that is an identifier already, as it is. Whether it was free.
  bool take(const std::string& name) { return taken_.insert(name).second; }

 private:
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int> next_suffix_;
};

}  // namespace precast::ir
