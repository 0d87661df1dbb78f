#pragma once

#include "backends/eager/input_layout.h"

#include <ATen/core/ivalue.h>

#include <atomic>
#include <vector>

namespace precast::eager {

/// Composite operators were taken apart by the memory layouts of the capture (a view here, a copy there, a kernel that packs its
/// weights), so a program reads each input in the strides it had then. Thread-safe.
class CapturedLayout {
 public:
  explicit CapturedLayout(std::vector<RecordedLayout> layouts) : layouts_(std::move(layouts)) {}

  /// Stands in for an input of another layout.
  struct StandIn {
    at::Tensor original, copy;
    bool written;
  };

  /// Puts copies of the captured layout in the place of inputs that are laid out otherwise; the first time with one warning, since
  /// each run pays for them.
  /// @throws PrecompileError argument_mismatch  the program returns such an input or a view of it, or would write into one whose
  /// elements share memory: names the input and both layouts.
  std::vector<StandIn> lay_out(std::vector<c10::IValue>& inputs) const;

  /// What the program wrote into copies, in the tensors they stand for.
  static void write_back(const std::vector<StandIn>& stand_ins);

 private:
  std::vector<RecordedLayout> layouts_;
  mutable std::atomic_flag warned_;
};

}  // namespace precast::eager
