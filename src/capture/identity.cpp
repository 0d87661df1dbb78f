#include "capture/identity.h"

#include <algorithm>

namespace precast::capture {

void Identity::bind(const at::Tensor& tensor, ir::ValueId value) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto window = tensor.has_storage() ? std::optional(window_of(tensor)) : std::nullopt;
  const auto [bound, is_new] = impls_.try_emplace(impl, Bound{value, window});
  if (is_new)
    pinned_impls_.emplace_back(tensor.getIntrusivePtr());
  else if (bound->second.window != window)
    bound->second = {value, window};
  if (!window) return;
  windows_.insert_or_assign(*window, value);
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (!pinned_storages_.contains(storage)) pinned_storages_.emplace(storage, WeakStorage(tensor.storage().getWeakStorageImpl()));
}

bool Identity::is_alone(const at::Tensor& tensor) const {
  const auto value = find(tensor);
  for (const auto& [impl, bound] : impls_)
    if (impl != tensor.unsafeGetTensorImpl() && bound.value == *value && is_alive(impl)) return false;
  return true;
}

bool Identity::is_alive(const c10::TensorImpl* impl) const {
  return std::ranges::any_of(pinned_impls_, [&](const WeakTensor& pinned) {
    const auto tensor = pinned.lock();
    return tensor && tensor.get() == impl;
  });
}

std::optional<ir::ValueId> Identity::find(const at::Tensor& tensor) const {
  const auto window = tensor.has_storage() ? std::optional(window_of(tensor)) : std::nullopt;
  const auto bound = impls_.find(tensor.unsafeGetTensorImpl());
  if (bound != impls_.end() && bound->second.window == window) return bound->second.value;
  if (window)
    if (const auto known = windows_.find(*window); known != windows_.end()) return known->second;
  return std::nullopt;
}

}  // namespace precast::capture
