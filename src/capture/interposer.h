#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>

namespace precast::capture {

/// Receives every ATen call of a thread while a CaptureScope is open there.
class OpHandler {
 public:
  virtual ~OpHandler() = default;
  /// Called with the op's arguments on the stack. Runs the op through `run` (or answers in its place) and leaves the results.
  virtual void handle(const c10::OperatorHandle& op, torch::jit::Stack& stack, const std::function<void()>& run) = 0;
};

/// Sends this thread's ATen calls, below autograd, to `handler` until the scope ends. Scopes nest: the innermost receives.
///
/// The way in is a boxed fallback on DispatchKey::Fake, which core leaves free and which lies between the autograd keys and the
/// backends: the handler sees what autograd calls, forward and backward, and never an autograd node.
/// @throws PrecompileError environment  the key is taken by another library.
class CaptureScope {
 public:
  explicit CaptureScope(OpHandler& handler);
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  OpHandler* outer_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace precast::capture
