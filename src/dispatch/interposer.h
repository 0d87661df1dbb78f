#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>

namespace precast::dispatch {

/// Receives every ATen call of a thread while a RecordingScope is open there.
class OpHandler {
 public:
  virtual ~OpHandler() = default;
  /// Called with the op's arguments on the stack. Runs the op through `run` (or answers in its place) and leaves the results.
  virtual void handle(const c10::OperatorHandle& op, torch::jit::Stack& stack, const std::function<void()>& run) = 0;
};

/// Sends this thread's ATen calls, below autograd, to `handler` until the scope ends. Scopes nest: the innermost receives. A call
/// that has a DTensor among its arguments goes to the handler of distributed operators first, and what that calls on local tensors
/// comes here.
///
/// The way in is a boxed fallback on DispatchKey::Fake, which core leaves free and which lies between the autograd keys and the
/// backends: the handler sees what autograd calls, forward and backward, and never an autograd node. LibTorch takes one fallback
/// for a key, so capture and DTensor share this one.
/// @throws PrecompileError environment  the key is taken by another library.
class RecordingScope {
 public:
  explicit RecordingScope(OpHandler& handler);
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  OpHandler* outer_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

/// Whether this thread's calls are being recorded, so that nothing that differs from rank to rank may be read as a C++ number.
[[nodiscard]] bool is_recording();

/// A call with a DTensor among its arguments: runs it and leaves the results.
using DTensorHandler = void (*)(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// For the whole process, at the first DTensor. @throws PrecompileError environment  as RecordingScope.
void set_dtensor_handler(DTensorHandler handler);

}  // namespace precast::dispatch
