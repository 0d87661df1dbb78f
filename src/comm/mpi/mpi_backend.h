#pragma once

#include "comm/mpi/mpi_channel.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace precast {

/// c10d's collectives over MPI, so that `_c10d_functional` ops of a step run under mpirun: the wheel's c10d has no MPI of its own.
/// CPU tensors only. Each call returns when it is done, or throws lost_rank by the deadline given here.
class MpiBackend final : public c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  /// `begin` is called before each collective.
  MpiBackend(int rank, int size, MpiChannel& channel, std::function<void()> begin, std::chrono::milliseconds deadline);

  [[nodiscard]] const std::string getBackendName() const override { return "precast_mpi"; }

  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Work allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                     std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  Work barrier(const c10d::BarrierOptions& options) override;

 private:
  void all_reduce_one(const at::Tensor& tensor, const c10d::ReduceOp& op);
  void reduce_scatter_one(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op);
  [[nodiscard]] Deadline deadline() const { return after(deadline_); }

  MpiChannel& channel_;
  std::function<void()> begin_;
  std::chrono::milliseconds deadline_;
};

}  // namespace precast
