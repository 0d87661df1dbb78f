#pragma once

#include "precast/communicator.h"

#include <ATen/core/Tensor.h>
#include <mpi.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace precast {

/// Waits until `done` says so: ConnectedTransport::wait_for among the ranks of one communicator.
using Wait = std::function<void(std::string_view operation, Deadline deadline, const std::function<bool()>& done)>;

/// MPI's collectives on contiguous CPU tensors, each started without blocking and waited for by `wait`, since MPI itself knows no
/// time-out. Counts beyond an int go in pieces. half and bfloat16, which MPI lacks, are reduced as float.
class MpiChannel {
 public:
  /// Takes over `comm`, whose errors it makes returned ones.
  MpiChannel(MPI_Comm comm, Wait wait);
  ~MpiChannel();
  MpiChannel(const MpiChannel&) = delete;
  MpiChannel& operator=(const MpiChannel&) = delete;

  void broadcast(const at::Tensor& tensor, int root, Deadline deadline);
  void all_reduce(const at::Tensor& tensor, Reduction reduction, Deadline deadline);
  void multiply(const at::Tensor& tensor, Deadline deadline);  ///< All-reduce by product.
  void all_gather(const at::Tensor& output, const at::Tensor& input, Deadline deadline);
  /// `output` is rank r's r-th part of the reduced `input`, along its first dimension.
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, Reduction reduction, Deadline deadline);
  /// Bytes by rank, each with its displacement.
  void all_to_all(const at::Tensor& output, const std::vector<int>& receive_bytes, const at::Tensor& input,
                  const std::vector<int>& send_bytes, Deadline deadline);
  void barrier(Deadline deadline);

  /// The communicator is not freed: a collective of it never ended.
  void abandon() noexcept { abandoned_ = true; }

 private:
  void reduce(const at::Tensor& tensor, MPI_Op op, std::string_view operation, Deadline deadline);
  void finish(std::string_view operation, MPI_Request request, Deadline deadline);

  MPI_Comm comm_;
  Wait wait_;
  bool abandoned_ = false;
};

/// @throws PrecompileError internal, with MPI's own words, unless `code` is MPI_SUCCESS.
void check_mpi(int code, std::string_view call);

}  // namespace precast
