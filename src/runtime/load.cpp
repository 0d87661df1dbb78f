#include "runtime/load.h"

#include "artifact/envelope.h"
#include "artifact/sha256.h"
#include "backends/inductor/compiled_program.h"
#include "backends/inductor/lower.h"
#include "backends/inductor/split.h"
#include "base/log.h"
#include "ir/text.h"
#include "precast/error.h"
#include "runtime/lowering.h"
#include "runtime/step_runner.h"

#include <fmt/format.h>

#include <memory>
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

void check_known(const std::string& backend) {
  if (backend != "eager" && backend != "inductor")
    throw PrecompileError(ErrorCode::invalid_artifact,
                          fmt::format("python_code: BACKEND: expected 'eager' or 'inductor', found '{}'; compile again", backend));
}

/// The program and what the cache says of it, each checked against the other.
struct Pair {
  ir::Program program;
  CacheState cache;
};

Pair read_pair(const Artifact& artifact) {
  CacheState cache = read_cache(artifact.cache);
  const auto* envelope = std::get_if<artifact::Envelope>(&cache);
  if (envelope != nullptr) check_code_hash(*envelope, artifact.python_code);
  ir::Program program = ir::read_python_code(artifact.python_code);
  if (envelope != nullptr) check_backend(*envelope, program.metadata.backend);
  check_known(program.metadata.backend);
  return {.program = std::move(program), .cache = std::move(cache)};
}

/// An engine, or why there is none.
struct Attempt {
  std::unique_ptr<const Engine> engine;
  std::string why_not;
};

Attempt open_package(const ir::Program& program, const inductor::Fingerprint& fingerprint, std::span<const std::byte> package) {
  if (package.empty()) return {.engine = nullptr, .why_not = "it holds no kernel package"};
  try {
    if (std::string reason = inductor::why_unusable(fingerprint); !reason.empty()) return {.engine = nullptr, .why_not = reason};
    return {.engine = std::make_unique<inductor::CompiledProgram>(program, package), .why_not = ""};
  } catch (const PrecompileError& error) {
    return {.engine = nullptr, .why_not = error.what()};
  }
}

Attempt open_cache(const ir::Program& program, const CacheState& cache) {
  if (const auto* unusable = std::get_if<artifact::Unusable>(&cache)) return {.engine = nullptr, .why_not = unusable->reason};
  const auto& envelope = std::get<artifact::Envelope>(cache);
  return open_package(program, envelope.fingerprint, envelope.artifact);
}

Attempt compile_here(const ir::Program& program, const std::string& python_code) {
  const Options defaults;
  const runtime::LoweredCache lowered = runtime::lower_to_cache(python_code, defaults, {}, after(defaults.compile_deadline));
  if (!lowered.failure.ok()) return {.engine = nullptr, .why_not = lowered.failure.text};
  return open_cache(program, read_cache(lowered.cache));
}

}  // namespace

LoadedStep load_trusted(const Artifact& artifact, WithoutPackage without) {
  const Pair pair = read_pair(artifact);
  LoadedStep loaded{.runner = nullptr, .has_collectives = inductor::has_collectives(pair.program), .cache_not_used = ""};
  Attempt attempt;
  if (pair.program.metadata.backend == "inductor") {
    attempt = open_cache(pair.program, pair.cache);
    loaded.cache_not_used = attempt.why_not;
    if (!attempt.engine && without == WithoutPackage::lower) {
      attempt = compile_here(pair.program, artifact.python_code);
      if (!attempt.engine) loaded.cache_not_used += "; nor can the program be compiled here: " + attempt.why_not;
    }
  } else if (const auto* unusable = std::get_if<artifact::Unusable>(&pair.cache)) {
    loaded.cache_not_used = unusable->reason;
  }
  loaded.runs_eagerly = !attempt.engine;
  loaded.runner = attempt.engine ? std::make_shared<runtime::ProgramRunner>(artifact, pair.program, std::move(attempt.engine))
                                 : std::make_shared<runtime::ProgramRunner>(artifact, pair.program);
  return loaded;
}

std::shared_ptr<detail::StepRunner> load_eagerly(const Artifact& artifact) {
  return std::make_shared<runtime::ProgramRunner>(artifact, read_pair(artifact).program);
}

std::shared_ptr<detail::StepRunner> detail::load(const Artifact& artifact) {
  warn("load: about to run trusted code (python_code, and a kernel package in the cache): load only pairs that you trust");
  LoadedStep loaded = load_trusted(artifact, WithoutPackage::lower);
  if (!loaded.cache_not_used.empty())
    warn("load: the cache is not used: {}; {}, with the same results", loaded.cache_not_used,
         loaded.runs_eagerly ? "the program of python_code is run op by op instead" : "the program was compiled anew");
  return std::move(loaded.runner);
}

}  // namespace precast
