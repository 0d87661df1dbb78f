#pragma once

#include "precast/reduction.h"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace precast {

/// Every rank of the mesh dimension holds the whole tensor.
struct Replicate {
  bool operator==(const Replicate&) const = default;
};

/// Each rank of the mesh dimension holds one chunk of tensor dimension `dim`, split as torch.chunk splits: blocks of
/// ceil(size / ranks), the last ones short or empty.
struct Shard {
  explicit Shard(std::int64_t dim) : dim(dim) {}
  bool operator==(const Shard&) const = default;

  std::int64_t dim;
  /// Where later mesh dimensions split the same tensor dimension too: false, this one splits first and they split its chunks; true,
  /// they split first. FSDP on top of tensor parallelism is [Shard(0) strided, Shard(0)] on a mesh {dp, tp}: a gather over dp gives
  /// back what tensor parallelism left.
  bool strided = false;
  /// Sharded to save memory only (FSDP): what computes with the tensor gathers it first, however large its other operands are.
  bool stored = false;
};

/// Each rank of the mesh dimension holds a value of the tensor's whole shape; the tensor is their reduction.
struct Partial {
  explicit Partial(Reduction reduction = Reduction::sum) : reduction(reduction) {}
  bool operator==(const Partial&) const = default;

  Reduction reduction;
};

/// How a tensor lies on one mesh dimension.
using Placement = std::variant<Replicate, Shard, Partial>;
/// One for each dimension of a mesh.
using Placements = std::vector<Placement>;

/// "Replicate()", "Shard(0)", "StridedShard(0)", "Partial(sum)"; a stored shard is "Shard(0, stored)".
std::string to_string(const Placement& placement);
/// "[Shard(0), Replicate()]".
std::string to_string(const Placements& placements);
std::string to_string(Reduction reduction);
/// Reads what to_string(Placement) writes. @throws std::invalid_argument  it is no placement: says what was found.
Placement placement_from_string(const std::string& text);

}  // namespace precast
