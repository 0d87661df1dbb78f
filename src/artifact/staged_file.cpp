#include "artifact/staged_file.h"

#include "base/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace precast::artifact {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const char* what) {
  throw std::system_error(errno, std::generic_category(), std::string(what) + " '" + path.string() + "'");
}

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, mode_t mode = 0) : fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
    if (fd_ < 0) fail(path, "open");
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

void write_all(const fs::path& path, int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) fail(path, "write");
    if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  if (::fsync(fd) != 0) fail(path, "sync");
}

fs::path beside(const fs::path& target, const char* what) {
  return target.parent_path() / ("." + target.filename().string() + "." + what + "." + std::to_string(::getpid()));
}

void move_file(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail(to, "rename to");
}

void sync_folder(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  const Descriptor descriptor(folder, O_RDONLY | O_DIRECTORY);
  if (::fsync(descriptor.get()) != 0) fail(folder, "sync");
}

}  // namespace

StagedFile::StagedFile(fs::path target, std::span<const std::byte> bytes)
    : target_(std::move(target)), staged_(beside(target_, "new")) {
  struct stat existing = {};
  const bool exists = ::stat(target_.c_str(), &existing) == 0;
  ::unlink(staged_.c_str());  // of a process that died with this id
  try {
    const Descriptor file(staged_, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (exists && ::fchmod(file.get(), existing.st_mode & 07777) != 0) fail(staged_, "set permissions of");
    write_all(staged_, file.get(), bytes);
  } catch (...) {
    ::unlink(staged_.c_str());
    throw;
  }
}

StagedFile::~StagedFile() {
  if (!staged_.empty()) ::unlink(staged_.c_str());
}

void StagedFile::publish() {
  if (::access(target_.c_str(), F_OK) == 0) {
    const fs::path backup = beside(target_, "old");
    fs::copy_file(target_, backup, fs::copy_options::overwrite_existing);
    backup_ = backup;
  }
  try {
    move_file(staged_, target_);
  } catch (...) {
    if (!backup_.empty()) ::unlink(std::exchange(backup_, {}).c_str());
    throw;
  }
  staged_.clear();
}

void StagedFile::take_back() {
  if (backup_.empty()) {
    ::unlink(target_.c_str());
  } else if (::rename(backup_.c_str(), target_.c_str()) != 0) {
    warn("the previous '{}' could not be put back; it is kept as '{}'", target_.string(), backup_.string());
  }
  backup_.clear();
}

void StagedFile::keep() {
  sync_folder(target_);
  if (!backup_.empty()) ::unlink(std::exchange(backup_, {}).c_str());
}

}  // namespace precast::artifact
