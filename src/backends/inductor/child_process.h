#pragma once

#include "precast/deadline.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace precast::inductor {

/// How a child process ended.
struct ChildEnd {
  int exit_code = -1;       ///< Of exit(); -1 if a signal ended it.
  int signal = 0;           ///< That ended it, else 0.
  bool timed_out = false;   ///< It did not end by the deadline and was ended.
  std::string last_output;  ///< The end of what it wrote, at most 8 KiB.
};

/// Runs a program in a process group of its own, with nothing to read, and waits for it. At the deadline the group gets SIGTERM,
/// and two seconds later SIGKILL.
/// @param on_line  called with each line of its output and error output, without its end.
/// @throws PrecompileError environment  it cannot be started: names the program and the system's reason.
ChildEnd run_child(const std::vector<std::string>& command, Deadline deadline,
                   const std::function<void(std::string_view)>& on_line);

}  // namespace precast::inductor
