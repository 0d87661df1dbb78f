#pragma once

#include "precast/communicator.h"
#include "precast/compile_on_one_rank.h"
#include "precast/options.h"

#include <cstddef>
#include <string>
#include <vector>

namespace precast::runtime {

/// A cache with its package, or why there is none.
struct LoweredCache {
  std::vector<std::byte> cache;
  Finding failure;
  int lowerings = 0;  ///< Made by this process: none where the store has the package already.
};

/// The cache of a program for the inductor backend, compiled by this process or found in the store of this node.
/// @param cpus  cores that the compiler may use; empty: those of this process.
LoweredCache lower_to_cache(const std::string& python_code, const Options& options, const std::vector<int>& cpus,
                            Deadline deadline);

/// A cache without package: the program runs op by op.
std::vector<std::byte> empty_cache(const std::string& python_code, const std::string& backend);

/// Collective: one rank of each kind of machine compiles the text, which is the same on all ranks and verified; every rank gets the
/// cache of its kind. Where one of them fails, all ranks throw its error, or, with `options.fallback` "eager", all get the empty
/// cache after a warning.
/// @throws PrecompileError  the same on every rank.
std::vector<std::byte> lower_once_per_platform(const Communicator& comm, const std::string& python_code, const Options& options,
                                               CompileReport& report);

}  // namespace precast::runtime
