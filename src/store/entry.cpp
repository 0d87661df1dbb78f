#include "store/entry.h"

#include "artifact/sha256.h"
#include "store/descriptor.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

namespace precast::store {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSeal = ".sha256";  // no name of a file begins with a dot
constexpr std::size_t kMaxName = 128;

/// The digest over key, names and contents. The key is in it, so that an entry moved to another key is none.
template <class Map>
std::string seal_of(const std::string& key, const Map& files) {
  std::string text = "precast store 1\n" + key + "\n";
  for (const auto& [name, bytes] : files) text += fmt::format("{} {} {}\n", name, bytes.size(), artifact::sha256(bytes));
  return artifact::sha256(text);
}

int open_in(int folder, const char* name, int flags, mode_t mode = 0) {
  return ::openat(folder, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
}

/// Why somebody else could have written this; empty if nobody could.
std::string writable_by_others(const struct stat& status) {
  if (status.st_uid != ::geteuid()) return fmt::format("belongs to user {}, not to {}", status.st_uid, ::geteuid());
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fmt::format("may be written by others (mode {:o})", status.st_mode & 07777U);
  return {};
}

std::vector<std::byte> read_all(const fs::path& path, int fd, std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd, bytes.data() + done, size - done);
    if (n < 0 && errno != EINTR) fail("read", path);
    if (n == 0) break;
    if (n > 0) done += static_cast<std::size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

void write_file(int folder, const fs::path& path, std::span<const std::byte> bytes) {
  const Descriptor file(open_in(folder, path.filename().c_str(), O_WRONLY | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR));
  if (file.get() < 0) fail("create", path);
  if (!write_all(file.get(), bytes)) fail("write", path);
  if (::fsync(file.get()) != 0) fail("sync", path);
}

std::vector<std::string> names_in(int folder, const fs::path& path) {
  // The stream closes its descriptor. Not by opening ".", which fails in a folder that has been removed meanwhile.
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(::fcntl(folder, F_DUPFD_CLOEXEC, 0)), &::closedir);
  if (!stream) fail("list", path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) fail("list", path);
  return names;
}

/// One file of an entry into `bytes`, or why it is none.
std::string read_file(int folder, const fs::path& path, std::vector<std::byte>& bytes) {
  const Descriptor file(open_in(folder, path.filename().c_str(), O_RDONLY));
  if (file.get() < 0) {
    if (errno == ENOENT || errno == ELOOP || errno == ENXIO) return "is no regular file";
    fail("open", path);
  }
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) fail("look at", path);
  if (!S_ISREG(status.st_mode)) return "is no regular file";
  if (std::string reason = writable_by_others(status); !reason.empty()) return reason;
  bytes = read_all(path, file.get(), static_cast<std::size_t>(status.st_size));
  return {};
}

/// All files of an open entry and its seal, or why it is none.
std::string read_files(const std::string& key, const fs::path& path, int folder, Files& files) {
  std::string seal;
  for (const std::string& name : names_in(folder, path)) {
    std::vector<std::byte> bytes;
    const std::string reason = read_file(folder, path / name, bytes);
    if (!reason.empty()) return fmt::format("'{}' {}", name, reason);
    if (name == kSeal)
      seal.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    else
      files.emplace(name, std::move(bytes));
  }
  const std::string found = seal_of(key, files);
  if (seal == found) return {};
  if (seal.empty()) return "it has no digest";
  return fmt::format("its content has the sha256 {}, expected {}", found, seal);
}

}  // namespace

void fail(const char* action, const fs::path& path) {
  const std::string reason = std::generic_category().message(errno);
  throw StoreError(
      fmt::format("cannot {} '{}': {}; PRECAST_STORE names another folder for the store", action, path.string(), reason));
}

void check_name(const char* what, const std::string& name) {
  const bool good =
      !name.empty() && name.size() <= kMaxName && name.front() != '.' && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
      });
  if (!good)
    throw std::invalid_argument(
        fmt::format("{} '{}': expected 1 to {} characters of A-Z a-z 0-9 . _ -, no dot in front", what, name, kMaxName));
}

std::variant<Files, NoEntry, Damaged> read_entry(const std::string& key, const fs::path& path) {
  while (true) {
    const Descriptor folder(open_in(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY));
    if (folder.get() < 0) {
      if (errno == ENOENT) return NoEntry{};
      if (errno != ELOOP && errno != ENOTDIR) fail("open", path);
      const std::optional<FolderId> id = id_of(path);
      if (!id) return NoEntry{};
      return Damaged{*id, "it is no folder"};
    }
    struct stat status = {};
    if (::fstat(folder.get(), &status) != 0) fail("look at", path);
    Files files;
    std::string reason = writable_by_others(status);
    if (!reason.empty())
      reason.insert(0, "its folder ");
    else
      reason = read_files(key, path, folder.get(), files);
    if (reason.empty()) return files;
    // Replaced while it was read, it lost its files: the new one is read. The descriptor keeps the inode from being used again.
    const FolderId id{status.st_dev, status.st_ino};
    if (id_of(path) == id) return Damaged{id, std::move(reason)};
  }
}

void write_entry(const std::string& key, const FileViews& files, const fs::path& path) {
  const Descriptor folder(open_in(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY));
  if (folder.get() < 0) fail("open", path);
  for (const auto& [name, bytes] : files) write_file(folder.get(), path / name, bytes);
  const std::string seal = seal_of(key, files);
  write_file(folder.get(), path / kSeal, std::as_bytes(std::span(seal)));
  if (::fsync(folder.get()) != 0) fail("sync", path);
}

std::optional<FolderId> id_of(const fs::path& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) == 0) return FolderId{status.st_dev, status.st_ino};
  if (errno != ENOENT) fail("look at", path);
  return std::nullopt;
}

void sync_folder(const fs::path& path) {
  const Descriptor folder(open_in(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY));
  if (folder.get() < 0) fail("open", path);
  if (::fsync(folder.get()) != 0) fail("sync", path);
}

}  // namespace precast::store
