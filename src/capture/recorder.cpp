#include "capture/recorder.h"

#include "aten/names.h"
#include "capture/op_checks.h"
#include "capture/operands.h"
#include "capture/stand_ins.h"
#include "dtensor/tensor/dtensor_data.h"
#include "precast/error.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace precast::capture {
namespace {

constexpr int kNoStorage = -1;

template <class Visit>
void visit_tensors(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor() && value.toTensor().defined()) visit(value.toTensor());
  if (value.isList())
    for (const c10::IValue& item : value.toListRef()) visit_tensors(item, visit);
}

std::string base_name(const std::string& qualified) {
  return qualified.substr(qualified.find("::") + 2);
}

[[noreturn]] void refuse(const std::string& text) {
  throw PrecompileError(ErrorCode::refused_capture, text);
}

void check_dense(const at::Tensor& result, const std::string& op) {
  if (const std::string layout = aten::unusual_layout(result); !layout.empty())
    refuse(
        fmt::format("{} gives a {} tensor; only dense strided tensors can be captured: use a dense form, or do it outside of the "
                    "step",
                    op, layout));
}

}  // namespace

Recorder::~Recorder() {
  for (auto& [address, entry] : storages_)
    if (const auto storage = entry.storage.lock()) storage->clear_data_ptr_access_error_msg_();
}

ir::ValueId Recorder::add_value(std::string wanted_name, std::string note, int storage) {
  trace_.values.push_back({std::move(wanted_name), std::move(note)});
  trace_.storage_of_value.push_back(storage);
  return {static_cast<int>(trace_.values.size()) - 1};
}

ir::ValueId Recorder::add_plain_input(std::string wanted_name) {
  trace_.inputs.push_back(add_value(std::move(wanted_name), "", kNoStorage));
  return trace_.inputs.back();
}

ir::ValueId Recorder::add_generator_input(const at::Generator& generator, std::string wanted_name) {
  const ir::ValueId value = add_plain_input(std::move(wanted_name));
  generators_.try_emplace(generator.unsafeGetGeneratorImpl(), value);
  return value;
}

ir::ValueId Recorder::add_tensor_input(const at::Tensor& tensor, std::string wanted_name, std::string path, InputKind kind) {
  Storage& storage = storage_of(tensor);
  if (storage.input_path.empty()) {  // of inputs that share a storage, the first names it: parameters come first
    storage.input_path = std::move(path);
    storage.kind = kind;
  }
  const ir::ValueId value = add_value(std::move(wanted_name), shape_note(tensor), storage.id);
  trace_.inputs.push_back(value);
  if (!identity_.find(tensor)) identity_.bind(tensor, value);
  forbid_host_reads({tensor}, "none");
  return value;
}

Recorder::Storage& Recorder::storage_of(const at::Tensor& tensor) {
  const c10::StorageImpl* address = tensor.storage().unsafeGetStorageImpl();
  const auto known = storages_.find(address);
  if (known != storages_.end()) return known->second;
  return storages_
      .emplace(address, Storage{.id = static_cast<int>(storages_.size()),
                                .kind = InputKind::user,
                                .input_path = {},
                                .written = true,
                                .storage = tensor.storage().getWeakStorageImpl()})
      .first->second;
}

void Recorder::handle(const c10::OperatorHandle& op, torch::jit::Stack& stack, const std::function<void()>& run) {
  try {
    record(op, stack, run);
  } catch (const PrecompileError&) {
    if (!refusal_) refusal_ = std::current_exception();
    throw;
  }
}

void Recorder::rethrow_refusal() const {
  if (refusal_) std::rethrow_exception(refusal_);
}

void Recorder::check_no_gradient(const at::Tensor& tensor, const std::string& user) const {
  for (const GradientOwner& owner : gradient_owners_) {
    if (!owner.tensor.is_leaf()) continue;
    const at::Tensor& gradient = owner.tensor.grad();
    if (!gradient.defined()) continue;
    const dtensor::DTensorData* parts = dtensor::as_dtensor(gradient);
    const at::Tensor& memory = parts != nullptr ? parts->local() : gradient;
    if (tensor.is_same(gradient) || (tensor.has_storage() && memory.has_storage() &&
                                     tensor.storage().unsafeGetStorageImpl() == memory.storage().unsafeGetStorageImpl()))
      refuse(
          fmt::format("{} is or uses .grad of {}, which at run time may hold earlier gradients too; do it outside the captured "
                      "step, or use what "
                      "torch::autograd::grad returns",
                      user, owner.what));
  }
}

