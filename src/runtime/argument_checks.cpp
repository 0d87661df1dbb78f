#include "runtime/argument_checks.h"

#include "aten/window.h"
#include "dtensor/tensor/dtensor_data.h"
#include "precast/error.h"
#include "runtime/describe.h"
#include "runtime/distributed_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace precast::runtime {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw PrecompileError(ErrorCode::argument_mismatch, "step: " + what);
}

void check_count(const ir::Metadata& captured, const detail::CallArguments& call) {
  if (call.n_positional != captured.num_positional_args)
    refuse(fmt::format("expected {} arguments (as captured), found {}; call it as fn was called", captured.num_positional_args,
                       call.n_positional));
}

void check_module_positions(const ir::Metadata& captured, const detail::CallArguments& call) {
  for (int position = 0; position < call.n_positional; ++position) {
    const bool expected = std::ranges::find(captured.module_positions, position) != captured.module_positions.end();
    const auto found = std::ranges::find(call.modules, position, &detail::ModuleArgument::position);
    if (expected != (found != call.modules.end()))
      refuse(fmt::format("argument {}: expected {} (as captured), found {}; modules were at positions {}, pass them there",
                         position, expected ? "a module" : "an input", expected ? "an input" : "a module",
                         describe(captured.module_positions)));
    if (expected && found->module == nullptr)
      refuse(fmt::format("argument {}: expected a module (as captured), found an empty pointer", position));
  }
}

void check_structure(const ir::Metadata& captured, const Flat& inputs) {
  if (captured.in_spec && inputs.unwritable_type.empty() && *captured.in_spec != inputs.spec)
    refuse(
        fmt::format("expected inputs of structure {} (as captured), found structure {}; nest them as at capture or compile again",
                    describe(*captured.in_spec), describe(inputs.spec)));
  if (inputs.leaves.size() != captured.inputs.size())
    refuse(fmt::format("expected {} input leaves (as captured), found {}; pass as many tensors and values as at capture",
                       captured.inputs.size(), inputs.leaves.size()));
}

/// Shape, dtype, device and layout of one tensor; `what` names it.
class TensorCheck {
 public:
  TensorCheck(std::string what, const at::Tensor& tensor) : what_(std::move(what)), tensor_(tensor) {
    if (tensor_.layout() != c10::Layout::Strided)
      fail("layout", "strided", describe(tensor_.layout()), "convert it to a dense tensor");
  }

  void shape(const std::vector<std::optional<std::int64_t>>& expected) const {
    const at::IntArrayRef found = tensor_.sizes();
    const auto fits = [](std::optional<std::int64_t> wanted, std::int64_t size) { return !wanted || *wanted == size; };
    if (!std::ranges::equal(expected, found, fits))
      fail("shape", describe(expected), describe(found), "give it the captured shape or compile again");
  }
  void dtype(const std::string& expected) const {
    const std::string found = dtype_name(tensor_.scalar_type());
    if (found != expected) fail("dtype", expected, found, "convert it or compile again");
  }
  /// The index is not compared: a rank's own accelerator counts as the captured one.
  void device(const std::string& expected) const {
    const std::string found = device_name(tensor_.device());
    if (found != expected) fail("device", expected, found, "move it there or compile again");
  }

 private:
  [[noreturn]] void fail(std::string_view property, const std::string& expected, const std::string& found,
                         std::string_view advice) const {
    refuse(fmt::format("{}: expected {} {} (as captured), found {}; {}", what_, property, expected, found, advice));
  }

  std::string what_;
  const at::Tensor& tensor_;
};

