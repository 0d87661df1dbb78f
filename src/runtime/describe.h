#pragma once

#include "aten/names.h"
#include "ir/program.h"
#include "precast/pytree.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace precast::runtime {

using aten::device_name;
using aten::dtype_name;

/// How messages name values.
std::string describe(const std::vector<int>& numbers);
std::string describe(at::IntArrayRef shape);
std::string describe(const std::vector<std::optional<std::int64_t>>& shape);  ///< "?" for a dynamic dimension.
std::string describe(c10::Layout layout);
std::string describe(const TreeSpec& spec);  ///< "(*, [*, *], {'mask': *})"
std::string describe(const Leaf& leaf);
std::string describe(const ir::Literal& literal);

/// Equal in type and bit for bit; an undefined tensor is None.
bool is_same_value(const Leaf& leaf, const ir::Literal& literal);

}  // namespace precast::runtime
