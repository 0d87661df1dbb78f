#include "store/store.h"

#include "base/log.h"
#include "store/entry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <system_error>
#include <utility>

namespace precast::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".tmp-";

/// Checked at each use: it may have changed since the last one.
void check_folder(const fs::path& folder) {
  struct stat status = {};
  if (::lstat(folder.c_str(), &status) != 0) fail("look at", folder);
  const auto refuse = [&](const std::string& what) {
    throw StoreError(fmt::format("the store '{}' {}; PRECAST_STORE names another folder", folder.string(), what));
  };
  if (S_ISLNK(status.st_mode)) refuse("is a symbolic link: its target may change");
  if (!S_ISDIR(status.st_mode)) refuse("is no folder");
  if (status.st_uid != ::geteuid()) refuse(fmt::format("belongs to user {}, not to {}", status.st_uid, ::geteuid()));
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    refuse(fmt::format("may be written by others (mode {:o}, expected 700)", status.st_mode & 07777U));
}

/// A name in `folder` that nothing has, for a folder being written or removed.
fs::path temporary_name(const fs::path& folder) {
  std::random_device random;
  return folder / fmt::format("{}{:08x}{:08x}", kTemporary, random(), random());
}

/// Removed with all its content when it goes out of scope: what it holds then is not needed by anyone.
class TemporaryFolder {
 public:
  /// Only a name; nothing is made.
  explicit TemporaryFolder(const fs::path& store) : path_(temporary_name(store)) {}
  ~TemporaryFolder() {
    std::error_code unused;  // whatever stays is removed as a dead writer's
    fs::remove_all(path_, unused);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  void make() const {
    if (::mkdir(path_.c_str(), S_IRWXU) != 0) fail("create", path_);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void remove_dead_writers(const fs::path& folder) {
  const auto day_ago = fs::file_time_type::clock::now() - std::chrono::hours(24);
  std::error_code error;  // others may remove them as well; whatever cannot be removed does no harm
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    if (!i->path().filename().string().starts_with(kTemporary)) continue;
    std::error_code unused;
    const auto written = fs::last_write_time(i->path(), unused);
    if (!unused && written < day_ago) fs::remove_all(i->path(), unused);
  }
}

bool equal(const Files& files, const FileViews& wanted) {
  return std::equal(files.begin(), files.end(), wanted.begin(), wanted.end(), [](const auto& a, const auto& b) {
    return a.first == b.first && std::equal(a.second.begin(), a.second.end(), b.second.begin(), b.second.end());
  });
}

bool rename(const fs::path& from, const fs::path& to, unsigned int flags) {
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0;
}

/// Makes `fresh` the entry at `path`. What was there is then at `fresh`'s name, or gone. False: another process changed `path`
/// meanwhile.
bool publish(const fs::path& fresh, const fs::path& path) {
  // Without flags, as any file system has it: replaces nothing but an empty folder.
  if (::rename(fresh.c_str(), path.c_str()) == 0) return true;
  if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) fail("rename to", path);
  if (rename(fresh, path, RENAME_EXCHANGE)) return true;
  if (errno == ENOENT) return false;
  if (errno != EINVAL && errno != ENOSYS) fail("exchange", path);
  // This file system cannot exchange two names: for a moment there is no entry, which readers see as a miss.
  const TemporaryFolder old(path.parent_path());
  if (::rename(path.c_str(), old.path().c_str()) != 0 && errno != ENOENT) fail("rename", path);
  return false;
}

/// Removes what is at `path` if it still is `id`.
void remove_entry(const fs::path& path, const FolderId& id) {
  const TemporaryFolder old(path.parent_path());
  if (::rename(path.c_str(), old.path().c_str()) != 0) {
    if (errno == ENOENT) return;
    fail("rename", path);
  }
  if (id_of(old.path()) == id) return;
  // Replaced just before by another process, so this one is whole: it goes back, unless a third put one there.
  if (::rename(old.path().c_str(), path.c_str()) != 0 && errno != EEXIST && errno != ENOTEMPTY) fail("rename to", path);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

fs::path default_folder() {
  if (fs::path own = variable("PRECAST_STORE"); !own.empty()) return own;
  if (const fs::path cache = variable("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "precast" / "store";
  if (const fs::path home = variable("HOME"); !home.empty()) return home / ".cache" / "precast" / "store";
  throw StoreError("no folder for the store: set PRECAST_STORE, XDG_CACHE_HOME or HOME");
}

Store::Store(const fs::path& folder) : folder_(fs::absolute(folder)) {
  if (!folder_.has_filename()) folder_ = folder_.parent_path();  // "store/" would look through a link
  std::error_code error;
  fs::create_directories(folder_.parent_path(), error);
  if (error) {
    errno = error.value();
    fail("create", folder_.parent_path());
  }
  if (::mkdir(folder_.c_str(), S_IRWXU) != 0 && errno != EEXIST) fail("create", folder_);
  check_folder(folder_);
  remove_dead_writers(folder_);
}

fs::path Store::put(const std::string& key, const FileViews& files) {
  check_name("key of the store", key);
  for (const auto& [name, bytes] : files) check_name("file of the store", name);
  check_folder(folder_);
  fs::path path = folder_ / key;
  const auto is_there = [&] {
    const auto found = read_entry(key, path);
    const auto* entry = std::get_if<Files>(&found);
    return entry != nullptr && equal(*entry, files);
  };
  if (is_there()) return path;
  const TemporaryFolder fresh(folder_);
  fresh.make();
  write_entry(key, files, fresh.path());
  while (!publish(fresh.path(), path)) {
    if (is_there()) return path;
  }
  sync_folder(folder_);
  return path;
}

std::optional<Files> Store::get(const std::string& key) {
  check_name("key of the store", key);
  check_folder(folder_);
  const fs::path path = folder_ / key;
  auto found = read_entry(key, path);
  if (auto* files = std::get_if<Files>(&found)) return std::move(*files);
  if (const auto* damaged = std::get_if<Damaged>(&found)) {
    warn("store entry '{}' is removed: {}", path.string(), damaged->reason);
    remove_entry(path, damaged->id);
  }
  return std::nullopt;
}

Cache::Cache(const std::optional<fs::path>& folder) {
  try {
    store_.emplace(folder ? *folder : default_folder());
  } catch (const StoreError& error) {
    give_up(error);
  }
}

std::optional<Files> Cache::get(const std::string& key) {
  if (!usable_) return std::nullopt;
  try {
    return store_->get(key);
  } catch (const StoreError& error) {
    give_up(error);
    return std::nullopt;
  }
}

void Cache::put(const std::string& key, const FileViews& files) {
  if (!usable_) return;
  try {
    store_->put(key, files);
  } catch (const StoreError& error) {
    give_up(error);
  }
}

void Cache::give_up(const StoreError& error) {
  if (usable_.exchange(false)) warn("this process goes on without the store: {}", error.what());
}

}  // namespace precast::store