/// Compares how a tensor lies with the capture, and returns what the program works on: its local tensor, or the tensor itself.
const at::Tensor& check_distribution(const ir::Metadata& captured, int flat_index, const std::string& what,
                                     const at::Tensor& tensor) {
  const auto expected = std::ranges::find(captured.input_dtensors, flat_index, &ir::DTensorMeta::index);
  const dtensor::DTensorData* found = dtensor::as_dtensor(tensor);
  if (expected == captured.input_dtensors.end()) {
    if (found != nullptr)
      refuse(fmt::format(
          "{}: expected a plain tensor (as captured), found a DTensor laid out as {}; pass what was captured or compile "
          "again",
          what, to_string(found->layout().placements)));
    return tensor;
  }
  const std::string placements = fmt::format("[{}]", fmt::join(expected->placements, ", "));
  if (found == nullptr)
    refuse(fmt::format("{}: expected a DTensor laid out as {} (as captured), found a plain tensor; distribute it as at capture",
                       what, placements));
  const ir::MeshMeta& mesh = *std::ranges::find(captured.meshes, expected->mesh, &ir::MeshMeta::name);
  const MeshLayout& live = found->layout().mesh.layout();
  const MeshLayout captured_mesh{.name = mesh.name, .dim_names = mesh.dim_names, .shape = mesh.shape};
  if (live != captured_mesh)
    refuse(fmt::format("{}: expected to lie on {} (as captured), found {}; use a mesh of that shape or compile again", what,
                       to_string(captured_mesh), to_string(live)));
  for (std::size_t m = 0; m < expected->placements.size(); ++m) {
    const std::string placement = to_string(found->layout().placements[m]);
    if (placement != expected->placements[m])
      refuse(fmt::format(
          "{}: on mesh dimension '{}': expected {} (as captured), found {}; distribute it as at capture or compile again", what,
          mesh.dim_names[m], expected->placements[m], placement));
  }
  if (!std::ranges::equal(expected->global_shape, tensor.sizes()))
    refuse(fmt::format("{}: expected global shape {} (as captured), found {}; give it the captured shape or compile again", what,
                       describe(at::IntArrayRef(expected->global_shape)), describe(tensor.sizes())));
  return found->local();
}

std::string leaf_name(std::size_t index, const std::string& path) {
  return path.empty() ? fmt::format("input leaf {}", index) : fmt::format("input leaf {} ({})", index, path);
}

void check_tensor_leaf(const ir::Metadata& metadata, std::size_t index, const Leaf& leaf, const std::string& name) {
  const ir::InputMeta& captured = metadata.inputs[index];
  const at::Tensor* tensor = std::get_if<at::Tensor>(&leaf);
  if (tensor == nullptr || !tensor->defined())
    refuse(fmt::format("{}: expected a tensor of shape {} (as captured), found {}; pass a tensor", name, describe(*captured.shape),
                       describe(leaf)));
  const std::size_t flat_index = metadata.params.size() + metadata.buffers.size() + index;
  const TensorCheck check(name, check_distribution(metadata, static_cast<int>(flat_index), name, *tensor));
  check.shape(*captured.shape);
  if (captured.dtype) check.dtype(*captured.dtype);
  if (captured.device) check.device(*captured.device);
}

void check_plain_leaf(const ir::InputMeta& captured, const Leaf& leaf, const std::string& name) {
  const bool is_tensor = std::holds_alternative<at::Tensor>(leaf) && std::get<at::Tensor>(leaf).defined();
  if (captured.is_generator) {
    if (!std::holds_alternative<at::Generator>(leaf))
      refuse(fmt::format("{}: expected a generator (as captured), found {}; pass one", name, describe(leaf)));
  } else if (captured.value) {
    if (!is_same_value(leaf, *captured.value))
      refuse(fmt::format(
          "{}: expected {} (as captured), found {}; the value is part of the program, so pass the captured one or compile again",
          name, describe(*captured.value), describe(leaf)));
  } else if (is_tensor) {
    refuse(fmt::format("{}: expected a plain value (as captured), found {}", name, describe(leaf)));
  }
}

