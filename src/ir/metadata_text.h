#pragma once

#include "ir/program.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace precast::ir {

/// The metadata as literals, in the order in which the text has them.
std::vector<std::pair<std::string, Literal>> metadata_literals(const Metadata& metadata);

/// Whether the metadata names `name` at all.
bool is_metadata_name(const std::string& name);

/// Reads the literals back. Those that only Precast writes may be missing. @throws PrecompileError invalid_artifact  names the
/// missing literals, or the one that is malformed.
Metadata read_metadata(const std::map<std::string, Literal>& literals);

}  // namespace precast::ir
