#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <string_view>
#include <vector>

namespace precast {

/// A c10d backend for CPU tensors whose collectives, once they cannot end, throw what a transport says of lost ranks instead of the
/// connection's own words. Started as `inner` starts them; what `inner` refuses, it throws as it is. As the other backends of c10d,
/// called by one thread at a time.
class WatchedBackend final : public c10d::Backend {
 public:
  struct Watch {
    std::function<void()> begin;  ///< Before each collective; throws where no more is possible.
    /// Ends when `done` returns true; throws lost_rank when `done` throws or takes too long, counted from this call.
    std::function<void(std::string_view operation, const std::function<bool()>& done)> wait;
  };

  /// @param watch  what it calls outlives each work that is still waited for.
  WatchedBackend(c10::intrusive_ptr<c10d::Backend> inner, Watch watch);

  const std::string getBackendName() const override { return inner_->getBackendName(); }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(std::vector<at::Tensor>& tensors,
                                                     const c10d::AllreduceCoalescedOptions& options) override;
  c10::intrusive_ptr<c10d::Work> all_gather_single(at::Tensor& output, at::Tensor& input,
                                                   const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> all_gather_single_coalesced(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                                             const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                                       const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_single_coalesced(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                                                 const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> all_to_all_single(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_rows,
                                                   std::vector<int64_t>& input_rows, const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;

 private:
  template <class Start>
  c10::intrusive_ptr<c10d::Work> watched(std::string_view operation, c10d::OpType type, const Start& start);

  c10::intrusive_ptr<c10d::Backend> inner_;
  Watch watch_;
};

}  // namespace precast
