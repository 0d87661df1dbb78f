#pragma once

#include <string>
#include <vector>

namespace precast {

/// The structure of nested values once their leaves are taken out, as torch.utils._pytree writes it.
struct TreeSpec {
  std::string type;               ///< Empty for a leaf, else "builtins.list", "builtins.tuple" or "builtins.dict".
  std::vector<std::string> keys;  ///< Of a dict: its keys, in the order of `children`.
  std::vector<TreeSpec> children;

  [[nodiscard]] bool is_leaf() const noexcept { return type.empty(); }
  [[nodiscard]] std::size_t count_leaves() const noexcept {
    if (is_leaf()) return 1;
    std::size_t n = 0;
    for (const TreeSpec& child : children) n += child.count_leaves();
    return n;
  }
  bool operator==(const TreeSpec&) const = default;
};

}  // namespace precast
