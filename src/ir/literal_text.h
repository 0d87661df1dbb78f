#pragma once

#include "ir/program.h"

#include <string>
#include <string_view>

namespace precast::ir {

/// A Python string literal of `value`: single quotes, escapes for quotes, backslashes and control characters, and for bytes that
/// are not valid UTF-8 nothing is invented: they are refused. @throws PrecompileError refused_capture.
std::string quote(std::string_view value);

/// Whether Python would read these bytes as source at all: UTF-8 without NUL.
bool is_python_text(std::string_view text);

/// A number as Python writes it: the shortest text that reads back to the same double; inf and nan by name.
std::string write_float(double value);

/// A literal as Python's repr writes it.
std::string write_literal(const Literal& literal);

/// The JSON text that torch.utils._pytree.treespec_dumps gives for a structure.
std::string write_treespec(const TreeSpec& spec);

/// Reads that JSON. @throws std::runtime_error  what is wrong with it.
TreeSpec read_treespec(std::string_view json);

}  // namespace precast::ir
