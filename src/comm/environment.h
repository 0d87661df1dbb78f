#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace precast {

using Variables = std::map<std::string, std::string, std::less<>>;

/// What started this process, as its environment variables say.
struct JobEnvironment {
  std::string launcher = "none";  ///< "torchrun", "openmpi", "pmi", "slurm", "flux" or "none".
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string master_addr;   ///< Empty where the variables name none.
  int master_port = 0;       ///< 0 where the variables name none.
  bool agent_store = false;  ///< torchrun itself hosts the store at master_addr:master_port.
  int restart = 0;           ///< How often torchrun started the ranks again; keys of the store are kept apart by it.

  bool operator==(const JobEnvironment&) const = default;
};

/// Where torchrun runs inside an MPI or Slurm job it is what started the ranks, and its variables win.
/// @throws PrecompileError environment, one line, naming variables and values: half-set, no number, out of range, contradictory.
JobEnvironment job_environment(const Variables& variables);

struct ThreadChoice {
  int count = 1;
  std::string reason;  ///< For the log: where the count comes from.
};

/// `requested` (0: not), else OMP_NUM_THREADS, else this node's cores divided by its ranks, at least 1.
/// @throws PrecompileError environment: a negative request, or OMP_NUM_THREADS is no positive number.
ThreadChoice choose_threads(const Variables& variables, const JobEnvironment& job, int requested, int cores);

/// This process's variables.
Variables process_variables();

}  // namespace precast
