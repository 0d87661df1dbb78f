#pragma once

#include "capture/capture.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace precast::capture {

/// Whether an op moves data between ranks.
bool is_collective(const c10::FunctionSchema& schema);

/// Answers a functional collective without running it: a tensor of the result's shape, with values from the rank's own operand, so
/// that kernels that use them as indices stay in range. Replaces the arguments on the stack by the result.
/// @throws PrecompileError refused_capture  a group that is no mesh dimension of the job, or an op without a stand-in; names op and
/// group.
void answer_collective(const c10::OperatorHandle& op, torch::jit::Stack& stack, const Groups& groups);

}  // namespace precast::capture
