#include "backends/inductor/child_process.h"

#include "precast/error.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <system_error>
#include <utility>

extern char** environ;

namespace precast::inductor {
namespace {

constexpr std::size_t kKeptOutput = 8192;
constexpr std::chrono::seconds kGrace{2};

void check(int error, std::string_view call) {
  if (error != 0)
    throw PrecompileError(ErrorCode::environment,
                          fmt::format("lower: {} failed: {}", call, std::generic_category().message(error)));
}

/// Closes itself.
class File {
 public:
  explicit File(int descriptor = -1) : descriptor_(descriptor) {}
  ~File() { close(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }
  [[nodiscard]] int get() const { return descriptor_; }

 private:
  int descriptor_;
};

struct SpawnSettings {
  SpawnSettings() {
    check(posix_spawn_file_actions_init(&actions), "posix_spawn_file_actions_init");
    check(posix_spawnattr_init(&attributes), "posix_spawnattr_init");
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};
};

pid_t spawn(const std::vector<std::string>& command, int output) {
  SpawnSettings settings;
  check(posix_spawn_file_actions_addopen(&settings.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0), "posix_spawn");
  check(posix_spawn_file_actions_adddup2(&settings.actions, output, STDOUT_FILENO), "posix_spawn");
  check(posix_spawn_file_actions_adddup2(&settings.actions, output, STDERR_FILENO), "posix_spawn");
  // Connections to other ranks: held open by a child, they would hide the death of this process.
  check(posix_spawn_file_actions_addclosefrom_np(&settings.actions, STDERR_FILENO + 1), "posix_spawn");
  // Whatever this process does with signals is no affair of the child's.
  sigset_t none{}, all{};
  sigemptyset(&none);
  sigfillset(&all);
  check(posix_spawnattr_setsigmask(&settings.attributes, &none), "posix_spawn");
  check(posix_spawnattr_setsigdefault(&settings.attributes, &all), "posix_spawn");
  check(posix_spawnattr_setpgroup(&settings.attributes, 0), "posix_spawn");
  check(posix_spawnattr_setflags(&settings.attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF),
        "posix_spawn");
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = -1;
  check(posix_spawn(&pid, command.at(0).c_str(), &settings.actions, &settings.attributes, arguments.data(), environ),
        "starting '" + command[0] + "'");
  return pid;
}

/// A started child and its group; both are ended with this object, if they have not ended before.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    ::kill(-pid_, SIGKILL);  // also compilers that it left
    if (!reaped_) ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void signal(int number) const { ::kill(-pid_, number); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  siginfo_t wait() {
    siginfo_t info{};
    check(::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) == 0 ? 0 : errno, "waitid (is SIGCHLD ignored?)");
    reaped_ = true;
    return info;
  }

 private:
  pid_t pid_;
  bool reaped_ = false;
};

/// What the child writes, line by line.
class Output {
 public:
  Output(int descriptor, const std::function<void(std::string_view)>& on_line) : descriptor_(descriptor), on_line_(on_line) {}

  /// Reads what is there. False at the end.
  bool read() {
    std::array<char, 4096> buffer{};
    const ssize_t n = ::read(descriptor_, buffer.data(), buffer.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (n <= 0) return false;
    const std::string_view text(buffer.data(), static_cast<std::size_t>(n));
    kept_ += text;
    if (kept_.size() > kKeptOutput) kept_.erase(0, kept_.size() - kKeptOutput);
    line_ += text;
    for (std::size_t end = line_.find('\n'); end != line_.npos; end = line_.find('\n')) {
      on_line_(std::string_view(line_).substr(0, end));
      line_.erase(0, end + 1);
    }
    return true;
  }
  std::string take() {
    if (!line_.empty()) on_line_(line_);
    return std::move(kept_);
  }

 private:
  int descriptor_;
  const std::function<void(std::string_view)>& on_line_;
  std::string kept_, line_;
};

/// Waits for one of the two until a time; which of them is ready.
std::pair<bool, bool> wait_for(int first, int second, Deadline until) {
  std::array<pollfd, 2> files = {pollfd{.fd = first, .events = POLLIN, .revents = 0},
                                 pollfd{.fd = second, .events = POLLIN, .revents = 0}};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  if (left.count() <= 0) return {false, false};
  if (::poll(files.data(), files.size(), static_cast<int>(std::min<std::int64_t>(left.count(), 60'000))) <= 0)
    return {false, false};
  return {files[0].revents != 0, files[1].revents != 0};
}

}  // namespace

ChildEnd run_child(const std::vector<std::string>& command, Deadline deadline,
                   const std::function<void(std::string_view)>& on_line) {
  std::array<int, 2> ends{};
  check(::pipe2(ends.data(), O_CLOEXEC) == 0 ? 0 : errno, "pipe2");
  File from_child(ends[0]), to_parent(ends[1]);
  check(::fcntl(from_child.get(), F_SETFL, O_NONBLOCK) == 0 ? 0 : errno, "fcntl");
  Child child(spawn(command, to_parent.get()));
  to_parent.close();
  // Not by <sys/pidfd.h>, which glibc 2.36 does not declare for C++.
  const File process(static_cast<int>(::syscall(SYS_pidfd_open, child.pid(), 0)));
  check(process.get() >= 0 ? 0 : errno, "pidfd_open");

  ChildEnd end;
  Output output(from_child.get(), on_line);
  bool is_open = true;
  for (Deadline until = deadline;;) {
    const auto [can_read, has_ended] = wait_for(is_open ? from_child.get() : -1, process.get(), until);
    if (can_read) is_open = output.read();
    if (has_ended && !can_read) break;  // what it wrote before its end has been read
    if (std::chrono::steady_clock::now() < until) continue;
    child.signal(end.timed_out ? SIGKILL : SIGTERM);
    until = end.timed_out ? Deadline::max() : std::chrono::steady_clock::now() + kGrace;
    end.timed_out = true;
  }
  const siginfo_t info = child.wait();
  if (info.si_code == CLD_EXITED)
    end.exit_code = info.si_status;
  else
    end.signal = info.si_status;
  end.last_output = output.take();
  return end;
}

}  // namespace precast::inductor
