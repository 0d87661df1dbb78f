#pragma once

#include "passes/memory.h"

#include <cstddef>
#include <vector>

namespace precast::passes {

/// For each statement, the later statements that must stay behind it, ascending: they use its result, touch memory that one of the
/// two writes, or both must keep their order. The order of collectives among each other is not in here.
[[nodiscard]] std::vector<std::vector<std::size_t>> dependents(const ir::Program& program, const Memory& memory);

/// How many statements each one stands behind.
[[nodiscard]] std::vector<std::size_t> count_predecessors(const std::vector<std::vector<std::size_t>>& dependents);

}  // namespace precast::passes
