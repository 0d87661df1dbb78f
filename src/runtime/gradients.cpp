#include "runtime/gradients.h"

#include "dtensor/tensor/dtensor_data.h"

#include <torch/csrc/autograd/utils/grad_layout_contract.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <utility>

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

at::Tensor own_copy(at::Tensor gradient, const at::Tensor& target) {
  if (owns_its_memory(gradient) && torch::autograd::utils::obeys_layout_contract(gradient, target)) return gradient;
  return torch::autograd::utils::clone_obey_contract(gradient, target);
}

/// The same on the local tensors. The parts of a gradient may lie otherwise than those of its target (a sum that is still to be
/// made).
at::Tensor own_distributed_copy(at::Tensor gradient) {
  const dtensor::DTensorData& dtensor = *dtensor::as_dtensor(gradient);
  if (gradient.use_count() == 1 && dtensor.local().use_count() == 1 && dtensor.local().storage().use_count() == 1) return gradient;
  return dtensor::wrap(dtensor.local().clone(), dtensor.shared_layout(), gradient.sizes());
}

}  // namespace

void accumulate_gradient(const at::Tensor& target, at::Tensor gradient) {
  const std::lock_guard lock(lock_of(target));
  at::Tensor& grad = target.mutable_grad();
  if (grad.defined())
    grad.add_(gradient);
  else
    grad = dtensor::as_dtensor(gradient) != nullptr ? own_distributed_copy(std::move(gradient))
                                                    : own_copy(std::move(gradient), target);
}

}  // namespace precast::runtime
