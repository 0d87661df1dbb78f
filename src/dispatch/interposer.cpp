#include "dispatch/interposer.h"

#include "precast/error.h"

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKey.h>

#include <algorithm>
#include <atomic>

namespace precast::dispatch {
namespace {

// Thread-local like the key's inclusion. The key travels to threads that LibTorch starts for this one, this pointer does not: a
// call there is passed on unrecorded. Backward runs on the calling thread, since capture switches autograd's own threads off.
thread_local OpHandler* current = nullptr;

std::atomic<DTensorHandler> dtensor_handler = nullptr;

bool has_dtensor(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() && value.toTensor().key_set().has(c10::DispatchKey::Fake);
  return value.isList() && std::ranges::any_of(value.toListRef(), has_dtensor);
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (const DTensorHandler handler = dtensor_handler; handler != nullptr) {
    const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
    if (std::ranges::any_of(arguments, has_dtensor)) return handler(op, *stack);
  }
  const c10::impl::ExcludeDispatchKeyGuard off(c10::DispatchKey::Fake);  // kernels dispatch again: their calls are not the step's
  const auto run = [&] {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Fake), stack);
  };
  if (current == nullptr) return run();
  current->handle(op, *stack, run);
}

// Registered at first use, so that a process that only loads and runs leaves the dispatcher alone.
void ensure_registered() {
  static const c10::RegistrationHandleRAII registration = [] {
    auto& dispatcher = c10::Dispatcher::singleton();
    if (dispatcher.hasBackendFallbackForDispatchKey(c10::DispatchKey::Fake))
      throw PrecompileError(
          ErrorCode::environment,
          "capture and DTensor need the dispatch key Fake, and another library of this process has a fallback on it; use a "
          "process without that library");
    return dispatcher.registerFallback(c10::DispatchKey::Fake, c10::KernelFunction::makeFromBoxedFunction<&fallback>(), "precast");
  }();
}

}  // namespace

RecordingScope::RecordingScope(OpHandler& handler) : outer_((ensure_registered(), current)), include_(c10::DispatchKey::Fake) {
  current = &handler;
}

RecordingScope::~RecordingScope() {
  current = outer_;
}

bool is_recording() {
  if (current == nullptr) return false;
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  return keys.included_.has(c10::DispatchKey::Fake) && !keys.excluded_.has(c10::DispatchKey::Fake);
}

void set_dtensor_handler(DTensorHandler handler) {
  ensure_registered();
  dtensor_handler = handler;
}

}  // namespace precast::dispatch
