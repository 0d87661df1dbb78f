#pragma once

#include <chrono>
#include <string>

namespace precast {

/// How a step is captured and run. Equal on all ranks of a job.
struct Options {
  /// "eager": the program runs op by op on LibTorch's own kernels.
  std::string backend = "eager";
  /// "dispatcher": records below autograd in C++. "make_fx" is the Python reference's tracer, known but not built here.
  std::string tracer = "dispatcher";
  /// Gradients of user inputs that require grad accumulate on their `.grad`; without it such a capture is refused.
  bool input_gradients = false;
  /// Time for capture and lowering on the leader, and for the other ranks to wait for it.
  std::chrono::milliseconds compile_deadline = std::chrono::minutes(10);
  /// Time for one collective of Precast itself, outside the compile phase.
  std::chrono::milliseconds collective_deadline = std::chrono::minutes(1);
};

}  // namespace precast
