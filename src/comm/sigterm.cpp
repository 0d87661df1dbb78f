#include "comm/sigterm.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <mutex>
#include <string>

namespace precast {

namespace {

constexpr int kExitCode = 143;  // 128 + SIGTERM, as a shell would report it.

struct Line {
  std::array<char, 512> text{};
  std::size_t length = 0;
};

// The handler may only read finished memory: a line is written aside, then made current. Old lines stay, as a handler may be
// reading one while two more are written.
std::array<Line, 16> lines;
std::size_t next_line = 0;
std::mutex writing;
std::atomic<const Line*> current_line{nullptr};

extern "C" void write_line_and_end(int) {
  const Line* line = current_line.exchange(nullptr);
  if (line != nullptr) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line->text.data(), line->length);
  }
  ::_exit(kExitCode);
}

}  // namespace

SigtermNotice::SigtermNotice(int rank, int size) : rank_(rank), size_(size) {
  struct sigaction previous {};
  if (sigaction(SIGTERM, nullptr, &previous) != 0 || (previous.sa_flags & SA_SIGINFO) != 0 || previous.sa_handler != SIG_DFL)
    return;
  installed_ = true;
  set_phase("start");
  struct sigaction action {};
  action.sa_handler = write_line_and_end;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
}

SigtermNotice::~SigtermNotice() {
  if (!installed_) return;
  struct sigaction found {};
  if (sigaction(SIGTERM, nullptr, &found) == 0 && found.sa_handler == write_line_and_end) {
    found.sa_handler = SIG_DFL;
    sigaction(SIGTERM, &found, nullptr);
  }
}

void SigtermNotice::set_phase(std::string_view phase) const {
  if (!installed_) return;
  std::string text = fmt::format("precast: rank {} of {}: SIGTERM during {}", rank_, size_, phase);
  const std::lock_guard lock(writing);
  Line& line = lines[next_line++ % lines.size()];
  text.resize(std::min(text.size(), line.text.size() - 1));
  text.push_back('\n');
  std::copy(text.begin(), text.end(), line.text.begin());
  line.length = text.size();
  current_line.store(&line);
}

}  // namespace precast
