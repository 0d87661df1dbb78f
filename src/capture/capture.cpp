#include "capture/capture.h"

#include "aten/names.h"
#include "capture/operands.h"
#include "capture/recorder.h"
#include "capture/undo.h"
#include "dtensor/tensor/dtensor_data.h"
#include "module/lift.h"
#include "precast/device_mesh.h"
#include "precast/error.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace precast::capture {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw PrecompileError(ErrorCode::refused_capture, text);
}

void check_layout(const at::Tensor& tensor, const std::string& what) {
  if (const std::string layout = aten::unusual_layout(tensor); !layout.empty())
    refuse(fmt::format("{} has layout {}; only dense strided tensors can be captured: convert it before the step", what, layout));
  if (tensor.is_inference())
    refuse(fmt::format(
        "{} was made under InferenceMode, so no backward can be captured through it; make it outside of InferenceMode", what));
}

/// A tensor among the flat inputs of the program.
struct TensorInput {
  at::Tensor tensor;
  at::Tensor local;  ///< The tensor itself, unless it is a DTensor.
  int flat_index;
};

ir::DTensorMeta describe_dtensor(int index, const at::Tensor& tensor, const dtensor::Layout& layout) {
  ir::DTensorMeta meta{.index = index, .mesh = layout.mesh.layout().name, .placements = {}, .global_shape = tensor.sizes().vec()};
  for (const Placement& placement : layout.placements) meta.placements.push_back(to_string(placement));
  return meta;
}

/// The flat inputs of one capture, and what the metadata says of them.
class Inputs {
 public:
  Inputs(const detail::CallArguments& arguments, Recorder& recorder, ir::Metadata& metadata)
      : recorder_(recorder), metadata_(metadata) {
    parameters_ = module::lift_parameters(arguments.modules);
    buffers_ = module::lift_buffers(arguments.modules, parameters_);
    for (const module::LiftedTensor& parameter : parameters_)
      add_lifted(parameter, "parameter", InputKind::parameter, metadata.params);
    for (const module::LiftedTensor& buffer : buffers_) add_lifted(buffer, "buffer", InputKind::buffer, metadata.buffers);
    for (std::size_t i = 0; i < arguments.inputs.leaves.size(); ++i)
      add_leaf(arguments.inputs.leaves[i], arguments.inputs.paths[i]);
    metadata.input_aliases = aliases();
    add_meshes();
  }

  [[nodiscard]] const std::vector<module::LiftedTensor>& parameters() const { return parameters_; }
  [[nodiscard]] const std::vector<module::LiftedTensor>& buffers() const { return buffers_; }
  [[nodiscard]] const std::vector<TensorInput>& tensors() const { return tensors_; }
  [[nodiscard]] std::string name_of(const at::Tensor& local) const {
    const auto input = std::ranges::find_if(tensors_, [&](const TensorInput& in) { return in.local.is_same(local); });
    const auto i = static_cast<std::size_t>(input->flat_index);
    if (i < parameters_.size()) return fmt::format("parameter '{}'", parameters_[i].name);
    if (i < parameters_.size() + buffers_.size()) return fmt::format("buffer '{}'", buffers_[i - parameters_.size()].name);
    return fmt::format("input leaf {}", i - parameters_.size() - buffers_.size());
  }
  /// Two inputs that look at one memory are one value of the program, and can have only one gradient.
  void check_one_gradient(const at::Tensor& tensor, int flat_index, const std::string& path) const {
    const auto is_it = [&](const TensorInput& in) { return in.flat_index < flat_index && in.tensor.is_same(tensor); };
    if (std::ranges::any_of(tensors_, is_it)) return;
    refuse(fmt::format("{} shares its memory with another input and has a gradient of its own; pass a copy (clone)", path));
  }
  [[nodiscard]] int first_leaf() const { return static_cast<int>(parameters_.size() + buffers_.size()); }

