#include "progress.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace gpt {
namespace {

constexpr int kBarWidth = 30;

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);  // a pipe to a launcher would hold lines back
}

std::string as_clock(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  return whole < 3600 ? fmt::format("{}:{:02}", whole / 60, whole % 60)
                      : fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

/// Field `number` of /proc/PROCESS/stat, counted from 1 as proc(5) does, from 3 on; empty where there is no such process.
std::string process_field(const std::string& process, int number) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string line, field;
  std::getline(file, line);
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));  // the name, in parentheses, may hold spaces
  for (int i = 3; i <= number; ++i) fields >> field;
  return field;
}

}  // namespace

double seconds_since_process_start() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  constexpr int kStartTime = 22;
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
         std::stod(process_field("self", kStartTime)) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

bool output_is_terminal(std::string_view launcher) {
  struct stat ours {
  }, theirs{};
  if (::isatty(STDOUT_FILENO) != 1 || ::fstat(STDOUT_FILENO, &ours) != 0) return false;
  if (launcher != "openmpi") return true;
  constexpr int kParent = 4;
  std::string process = "self";
  do {  // up to the process that reads our terminal
    process = process_field(process, kParent);
    if (process.empty() || process == "0" || ::stat(("/proc/" + process + "/fd/1").c_str(), &theirs) != 0) return false;
  } while (theirs.st_rdev == ours.st_rdev);
  const int file = ::open(("/proc/" + process + "/fd/1").c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  const bool terminal = file >= 0 && ::isatty(file) == 1;
  if (file >= 0) ::close(file);
  return terminal;
}

Progress::Progress(bool shown, bool terminal, std::int64_t first_step, std::int64_t n_steps, std::int64_t tokens_per_step)
    : shown_(shown), terminal_(terminal), first_step_(first_step), n_steps_(n_steps), tokens_per_step_(tokens_per_step) {}

void Progress::step_done(std::int64_t step, double loss) {
  if (!shown_) return;
  const auto now = std::chrono::steady_clock::now();
  const std::int64_t n_done = step + 1 - first_step_, every = std::max<std::int64_t>(1, n_steps_ / 20);
  const bool is_last = step + 1 == n_steps_;
  const bool due = terminal_ ? now - drawn_ > std::chrono::milliseconds(100) : n_done == 1 || (step + 1) % every == 0;
  if (!due && !is_last) return;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double left = seconds / static_cast<double>(n_done) * static_cast<double>(n_steps_ - step - 1);
  const std::string text = fmt::format("step {}/{}  loss {:.4f}  {:.0f} tokens/s  {} left", step + 1, n_steps_, loss,
                                       static_cast<double>(n_done * tokens_per_step_) / seconds, as_clock(left));
  drawn_ = now;
  if (!terminal_) return print(text + "\n");
  draw_bar(step, text.c_str());
}

void Progress::draw_bar(std::int64_t step, const char* text) {
  const auto filled = static_cast<int>((step + 1) * kBarWidth / n_steps_);
  print(fmt::format("\r\033[K[{:=<{}}{: <{}}] {}", "", filled, "", kBarWidth - filled, text));
  bar_on_line_ = true;
}

void Progress::evaluated(std::int64_t step, double loss) {
  if (!shown_) return;
  finish();
  print(fmt::format("step {}/{}  held-out loss {:.4f} nats/byte\n", step + 1, n_steps_, loss));
}

void Progress::finish() {
  if (bar_on_line_) print("\n");
  bar_on_line_ = false;
}

}  // namespace gpt
