#pragma once

#include "precast/communicator.h"

#include <chrono>
#include <map>
#include <string>

namespace gpt {

/// Compares what must be equal on all ranks, by name, with rank 0's. Collective.
/// @throws AgreedError  names the first that differs, rank 0's value, this rank's, and the rank.
void require_equal(const precast::Communicator& comm, std::chrono::milliseconds deadline,
                   const std::map<std::string, std::string>& mine);

}  // namespace gpt
