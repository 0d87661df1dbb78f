#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace precast::artifact {

/// A file's new content, complete and synced under a temporary name beside its target, until it is published by one rename.
/// What stood at the target is kept under a backup name until `keep`, so that `take_back` can restore it. The destructor removes
/// whatever temporary files are left. All functions throw std::system_error naming the path.
class StagedFile {
 public:
  StagedFile(std::filesystem::path target, std::span<const std::byte> bytes);
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  void publish();    ///< The target is the new content.
  void take_back();  ///< The target is what it was before publish, or absent if it was. Warns and keeps the backup if that fails.
  void keep();       ///< The new content stays: syncs the folder and removes the backup.

 private:
  std::filesystem::path target_, staged_, backup_;
};

}  // namespace precast::artifact
