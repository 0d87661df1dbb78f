#include "capture/interposer.h"

#include "precast/error.h"

#include <c10/core/DispatchKey.h>

namespace precast::capture {
namespace {

// Thread-local like the key's inclusion. The key travels to threads that LibTorch starts for this one, this pointer does not: a
// call there is passed on unrecorded. Backward runs on the calling thread, since capture switches autograd's own threads off.
thread_local OpHandler* current = nullptr;

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
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
          "capture needs the dispatch key Fake, and another library of this process has a fallback on it; capture in a "
          "process without that library");
    return dispatcher.registerFallback(c10::DispatchKey::Fake, c10::KernelFunction::makeFromBoxedFunction<&fallback>(),
                                       "precast capture");
  }();
}

}  // namespace

CaptureScope::CaptureScope(OpHandler& handler) : outer_((ensure_registered(), current)), include_(c10::DispatchKey::Fake) {
  current = &handler;
}

CaptureScope::~CaptureScope() {
  current = outer_;
}

}  // namespace precast::capture
