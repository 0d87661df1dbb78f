#include "runtime/reduced_gradients.h"

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace precast::runtime {
namespace {

// A weak reference pins the address, so that a later tensor is never taken for this one.
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
struct Reduced {
  WeakTensor tensor;
  std::uint32_t version;
};

// Gradients belong to no object of ours that could carry this: eager backward makes them as well as a Step.
struct Register {
  std::mutex mutex;
  std::unordered_map<const c10::TensorImpl*, Reduced> entries;
};

Register& reduced() {
  static Register instance;
  return instance;
}

}  // namespace

bool is_reduced(const at::Tensor& gradient) {
  const std::lock_guard lock(reduced().mutex);
  const auto entry = reduced().entries.find(gradient.unsafeGetTensorImpl());
  return entry != reduced().entries.end() && entry->second.version == gradient._version();
}

void mark_reduced(const at::Tensor& gradient) {
  const std::lock_guard lock(reduced().mutex);
  std::erase_if(reduced().entries, [](const auto& entry) { return entry.second.tensor.expired(); });
  reduced().entries.insert_or_assign(
      gradient.unsafeGetTensorImpl(),
      Reduced{.tensor = WeakTensor(gradient.getIntrusivePtr()), .version = static_cast<std::uint32_t>(gradient._version())});
}

}  // namespace precast::runtime