 private:
  void add_lifted(const module::LiftedTensor& lifted, const char* what, InputKind kind, std::vector<ir::TensorMeta>& metas) {
    check_layout(lifted.tensor, fmt::format("{} '{}'", what, lifted.name));
    const at::Tensor& local = note_layout(lifted.tensor);
    metas.push_back({.name = lifted.name,
                     .shape = local.sizes().vec(),
                     .dtype = aten::dtype_name(local.scalar_type()),
                     .device = aten::device_name(local.device()),
                     .strides = local.strides().vec()});
    tensors_.push_back({lifted.tensor, local, next_++});
    recorder_.add_tensor_input(local, lifted.name, lifted.name, kind);
    recorder_.protect_gradient(lifted.tensor, fmt::format("{} '{}'", what, lifted.name));
  }

  /// What the program works on: the tensor itself, or the local tensor of a DTensor, which is then noted in the metadata.
  const at::Tensor& note_layout(const at::Tensor& tensor) {
    const dtensor::DTensorData* dtensor = dtensor::as_dtensor(tensor);
    if (dtensor == nullptr) return tensor;
    metadata_.input_dtensors.push_back(describe_dtensor(next_, tensor, dtensor->layout()));
    const DeviceMesh& mesh = dtensor->layout().mesh;
    if (std::ranges::find(meshes_, mesh) == meshes_.end()) meshes_.push_back(mesh);
    return dtensor->local();
  }

  /// The coordinates of the rank on each mesh dimension, from which the program finds what differs from rank to rank.
  void add_meshes() {
    for (const DeviceMesh& mesh : meshes_) {
      const MeshLayout& layout = mesh.layout();
      metadata_.meshes.push_back({layout.name, layout.dim_names, layout.shape});
      for (int m = 0; m < mesh.ndim(); ++m) {
        metadata_.mesh_inputs.push_back(mesh.group_name(m));
        recorder_.add_group(mesh.group_name(m), mesh.size(m));
        recorder_.add_tensor_input(mesh.coordinate_tensor(m), mesh.group_name(m), mesh.group_name(m), InputKind::user);
      }
    }
  }

  void add_leaf(const Leaf& leaf, const std::string& path) {
    ir::InputMeta meta;
    meta.path = path;
    const std::string wanted = path.starts_with("argument ") ? "arg" + path.substr(9) : path;
    if (const auto* tensor = std::get_if<at::Tensor>(&leaf); tensor != nullptr && tensor->defined()) {
      check_layout(*tensor, fmt::format("input leaf {} ({})", metadata_.inputs.size(), path));
      if (tensor->requires_grad() && !tensor->is_leaf())
        refuse(fmt::format(
            "input leaf {} ({}) requires grad and was computed outside of the step, whose backward would reach what it was "
            "computed from; pass it detached",
            metadata_.inputs.size(), path));
      const at::Tensor& local = note_layout(*tensor);
      meta.shape.emplace(local.sizes().begin(), local.sizes().end());
      meta.dtype = aten::dtype_name(local.scalar_type());
      meta.device = aten::device_name(local.device());
      meta.strides = local.strides().vec();
      tensors_.push_back({*tensor, local, next_});
      recorder_.add_tensor_input(local, wanted, path, InputKind::user);
      if (tensor->is_leaf() && tensor->requires_grad()) recorder_.protect_gradient(*tensor, path);
    } else if (const auto* generator = std::get_if<at::Generator>(&leaf)) {
      if (!generator->defined())
        refuse(fmt::format("input leaf {} ({}) is an undefined generator; pass one", metadata_.inputs.size(), path));
      meta.is_generator = true;
      recorder_.add_generator_input(*generator, wanted);
      const auto [first, is_new] = generators_.try_emplace(generator->unsafeGetGeneratorImpl(), next_);
      if (!is_new) generator_aliases_.emplace_back(first->second, next_);
    } else {
      meta.value = plain_literal(leaf);
      recorder_.add_plain_input(wanted);
    }
    ++next_;
    metadata_.inputs.push_back(std::move(meta));
  }

