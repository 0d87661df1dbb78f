#include "capture/identity.h"

namespace precast::capture {

Window window_of(const at::Tensor& tensor) {
  return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.sizes().vec(), tensor.strides().vec(),
          static_cast<int>(tensor.scalar_type()),  tensor.is_conj(),        tensor.is_neg()};
}

void Identity::bind(const at::Tensor& tensor, ir::ValueId value) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impls_.try_emplace(impl, value).second) pinned_impls_.emplace_back(tensor.getIntrusivePtr());
  if (!tensor.has_storage()) return;
  windows_.insert_or_assign(window_of(tensor), value);
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (!pinned_storages_.contains(storage)) pinned_storages_.emplace(storage, WeakStorage(tensor.storage().getWeakStorageImpl()));
}

std::optional<ir::ValueId> Identity::find(const at::Tensor& tensor) const {
  if (const auto known = impls_.find(tensor.unsafeGetTensorImpl()); known != impls_.end()) return known->second;
  if (tensor.has_storage())
    if (const auto known = windows_.find(window_of(tensor)); known != windows_.end()) return known->second;
  return std::nullopt;
}

}  // namespace precast::capture
