#pragma once

#include "backends/eager/executor.h"
#include "backends/eager/input_layout.h"
#include "backends/engine.h"
#include "backends/inductor/package.h"
#include "ir/program.h"

#include <cstddef>
#include <span>
#include <vector>

namespace precast::inductor {

/// A program whose computation is a compiled package. What the package leaves to its caller is done here: layouts are compared,
/// since kernels read memory as it lay at capture, and outputs that share memory with inputs or with each other are made from it.
class CompiledProgram final : public Engine {
 public:
  /// @param package  the program's, of a fingerprint that this process has; its digest is checked.
  /// @throws PrecompileError  as split, and as Package.
  CompiledProgram(const ir::Program& program, std::span<const std::byte> package);

  /// @throws PrecompileError argument_mismatch  an input that the program reads has other strides than at capture, or shares memory
  /// with one that it writes into: names it.
  [[nodiscard]] std::vector<c10::IValue> run(std::vector<c10::IValue> inputs) const override;

 private:
  CompiledProgram(const ir::Program& program, struct Split split, std::span<const std::byte> package);
  void check_layouts(const std::vector<c10::IValue>& inputs) const;
  void check_overlaps(const std::vector<c10::IValue>& inputs) const;

  std::vector<std::size_t> tensor_inputs_;
  std::size_t n_compiled_;  ///< Tensors that the package returns.
  std::vector<eager::RecordedLayout> layouts_;
  std::vector<eager::InputUse> uses_;
  Package package_;
  eager::Executor views_;
};

}  // namespace precast::inductor
