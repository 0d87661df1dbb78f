#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace gpt {

/// Seconds since this process was started, from the kernel: what ran before main counts too.
double seconds_since_process_start();

/// Whether what this process prints ends on a terminal. mpirun gives each rank a terminal of its own and copies from it: there the
/// launcher's own output decides. @param launcher  as Communicator::launcher names it.
bool output_is_terminal(std::string_view launcher);

/// Shows how training goes on standard output: a bar where that is a terminal, else a plain line now and then. One rank has one
/// that is `shown`; the others stay silent.
class Progress {
 public:
  Progress(bool shown, bool terminal, std::int64_t first_step, std::int64_t n_steps, std::int64_t tokens_per_step);

  void step_done(std::int64_t step, double loss);
  void evaluated(std::int64_t step, double loss);
  /// Ends the bar's line, so that what is printed next starts a new one.
  void finish();

 private:
  void draw_bar(std::int64_t step, const char* text);

  bool shown_, terminal_, bar_on_line_ = false;
  std::int64_t first_step_, n_steps_, tokens_per_step_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), drawn_{};
};

}  // namespace gpt
