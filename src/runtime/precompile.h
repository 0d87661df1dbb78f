#pragma once

#include "capture/capture.h"
#include "precast/artifact.h"
#include "precast/options.h"
#include "precast/step.h"

#include <functional>

namespace precast {

/// Captures fn, writes the pair (its cache without a package), and loads it once, so that what cannot be rebuilt fails here.
/// @throws as precompile does.
Artifact capture_to_artifact(const detail::CallArguments& arguments, const std::function<Flat()>& fn, const Options& options,
                             const capture::Groups& groups);

/// @throws std::invalid_argument  backend or tracer unknown; PrecompileError not_built  known, but not in this build.
void check_names(const Options& options);

}  // namespace precast