void check_leaves(const ir::Metadata& captured, const Flat& inputs) {
  for (std::size_t i = 0; i < inputs.leaves.size(); ++i) {
    const std::string name = leaf_name(i, inputs.paths[i]);
    if (captured.inputs[i].shape)
      check_tensor_leaf(captured, i, inputs.leaves[i], name);
    else
      check_plain_leaf(captured.inputs[i], inputs.leaves[i], name);
  }
}

/// A tensor or generator among the flat inputs of the program, with the name a message gives it.
struct FlatInput {
  std::string name;
  at::Tensor tensor;
  at::Generator generator;
};

/// Whether two inputs are one value for a program: the same object, or tensors that look at the same memory in the same way.
bool are_one(const FlatInput& a, const FlatInput& b) {
  if (a.generator.defined() || b.generator.defined()) return a.generator == b.generator;
  if (a.tensor.is_same(b.tensor)) return true;
  if (!a.tensor.defined() || !b.tensor.defined()) return false;
  const at::Tensor &mine = local_tensor(a.tensor), &other = local_tensor(b.tensor);
  return mine.has_storage() && other.has_storage() && aten::window_of(mine) == aten::window_of(other);
}

std::vector<FlatInput> flat_inputs(const CheckedModules& modules, const Flat& inputs) {
  std::vector<FlatInput> flat;
  for (const auto* lifted : {&modules.parameters, &modules.buffers})
    for (const module::LiftedTensor& tensor : *lifted)
      flat.push_back({.name = fmt::format("'{}'", tensor.name), .tensor = tensor.tensor, .generator = {}});
  for (std::size_t i = 0; i < inputs.leaves.size(); ++i) {
    const at::Tensor* tensor = std::get_if<at::Tensor>(&inputs.leaves[i]);
    const at::Generator* generator = std::get_if<at::Generator>(&inputs.leaves[i]);
    flat.push_back({.name = leaf_name(i, inputs.paths[i]),
                    .tensor = tensor != nullptr ? *tensor : at::Tensor(),
                    .generator = generator != nullptr ? *generator : at::Generator()});
  }
  return flat;
}

/// One tensor (or generator) passed twice is one value of the program: it must be one again. The other way round only gradients
/// would differ: eager sums what both uses give.
void check_aliases(const ir::Metadata& captured, const CheckedModules& modules, const Flat& inputs) {
  const std::size_t n_lifted = modules.parameters.size() + modules.buffers.size();
  if (modules.parameters.size() != captured.params.size() || modules.buffers.size() != captured.buffers.size()) return;
  const std::vector<FlatInput> flat = flat_inputs(modules, inputs);
  const std::set<std::pair<int, int>> recorded(captured.input_aliases.begin(), captured.input_aliases.end());
  for (const auto& [i, j] : recorded)
    if (const FlatInput& first = flat.at(static_cast<std::size_t>(i)), &second = flat.at(static_cast<std::size_t>(j));
        !are_one(first, second)) {
      const std::string_view kind = first.generator.defined() ? "generator" : "tensor";
      refuse(fmt::format("expected {} and {} to be one {} (as captured), found two; pass the same {} for both or compile again",
                         first.name, second.name, kind, kind));
    }

  std::vector<int> with_gradient = captured.grad_param_indices;
  for (const int leaf : captured.grad_input_indices) with_gradient.push_back(static_cast<int>(n_lifted) + leaf);
  for (const int i : with_gradient)
    for (int j = static_cast<int>(n_lifted); j < static_cast<int>(flat.size()); ++j) {
      const FlatInput& target = flat.at(static_cast<std::size_t>(i));
      const FlatInput& leaf = flat[static_cast<std::size_t>(j)];
      if (i != j && target.tensor.is_same(leaf.tensor) && !recorded.contains({std::min(i, j), std::max(i, j)}))
        refuse(fmt::format(
            "expected {} and {} to be two tensors (as captured), found one; its gradient would be incomplete: pass two or "
            "compile again",
            target.name, leaf.name));
    }
}

