#pragma once

#include "precast/communicator.h"
#include "precast/precompile.h"

#include <map>
#include <string>

namespace precast {

/// What one compile_on_one_rank did, on this rank. Seconds.
struct CompileReport {
  int captures = 0;       ///< Of this rank: 1 on the leader, else 0.
  int lowerings = 0;      ///< Of this rank.
  std::string code_hash;  ///< sha256 of the python_code that this rank loaded, lower-case hex.
  std::size_t code_bytes = 0, cache_bytes = 0;
  std::map<std::string, double> phases;  ///< "capture", "lower", "broadcast", "verify", "prime".
};

namespace detail {
std::shared_ptr<StepRunner> compile_on_one_rank(const Communicator& comm, const CallArguments& arguments,
                                                const std::function<Flat()>& fn, const Options& options, CompileReport* report);
}

/// Rank 0 captures `fn`; all ranks of `comm` receive the pair, check its digests before parsing anything, and load it. Collective:
/// every rank calls it with its own arguments of equal structure, shapes and dtypes. Ranks leave together: with a Step, or with one
/// PrecompileError of the same text. Only rank 0 calls fn; where fn throws there, rank 0 rethrows the exception itself.
/// The first call of the Step checks that parameters and buffers hold equal values on all ranks.
template <class Fn, class... Args>
Step<step_result_t<Fn, Args...>> compile_on_one_rank(const Communicator& comm, Fn&& fn, const Options& options,
                                                     CompileReport& report, Args&&... args) {
  return Step<step_result_t<Fn, Args...>>(detail::compile_on_one_rank(comm, detail::bind_arguments(std::as_const(args)...),
                                                                      detail::call_and_flatten(fn, args...), options, &report));
}

template <class Fn, class... Args>
Step<step_result_t<Fn, Args...>> compile_on_one_rank(const Communicator& comm, Fn&& fn, const Options& options, Args&&... args) {
  CompileReport unused;
  return compile_on_one_rank(comm, fn, options, unused, args...);
}

}  // namespace precast
