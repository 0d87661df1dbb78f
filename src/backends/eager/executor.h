#pragma once

#include "backends/eager/captured_layout.h"
#include "backends/engine.h"
#include "ir/program.h"

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

namespace precast::eager {

struct Plan;

/// Runs a program op by op on LibTorch's kernels: operators resolved and constant arguments built once, values freed at their last
/// use, no autograd, no autocast, no Python. Thread-safe: a run keeps its values to itself.
class Executor final : public Engine {
 public:
  /// @throws PrecompileError invalid_artifact  names line, operator, and what does not fit its schema.
  explicit Executor(const ir::Program& program);
  ~Executor() override;

  /// @throws PrecompileError argument_mismatch  as CapturedLayout::lay_out.
  [[nodiscard]] std::vector<c10::IValue> run(std::vector<c10::IValue> inputs) const override;

 private:
  [[nodiscard]] std::vector<c10::IValue> run_laid_out(std::vector<c10::IValue> inputs) const;

  std::unique_ptr<const Plan> plan_;
  CapturedLayout layout_;
};

}  // namespace precast::eager
