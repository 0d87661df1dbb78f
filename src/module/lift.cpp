#include "module/lift.h"

#include "precast/error.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_map>

namespace precast::module {
namespace {

std::string join(std::string_view prefix, std::string_view name) {
  return prefix.empty() ? std::string(name) : fmt::format("{}.{}", prefix, name);
}

// named_modules() would need a module that a shared_ptr owns; a caller may pass one from the stack.
template <class Visit>
void visit_modules(torch::nn::Module& module, const std::string& name, const Visit& visit) {
  visit(module, name);
  for (const auto& child : module.named_children()) visit_modules(*child.value(), join(name, child.key()), visit);
}

template <class Visit>
void visit_modules(const Modules& modules, const Visit& visit) {
  for (const detail::ModuleArgument& argument : modules)
    if (argument.module == nullptr)
      throw PrecompileError(ErrorCode::argument_mismatch,
                            fmt::format("argument {}: expected a module, found an empty pointer", argument.position));
  for (std::size_t i = 0; i < modules.size(); ++i)
    visit_modules(*modules[i].module, modules.size() > 1 ? fmt::format("m{}", i) : std::string(), visit);
}

/// Visits parameters (or buffers) under every name they have.
template <class Visit>
void visit_tensors(const Modules& modules, bool buffers, const Visit& visit) {
  visit_modules(modules, [&](const torch::nn::Module& module, const std::string& name) {
    for (const auto& entry : buffers ? module.named_buffers(false) : module.named_parameters(false))
      visit(join(name, entry.key()), entry.value());
  });
}

using FirstNames = std::unordered_map<const at::TensorImpl*, std::string>;

std::vector<LiftedTensor> lift(const Modules& modules, bool buffers, FirstNames& seen, std::vector<Tie>* ties = nullptr) {
  std::vector<LiftedTensor> lifted;
  visit_tensors(modules, buffers, [&](std::string name, const at::Tensor& tensor) {
    const auto [first, is_new] = seen.try_emplace(tensor.unsafeGetTensorImpl(), name);
    if (is_new)
      lifted.push_back({std::move(name), tensor});
    else if (ties != nullptr)
      ties->push_back({std::move(name), first->second});
  });
  return lifted;
}

}  // namespace

std::vector<LiftedTensor> lift_parameters(const Modules& modules) {
  FirstNames seen;
  return lift(modules, /*buffers=*/false, seen);
}

std::vector<LiftedTensor> lift_buffers(const Modules& modules, const std::vector<LiftedTensor>& parameters) {
  FirstNames seen;
  for (const LiftedTensor& parameter : parameters) seen.emplace(parameter.tensor.unsafeGetTensorImpl(), parameter.name);
  return lift(modules, /*buffers=*/true, seen);
}

std::vector<Tie> find_ties(const Modules& modules) {
  FirstNames seen;
  std::vector<Tie> ties;
  lift(modules, /*buffers=*/false, seen, &ties);
  lift(modules, /*buffers=*/true, seen, &ties);
  return ties;
}

std::vector<TrainingMode> training_modes(const Modules& modules) {
  std::vector<TrainingMode> modes;
  visit_modules(modules, [&](torch::nn::Module& module, const std::string& name) {
    modes.push_back({.name = name, .training = module.is_training(), .module = &module});
  });
  return modes;
}

}  // namespace precast::module
