#pragma once

#include "dtensor/tensor/layout.h"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <utility>
#include <vector>

namespace precast::dtensor {

/// What makes a tensor a DTensor: this rank's part of it, and where the parts lie. The tensor around it has the global sizes and
/// strides, the keys of a plain tensor, and DispatchKey::Fake, which lies below autograd: autograd records on the outer tensor, and
/// what it then calls comes to this room (operators.h). It has no storage; asking for it throws.
///
/// It hangs on a TensorImpl as backend metadata instead of deriving from it. So whatever copies a tensor's metadata copies it too
/// (detach, data(), saved variables), and set_data turns a parameter into a DTensor in place, under every name that a module holds
/// it by.
class DTensorData final : public c10::BackendMeta {
 public:
  DTensorData(at::Tensor local, SharedLayout layout) : local_(std::move(local)), layout_(std::move(layout)) {}

  [[nodiscard]] const at::Tensor& local() const noexcept { return local_; }
  [[nodiscard]] const Layout& layout() const noexcept { return *layout_; }
  [[nodiscard]] const SharedLayout& shared_layout() const noexcept { return layout_; }

 private:
  at::Tensor local_;
  SharedLayout layout_;
};

/// The data of a DTensor, or null for a plain tensor.
[[nodiscard]] inline const DTensorData* as_dtensor(const at::Tensor& tensor) noexcept {
  // Of the tensors of a process that has Precast's fallback on this key, only these have it.
  if (!tensor.defined() || !tensor.key_set().has(c10::DispatchKey::Fake)) return nullptr;
  return static_cast<const DTensorData*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
}

/// Strides of a dense tensor of `sizes` whose dimensions lie in memory in the order of `like`; broadcast dimensions (stride 0) stay
/// so.
std::vector<std::int64_t> strides_like(at::IntArrayRef sizes, at::IntArrayRef like_sizes, at::IntArrayRef like);

/// A DTensor around `local`, without autograd history; its global strides are in the order of the local ones where all parts are
/// equal, else contiguous.
at::Tensor wrap(const at::Tensor& local, SharedLayout layout, at::IntArrayRef global_sizes);

}  // namespace precast::dtensor