/// A tensor whose shape or memory is changed in place takes every other tensor that is the same value with it.
void Recorder::check_reshaped_in_place(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                                       const std::string& name) {
  const std::string& base = op.schema().name();
  const bool gives_memory = base == "aten::resize_" || base == "aten::resize_as_" || base == "aten::set_";
  if ((!op.hasTag(at::Tag::inplace_view) && !gives_memory) || base == "aten::detach_" || arguments.empty()) return;
  if (!arguments[0].isTensor()) return;
  const at::Tensor& tensor = arguments[0].toTensor();
  if (!tensor.has_storage() || !identity_.find(tensor)) return;
  const std::string& input = storage_of(tensor).input_path;
  if (!input.empty() || !identity_.is_alone(tensor))
    refuse(fmt::format(
        "{} changes the shape or memory of {} in place, which other tensors of the step are too; use the form that returns a "
        "new tensor",
        name, input.empty() ? "a tensor " + shape_note(tensor) : "'" + input + "' or a view of it"));
}

/// Whether two tensors are equal is known where they are one value, or where their shapes differ (attention asks it of query and
/// key).
bool Recorder::answer_equal(const c10::FunctionSchema& schema, torch::jit::Stack& stack) const {
  if (schema.name() != "aten::equal") return false;
  const auto arguments = torch::jit::last(stack, 2);
  const at::Tensor &a = arguments[0].toTensor(), &b = arguments[1].toTensor();
  const auto first = identity_.find(a), second = identity_.find(b);
  const bool one_value = first && second && *first == *second;
  if (!one_value && a.sizes() == b.sizes()) return false;
  torch::jit::drop(stack, 2);
  stack.emplace_back(one_value);
  return true;
}

void Recorder::record(const c10::OperatorHandle& op, torch::jit::Stack& stack, const std::function<void()>& run) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string name = op_name(schema);
  if (answer_equal(schema, stack)) return;
  const auto on_stack = torch::jit::last(stack, schema.arguments().size());
  if (!torch::autograd::get_current_node())
    for (const c10::IValue& argument : on_stack)
      visit_tensors(argument, [&](const at::Tensor& tensor) { check_no_gradient(tensor, name); });
  check_op(op, on_stack);
  check_reshaped_in_place(op, on_stack, name);

  ir::Call call{schema.name(), schema.overload_name(), {}, {}};
  write_arguments(call, schema, on_stack,
                  {.tensor = [&](const at::Tensor& tensor) { return tensor_operand(tensor, name); },
                   .generator = [&](const at::Generator& generator) { return generator_operand(generator, name); }});
  check_reads(schema, on_stack, name);
  std::vector<at::Tensor> touched;  // strong references for the time of the op only
  for (const c10::IValue& argument : on_stack)
    visit_tensors(argument, [&](const at::Tensor& tensor) { touched.push_back(tensor); });
  for (const at::Tensor& tensor : touched) allow_host_reads(tensor);
  const Effects effects{.written_storages = note_writes(schema, on_stack, name), .keep = must_stay(op)};
  if (is_collective(schema))
    answer_collective(op, stack, groups_);
  else
    run();
  const auto results = torch::jit::last(stack, schema.returns().size());
  for (const c10::IValue& result : results) visit_tensors(result, [&](const at::Tensor& tensor) { check_dense(tensor, name); });

  const bool one_tensor = results.size() == 1 && results[0].isTensor();
  if (one_tensor && !is_collective(schema) && effects.written_storages.empty() && results[0].toTensor().defined()) {
    // A result that looks at what a known value looks at (detach, a view of the same shape) is that value.
    if (const auto known = identity_.find(results[0].toTensor())) {
      identity_.bind(results[0].toTensor(), *known);
      forbid_host_reads(touched, name);
      return;
    }
  }
  const auto add_statement = [&](ir::ValueId result, auto what, Effects what_it_does) {
    trace_.statements.push_back({.result = result, .is = std::move(what)});
    trace_.effects.push_back(std::move(what_it_does));
  };
  if (one_tensor) {
    add_statement(bind_result(results[0].toTensor(), base_name(schema.name())), std::move(call), effects);
    touched.push_back(results[0].toTensor());
  } else {
    const ir::ValueId all = add_value(base_name(schema.name()), "", kNoStorage);
    add_statement(all, std::move(call), effects);
    const bool is_list = results.size() == 1 && results[0].isList();
    const auto items = is_list ? results[0].toListRef() : results;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (!items[i].isTensor() || !items[i].toTensor().defined() || identity_.find(items[i].toTensor())) continue;
      add_statement(bind_result(items[i].toTensor(), "getitem"), ir::GetItem{all, static_cast<std::int64_t>(i)}, {});
      touched.push_back(items[i].toTensor());
    }
  }
  if (is_uninitialized_factory(schema)) storage_of(results[0].toTensor()).written = false;
  forbid_host_reads(touched, name);
}

