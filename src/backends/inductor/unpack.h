#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace precast::inductor {

/// What opening a package needs of it, in memory. Its sources are left out.
struct Contents {
  std::map<std::string, std::vector<std::byte>> files;  ///< By file name.
  std::string library;                                  ///< The name of the one shared library among them.
  std::map<std::string, std::string> metadata;
};

/// Where the loader looks for the files of a model, below a package's folder.
inline constexpr const char* kModelFolder = "data/aotinductor/model";

/// Reads a .pt2, a zip whose records are stored as they are. Nothing is executed; what the records claim to hold is compared with
/// the bytes there are before anything is allocated.
/// @throws PrecompileError  invalid_artifact: no zip, cut short, a name that could leave its folder, more or less than one library.
Contents unpack(std::span<const std::byte> bytes);

}  // namespace precast::inductor
