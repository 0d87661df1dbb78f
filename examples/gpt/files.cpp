#include "files.h"

#include "error.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

namespace gpt {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

bool write_and_sync(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return ::fsync(file) == 0;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

std::string temporary_name(const std::filesystem::path& path) {
  return fmt::format("{}.{}.partial", path.string(), ::getpid());
}

/// Whether `name` is what temporary_name makes of `file` in some process.
bool is_leftover(std::string_view name, std::string_view file) {
  constexpr std::string_view kEnd = ".partial";
  if (!name.starts_with(file) || !name.ends_with(kEnd) || name.size() < file.size() + kEnd.size() + 2) return false;
  const std::string_view process = name.substr(file.size(), name.size() - file.size() - kEnd.size());
  return process.front() == '.' && process.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

[[noreturn]] void fail_to_write(const std::filesystem::path& path, int reason) {
  throw JobError(fmt::format("cannot write '{}': {}", path.string(), std::strerror(reason)));
}

}  // namespace

void check_replaceable(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw JobError(
        fmt::format("cannot write '{}': expected a file, or a name that is free, found a folder, device or pipe", path.string()));
}

void prepare_output(const std::filesystem::path& path) {
  check_replaceable(path);
  const std::string temporary = temporary_name(path);
  const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (file.number() < 0) fail_to_write(path, errno);
  ::unlink(temporary.c_str());
  for (const auto& entry : std::filesystem::directory_iterator(folder_of(path)))
    if (is_leftover(entry.path().filename().string(), path.filename().string())) std::filesystem::remove(entry.path());
}

void write_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  check_replaceable(path);
  const std::filesystem::path folder = folder_of(path);
  const std::string temporary = temporary_name(path);
  const auto fail = [&] {
    const int reason = errno;
    ::unlink(temporary.c_str());
    fail_to_write(path, reason);
  };
  {
    const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.number() < 0 || !write_and_sync(file.number(), bytes)) fail();
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) fail();
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.number() < 0 || ::fsync(directory.number()) != 0)
    throw JobError(fmt::format("cannot sync folder '{}': {}", folder.string(), std::strerror(errno)));
}

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  const auto fail = [&](std::string_view found) { throw JobError(fmt::format("cannot read '{}': {}", path.string(), found)); };
  const auto fail_as_errno_says = [&] { fail(std::strerror(errno)); };
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));  // a pipe would block until it has a writer
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) fail_as_errno_says();
  if (!S_ISREG(status.st_mode)) fail("expected a regular file");
  std::vector<std::byte> bytes;
  try {
    bytes.resize(static_cast<std::size_t>(status.st_size));
  } catch (const std::bad_alloc&) {
    fail(fmt::format("expected a file that fits into memory, found {} bytes", status.st_size));
  }
  std::size_t n_read = 0;
  while (n_read < bytes.size()) {
    const ssize_t n = ::read(file.number(), bytes.data() + n_read, bytes.size() - n_read);
    if (n < 0 && errno != EINTR) fail_as_errno_says();
    if (n == 0) bytes.resize(n_read);  // it shrank while it was read
    if (n > 0) n_read += static_cast<std::size_t>(n);
  }
  return bytes;
}

}  // namespace gpt
