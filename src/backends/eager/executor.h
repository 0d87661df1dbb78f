#pragma once

#include "ir/program.h"

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

namespace precast::eager {

struct Plan;

/// Runs a program op by op on LibTorch's kernels: operators resolved and constant arguments built once, values freed at their last
/// use, no autograd, no autocast, no Python. Thread-safe: a run keeps its values to itself.
class Executor {
 public:
  /// @throws PrecompileError invalid_artifact  names line, operator, and what does not fit its schema.
  explicit Executor(const ir::Program& program);
  ~Executor();

  /// Params, buffers and input leaves in, outputs out, both flat. Mutates inputs as fn did, and bumps their version counters.
  [[nodiscard]] std::vector<c10::IValue> run(std::vector<c10::IValue> inputs) const;

 private:
  std::unique_ptr<const Plan> plan_;
};

}  // namespace precast::eager
