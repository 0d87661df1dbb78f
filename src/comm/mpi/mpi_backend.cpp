#include "comm/mpi/mpi_backend.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <climits>
#include <numeric>
#include <stdexcept>

namespace precast {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

class DoneWork final : public c10d::Work {
 public:
  DoneWork(int rank, c10d::OpType type, Tensors results) : Work(rank, type), results_(std::move(results)) { finish(); }
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(results_));
    return future;
  }

 private:
  Tensors results_;
};

c10d::ReduceOp::RedOpType kind(const c10d::ReduceOp& op) {
  return static_cast<c10d::ReduceOp::RedOpType>(op);
}

/// An average is a sum, divided later.
Reduction reduction(const c10d::ReduceOp& op) {
  switch (kind(op)) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::AVG: return Reduction::sum;
    case c10d::ReduceOp::MAX: return Reduction::max;
    case c10d::ReduceOp::MIN: return Reduction::min;
    default: throw std::invalid_argument("MPI group: expected a reduction by sum, avg, max or min (all_reduce: also product)");
  }
}

/// An average of whole numbers is cut off, as Gloo does it.
void average(const at::Tensor& tensor, const c10d::ReduceOp& op, int size) {
  if (kind(op) != c10d::ReduceOp::AVG) return;
  if (at::isIntegralType(tensor.scalar_type(), true))
    tensor.div_(size, "trunc");
  else
    tensor.div_(size);
}

void put_back(const at::Tensor& tensor, const at::Tensor& flat) {
  if (!flat.is_same(tensor)) tensor.copy_(flat);
}

void expect_elements(const char* operation, int64_t found, int64_t expected) {
  if (found != expected)
    throw std::invalid_argument(
        fmt::format("{} over MPI: expected {} elements on the larger side, found {}", operation, expected, found));
}

}  // namespace

MpiBackend::MpiBackend(int rank, int size, MpiChannel& channel, std::function<void()> begin, std::chrono::milliseconds time)
    : Backend(rank, size), channel_(channel), begin_(std::move(begin)), time_(time) {}

Deadline MpiBackend::start(std::chrono::milliseconds time) const {
  begin_();
  return after(time.count() > 0 ? time : time_);
}

WorkPointer MpiBackend::done(c10d::OpType type, Tensors results) const {
  return c10::make_intrusive<DoneWork>(getRank(), type, std::move(results));
}

WorkPointer MpiBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor flat = tensor.contiguous();
    channel_.broadcast(flat, static_cast<int>(options.rootRank), start(options.timeout));
    put_back(tensor, flat);
  }
  return done(c10d::OpType::BROADCAST, tensors);
}

WorkPointer MpiBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor flat = tensor.contiguous();
    if (kind(options.reduceOp) == c10d::ReduceOp::PRODUCT)
      channel_.multiply(flat, start(options.timeout));
    else
      channel_.all_reduce(flat, reduction(options.reduceOp), start(options.timeout));
    average(flat, options.reduceOp, getSize());
    put_back(tensor, flat);
  }
  return done(c10d::OpType::ALLREDUCE, tensors);
}

WorkPointer MpiBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return allreduce(tensors, options);
}

WorkPointer MpiBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  expect_elements("all_gather", output.numel(), input.numel() * getSize());
  const at::Tensor flat = output.contiguous();
  channel_.all_gather(flat, input.contiguous(), start(options.timeout));
  put_back(output, flat);
  return done(c10d::OpType::_ALLGATHER_BASE, {output});
}

WorkPointer MpiBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    at::Tensor all = at::empty({getSize(), inputs[i].numel()}, inputs[i].options());
    _allgather_base(all, inputs[i], options);
    for (int rank = 0; rank < getSize(); ++rank)
      outputs[i][static_cast<std::size_t>(rank)].copy_(all[rank].view(inputs[i].sizes()));
  }
  return done(c10d::OpType::ALLGATHER, {});
}

WorkPointer MpiBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  for (std::size_t i = 0; i < inputs.size(); ++i) _allgather_base(outputs[i], inputs[i], options);
  return done(c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED, outputs);
}

WorkPointer MpiBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  expect_elements("reduce_scatter", input.numel(), output.numel() * getSize());
  const at::Tensor flat = output.contiguous();
  channel_.reduce_scatter(flat, input.contiguous(), reduction(options.reduceOp), start(options.timeout));
  average(flat, options.reduceOp, getSize());
  put_back(output, flat);
  return done(c10d::OpType::_REDUCE_SCATTER_BASE, {output});
}

WorkPointer MpiBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                        const c10d::ReduceScatterOptions& options) {
  for (std::size_t i = 0; i < inputs.size(); ++i) _reduce_scatter_base(outputs[i], inputs[i], options);
  return done(c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, outputs);
}

WorkPointer MpiBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_rows,
                                      std::vector<int64_t>& input_rows, const c10d::AllToAllOptions& options) {
  const std::vector<int> receive_bytes = bytes_by_rank(output, output_rows), send_bytes = bytes_by_rank(input, input_rows);
  const at::Tensor flat = output.contiguous();
  channel_.all_to_all(flat, receive_bytes, input.contiguous(), send_bytes, start(options.timeout));
  put_back(output, flat);
  return done(c10d::OpType::ALLTOALL_BASE, {output});
}

WorkPointer MpiBackend::barrier(const c10d::BarrierOptions& options) {
  channel_.barrier(start(options.timeout));
  return done(c10d::OpType::BARRIER, {});
}

std::vector<int> MpiBackend::bytes_by_rank(const at::Tensor& tensor, const std::vector<int64_t>& rows) const {
  const auto size = static_cast<std::size_t>(getSize());
  const auto n_bytes = static_cast<int64_t>(tensor.nbytes());
  if (n_bytes > INT_MAX) throw std::invalid_argument("all_to_all over MPI: expected at most 2 GiB on a rank; send it in parts");
  if (rows.empty()) {
    if (tensor.numel() % getSize() != 0)
      throw std::invalid_argument(
          fmt::format("all_to_all over MPI: {} elements do not divide among {} ranks", tensor.numel(), size));
    return std::vector<int>(size, static_cast<int>(n_bytes / getSize()));
  }
  const int64_t n_rows = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  if (rows.size() != size || n_rows != tensor.size(0))
    throw std::invalid_argument(fmt::format("all_to_all over MPI: expected {} splits of {} rows, found {} of {}", size,
                                            tensor.size(0), rows.size(), n_rows));
  std::vector<int> bytes;
  for (const int64_t n : rows) bytes.push_back(n_rows == 0 ? 0 : static_cast<int>(n * (n_bytes / n_rows)));
  return bytes;
}

}  // namespace precast
