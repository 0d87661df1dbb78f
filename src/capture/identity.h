#pragma once

#include "aten/window.h"
#include "ir/program.h"

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

namespace precast::capture {

using aten::Window;
using aten::window_of;

/// Which value of the program a tensor is. A value is known by the address of its TensorImpl while that looks at the same window
/// and, when that fails, by its window: autograd hands saved tensors back as new TensorImpls over the same storage, C++ factories
/// re-wrap their result, and set_data gives a TensorImpl another window.
///
/// Only weak references are kept: they pin the addresses, so that none is used again, and let the memory of a value go when the
/// step itself lets it go.
class Identity {
 public:
  void bind(const at::Tensor& tensor, ir::ValueId value);
  [[nodiscard]] std::optional<ir::ValueId> find(const at::Tensor& tensor) const;
  /// Whether no other living tensor is the same value.
  [[nodiscard]] bool is_alone(const at::Tensor& tensor) const;

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  [[nodiscard]] bool is_alive(const c10::TensorImpl* impl) const;

  struct Bound {
    ir::ValueId value;
    std::optional<Window> window;  ///< None: no storage.
  };
  std::unordered_map<const c10::TensorImpl*, Bound> impls_;
  std::map<Window, ir::ValueId> windows_;
  std::vector<WeakTensor> pinned_impls_;
  std::unordered_map<const c10::StorageImpl*, WeakStorage> pinned_storages_;
};

}  // namespace precast::capture
