#pragma once

#include "ir/program.h"

#include <string>
#include <string_view>

namespace precast::ir {

/// Writes python_code: readable, deterministic to the byte, and a complete Python program (`forward(*args)`) that imports only
/// torch and the standard library. Names of values must already be valid and unique (see names.h).
std::string write_python_code(const Program& program);

/// Reads python_code without executing anything: text of write_python_code, or of an eager capture by Python's
/// torch.compiler.precompile. Deletions (`x = None`) are checked and dropped: a deleted name is undefined afterwards.
/// @throws PrecompileError invalid_artifact  says that it is not a Precast artifact, and names the missing or malformed literals,
/// or the
///         line and what stands there. Memory used is bounded by a small multiple of the text's size, nesting by a fixed depth.
Program read_python_code(std::string_view text);

}  // namespace precast::ir
