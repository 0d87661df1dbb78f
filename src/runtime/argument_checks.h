#pragma once

#include "ir/program.h"
#include "module/lift.h"
#include "precast/step.h"

#include <vector>

namespace precast::runtime {

/// The parameters and buffers of a call that fits its capture.
struct CheckedModules {
  std::vector<module::LiftedTensor> parameters;
  std::vector<module::LiftedTensor> buffers;
};

/// Compares a call with the capture, in this order: argument count, module positions, structure, leaf count; leaf by leaf shape,
/// dtype, device, value; which inputs are one tensor; names of parameters and buffers; their shape, dtype, device; training flags.
/// Changes nothing. What the artifact does not record (one captured in Python lacks some of it) goes unchecked.
/// @throws PrecompileError argument_mismatch  for the first difference: names the argument, leaf or parameter, both values, and
/// what to do.
CheckedModules check_arguments(const ir::Metadata& captured, const detail::CallArguments& call);

}  // namespace precast::runtime
