#include "files.h"

#include "error.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

}  // namespace

void write_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const std::string temporary = fmt::format("{}.{}.partial", path.string(), ::getpid());
  const auto fail = [&] {
    const int reason = errno;
    ::unlink(temporary.c_str());
    throw JobError(fmt::format("cannot write '{}': {}", path.string(), std::strerror(reason)));
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
  const auto fail = [&] { throw JobError(fmt::format("cannot read '{}': {}", path.string(), std::strerror(errno))); };
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) fail();
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t n_read = 0;
  while (n_read < bytes.size()) {
    const ssize_t n = ::read(file.number(), bytes.data() + n_read, bytes.size() - n_read);
    if (n < 0 && errno != EINTR) fail();
    if (n == 0) bytes.resize(n_read);  // it shrank while it was read
    if (n > 0) n_read += static_cast<std::size_t>(n);
  }
  return bytes;
}

}  // namespace gpt
