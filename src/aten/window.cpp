#include "aten/window.h"

namespace precast::aten {

Window window_of(const at::Tensor& tensor) {
  return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.sizes().vec(), tensor.strides().vec(),
          static_cast<int>(tensor.scalar_type()),  tensor.is_conj(),        tensor.is_neg()};
}

}  // namespace precast::aten