  static ir::Literal plain_literal(const Leaf& leaf) {
    if (const auto* value = std::get_if<bool>(&leaf)) return {*value};
    if (const auto* value = std::get_if<std::int64_t>(&leaf)) return {*value};
    if (const auto* value = std::get_if<double>(&leaf)) return {*value};
    if (const auto* value = std::get_if<std::string>(&leaf)) return {*value};
    return {ir::None{}};
  }

  /// Inputs that look at the same memory in the same way have one name in the program, so that they must be one at run time too;
  /// generators likewise.
  [[nodiscard]] std::vector<std::pair<int, int>> aliases() const {
    std::map<Window, int> first;
    std::vector<std::pair<int, int>> pairs = generator_aliases_;
    for (const TensorInput& input : tensors_) {
      if (!input.local.has_storage() || input.local.numel() == 0) continue;
      const auto [entry, is_new] = first.try_emplace(window_of(input.local), input.flat_index);
      if (!is_new) pairs.emplace_back(entry->second, input.flat_index);
    }
    return pairs;
  }

  Recorder& recorder_;
  ir::Metadata& metadata_;
  std::vector<module::LiftedTensor> parameters_;
  std::vector<module::LiftedTensor> buffers_;
  std::vector<TensorInput> tensors_;
  std::map<const c10::GeneratorImpl*, int> generators_;
  std::vector<std::pair<int, int>> generator_aliases_;
  std::vector<DeviceMesh> meshes_;
  int next_ = 0;
};

/// What fn may set on modules and tensors that is no part of a program: whether modules train, whether inputs require grad. Put
/// back at the end.
class Flags {
 public:
  Flags(const module::Modules& modules, const Inputs& inputs) : modes_(module::training_modes(modules)), inputs_(inputs) {
    for (const TensorInput& input : inputs.tensors()) requires_grad_.push_back(input.tensor.requires_grad());
  }
  ~Flags() {
    for (const module::TrainingMode& mode : modes_)  // parents first: train() goes down
      if (mode.module->is_training() != mode.training) mode.module->train(mode.training);
    for (std::size_t i = 0; i < requires_grad_.size(); ++i) put_back(inputs_.tensors()[i].tensor, requires_grad_[i]);
  }
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  void refuse_changes() const {
    for (const module::TrainingMode& mode : modes_)
      if (mode.module->is_training() != mode.training)
        refuse(fmt::format("fn calls {} on {}, which a captured program would not repeat; set the mode before the step",
                           mode.training ? "eval()" : "train()",
                           mode.name.empty() ? std::string("its module argument") : "module '" + mode.name + "'"));
    for (std::size_t i = 0; i < requires_grad_.size(); ++i) {
      const TensorInput& input = inputs_.tensors()[i];
      if (input.tensor.is_leaf() && input.tensor.requires_grad() != requires_grad_[i])
        refuse(fmt::format("fn sets requires_grad of {}, which a captured program would not repeat; set it before the step",
                           inputs_.name_of(input.local)));
    }
  }

 private:
  /// A tensor that fn wrote something into that requires grad hangs on the graph of that.
  static void put_back(const at::Tensor& tensor, bool requires_grad) {
    if (tensor.requires_grad() == requires_grad) return;
    if (!tensor.is_leaf()) tensor.detach_();
    tensor.requires_grad_(requires_grad);
  }

  std::vector<module::TrainingMode> modes_;
  const Inputs& inputs_;
  std::vector<bool> requires_grad_;
};

void save_random_states(Undo& undo, const detail::CallArguments& arguments, const Inputs& inputs) {
  for (const Leaf& leaf : arguments.inputs.leaves)
    if (const auto* generator = std::get_if<at::Generator>(&leaf)) undo.save_random_state(*generator);
  std::vector<at::Device> devices = {at::Device(at::kCPU)};
  for (const TensorInput& input : inputs.tensors())
    if (std::ranges::find(devices, input.tensor.device()) == devices.end()) devices.push_back(input.tensor.device());
  for (const at::Device device : devices) undo.save_random_state(at::globalContext().defaultGenerator(device));
}

