#include "runtime/step_runner.h"

#include "backends/eager/executor.h"
#include "dtensor/tensor/dtensor_data.h"
#include "precast/error.h"
#include "runtime/argument_checks.h"
#include "runtime/distributed_values.h"
#include "runtime/gradients.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

namespace precast::runtime {
namespace {

using c10::IValue;

[[noreturn]] void invalid(const std::string& what) {
  throw PrecompileError(ErrorCode::invalid_artifact, "python_code: " + what);
}

void check_indices(std::string_view name, const std::vector<int>& indices, std::size_t size) {
  for (const int index : indices)
    if (index < 0 || static_cast<std::size_t>(index) >= size)
      invalid(fmt::format("{}: expected indices below {}, found {}", name, size, index));
}

/// The executor checks the program; what only the calling convention needs is checked here.
const ir::Program& checked(const ir::Program& program) {
  const ir::Metadata& metadata = program.metadata;
  const std::size_t n_lifted = metadata.params.size() + metadata.buffers.size();
  check_indices("GRAD_PARAM_INDICES", metadata.grad_param_indices, n_lifted);
  check_indices("GRAD_INPUT_INDICES", metadata.grad_input_indices, metadata.inputs.size());
  for (const int index : metadata.grad_input_indices)
    if (!metadata.inputs[static_cast<std::size_t>(index)].shape)
      invalid(fmt::format("GRAD_INPUT_INDICES: input leaf {} is no tensor", index));
  for (const auto& [i, j] : metadata.input_aliases) check_indices("INPUT_ALIASES", {i, j}, n_lifted + metadata.inputs.size());
  const std::size_t n_outputs =
      metadata.out_spec.count_leaves() + metadata.grad_param_indices.size() + metadata.grad_input_indices.size();
  if (program.outputs.size() != n_outputs)
    invalid(fmt::format("expected {} outputs (leaves of OUT_SPEC and gradients), found {}", n_outputs, program.outputs.size()));
  return program;
}

IValue to_ivalue(const Leaf& leaf) {
  return std::visit(
      [](const auto& value) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::monostate>)
          return IValue();
        else
          return IValue(value);
      },
      leaf);
}

Leaf to_leaf(IValue value) {
  if (value.isNone()) return {};
  if (value.isTensor()) return std::move(value).toTensor();
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) return value.toDouble();
  if (value.isString()) return value.toStringRef();
  if (value.isGenerator()) return value.toGenerator();
  throw PrecompileError(ErrorCode::invalid_artifact,
                        "step: a result leaf is " + value.tagKind() + ", expected a tensor or a plain value");
}

std::vector<IValue> flat_inputs(const CheckedModules& modules, const std::vector<Leaf>& leaves) {
  std::vector<IValue> inputs;
  inputs.reserve(modules.parameters.size() + modules.buffers.size() + leaves.size());
  for (const auto* lifted : {&modules.parameters, &modules.buffers})
    for (const module::LiftedTensor& tensor : *lifted) inputs.emplace_back(local_tensor(tensor.tensor));
  for (const Leaf& leaf : leaves) {
    const at::Tensor* tensor = std::get_if<at::Tensor>(&leaf);
    inputs.push_back(tensor != nullptr ? IValue(local_tensor(*tensor)) : to_ivalue(leaf));
  }
  return inputs;
}

/// The tensors whose `.grad` the trailing outputs go to, in their order.
std::vector<at::Tensor> gradient_targets(const ir::Metadata& metadata, const CheckedModules& modules,
                                         const std::vector<Leaf>& leaves) {
  std::vector<at::Tensor> targets;
  for (const int i : metadata.grad_param_indices) {
    const auto index = static_cast<std::size_t>(i);
    const std::size_t n_parameters = modules.parameters.size();
    targets.push_back(index < n_parameters ? modules.parameters[index].tensor : modules.buffers[index - n_parameters].tensor);
  }
  for (const int i : metadata.grad_input_indices) targets.push_back(std::get<at::Tensor>(leaves[static_cast<std::size_t>(i)]));
  return targets;
}

void accumulate(const std::vector<at::Tensor>& targets, std::span<IValue> gradients) {
  std::optional<c10::InferenceMode> no_inference;
  if (c10::InferenceMode::is_enabled()) no_inference.emplace(false);
  const c10::AutoGradMode no_grad(false);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (gradients[i].isNone()) continue;
    at::Tensor gradient = std::move(gradients[i]).toTensor();
    if (gradient.defined()) accumulate_gradient(targets[i], std::move(gradient));
  }
}

}  // namespace

ProgramRunner::ProgramRunner(Artifact artifact, const ir::Program& program)
    : ProgramRunner(std::move(artifact), program, std::make_unique<eager::Executor>(checked(program))) {}

ProgramRunner::ProgramRunner(Artifact artifact, const ir::Program& program, std::unique_ptr<const Engine> engine)
    : artifact_(std::move(artifact)), metadata_(checked(program).metadata), engine_(std::move(engine)) {}

std::vector<Leaf> ProgramRunner::run(const detail::CallArguments& arguments) {
  const CheckedModules modules = check_arguments(metadata_, arguments);
  const std::vector<Leaf>& leaves = arguments.inputs.leaves;
  std::vector<IValue> inputs = flat_inputs(modules, leaves);
  const Meshes meshes = live_meshes(metadata_, modules, leaves);
  for (at::Tensor& coordinate : meshes.coordinates(metadata_.mesh_inputs)) inputs.emplace_back(std::move(coordinate));
  std::vector<IValue> outputs = engine_->run(std::move(inputs));
  for (const ir::DTensorMeta& output : metadata_.output_dtensors) {
    IValue& value = outputs[static_cast<std::size_t>(output.index)];
    if (value.isTensor()) value = meshes.wrap(output, value.toTensor());
  }
  // The results still hold what they share with a gradient, so that such a gradient is copied.
  const std::size_t n_results = metadata_.out_spec.count_leaves();
  accumulate(gradient_targets(metadata_, modules, leaves), std::span(outputs).subspan(n_results));
  std::vector<Leaf> results;
  results.reserve(n_results);
  for (std::size_t i = 0; i < n_results; ++i) results.push_back(to_leaf(std::move(outputs[i])));
  return results;
}

}  // namespace precast::runtime
