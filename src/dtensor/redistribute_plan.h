#pragma once

#include "precast/placement.h"

#include <cstdint>
#include <span>
#include <vector>

namespace precast::dtensor {

/// One change of a tensor's placement on one mesh dimension.
struct RedistributeStep {
  enum class Kind {
    all_gather,      ///< Shard(from_dim) to Replicate.
    all_to_all,      ///< Shard(from_dim) to Shard(to_dim).
    all_reduce,      ///< Partial(reduction) to Replicate.
    reduce_scatter,  ///< Partial(reduction) to Shard(to_dim).
    slice,           ///< Replicate to Shard(to_dim): each rank keeps its own chunk, nothing is sent.
    make_partial,    ///< Replicate to Partial(reduction): for a sum, rank 0 keeps the value and the others hold zero.
  };
  Kind kind;
  int mesh_dim;
  std::int64_t from_dim = -1, to_dim = -1;
  Reduction reduction = Reduction::sum;
  Placements after;  ///< Of the whole tensor once this step is done.

  bool operator==(const RedistributeStep&) const = default;
};

/// The steps from one placement to another, on every rank the same. Reductions come first and, where they can, scatter; a shard
/// moves to another tensor dimension without being gathered where the split orders allow it; of nested shards of one tensor
/// dimension the innermost is gathered first.
std::vector<RedistributeStep> plan_redistribution(const Placements& from, const Placements& to);

/// Bytes that one rank receives in the steps, for a tensor of `bytes` in all: what plans are compared by. Slicing costs nothing.
double redistribution_bytes(const std::vector<RedistributeStep>& steps, const Placements& from, double bytes,
                            std::span<const std::int64_t> mesh);

}  // namespace precast::dtensor
