#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

namespace precast {

/// Runs one program: what a backend makes of it. Thread-safe.
class Engine {
 public:
  virtual ~Engine() = default;

  /// Params, buffers, input leaves and mesh coordinates in, outputs out, both flat. Mutates inputs as fn did, and moves their
  /// version counters; outputs that are views of inputs share memory and version counter with them. Shapes, dtypes and devices are
  /// checked by the caller.
  [[nodiscard]] virtual std::vector<c10::IValue> run(std::vector<c10::IValue> inputs) const = 0;
};

}  // namespace precast
