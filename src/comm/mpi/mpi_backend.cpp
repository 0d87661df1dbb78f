#include "comm/mpi/mpi_backend.h"

#include <ATen/core/ivalue.h>
#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace precast {
namespace {

/// A collective that has already ended.
class DoneWork final : public c10d::Work {
 public:
  DoneWork(int rank, c10d::OpType type, std::vector<at::Tensor> outputs) : Work(rank, type), outputs_(std::move(outputs)) {
    finish();
  }
  bool wait(std::chrono::milliseconds) override { return true; }
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
    future->markCompleted(outputs_);
    return future;
  }

 private:
  std::vector<at::Tensor> outputs_;
};

MpiBackend::Work done(int rank, c10d::OpType type, std::vector<at::Tensor> outputs) {
  return c10::make_intrusive<DoneWork>(rank, type, std::move(outputs));
}

void expect_cpu(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu())
    throw std::invalid_argument(fmt::format("collectives over MPI take CPU tensors, found one on {}", tensor.device().str()));
}

/// The part of a reduction that MPI does; an average is a sum, divided afterwards.
Reduction reduction_of(const c10d::ReduceOp& op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::AVG: return Reduction::sum;
    case c10d::ReduceOp::MAX: return Reduction::max;
    case c10d::ReduceOp::MIN: return Reduction::min;
    default: throw std::invalid_argument("collectives over MPI reduce by sum, avg, max and min, and all_reduce by product too");
  }
}

std::vector<int> bytes_by_rank(const at::Tensor& tensor, const std::vector<std::int64_t>& splits, int size) {
  std::vector<int> bytes;
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const std::int64_t row_bytes = rows == 0 ? 0 : static_cast<std::int64_t>(tensor.nbytes()) / rows;
  for (int rank = 0; rank < size; ++rank)
    bytes.push_back(static_cast<int>(row_bytes * (splits.empty() ? rows / size : splits[static_cast<std::size_t>(rank)])));
  return bytes;
}

}  // namespace

MpiBackend::MpiBackend(int rank, int size, MpiChannel& channel, std::function<void()> begin, std::chrono::milliseconds deadline)
    : Backend(rank, size), channel_(channel), begin_(std::move(begin)), deadline_(deadline) {}

MpiBackend::Work MpiBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  begin_();
  for (const at::Tensor& tensor : tensors) {
    expect_cpu(tensor);
    const at::Tensor here = tensor.contiguous();
    channel_.broadcast(here, static_cast<int>(options.rootRank), deadline());
    if (!here.is_same(tensor)) tensor.copy_(here);
  }
  return done(rank_, c10d::OpType::BROADCAST, tensors);
}

void MpiBackend::all_reduce_one(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  expect_cpu(tensor);
  const at::Tensor here = tensor.contiguous();
  if (op == c10d::ReduceOp::PRODUCT)
    channel_.multiply(here, deadline());
  else
    channel_.all_reduce(here, reduction_of(op), deadline());
  if (op == c10d::ReduceOp::AVG) here.div_(size_);
  if (!here.is_same(tensor)) tensor.copy_(here);
}

MpiBackend::Work MpiBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  begin_();
  for (const at::Tensor& tensor : tensors) all_reduce_one(tensor, options.reduceOp);
  return done(rank_, c10d::OpType::ALLREDUCE, tensors);
}

MpiBackend::Work MpiBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return allreduce(tensors, options);
}

MpiBackend::Work MpiBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) {
  begin_();
  expect_cpu(input);
  channel_.all_gather(output, input.contiguous(), deadline());
  return done(rank_, c10d::OpType::_ALLGATHER_BASE, {output});
}

MpiBackend::Work MpiBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                             const c10d::AllgatherOptions& options) {
  for (std::size_t i = 0; i < inputs.size(); ++i) _allgather_base(outputs[i], inputs[i], options);
  return done(rank_, c10d::OpType::COALESCED, outputs);
}

MpiBackend::Work MpiBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions&) {
  begin_();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    expect_cpu(inputs[i]);
    const at::Tensor all = inputs[i].new_empty({size_, inputs[i].numel()});
    channel_.all_gather(all, inputs[i].contiguous(), deadline());
    for (int rank = 0; rank < size_; ++rank) outputs[i][static_cast<std::size_t>(rank)].copy_(all[rank].view_as(inputs[i]));
  }
  return done(rank_, c10d::OpType::ALLGATHER, outputs.empty() ? Tensors() : outputs.front());
}

void MpiBackend::reduce_scatter_one(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) {
  expect_cpu(input);
  channel_.reduce_scatter(output, input.contiguous(), reduction_of(op), deadline());
  if (op == c10d::ReduceOp::AVG) output.div_(size_);
}

MpiBackend::Work MpiBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::ReduceScatterOptions& options) {
  begin_();
  reduce_scatter_one(output, input, options.reduceOp);
  return done(rank_, c10d::OpType::_REDUCE_SCATTER_BASE, {output});
}

MpiBackend::Work MpiBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                             const c10d::ReduceScatterOptions& options) {
  begin_();
  for (std::size_t i = 0; i < inputs.size(); ++i) reduce_scatter_one(outputs[i], inputs[i], options.reduceOp);
  return done(rank_, c10d::OpType::COALESCED, outputs);
}

MpiBackend::Work MpiBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                                           std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions&) {
  begin_();
  expect_cpu(input);
  const at::Tensor in = input.contiguous();
  channel_.all_to_all(output, bytes_by_rank(output, output_splits, size_), in, bytes_by_rank(in, input_splits, size_), deadline());
  return done(rank_, c10d::OpType::ALLTOALL_BASE, {output});
}

MpiBackend::Work MpiBackend::barrier(const c10d::BarrierOptions&) {
  begin_();
  channel_.barrier(deadline());
  return done(rank_, c10d::OpType::BARRIER, {});
}

}  // namespace precast
