#pragma once

#include "precast/communicator.h"
#include "precast/options.h"
#include "precast/step.h"

#include <string>
#include <string_view>
#include <vector>

namespace precast::runtime {

/// One thing that must be equal on all ranks, and what this rank has.
struct Field {
  std::string name;
  std::string value;
};

/// What a capture depends on: library versions, options, and the structure, shapes and dtypes of the arguments.
std::vector<Field> describe_rank(const detail::CallArguments& arguments, const Options& options);

/// Collective. Compares digests, and the fields themselves only where those differ.
/// @returns ok, or rank_mismatch: the first field in which a rank differs from rank 0, that rank, and both values.
/// @param phase  as messages name it.
Verdict compare_ranks(const Communicator& comm, std::string_view phase, const std::vector<Field>& mine, Deadline deadline);

}  // namespace precast::runtime
