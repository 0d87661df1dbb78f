#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace precast {

/// The pair of one capture. `python_code` is complete alone; `cache` makes loading faster and is bound to it by sha256.
/// Both are trusted, executable input.
struct Artifact {
  std::string python_code;
  std::vector<std::byte> cache;
};

/// Writes both halves under temporary names beside their targets, syncs, and renames them.
/// @throws PrecompileError environment: names the path and the cause; what stood there before is intact.
void save_artifact(const Artifact& artifact, const std::filesystem::path& code_path, const std::filesystem::path& cache_path);

/// Reads the two files of save_artifact. Nothing is parsed.
/// @throws PrecompileError environment: names both paths and the system's reason.
Artifact read_artifact(const std::filesystem::path& code_path, const std::filesystem::path& cache_path);

}  // namespace precast
