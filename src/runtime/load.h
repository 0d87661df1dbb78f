#pragma once

#include "precast/precompile.h"

#include <cstdint>
#include <memory>
#include <string>

namespace precast {

/// What to do with a program for the inductor backend where the cache holds no package that this process can run.
enum class WithoutPackage : std::uint8_t {
  lower,       ///< Compile the program here, if there is a Python to do it.
  run_eagerly  ///< Run it op by op.
};

struct LoadedStep {
  std::shared_ptr<detail::StepRunner> runner;
  bool has_collectives = false;
  bool runs_eagerly = true;    ///< Op by op, whatever the backend.
  std::string cache_not_used;  ///< Why, for a warning; empty: it is used, as far as its backend has a use for it.
};

/// Loads a pair that this process, or its leader, just captured: without the warning that it is trusted, executable input. The
/// cache's hash of the text is compared before any of the text is parsed.
/// @throws PrecompileError artifact_mismatch  the cache belongs to another text or backend: names both.
/// @throws PrecompileError invalid_artifact   the text is no Precast artifact: names the line, or the missing literals.
LoadedStep load_trusted(const Artifact& artifact, WithoutPackage without);

/// The same, never with a package.
std::shared_ptr<detail::StepRunner> load_eagerly(const Artifact& artifact);

}  // namespace precast
