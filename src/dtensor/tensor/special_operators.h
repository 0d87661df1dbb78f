#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace precast::dtensor {

/// Operators that are no computation on placements: they draw random numbers, or give a plain C++ value. Replaces the arguments by
/// the results.
using SpecialOperator = void (*)(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// Null: the operator is an ordinary one.
SpecialOperator special_operator(const c10::FunctionSchema& schema);

}  // namespace precast::dtensor
