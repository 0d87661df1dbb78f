#pragma once

#include "ir/program.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <string>

namespace precast::capture {

/// How the recorder names what it alone knows: a tensor or a generator among an op's arguments.
struct Resolver {
  std::function<ir::Operand(const at::Tensor&)> tensor;
  std::function<ir::Operand(const at::Generator&)> generator;
};

/// Fills the arguments of `call` from an op's boxed arguments: positional ones up to the last that differs from its default,
/// keyword-only ones where they differ. @throws PrecompileError refused_capture  an argument that text cannot hold (complex
/// numbers, script objects).
void write_arguments(ir::Call& call, const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
                     const Resolver& resolver);

/// "f32[16, 8]".
std::string shape_note(const at::Tensor& tensor);

}  // namespace precast::capture
