#include "comm/mpi/mpi_channel.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace precast {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 30;

MPI_Datatype mpi_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return MPI_FLOAT;
    case at::kDouble: return MPI_DOUBLE;
    case at::kByte: return MPI_UINT8_T;
    case at::kChar: return MPI_INT8_T;
    case at::kShort: return MPI_INT16_T;
    case at::kInt: return MPI_INT32_T;
    case at::kLong: return MPI_INT64_T;
    default: throw std::invalid_argument(fmt::format("MPI cannot reduce tensors of dtype {}", c10::toString(type)));
  }
}

MPI_Op mpi_op(Reduction reduction) {
  switch (reduction) {
    case Reduction::max: return MPI_MAX;
    case Reduction::min: return MPI_MIN;
    case Reduction::avg:  // divided by the caller
    case Reduction::sum: break;
  }
  return MPI_SUM;
}

/// What MPI computes with instead, for dtypes that it lacks.
at::ScalarType reducible(at::ScalarType type) {
  if (type == at::kHalf || type == at::kBFloat16) return at::kFloat;
  if (type == at::kBool) return at::kByte;
  return type;
}

char* bytes_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.data_ptr());
}

/// Calls `piece(start, n)` for consecutive parts of `total` that fit into an int.
template <class Piece>
void in_pieces(std::int64_t total, const Piece& piece) {
  for (std::int64_t start = 0; start < total; start += kMostElements)
    piece(start, static_cast<int>(std::min(kMostElements, total - start)));
}

}  // namespace

void check_mpi(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw PrecompileError(ErrorCode::internal,
                        fmt::format("{} failed: {}", call, std::string_view(text, static_cast<std::size_t>(length))));
}

MpiChannel::MpiChannel(MPI_Comm comm, Wait wait) : comm_(comm), wait_(std::move(wait)) {
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

MpiChannel::~MpiChannel() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && !abandoned_) MPI_Comm_free(&comm_);
}

void MpiChannel::finish(std::string_view operation, MPI_Request request, Deadline deadline) {
  wait_(operation, deadline, [&] {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  });
}

void MpiChannel::broadcast(const at::Tensor& tensor, int root, Deadline deadline) {
  in_pieces(static_cast<std::int64_t>(tensor.nbytes()), [&](std::int64_t start, int n) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibcast(bytes_of(tensor) + start, n, MPI_BYTE, root, comm_, &request), "MPI_Ibcast");
    finish("broadcast", request, deadline);
  });
}

void MpiChannel::reduce(const at::Tensor& tensor, MPI_Op op, std::string_view operation, Deadline deadline) {
  const at::ScalarType type = reducible(tensor.scalar_type());
  const at::Tensor work = tensor.to(type);
  in_pieces(work.numel(), [&](std::int64_t start, int n) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, bytes_of(work) + start * static_cast<std::int64_t>(work.element_size()), n,
                             mpi_type(type), op, comm_, &request),
              "MPI_Iallreduce");
    finish(operation, request, deadline);
  });
  if (type != tensor.scalar_type()) tensor.copy_(work);
}

void MpiChannel::all_reduce(const at::Tensor& tensor, Reduction reduction, Deadline deadline) {
  reduce(tensor, mpi_op(reduction), "all_reduce", deadline);
}

void MpiChannel::multiply(const at::Tensor& tensor, Deadline deadline) {
  reduce(tensor, MPI_PROD, "all_reduce", deadline);
}

void MpiChannel::all_gather(const at::Tensor& output, const at::Tensor& input, Deadline deadline) {
  const auto n_bytes = static_cast<std::int64_t>(input.nbytes());
  if (n_bytes <= kMostElements) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int n = static_cast<int>(n_bytes);
    check_mpi(MPI_Iallgather(bytes_of(input), n, MPI_BYTE, bytes_of(output), n, MPI_BYTE, comm_, &request), "MPI_Iallgather");
    return finish("all_gather", request, deadline);
  }
  // A piece of every rank lies apart in the output.
  const at::Tensor rows = output.view({-1, input.numel()}), flat = input.view({-1});
  constexpr std::int64_t kWidth = kMostElements / 8;
  for (std::int64_t start = 0; start < input.numel(); start += kWidth) {
    const std::int64_t width = std::min(kWidth, input.numel() - start);
    const at::Tensor gathered = at::empty({rows.size(0), width}, output.options());
    all_gather(gathered, flat.narrow(0, start, width), deadline);
    rows.narrow(1, start, width).copy_(gathered);
  }
}

void MpiChannel::reduce_scatter(const at::Tensor& output, const at::Tensor& input, Reduction reduction, Deadline deadline) {
  const at::ScalarType type = reducible(output.scalar_type());
  const at::Tensor in = input.to(type),
                   out = type == output.scalar_type() ? output : at::empty_like(output, at::TensorOptions(type));
  if (out.numel() > kMostElements)
    throw std::invalid_argument("reduce_scatter: a part of more than 2^30 elements; reduce it in pieces");
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ireduce_scatter_block(bytes_of(in), bytes_of(out), static_cast<int>(out.numel()), mpi_type(type), mpi_op(reduction),
                                      comm_, &request),
            "MPI_Ireduce_scatter_block");
  finish("reduce_scatter", request, deadline);
  if (type != output.scalar_type()) output.copy_(out);
}

void MpiChannel::all_to_all(const at::Tensor& output, const std::vector<int>& receive_bytes, const at::Tensor& input,
                            const std::vector<int>& send_bytes, Deadline deadline) {
  const auto displacements = [](const std::vector<int>& counts) {
    std::vector<int> starts(counts.size());
    for (std::size_t i = 1; i < counts.size(); ++i) starts[i] = starts[i - 1] + counts[i - 1];
    return starts;
  };
  const std::vector<int> send_starts = displacements(send_bytes), receive_starts = displacements(receive_bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ialltoallv(bytes_of(input), send_bytes.data(), send_starts.data(), MPI_BYTE, bytes_of(output), receive_bytes.data(),
                           receive_starts.data(), MPI_BYTE, comm_, &request),
            "MPI_Ialltoallv");
  finish("all_to_all", request, deadline);
}

void MpiChannel::barrier(Deadline deadline) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
  finish("barrier", request, deadline);
}

}  // namespace precast
