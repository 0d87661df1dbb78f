#pragma once

#include "dtensor/rule.h"

#include <span>
#include <vector>

namespace precast::dtensor {

/// A tensor argument as it lies.
struct Operand {
  Sizes shape;
  Placements placements;
  std::int64_t element_bytes = 4;
  bool fixed = false;  ///< It is written in place, so it must stay as it lies.
};

/// How an operator is run on local tensors.
struct Strategy {
  std::vector<Placements> inputs;   ///< What each operand must be redistributed to first.
  std::vector<Placements> outputs;  ///< How each result then lies.
  bool local_form = false;

  bool operator==(const Strategy&) const = default;
};

/// Chooses, for each mesh dimension on its own, the possibility of `rule` for which the fewest bytes travel. Of equal ones: letters
/// in the order of their first use, then the alternatives, then everything whole. Replicated operands are not sharded without need,
/// and a partial operand that must become something becomes whole.
/// @param mesh  sizes of the mesh's dimensions. @throws std::invalid_argument  no possibility leaves a fixed operand as it lies.
Strategy choose_strategy(const Rule& rule, std::span<const Operand> operands, std::span<const std::int64_t> mesh);

}  // namespace precast::dtensor
