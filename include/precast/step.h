#pragma once

#include "precast/artifact.h"
#include "precast/pytree.h"

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace precast {
namespace detail {

struct ModuleArgument {
  int position;
  torch::nn::Module* module;
};

/// The arguments of one call, taken apart: modules stay whole, everything else is one tuple of inputs. Borrows the modules.
struct CallArguments {
  int n_positional = 0;
  std::vector<ModuleArgument> modules;
  Flat inputs;                       ///< Its spec is a tuple with one child for each argument that is no module.
  std::vector<int> input_positions;  ///< The argument's position for each child of that tuple.
};

template <class T>
inline constexpr bool is_shared_module = false;
template <class T>
inline constexpr bool is_shared_module<std::shared_ptr<T>> = std::derived_from<T, torch::nn::Module>;

template <class T>
torch::nn::Module* as_module(const T& argument) {
  if constexpr (std::derived_from<T, torch::nn::Module>)
    return const_cast<T*>(&argument);
  else if constexpr (is_shared_module<T>)
    return argument.get();
  else if constexpr (torch::detail::is_module_holder<T>::value)
    return argument.is_empty() ? nullptr : argument.ptr().get();
  else
    return nullptr;
}

template <class T>
inline constexpr bool is_module_argument =
    std::derived_from<T, torch::nn::Module> || is_shared_module<T> || torch::detail::is_module_holder<T>::value;

template <class... Args>
CallArguments bind_arguments(const Args&... args) {
  CallArguments out;
  out.inputs.spec.type = "builtins.tuple";
  const auto bind = [&](const auto& argument) {
    const int position = out.n_positional++;
    using T = std::remove_cvref_t<decltype(argument)>;
    if constexpr (is_module_argument<T>) {
      out.modules.push_back({position, as_module(argument)});
    } else {
      out.input_positions.push_back(position);
      flatten_into(argument, "argument " + std::to_string(position), out.inputs, out.inputs.spec.children.emplace_back());
    }
  };
  (bind(args), ...);
  return out;
}

/// A loaded program and its calling convention. Thread-safe.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  /// Checks the arguments, runs, accumulates gradients, and returns the leaves of fn's result.
  virtual std::vector<Leaf> run(const CallArguments& arguments) = 0;
  [[nodiscard]] virtual const TreeSpec& result_spec() const = 0;
  [[nodiscard]] virtual const Artifact& artifact() const = 0;
};

}  // namespace detail

/// The loaded step: call it as fn was called. Copies share one program; calls from several threads are safe, gradients of one model
/// then sum as under a lock.
template <class Result>
class Step {
 public:
  Step() = default;
  explicit Step(std::shared_ptr<detail::StepRunner> runner) : runner_(std::move(runner)) {}

  /// Runs the program on these arguments: the module(s) at the positions of the capture, the inputs with its structure, shapes and
  /// dtypes. Gradients accumulate on `.grad` of the parameters that got one at capture. Returned tensors do not require grad.
  /// @throws PrecompileError argument_mismatch: names the argument, leaf or parameter, both values; nothing has changed.
  template <class... Args>
  Result operator()(const Args&... args) const {
    const std::vector<Leaf> leaves = runner().run(detail::bind_arguments(args...));
    if constexpr (!std::is_void_v<Result>) return unflatten<Result>(runner().result_spec(), leaves);
  }

  /// The pair this step was loaded from.
  [[nodiscard]] const Artifact& artifact() const { return runner().artifact(); }

 private:
  [[nodiscard]] detail::StepRunner& runner() const {
    if (!runner_)
      throw PrecompileError(ErrorCode::argument_mismatch,
                            "this Step is empty (default-constructed or moved from): assign it from load or compile_on_one_rank");
    return *runner_;
  }
  std::shared_ptr<detail::StepRunner> runner_;
};

}  // namespace precast
