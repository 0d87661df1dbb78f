#pragma once

#include "comm/mpi/mpi_channel.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <functional>
#include <vector>

namespace precast {

/// c10d's view of MPI, so that functional collectives on CPU tensors run over it. Each collective has ended when its call returns.
class MpiBackend final : public c10d::Backend {
 public:
  /// @param channel  outlives the backend.
  /// @param begin  called before each collective; throws where no more is possible.
  /// @param time  for a collective whose options name none.
  MpiBackend(int rank, int size, MpiChannel& channel, std::function<void()> begin, std::chrono::milliseconds time);

  const std::string getBackendName() const override { return "precast_mpi"; }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(std::vector<at::Tensor>& tensors,
                                                     const c10d::AllreduceCoalescedOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                                                 const c10d::ReduceScatterOptions& options) override;
  /// Splits are rows of the first dimension; none: equal parts.
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_rows,
                                               std::vector<int64_t>& input_rows, const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;

 private:
  Deadline start(std::chrono::milliseconds time) const;
  [[nodiscard]] c10::intrusive_ptr<c10d::Work> done(c10d::OpType type, std::vector<at::Tensor> results) const;
  [[nodiscard]] std::vector<int> bytes_by_rank(const at::Tensor& tensor, const std::vector<int64_t>& rows) const;

  MpiChannel& channel_;
  std::function<void()> begin_;
  std::chrono::milliseconds time_;
};

}  // namespace precast
