#include "progress.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
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

}  // namespace

double seconds_since_process_start() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(line.rfind(')') + 1));  // the program's name, in parentheses, may hold spaces
  std::string field;
  constexpr int kStartTime = 20;  // field 22, the third being the first after the name
  for (int i = 0; i < kStartTime; ++i) fields >> field;
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
         std::stod(field) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

Progress::Progress(bool shown, std::int64_t first_step, std::int64_t n_steps, std::int64_t tokens_per_step)
    : shown_(shown),
      terminal_(::isatty(STDOUT_FILENO) == 1),
      first_step_(first_step),
      n_steps_(n_steps),
      tokens_per_step_(tokens_per_step) {}

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