/// fn under the recorder, with gradients recorded and everything the caller had switched on left as it was.
Flat run_recorded(const std::function<Flat()>& fn, Recorder& recorder) {
  const at::AutoGradMode grad_mode(true);
  struct SingleThreadedBackward {
    bool before = c10::AutogradState::get_tls_state().get_multithreading_enabled();
    SingleThreadedBackward() { c10::AutogradState::get_tls_state().set_multithreading_enabled(false); }
    ~SingleThreadedBackward() { c10::AutogradState::get_tls_state().set_multithreading_enabled(before); }
  } const single_threaded;
  struct FreshAutocastCache {  // a weight cast before the capture would be an unknown tensor, one cast during it a stale one
                               // afterwards
    FreshAutocastCache() { at::autocast::clear_cache(); }
    ~FreshAutocastCache() { at::autocast::clear_cache(); }
  } const fresh_cache;
  try {
    const dispatch::RecordingScope scope(recorder);
    Flat result = fn();
    recorder.rethrow_refusal();
    return result;
  } catch (const c10::Error& error) {
    recorder.rethrow_refusal();
    const std::string text = error.what_without_backtrace();
    const std::size_t mark = text.find(kHostReadMark);
    if (mark == std::string::npos) throw;
    refuse(text.substr(mark + kHostReadMark.size()));
  } catch (
      ...) {  // not swallowed: a refusal that fn wrapped into an exception of its own comes out as the refusal, all else passes
    recorder.rethrow_refusal();
    throw;
  }
}

/// The outputs of one capture, and what the metadata says of those that are DTensors.
class Outputs {
 public:
  Outputs(const Recorder& recorder, ir::Metadata& metadata) : recorder_(recorder), metadata_(metadata) {}

  void add(ir::Operand operand) { operands_.push_back(std::move(operand)); }
  void add(const at::Tensor& tensor, const std::string& what) {
    const dtensor::DTensorData* dtensor = dtensor::as_dtensor(tensor);
    if (dtensor != nullptr)
      metadata_.output_dtensors.push_back(describe_dtensor(static_cast<int>(operands_.size()), tensor, dtensor->layout()));
    operands_.push_back(recorder_.output_operand(dtensor != nullptr ? dtensor->local() : tensor, what));
  }
  [[nodiscard]] std::vector<ir::Operand> take() { return std::move(operands_); }

 private:
  const Recorder& recorder_;
  ir::Metadata& metadata_;
  std::vector<ir::Operand> operands_;
};

void add_result(const Leaf& leaf, const std::string& path, const Recorder& recorder, Outputs& outputs) {
  const std::string what = fmt::format("the result{}", path);
  if (const auto* tensor = std::get_if<at::Tensor>(&leaf)) {
    recorder.check_no_gradient(*tensor, what);
    return outputs.add(*tensor, what);
  }
  if (std::holds_alternative<at::Generator>(leaf)) refuse(what + " is a generator; return tensors and plain values only");
  outputs.add(std::visit(
      [](const auto& value) -> ir::Operand {
        using T = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>)
          return {value};
        else
          return {ir::None{}};
      },
      leaf));
}

/// The gradients that fn left, as outputs of the program. Reads `.grad`, which held nothing before.
void add_gradients(const Inputs& inputs, const detail::CallArguments& arguments, const Options& options, Outputs& outputs,
                   ir::Metadata& metadata) {
  for (std::size_t i = 0; i < inputs.parameters().size(); ++i) {
    const at::Tensor& gradient = inputs.parameters()[i].tensor.grad();
    if (!gradient.defined()) continue;
    metadata.grad_param_indices.push_back(static_cast<int>(i));
    outputs.add(gradient, fmt::format("the gradient of parameter '{}'", inputs.parameters()[i].name));
  }
  for (const module::LiftedTensor& buffer : inputs.buffers())
    if (buffer.tensor.is_leaf() && buffer.tensor.grad().defined())
      refuse(fmt::format("buffer '{}' got a gradient; register it as a parameter, or let it not require grad", buffer.name));
  for (std::size_t i = 0; i < arguments.inputs.leaves.size(); ++i) {
    const auto* tensor = std::get_if<at::Tensor>(&arguments.inputs.leaves[i]);
    if (tensor == nullptr || !tensor->defined() || !tensor->is_leaf() || !tensor->grad().defined()) continue;
    const bool is_lifted = std::ranges::any_of(metadata.input_aliases, [&](const std::pair<int, int>& pair) {
      return pair.second == inputs.first_leaf() + static_cast<int>(i);
    });
    if (is_lifted) {  // a parameter passed as an input too: its gradient is the parameter's
      inputs.check_one_gradient(*tensor, inputs.first_leaf() + static_cast<int>(i), arguments.inputs.paths[i]);
      continue;
    }
    if (!options.input_gradients)
      refuse(fmt::format(
          "input leaf {} ({}) requires grad and got a gradient; pass it without requires_grad, or set Options::input_gradients", i,
          arguments.inputs.paths[i]));
    metadata.grad_input_indices.push_back(static_cast<int>(i));
    outputs.add(tensor->grad(), fmt::format("the gradient of input leaf {}", i));
  }
}

