#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace gpt {

/// Writes `bytes` under a temporary name beside `path`, syncs, and renames: a reader sees the old file or the whole new one, also
/// after a crash. @throws JobError  names the path and the system's reason; what stood there before is intact.
void write_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);

/// @throws JobError  names the path and the system's reason.
std::vector<std::byte> read_file(const std::filesystem::path& path);

}  // namespace gpt
