#pragma once

#include "precast/communicator.h"
#include "precast/compile_on_one_rank.h"

#include <chrono>
#include <string>

namespace precast::runtime {

/// Adds the seconds until its end to one phase of the report, and names the phase to the communicator.
class Phase {
 public:
  Phase(const Communicator& comm, CompileReport& report, const std::string& name)
      : guard_(comm.enter(name)), seconds_(report.phases[name]) {}
  ~Phase() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  Communicator::PhaseGuard guard_;
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace precast::runtime
