#pragma once

#include "store/store.h"

#include <sys/types.h>

#include <string>
#include <variant>

namespace precast::store {

/// Throws StoreError from errno: what was done to which path, the system's reason, and where to look.
[[noreturn]] void fail(const char* action, const std::filesystem::path& path);

/// Throws std::invalid_argument if `name` cannot be that of an entry or of a file in one.
void check_name(const char* what, const std::string& name);

/// Which folder a path led to when it was opened.
struct FolderId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FolderId&) const = default;
};

struct NoEntry {};

/// What lies under a key, but is no whole entry that only its owner could write.
struct Damaged {
  FolderId id;
  std::string reason;
};

/// Reads the entry at `path` through one descriptor, so that a replacement meanwhile cannot mix two entries.
/// @throws StoreError  the system cannot read what is there.
std::variant<Files, NoEntry, Damaged> read_entry(const std::string& key, const std::filesystem::path& path);

/// Writes the entry into `folder`, which exists and is empty, and syncs it. @throws StoreError
void write_entry(const std::string& key, const FileViews& files, const std::filesystem::path& folder);

/// Of a path itself, not of what a link there points to; nothing if it does not exist.
std::optional<FolderId> id_of(const std::filesystem::path& path);

void sync_folder(const std::filesystem::path& folder);

}  // namespace precast::store
