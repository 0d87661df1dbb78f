#pragma once

#include "precast/communicator.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace precast {

/// Disjoint lists of ranks that together hold each rank once.
using Partition = std::vector<std::vector<int>>;

/// What connects the ranks: one MPI, Gloo or NCCL connection, or none. Collectives take contiguous tensors of equal shape and dtype
/// on every rank, are called by all ranks in one order, and end by their deadline. A collective that cannot end throws
/// PrecompileError lost_rank, which names the phase and the ranks that did not come; later calls throw the same. The destructor
/// never waits for a lost rank. Tests decorate a transport by deriving from it and forwarding.
class Transport {
 public:
  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;      ///< "mpi", "gloo", "nccl" or "single".
  [[nodiscard]] virtual std::string_view launcher() const noexcept = 0;  ///< As Communicator::launcher().
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  [[nodiscard]] virtual int local_rank() const noexcept = 0;
  [[nodiscard]] virtual int local_size() const noexcept = 0;

  /// Where `tensor` may live; Communicator copies others there and back.
  [[nodiscard]] virtual bool takes(const at::Tensor& tensor) const = 0;
  virtual void broadcast(const at::Tensor& tensor, int root, Deadline deadline) = 0;
  virtual void all_reduce(const at::Tensor& tensor, Reduction reduction, Deadline deadline) = 0;
  /// `output` has size() times the elements of `input`: rank r's at r.
  virtual void all_gather(const at::Tensor& output, const at::Tensor& input, Deadline deadline) = 0;
  virtual void barrier(Deadline deadline) = 0;

  /// What this rank does, for messages.
  [[nodiscard]] virtual std::string phase() const = 0;
  virtual void set_phase(std::string_view phase) = 0;

  /// The group of all ranks for functional collectives.
  [[nodiscard]] virtual c10::intrusive_ptr<c10d::ProcessGroup> process_group() = 0;
  /// Registers the group of this rank's list, in its order, under `name` until this transport ends; the same partition again
  /// changes nothing. Collective: all ranks pass one name and one partition of all ranks. Whether they do, and whether the name is
  /// free in every process, Communicator has asked before.
  /// @throws PrecompileError environment: the name stands for another partition, on every rank; lost_rank.
  virtual void register_group(const std::string& name, const Partition& partition) = 0;
  [[nodiscard]] virtual std::map<std::string, int> groups() const = 0;  ///< Sizes by name.
};

}  // namespace precast