ir::ValueId Recorder::bind_result(const at::Tensor& result, const std::string& wanted_name) {
  if (!result.defined()) return add_value(wanted_name, "", kNoStorage);
  const ir::ValueId value = add_value(wanted_name, shape_note(result), storage_of(result).id);
  identity_.bind(result, value);
  return value;
}

ir::Operand Recorder::tensor_operand(const at::Tensor& tensor, const std::string& op) const {
  if (const auto known = identity_.find(tensor)) return {*known};
  // C++ numbers that an overload without Scalar receives arrive as wrapped numbers.
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    if (tensor.scalar_type() == at::kBool) return {tensor.item<bool>()};
    if (at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false)) return {tensor.item<std::int64_t>()};
    if (at::isFloatingType(tensor.scalar_type())) return {tensor.item<double>()};
  }
  refuse(
      fmt::format("{} reads a tensor {} that is neither an argument nor a registered parameter or buffer (captured by the lambda, "
                  "global, static, an unregistered member, or built from host memory); pass it as an argument or register it",
                  op, shape_note(tensor)));
}

ir::Operand Recorder::generator_operand(const at::Generator& generator, const std::string& op) const {
  if (!generator.defined()) return {ir::None{}};
  if (const auto known = generators_.find(generator.unsafeGetGeneratorImpl()); known != generators_.end()) return {known->second};
  if (generator == at::globalContext().defaultGenerator(generator.device())) return {ir::None{}};
  refuse(
      fmt::format("{} draws from a generator that is no argument; pass the generator as an argument, or use the default one", op));
}

void Recorder::check_reads(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments, const std::string& name) {
  if (reads_shapes_only(schema)) return;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (schema.arguments()[i].alias_info() != nullptr) continue;  // written, or only viewed
    visit_tensors(arguments[i], [&](const at::Tensor& tensor) {
      if (tensor.numel() > 0 && !storage_of(tensor).written)
        refuse(fmt::format(
            "{} reads a tensor {} whose memory no op wrote (a tensor literal filled from host values); build it outside the "
            "step and pass it as an argument",
            name, shape_note(tensor)));
    });
  }
}

std::vector<int> Recorder::note_writes(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
                                       const std::string& name) {
  std::vector<int> written;
  for (const std::uint32_t i : written_by_call(schema, arguments)) {
    visit_tensors(arguments[i], [&](const at::Tensor& tensor) {
      Storage& storage = storage_of(tensor);
      if (storage.kind == InputKind::parameter)
        refuse(
            fmt::format("{} writes into parameter '{}'; step the optimizer outside the captured step", name, storage.input_path));
      if (!storage.input_path.empty()) undo_.save_storage(tensor);
      storage.written = true;
      written.push_back(storage.id);
    });
  }
  return written;
}

// A host read of a computed value would freeze it into the program unseen, so outside of ops the memory of values cannot be
// reached.
void Recorder::allow_host_reads(const at::Tensor& tensor) {
  if (tensor.has_storage()) tensor.storage().unsafeGetStorageImpl()->clear_data_ptr_access_error_msg_();
}

void Recorder::forbid_host_reads(const std::vector<at::Tensor>& tensors, const std::string& name) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    const std::string& input = storage_of(tensor).input_path;
    const std::string what = input.empty()
                                 ? fmt::format("a computed tensor {} (the last op that touched it is {})", shape_note(tensor), name)
                                 : fmt::format("'{}' {}", input, shape_note(tensor));
    tensor.storage().unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(fmt::format(
        "{}the memory of {} is read or written outside of any op (data_ptr, accessor, or printing), of which the "
        "program would know nothing; {}",
        kHostReadMark, what,
        input.empty() ? "return the tensor and read it after the step" : "use operators, or do it outside of the step"));
  }
}

ir::ValueId Recorder::value_of(const at::Tensor& tensor, const std::string& what) const {
  if (const auto known = identity_.find(tensor)) return *known;
  refuse(
      fmt::format("{} is a tensor {} that the step did not compute and that is no argument; pass it as an argument or register it",
                  what, shape_note(tensor)));
}

ir::Operand Recorder::output_operand(const at::Tensor& tensor, const std::string& what) const {
  if (!tensor.defined()) return {ir::None{}};
  return {value_of(tensor, what)};
}

}  // namespace precast::capture
