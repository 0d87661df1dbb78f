#include "runtime/gradients.h"

#include <torch/csrc/autograd/utils/grad_layout_contract.h>

#include <array>
#include <cstdint>
#include <mutex>

namespace precast::runtime {
namespace {

/// Locks by tensor: one model may be trained through several Steps at once, and different models should not wait for each other. A
/// collision costs time only. One lock is held at a time.
std::mutex& lock_of(const at::Tensor& target) {
  static std::array<std::mutex, 64> locks;
  constexpr std::size_t kTensorImplBytes = 64;  // addresses of tensors differ by at least about this
  return locks[reinterpret_cast<std::uintptr_t>(target.unsafeGetTensorImpl()) / kTensorImplBytes % locks.size()];
}

bool owns_its_memory(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1;
}

}  // namespace

void accumulate_gradient(const at::Tensor& target, at::Tensor gradient) {
  const std::lock_guard lock(lock_of(target));
  at::Tensor& grad = target.mutable_grad();
  if (grad.defined())
    grad.add_(gradient);
  else if (owns_its_memory(gradient) && torch::autograd::utils::obeys_layout_contract(gradient, target))
    grad = std::move(gradient);
  else
    grad = torch::autograd::utils::clone_obey_contract(gradient, target);
}

}  // namespace precast::runtime
