#pragma once

#include "ir/program.h"

#include <vector>

namespace precast::inductor {

/// A program in two parts: a compiler of values knows nothing of shared memory, so what shares memory is made after it.
struct Split {
  /// For the compiler: takes what the program takes, and returns tensors only, none of which shares memory with an input or with
  /// another. Writes into inputs stay in it.
  ir::Program compiled;
  /// Run afterwards, op by op: takes the program's inputs, then the tensors that `compiled` returned, and gives the program's
  /// outputs. It holds views only.
  ir::Program views;
  std::vector<std::size_t> tensor_inputs;  ///< Indices of the inputs that are tensors; the rest `compiled` does not read.
};

/// @throws PrecompileError refused_capture  the program is none for this backend: it computes nothing, returns a double or a
/// string, draws from a generator that is an input, or returns a view of an input that only other operators could make; names
/// which.
Split split(const ir::Program& program);

/// Whether ranks meet in the program.
[[nodiscard]] bool has_collectives(const ir::Program& program);

}  // namespace precast::inductor
