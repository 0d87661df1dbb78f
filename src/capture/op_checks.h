#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace precast::capture {

/// "aten::add.Tensor".
std::string op_name(const c10::FunctionSchema& schema);

/// @throws PrecompileError refused_capture  the op reads a tensor's value, gives a shape that depends on values, has an effect
/// outside its
///         tensors, or fills a tensor literal.
void check_op(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

/// Whether the op stays in the program though nobody reads its result: it moves the random stream, or asserts.
bool must_stay(const c10::OperatorHandle& op);

/// empty, empty_like, new_empty and their kind.
bool is_uninitialized_factory(const c10::FunctionSchema& schema);

/// zeros_like, new_full and their kind take shape and dtype from their operand, never its values.
bool reads_shapes_only(const c10::FunctionSchema& schema);

/// Indices of the arguments that this call writes into.
std::vector<std::uint32_t> written_by_call(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments);

}  // namespace precast::capture
