#include "runtime/equal_values.h"

#include "artifact/sha256.h"
#include "module/lift.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace precast::runtime {
namespace {

constexpr std::size_t kDigestLength = 64;

std::string digest_of(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor bytes = tensor.detach().to(at::kCPU).contiguous();
  return artifact::sha256(std::span(static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()));
}

}  // namespace

Verdict compare_values(const Communicator& comm, const detail::CallArguments& arguments, Deadline deadline) {
  std::vector<module::LiftedTensor> tensors = module::lift_parameters(arguments.modules);
  const std::size_t n_parameters = tensors.size();
  for (module::LiftedTensor& buffer : module::lift_buffers(arguments.modules, tensors)) tensors.push_back(std::move(buffer));
  std::string mine;
  for (const module::LiftedTensor& tensor : tensors) mine += digest_of(tensor.tensor);
  const auto all = comm.all_gather(std::as_bytes(std::span(mine)), deadline);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      const auto part = [i](const std::vector<std::byte>& digests) {
        return std::span(digests).subspan(std::min(i * kDigestLength, digests.size()),
                                          std::min(kDigestLength, digests.size() - std::min(i * kDigestLength, digests.size())));
      };
      if (std::ranges::equal(part(all[rank]), part(all[0]))) continue;
      return {
          ErrorCode::rank_mismatch,
          fmt::format(
              "rank {} of {}, first step: {} '{}' holds other values than on rank 0; call broadcast_module before the first step",
              rank, comm.size(), i < n_parameters ? "parameter" : "buffer", tensors[i].name)};
    }
  }
  return {};
}

}  // namespace precast::runtime
