#pragma once

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace precast::store {

/// The store cannot be used: its text names the path, the reason and what to do. A job goes on without it (see Cache).
struct StoreError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An entry's files by name. Names, and keys of entries, are of [A-Za-z0-9._-], at most 128 long and without a leading dot; others
/// are std::invalid_argument.
using Files = std::map<std::string, std::vector<std::byte>>;
using FileViews = std::map<std::string, std::span<const std::byte>>;

/// Where this user's entries lie on this node: $PRECAST_STORE, else $XDG_CACHE_HOME/precast/store, else $HOME/.cache/precast/store.
/// An empty variable counts as unset, and as the XDG specification has it a relative $XDG_CACHE_HOME is ignored.
/// @throws StoreError  none of them is set.
std::filesystem::path default_folder();

/// A folder of entries that many processes of one user on one node read and write at once. An entry is a set of files under a key.
/// It carries the sha256 of its key and content, so that whatever a dead writer, a full disk or another program left is found and
/// is no entry. Entries are for the owner only (folders 0700, files 0600) and belong on a disk of the node.
///
/// Every function throws StoreError where the folder is unusable (no space, read-only, a stale handle of a network file system,
/// another owner); what was under the key before is then still there, and no temporary file is left. Thread-safe.
class Store {
 public:
  /// Makes the folder, and those above it, where missing. Temporary folders whose writer died more than a day ago are removed.
  /// @throws StoreError  also: `folder` is a symbolic link or no folder, belongs to another user, or others may write to it.
  explicit Store(const std::filesystem::path& folder);

  /// Puts the files under `key` and returns the folder they lie in. What is there already is compared byte by byte: equal, it is
  /// kept as it is; else the new entry replaces it, in one step where the file system can exchange two names (Linux: renameat2).
  /// Two writers of one key with different files: one of them wins, whole.
  std::filesystem::path put(const std::string& key, const FileViews& files);

  /// The files under `key`, read once and checked after reading: nothing reads the disk again. Nothing, if there is no such entry
  /// or it is damaged; a damaged one is removed, and that is a warning.
  std::optional<Files> get(const std::string& key);

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

/// A store that its job can do without: the first StoreError is one warning with its reason; from then on every `get` is a miss and
/// `put` does nothing. Thread-safe.
class Cache {
 public:
  /// @param folder  the store's; default_folder() if none is given.
  explicit Cache(const std::optional<std::filesystem::path>& folder = std::nullopt);

  std::optional<Files> get(const std::string& key);
  void put(const std::string& key, const FileViews& files);
  [[nodiscard]] bool usable() const { return usable_; }

 private:
  void give_up(const StoreError& error);

  std::optional<Store> store_;
  std::atomic<bool> usable_ = true;
};

}  // namespace precast::store
