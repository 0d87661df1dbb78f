#include "precast/artifact.h"

#include "artifact/staged_file.h"
#include "base/log.h"
#include "precast/error.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <span>
#include <system_error>

namespace precast {
namespace {

namespace fs = std::filesystem;

void check_target(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status))
    throw PrecompileError(
        ErrorCode::environment,
        fmt::format("cannot save the artifact to '{}': it exists and is no regular file; nothing was written", path.string()));
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error) && !error) return true;
  return fs::weakly_canonical(fs::absolute(a)) == fs::weakly_canonical(fs::absolute(b));
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || fs::is_directory(path)) throw std::system_error(errno != 0 ? errno : EISDIR, std::generic_category(), path.string());
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) throw std::system_error(EIO, std::generic_category(), path.string());
  return bytes;
}

}  // namespace

void save_artifact(const Artifact& artifact, const fs::path& code_path, const fs::path& cache_path) {
  if (same_file(code_path, cache_path))
    throw PrecompileError(
        ErrorCode::environment,
        fmt::format("cannot save the artifact: python_code and cache are both to go to '{}'; name two files", code_path.string()));
  check_target(code_path);
  check_target(cache_path);
  try {
    artifact::StagedFile code(code_path, std::as_bytes(std::span(artifact.python_code)));
    artifact::StagedFile cache(cache_path, artifact.cache);
    code.publish();
    try {
      cache.publish();
    } catch (...) {
      code.take_back();
      throw;
    }
    code.keep();
    cache.keep();
  } catch (const std::system_error& error) {
    throw PrecompileError(ErrorCode::environment,
                          fmt::format("cannot save the artifact to '{}' and '{}': {}; what stood there before is intact",
                                      code_path.string(), cache_path.string(), error.what()));
  }
}

Artifact read_artifact(const fs::path& code_path, const fs::path& cache_path) {
  try {
    const std::string code = read_file(code_path), cache = read_file(cache_path);
    const auto bytes = std::as_bytes(std::span(cache));
    return {.python_code = code, .cache = {bytes.begin(), bytes.end()}};
  } catch (const std::system_error& error) {
    throw PrecompileError(ErrorCode::environment, fmt::format("cannot read the artifact from '{}' and '{}': {}", code_path.string(),
                                                              cache_path.string(), error.what()));
  }
}

}  // namespace precast
