#pragma once

#include "precast/options.h"
#include "precast/step.h"

#include <functional>
#include <type_traits>
#include <utility>

namespace precast {
namespace detail {

Artifact precompile(const CallArguments& arguments, const std::function<Flat()>& fn, const Options& options);
std::shared_ptr<StepRunner> load(const Artifact& artifact);

/// fn called once on the example arguments, its result taken apart. A void result is None.
template <class Fn, class... Args>
std::function<Flat()> call_and_flatten(Fn& fn, Args&... args) {
  return [&fn, &args...] {
    if constexpr (std::is_void_v<std::invoke_result_t<Fn&, Args&...>>) {
      std::invoke(fn, args...);
      return Flat{.spec = {}, .leaves = {Leaf()}, .paths = {""}, .unwritable_type = {}};
    } else {
      return flatten<std::remove_cvref_t<std::invoke_result_t<Fn&, Args&...>>>(std::invoke(fn, args...));
    }
  };
}

}  // namespace detail

template <class Fn, class... Args>
using step_result_t = std::remove_cvref_t<std::invoke_result_t<Fn&, Args&...>>;

/// Captures one call of `fn` on the example arguments: forward, loss, and backward if fn runs one. fn is called once, on this
/// thread; values, gradients and random state of everything it touched are put back. Captures of several threads take turns. While
/// one runs, other threads must use neither its tensors nor the default generators. See docs/architecture.md for the seven
/// invariants.
/// @throws std::invalid_argument  unknown backend or tracer.
/// @throws PrecompileError refused_capture  names the tensor or op and says what to do; or it was not this thread's turn by the
/// compile deadline. An exception of fn passes through
/// unchanged.
template <class Fn, class... Args>
Artifact precompile(Fn&& fn, const Options& options, Args&&... args) {
  return detail::precompile(detail::bind_arguments(std::as_const(args)...), detail::call_and_flatten(fn, args...), options);
}

/// Loads a pair, after a warning that it is trusted, executable input: `load<Result>(artifact)`, Result being fn's result type.
/// A cache that cannot be used is reported by one warning, and the text alone is run.
/// @throws PrecompileError invalid_artifact, artifact_mismatch.
template <class Result>
Step<Result> load(const Artifact& artifact) {
  return Step<Result>(detail::load(artifact));
}

}  // namespace precast
