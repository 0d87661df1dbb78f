#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace gpt {

/// Writes `bytes` under a temporary name beside `path`, syncs, and renames: a reader sees the old file or the whole new one, also
/// after a crash. @throws JobError  names the path and the system's reason; what stood there before is intact.
void write_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);

/// Whether a file could be put there. @throws JobError  something else than a file is there: it would be replaced by one.
void check_replaceable(const std::filesystem::path& path);

/// Finds out, by a file that is made and removed again, whether `path` can be written, and removes what earlier writers that were
/// killed left beside it. @throws JobError  as write_atomically and check_replaceable do.
void prepare_output(const std::filesystem::path& path);

/// @throws JobError  names the path and the system's reason; it is no regular file; it is larger than memory.
std::vector<std::byte> read_file(const std::filesystem::path& path);

}  // namespace gpt
