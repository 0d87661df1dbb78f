#include "runtime/equal_values.h"

#include "artifact/archive.h"
#include "artifact/sha256.h"
#include "dtensor/tensor/dtensor_data.h"
#include "module/lift.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace precast::runtime {
namespace {

/// A tensor's digest, and which part of the whole it is: ranks that hold the same part must hold the same values.
struct Held {
  std::string part;  ///< Coordinates on the mesh dimensions that shard it; empty for a plain tensor.
  std::string digest;
};

std::string digest_of(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor bytes = tensor.detach().to(at::kCPU).contiguous();
  return artifact::sha256(std::span(static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()));
}

Held held(const at::Tensor& tensor) {
  const dtensor::DTensorData* dtensor = dtensor::as_dtensor(tensor);
  if (dtensor == nullptr) return {"", digest_of(tensor)};
  const DeviceMesh& mesh = dtensor->layout().mesh;
  const Placements& placements = dtensor->layout().placements;
  std::string part;
  for (int m = 0; m < mesh.ndim(); ++m)
    if (std::holds_alternative<Shard>(placements[static_cast<std::size_t>(m)]))
      part += fmt::format("{}={} ", mesh.group_name(m), mesh.coordinate(m));
  return {part, digest_of(dtensor->local())};
}

std::vector<Held> read(const std::vector<std::byte>& bytes) {
  artifact::ArchiveReader reader({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  std::vector<Held> all;
  while (reader.left() > 0) {
    std::string part = reader.text();
    all.push_back({std::move(part), reader.text()});
  }
  return all;
}

}  // namespace

Verdict compare_values(const Communicator& comm, const detail::CallArguments& arguments, Deadline deadline) {
  std::vector<module::LiftedTensor> tensors = module::lift_parameters(arguments.modules);
  const std::size_t n_parameters = tensors.size();
  for (module::LiftedTensor& buffer : module::lift_buffers(arguments.modules, tensors)) tensors.push_back(std::move(buffer));
  artifact::ArchiveWriter mine;
  for (const module::LiftedTensor& tensor : tensors) {
    const auto [part, digest] = held(tensor.tensor);
    mine.text(part);
    mine.text(digest);
  }
  const std::string text = mine.bytes();
  std::vector<std::vector<Held>> by_rank;
  for (const auto& bytes : comm.all_gather(std::as_bytes(std::span(text)), deadline)) by_rank.push_back(read(bytes));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::map<std::string, std::pair<std::size_t, std::string>> first;  // by part: the rank that holds it first, and its digest
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      const Held& here = by_rank[rank].at(i);
      const auto [holder, is_new] = first.try_emplace(here.part, rank, here.digest);
      if (is_new || holder->second.second == here.digest) continue;
      return {ErrorCode::rank_mismatch,
              fmt::format(
                  "rank {} of {}, first step: {} '{}' holds other values than on rank {}; call broadcast_module before the first "
                  "step (and before distribute_module)",
                  rank, comm.size(), i < n_parameters ? "parameter" : "buffer", tensors[i].name, holder->second.first)};
    }
  }
  return {};
}

}  // namespace precast::runtime
