#pragma once

#include "backends/inductor/unpack.h"
#include "store/descriptor.h"

#include <filesystem>
#include <string>

namespace precast::inductor {

/// A folder that only this process's user can enter (0700), removed with all its content in the end.
class PrivateFolder {
 public:
  /// @param name  part of its name. @throws PrecompileError  environment: it cannot be made.
  explicit PrivateFolder(const std::string& name);
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A package laid out for LibTorch's loader. The library lies in sealed memory and the folder only links to it: no file system,
/// which may forbid execution or be written by others, holds code. Once a library is loaded, it stays so without the folder.
class LoadFolder {
 public:
  /// @param name  part of the folder's name. Names of loaded libraries must differ, or the dynamic loader takes one for the other.
  /// @throws PrecompileError  environment: no folder can be made, or no memory is left.
  LoadFolder(const Contents& contents, const std::string& name);
  [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }

 private:
  store::Descriptor library_;
  PrivateFolder folder_;
};

}  // namespace precast::inductor
