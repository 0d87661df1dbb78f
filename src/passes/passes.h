#pragma once

#include "ir/program.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace precast::passes {

/// What a pass must be told of operators, since it knows no schemas. All three functions must be set. Arguments are counted as the
/// call has them: its positional ones first, then its keywords. Of the collectives, passes know by themselves that a wait gives
/// back its argument.
struct OperatorEffects {
  /// Arguments that the call writes into. Passes add what names tell: the first argument of an operator whose name ends with `_`,
  /// and the keyword `out`.
  std::function<std::vector<std::uint32_t>(const ir::Call&)> written;
  /// Arguments that a result may be, or be a view of. One too many costs speed, one too few gives wrong numbers. Written arguments
  /// count without being named.
  std::function<std::vector<std::uint32_t>(const ir::Call&)> aliased;
  /// Whether the call draws random numbers or asserts: such calls keep their order and are never dropped.
  std::function<bool(const ir::Call&)> keeps_order;
};

/// Every pass gives a program that computes the same values, draws the same random numbers and leaves the same inputs behind, in
/// which all ranks still issue one sequence of collectives. What it does depends on the program alone, so ranks that run it on one
/// text get one text. A program must be valid and without races: it does not write what a collective in flight reads or gives. A
/// user's inputs may overlap each other; parameters and buffers overlap where INPUT_ALIASES says so. Returns whether it changed the
/// program.

struct OverlapOptions {
  /// Collectives that may be issued and not yet waited for; each holds its result's memory. Under FSDP, unlimited means that all
  /// parameters are gathered before the first operator runs, and 2 that one block is gathered while another one computes. A program
  /// that itself has more in flight is left the excess that it cannot do without.
  std::size_t max_in_flight = std::numeric_limits<std::size_t>::max();
};

/// Issues each collective as early, and waits for it as late, as data allows. What a collective needs comes before whatever else
/// can be done, and a wait comes only when nothing else can be done; so operators move too, but those with equal claims keep their
/// order. Collectives keep their order among each other, and so do calls that must. An operator that writes crosses no other access
/// to its memory, nor one that a collective in flight reads.
bool overlap_collectives(ir::Program& program, const OperatorEffects& effects, const OverlapOptions& options = {});

struct BucketOptions {
  std::size_t max_bytes = 4U << 20U;  ///< Of a bucket; for a gather counted after it, else before.
};

/// Makes one coalesced call of collectives (all_reduce, all_gather_into_tensor, reduce_scatter_tensor) that follow each other with
/// no other collective between, of one kind, group, reduction and dtype, none of which needs another. Sizes and dtypes come from
/// the notes of values; a collective without a note stays alone, and so does one that is larger than a bucket. The first members
/// wait for what the last one needs, so that bucketing comes before overlapping.
bool bucket_collectives(ir::Program& program, const OperatorEffects& effects, const BucketOptions& options = {});

/// Drops an all-gather of a value that was gathered before over the same group, unless its source was written in between, a result
/// is written at any time, or both results leave the program (they would become one tensor). An all-gather of which a rank takes
/// back the very shard that it gave, by its coordinate (see Metadata::mesh_inputs), becomes a copy of the shard. The first result
/// lives until its last use: what FSDP frees after forward is kept for backward. Use it where memory allows.
bool remove_redundant_gathers(ir::Program& program, const OperatorEffects& effects);

}  // namespace precast::passes