/// One thread captures at a time: the default generator belongs to the process, and inputs that two captures share are out of reach
/// of the host while one of them runs. A capture inside fn is on the same thread.
std::unique_lock<std::recursive_timed_mutex> take_turn(std::chrono::milliseconds deadline) {
  static std::recursive_timed_mutex capturing;
  std::unique_lock turn(capturing, deadline);
  if (!turn.owns_lock())
    refuse(
        fmt::format("another thread was capturing all through the compile deadline of {} ms; if that one waits for this thread, "
                    "capture on one thread after the other",
                    deadline.count()));
  return turn;
}

ir::Metadata describe(const detail::CallArguments& arguments, const Options& options) {
  ir::Metadata metadata;
  metadata.backend = options.backend;
  metadata.num_positional_args = arguments.n_positional;
  for (const detail::ModuleArgument& argument : arguments.modules) metadata.module_positions.push_back(argument.position);
  if (arguments.inputs.unwritable_type.empty()) metadata.in_spec = arguments.inputs.spec;
  for (const module::TrainingMode& mode : module::training_modes(arguments.modules))
    metadata.module_training.push_back({mode.name, mode.training});
  return metadata;
}

}  // namespace

ir::Program capture(const detail::CallArguments& arguments, const std::function<Flat()>& fn, const Options& options,
                    const Groups& groups) {
  if (c10::InferenceMode::is_enabled())
    refuse("InferenceMode is on, under which composite ops are not taken apart and no backward exists; capture outside of it");
  const auto turn = take_turn(options.compile_deadline);
  ir::Metadata metadata = describe(arguments, options);
  Undo undo;
  Recorder recorder(groups, undo);
  const Inputs inputs(arguments, recorder, metadata);
  for (const TensorInput& input : inputs.tensors()) undo.set_memory_aside(input.local);
  for (const TensorInput& input : inputs.tensors())
    if (input.tensor.is_leaf()) undo.set_gradient_aside(input.tensor);
  save_random_states(undo, arguments, inputs);
  const Flags flags(arguments.modules, inputs);

  const Flat result = run_recorded(fn, recorder);
  flags.refuse_changes();
  if (undo.is_reseeded())
    refuse("fn seeds a random generator (manual_seed, set_state), which a captured program would not repeat; seed before the step");
  if (const at::Tensor moved = undo.replaced_memory(); moved.defined())
    refuse(inputs.name_of(moved) + " was given other memory by fn (set_data, or a resize); write into it instead (copy_)");
  if (!result.unwritable_type.empty())
    refuse(fmt::format("fn returns a {}, whose structure cannot be written as text; return its fields instead",
                       result.unwritable_type));
  metadata.out_spec = result.spec;
  Outputs outputs(recorder, metadata);
  for (std::size_t i = 0; i < result.leaves.size(); ++i) add_result(result.leaves[i], result.paths[i], recorder, outputs);
  add_gradients(inputs, arguments, options, outputs, metadata);
  return make_program(recorder.take_trace(), outputs.take(), std::move(metadata));
}

}  // namespace precast::capture
