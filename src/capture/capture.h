#pragma once

#include "ir/program.h"
#include "precast/options.h"
#include "precast/step.h"

#include <functional>
#include <map>
#include <string>

namespace precast::capture {

/// Logical names of the groups whose functional collectives a program may hold, with their sizes.
using Groups = std::map<std::string, int>;

/// Runs fn once under the recorder and returns its program. Effects of fn on parameters, buffers, inputs, gradients and random
/// state are undone. @throws PrecompileError refused_capture; exceptions of fn pass through.
ir::Program capture(const detail::CallArguments& arguments, const std::function<Flat()>& fn, const Options& options,
                    const Groups& groups = {});

}  // namespace precast::capture