/// What is known about a name that stands on one side only.
std::string tie_note(const module::Modules& modules, const std::string& expected, const std::string& found) {
  for (const module::Tie& tie : module::find_ties(modules))
    if (tie.name == expected)
      return fmt::format("; '{}' is now tied to '{}', which it was not at capture", tie.name, tie.first_name);
  return found.empty() ? "" : fmt::format("; if '{}' was tied to another tensor at capture, tie it again", found);
}

void check_names(std::string_view kind, const std::vector<ir::TensorMeta>& captured, const std::vector<module::LiftedTensor>& found,
                 const module::Modules& modules) {
  const std::size_t n = std::max(captured.size(), found.size());
  for (std::size_t i = 0; i < n; ++i) {
    const std::string expected_name = i < captured.size() ? captured[i].name : "";
    const std::string found_name = i < found.size() ? found[i].name : "";
    if (expected_name == found_name) continue;
    const auto quoted = [](const std::string& name) { return name.empty() ? std::string("none") : "'" + name + "'"; };
    refuse(fmt::format(
        "{} {}: expected {} (as captured, {} in all), found {} ({} in all){}; give the model the captured structure or compile "
        "again",
        kind, i, quoted(expected_name), captured.size(), quoted(found_name), found.size(),
        tie_note(modules, expected_name, found_name)));
  }
}

void check_tensors(std::string_view kind, const ir::Metadata& metadata, const std::vector<ir::TensorMeta>& captured,
                   const std::vector<module::LiftedTensor>& found, std::size_t first_index) {
  for (std::size_t i = 0; i < captured.size(); ++i) {
    const std::string name = fmt::format("{} '{}'", kind, captured[i].name);
    const TensorCheck check(name, check_distribution(metadata, static_cast<int>(first_index + i), name, found[i].tensor));
    check.shape({captured[i].shape.begin(), captured[i].shape.end()});
    check.dtype(captured[i].dtype);
    check.device(captured[i].device);
  }
}

void check_training(const ir::Metadata& captured, const module::Modules& modules) {
  if (captured.module_training.empty()) return;  // an artifact captured in Python
  const std::vector<module::TrainingMode> found = module::training_modes(modules);
  const auto mode = [](bool training) { return training ? "training" : "evaluation"; };
  const auto name = [](const std::string& name) { return name.empty() ? std::string("module argument") : "module '" + name + "'"; };
  for (std::size_t i = 0; i < std::min(found.size(), captured.module_training.size()); ++i) {
    const ir::ModuleMode& expected = captured.module_training[i];
    if (expected.name != found[i].name)
      refuse(fmt::format("expected {} (as captured), found {}; give the model the captured structure or compile again",
                         name(expected.name), name(found[i].name)));
    if (expected.training != found[i].training)
      refuse(fmt::format("{}: expected {} mode (as captured), found {} mode; call {} on it or compile again", name(expected.name),
                         mode(expected.training), mode(found[i].training), expected.training ? "train()" : "eval()"));
  }
  if (found.size() != captured.module_training.size())
    refuse(fmt::format("expected {} modules (as captured), found {}; give the model the captured structure or compile again",
                       captured.module_training.size(), found.size()));
}

}  // namespace

CheckedModules check_arguments(const ir::Metadata& captured, const detail::CallArguments& call) {
  check_count(captured, call);
  check_module_positions(captured, call);
  check_structure(captured, call.inputs);
  check_leaves(captured, call.inputs);
  CheckedModules modules;
  modules.parameters = module::lift_parameters(call.modules);
  modules.buffers = module::lift_buffers(call.modules, modules.parameters);
  check_aliases(captured, modules, call.inputs);
  check_names("parameter", captured.params, modules.parameters, call.modules);
  check_names("buffer", captured.buffers, modules.buffers, call.modules);
  check_tensors("parameter", captured, captured.params, modules.parameters, 0);
  check_tensors("buffer", captured, captured.buffers, modules.buffers, modules.parameters.size());
  check_training(captured, call.modules);
  return modules;
}

}  // namespace precast::runtime
