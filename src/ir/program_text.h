#pragma once

#include "ir/lexer.h"
#include "ir/program.h"

#include <span>
#include <string>

namespace precast::ir {

/// The function `call` of the text.
std::string write_call(const Program& program);

/// Reads the body of `call`, or of the reference's `_graph_forward`, into values, inputs, statements and outputs.
/// @throws PrecompileError invalid_artifact  names the line and the operator.
void read_call(std::span<const LogicalLine> body, Program& program);

}  // namespace precast::ir
