#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <variant>

namespace precast {

/// How the inductor backend lowers. Equal on all ranks of a job.
struct InductorOptions {
  using Setting = std::variant<bool, std::int64_t, double, std::string>;

  /// CPU that the kernels are made for: "x86-64-v2", "x86-64-v3" or "x86-64-v4" (levels of the psABI). Empty: that of the ranks; a
  /// job on several kinds of machine then lowers once for each kind, and once in all where a level is named that all of them have.
  std::string target;
  /// Threads that the kernels are made for; 0: as many as the process has when they run.
  std::int64_t threads = 0;
  /// Optimisation level of the code around the kernels, "O0" to "O3".
  std::string wrapper_opt_level = "O1";
  /// Times several implementations of each matrix product on the compiling rank and takes the fastest.
  bool max_autotune = false;
  /// Settings of torch._inductor.config by name ("cpp.enable_floating_point_contract_flag"); they come last.
  std::map<std::string, Setting> settings;
  /// The Python with torch that lowers, of the same version as this process's LibTorch. Empty: $PRECAST_PYTHON, else the one of the
  /// environment that LibTorch was loaded from.
  std::string python;
};

/// How a step is captured and run. Equal on all ranks of a job.
struct Options {
  /// "inductor": one rank compiles the program by TorchInductor, every rank runs the package.
  /// "eager": the program runs op by op on LibTorch's own kernels.
  std::string backend = "inductor";
  /// What to do where lowering fails: "error", or "eager": run the program op by op on all ranks, after a warning.
  std::string fallback = "error";
  /// "dispatcher": records below autograd in C++. "make_fx" is the Python reference's tracer, known but not built here.
  std::string tracer = "dispatcher";
  /// Gradients of user inputs that require grad accumulate on their `.grad`; without it such a capture is refused.
  bool input_gradients = false;
  /// Time for capture and lowering on the leader, and for the other ranks to wait for it.
  std::chrono::milliseconds compile_deadline = std::chrono::minutes(10);
  /// Time for one collective of Precast itself, outside the compile phase.
  std::chrono::milliseconds collective_deadline = std::chrono::minutes(1);
  InductorOptions inductor = {};
};

}  // namespace precast
