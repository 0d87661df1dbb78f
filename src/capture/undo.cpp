#include "capture/undo.h"

#include "capture/identity.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace precast::capture {
namespace {

/// No user's choice: a seed that fn may set is another.
constexpr std::uint64_t kCaptureSeed = 0x9b1d'5c3e'77a4'210f;

}  // namespace

Undo::~Undo() {
  const at::NoGradGuard no_grad;
  // Inside the fn of another capture this is no step of that one.
  const c10::impl::ExcludeDispatchKeyGuard unrecorded(c10::DispatchKey::Fake);
  for (const Memory& memory : memory_)
    if (window_of(memory.owner) != window_of(memory.alias)) memory.owner.set_data(memory.alias);
  for (auto& [storage, bytes] : storages_) bytes.live.copy_(bytes.copy);
  for (Gradient& gradient : gradients_) gradient.owner.mutable_grad() = std::move(gradient.gradient);
  for (Random& random : random_) {
    const std::lock_guard lock(random.generator.mutex());
    random.generator.set_state(random.state);
  }
}

void Undo::set_gradient_aside(const at::Tensor& tensor) {
  gradients_.push_back({tensor, std::exchange(tensor.mutable_grad(), at::Tensor())});
}

void Undo::set_memory_aside(const at::Tensor& tensor) {
  // Inside the fn of another capture this is no step of that one.
  const c10::impl::ExcludeDispatchKeyGuard unrecorded(c10::DispatchKey::Fake);
  if (tensor.has_storage()) memory_.push_back({tensor, tensor.detach()});
}

at::Tensor Undo::replaced_memory() const {
  const auto found =
      std::ranges::find_if(memory_, [](const Memory& memory) { return window_of(memory.owner) != window_of(memory.alias); });
  return found == memory_.end() ? at::Tensor() : found->owner;
}

void Undo::save_random_state(at::Generator generator) {
  const auto saved = [&](const Random& random) { return random.generator == generator; };
  if (std::ranges::any_of(random_, saved)) return;
  const std::lock_guard lock(generator.mutex());
  at::Tensor state = generator.get_state();
  random_.push_back({generator, std::move(state)});
  generator.set_current_seed(kCaptureSeed);
}

bool Undo::is_reseeded() const {
  return std::ranges::any_of(random_, [](Random random) {
    const std::lock_guard lock(random.generator.mutex());
    return random.generator.current_seed() != kCaptureSeed;
  });
}

void Undo::save_storage(const at::Tensor& tensor) {
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (storages_.contains(storage)) return;
  at::Tensor live = at::empty({0}, tensor.options().dtype(at::kByte).requires_grad(false)).set_(tensor.storage());
  at::Tensor copy = live.clone();
  storages_.emplace(storage, Bytes{std::move(live), std::move(copy)});
}

}  // namespace precast::capture
