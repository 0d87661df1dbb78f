#pragma once

#include "precast/deadline.h"
#include "precast/error.h"
#include "precast/reduction.h"

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace precast {

class Transport;

struct CommunicatorOptions {
  std::chrono::milliseconds init_deadline = std::chrono::minutes(5);        ///< For all ranks to meet.
  std::chrono::milliseconds collective_deadline = std::chrono::minutes(1);  ///< For functional collectives of the step.
  std::string network_interface;  ///< Network interface for Gloo, for example "eth0"; empty lets Gloo choose.
  int threads = 0;                ///< ATen threads of this rank; 0: OMP_NUM_THREADS, else cores / local ranks.
  bool handle_sigterm = true;     ///< Print the phase once and end with 143, where SIGTERM has its default action.
};

/// What one rank found in a phase, before the ranks decide together.
struct Finding {
  ErrorCode code = ErrorCode::internal;
  std::string text;  ///< Empty: all is well.
  [[nodiscard]] bool ok() const noexcept { return text.empty(); }
};

/// What all ranks decided: the same code and text on every rank.
struct Verdict {
  ErrorCode code = ErrorCode::internal;
  std::string text;  ///< Empty: every rank found all well. Else the findings, each with its rank.
  [[nodiscard]] bool ok() const noexcept { return text.empty(); }
  void throw_if_failed() const;  ///< @throws PrecompileError with this code and text.
};

/// The ranks of a job. A value: copies share one connection. Collectives are called by all ranks in one order, by one thread at a
/// time. Each ends by its deadline; then PrecompileError lost_rank names the phase and the ranks that did not come, and the
/// communicator is unusable.
class Communicator {
 public:
  /// Finds what started this process (torchrun, Open MPI, MPICH or another PMI, Slurm, Flux, or nothing: one process) and connects.
  /// MPI is used under an MPI launcher, NCCL or Gloo elsewhere. Sets ATen's thread count.
  /// @throws PrecompileError environment: contradictory or half-set variables, in one line; lost_rank: not all ranks came.
  static Communicator from_environment(const CommunicatorOptions& options = {});

  /// One process, no transport.
  static Communicator single();

  explicit Communicator(std::shared_ptr<Transport> transport);

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] int local_rank() const noexcept;
  [[nodiscard]] int local_size() const noexcept;
  [[nodiscard]] std::string_view launcher() const noexcept;   ///< "torchrun", "openmpi", "pmi", "slurm", "flux" or "none".
  [[nodiscard]] std::string_view transport() const noexcept;  ///< "mpi", "gloo", "nccl" or "single".

  /// Sends root's bytes (zero allowed, more than 2 GiB allowed) to every rank, where they replace `bytes`. On failure `bytes` is
  /// empty on the ranks that received. Equivalent to MPI_Bcast of the length, then of the bytes in chunks.
  void broadcast(std::vector<std::byte>& bytes, int root, Deadline deadline) const;
  /// The same for a tensor that has root's shape and dtype on every rank; any strides, any device.
  void broadcast(const at::Tensor& tensor, int root, Deadline deadline) const;
  /// Reduces element-wise over the ranks, in place; equal results on every rank. @throws std::invalid_argument: avg of an integral
  /// dtype.
  void all_reduce(const at::Tensor& tensor, Reduction reduction, Deadline deadline) const;
  /// Every rank's bytes, by rank; lengths may differ.
  [[nodiscard]] std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> bytes, Deadline deadline) const;
  void barrier(Deadline deadline) const;
  /// Turns each rank's finding into one verdict, the same on all ranks.
  [[nodiscard]] Verdict agree(const Finding& mine, Deadline deadline) const;

  /// Names what this rank does until the guard ends, for messages about lost ranks and for SIGTERM.
  class PhaseGuard {
   public:
    explicit PhaseGuard(std::shared_ptr<Transport> transport, std::string_view phase);
    ~PhaseGuard();
    PhaseGuard(const PhaseGuard&) = delete;
    PhaseGuard& operator=(const PhaseGuard&) = delete;

   private:
    std::shared_ptr<Transport> transport_;
    std::string previous_;
  };
  [[nodiscard]] PhaseGuard enter(std::string_view phase) const { return PhaseGuard(transport_, phase); }

  /// Registers groups of ranks under a logical name, by which `_c10d_functional` ops of a program find the one that this rank is
  /// in. The name is the same on all ranks ("mesh.dp"), so a program that holds it suits them all. Ends with the last copy of this
  /// communicator. Registering the same again changes nothing. Collective.
  /// Example: with {{0, 1}, {2, 3}} a sum under that name on rank 3 adds the tensors of ranks 2 and 3; rank 3 is number 1 of its
  /// group.
  /// @param partition  disjoint lists that hold each rank once, equal on all ranks; a list's order is that of its group.
  /// @throws PrecompileError, the same on every rank and before any of them waits for another: rank_mismatch: the ranks pass other
  /// names or partitions; environment: it is no partition of the ranks, or the name stands for another one; lost_rank.
  void register_group(const std::string& name, const std::vector<std::vector<int>>& partition,
                      Deadline deadline = after(std::chrono::minutes(1))) const;
  /// The same for the group of all ranks.
  void register_group(const std::string& name, Deadline deadline = after(std::chrono::minutes(1))) const;
  /// The groups registered so far: how many ranks this rank's group has, by name.
  [[nodiscard]] std::map<std::string, int> groups() const;

 private:
  std::shared_ptr<Transport> transport_;
};

}  // namespace precast
