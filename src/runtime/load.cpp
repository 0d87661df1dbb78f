#include "runtime/load.h"

#include "artifact/envelope.h"
#include "artifact/sha256.h"
#include "base/log.h"
#include "ir/text.h"
#include "precast/error.h"
#include "runtime/step_runner.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

namespace precast {
namespace {

using CacheState = std::variant<artifact::Envelope, artifact::Unusable>;

CacheState read_cache(std::span<const std::byte> cache) {
  if (cache.empty()) return artifact::Unusable{"it is empty"};
  return artifact::read_envelope(cache);
}

/// The text is trusted only as far as the cache vouches for it, so this comes before any of it is parsed.
void check_code_hash(const artifact::Envelope& envelope, const std::string& python_code) {
  const std::string found = artifact::sha256(python_code);
  if (found != envelope.code_hash)
    throw PrecompileError(
        ErrorCode::artifact_mismatch,
        fmt::format("load: the cache belongs to another python_code: expected sha256 {} (cache), found {} (python_code); "
                    "use the two halves of one capture",
                    envelope.code_hash, found));
}

void check_backend(const artifact::Envelope& envelope, const std::string& backend) {
  if (envelope.backend != backend)
    throw PrecompileError(
        ErrorCode::artifact_mismatch,
        fmt::format("load: the cache was made for backend '{}', python_code says BACKEND '{}'; use the two halves of one "
                    "capture",
                    envelope.backend, backend));
}

/// At most one warning a load. Empty: the cache is used as far as its backend has a use for it.
std::string why_not_used(const CacheState& cache, const std::string& backend) {
  if (const auto* unusable = std::get_if<artifact::Unusable>(&cache))
    return fmt::format("the cache is not used: {}", unusable->reason);
  if (backend == "inductor") return "the cache's kernel package is not used: this build of Precast has no inductor backend";
  return "";
}

}  // namespace

std::shared_ptr<detail::StepRunner> load_trusted(const Artifact& artifact) {
  const CacheState cache = read_cache(artifact.cache);
  const auto* envelope = std::get_if<artifact::Envelope>(&cache);
  if (envelope != nullptr) check_code_hash(*envelope, artifact.python_code);
  ir::Program program = ir::read_python_code(artifact.python_code);
  const std::string backend = program.metadata.backend;
  if (envelope != nullptr) check_backend(*envelope, backend);
  if (backend != "eager" && backend != "inductor")
    throw PrecompileError(ErrorCode::invalid_artifact,
                          fmt::format("python_code: BACKEND: expected 'eager' or 'inductor', found '{}'; compile again", backend));
  auto runner = std::make_shared<runtime::ProgramRunner>(artifact, std::move(program));
  if (const std::string reason = why_not_used(cache, backend); !reason.empty())
    warn("load: {}; the program of python_code is run op by op instead, with the same results", reason);
  return runner;
}

std::shared_ptr<detail::StepRunner> detail::load(const Artifact& artifact) {
  warn("load: about to run trusted code (python_code, and a kernel package in the cache): load only pairs that you trust");
  return load_trusted(artifact);
}

}  // namespace precast
