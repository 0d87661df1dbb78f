#include "comm/c10d/watched_backend.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <exception>
#include <string>
#include <utility>

namespace precast {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

// Waiting is inner's own, which wakes at once; between slices the watch looks at the clock and at the other ranks.
constexpr auto kSlice = std::chrono::milliseconds(5);

class WatchedWork final : public c10d::Work {
 public:
  WatchedWork(int rank, c10d::OpType type, std::string_view operation, WorkPointer inner, const WatchedBackend::Watch& watch)
      : Work(rank, type), operation_(operation), inner_(std::move(inner)), watch_(watch) {}

  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  std::vector<at::Tensor> result() override { return inner_->result(); }
  void synchronize() override { inner_->synchronize(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return inner_->getFuture(); }
  uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }
  std::chrono::milliseconds getTimeout() const override { return inner_->getTimeout(); }

  bool wait(std::chrono::milliseconds) override {
    std::exception_ptr misuse;
    watch_.wait(operation_, [&] {
      try {
        inner_->wait(kSlice);
        return true;
      } catch (const c10::Error&) {  // LibTorch's own: the slice is over, or an argument that only the running collective refused.
        if (!inner_->isCompleted()) return false;
        if (inner_->isSuccess()) return true;
        misuse = std::current_exception();
        return true;
      }
    });
    if (misuse) std::rethrow_exception(misuse);
    return true;
  }

 private:
  std::string operation_;
  WorkPointer inner_;
  WatchedBackend::Watch watch_;
};

}  // namespace

WatchedBackend::WatchedBackend(c10::intrusive_ptr<c10d::Backend> inner, Watch watch)
    : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), watch_(std::move(watch)) {}

template <class Start>
WorkPointer WatchedBackend::watched(std::string_view operation, c10d::OpType type, const Start& start) {
  watch_.begin();
  return c10::make_intrusive<WatchedWork>(getRank(), type, operation, start(), watch_);
}

WorkPointer WatchedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return watched("broadcast", c10d::OpType::BROADCAST, [&] { return inner_->broadcast(tensors, options); });
}

WorkPointer WatchedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return watched("all_reduce", c10d::OpType::ALLREDUCE, [&] { return inner_->allreduce(tensors, options); });
}

WorkPointer WatchedBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return watched("all_reduce", c10d::OpType::ALLREDUCE_COALESCED, [&] { return inner_->allreduce_coalesced(tensors, options); });
}

WorkPointer WatchedBackend::all_gather_single(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return watched("all_gather", c10d::OpType::_ALLGATHER_BASE, [&] { return inner_->all_gather_single(output, input, options); });
}

WorkPointer WatchedBackend::all_gather_single_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return watched("all_gather", c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED,
                 [&] { return inner_->all_gather_single_coalesced(outputs, inputs, options); });
}

WorkPointer WatchedBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return watched("all_gather", c10d::OpType::ALLGATHER, [&] { return inner_->allgather(outputs, inputs, options); });
}

WorkPointer WatchedBackend::reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                                  const c10d::ReduceScatterOptions& options) {
  return watched("reduce_scatter", c10d::OpType::_REDUCE_SCATTER_BASE,
                 [&] { return inner_->reduce_scatter_single(output, input, options); });
}

WorkPointer WatchedBackend::reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::ReduceScatterOptions& options) {
  return watched("reduce_scatter", c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                 [&] { return inner_->reduce_scatter_single_coalesced(outputs, inputs, options); });
}

WorkPointer WatchedBackend::all_to_all_single(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_rows,
                                              std::vector<int64_t>& input_rows, const c10d::AllToAllOptions& options) {
  return watched("all_to_all", c10d::OpType::ALLTOALL_BASE,
                 [&] { return inner_->all_to_all_single(output, input, output_rows, input_rows, options); });
}

WorkPointer WatchedBackend::barrier(const c10d::BarrierOptions& options) {
  return watched("barrier", c10d::OpType::BARRIER, [&] { return inner_->barrier(options); });
}

}  // namespace precast
