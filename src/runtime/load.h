#pragma once

#include "precast/precompile.h"

#include <memory>

namespace precast {

/// Loads a pair that this process, or its leader, just captured: without the warning that it is trusted, executable input. An empty
/// or unusable cache is reported by one warning and the text alone is run. The cache's hash of the text is compared before any of
/// the text is parsed.
/// @throws PrecompileError artifact_mismatch  the cache belongs to another text or backend: names both.
/// @throws PrecompileError invalid_artifact   the text is no Precast artifact: names the line, or the missing literals.
std::shared_ptr<detail::StepRunner> load_trusted(const Artifact& artifact);

}  // namespace precast
