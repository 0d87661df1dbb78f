#include "backends/eager/executor.h"

#include "backends/eager/plan.h"
#include "precast/error.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/detach.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <optional>
#include <utility>

namespace precast::eager {
namespace {

using c10::IValue;

/// Results under a caller's inference mode are ordinary tensors all the same: they may become gradients.
struct LeaveInferenceMode {
  LeaveInferenceMode() {
    if (c10::InferenceMode::is_enabled()) guard.emplace(false);
  }
  std::optional<c10::InferenceMode> guard;
};

/// No graph and no autocast inside, whatever the caller has on; its state is back afterwards. Each guard restores the whole state
/// it found, so they must be undone in the order of these members.
/// Grad mode is on, as it was at capture: kernels below autograd look at it (oneDNN's LSTM saves for its backward only then).
struct BelowAutograd {
  LeaveInferenceMode no_inference;
  c10::AutoGradMode grad_mode{true};
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

/// Inputs that the program may write into or return, for the length of one run.
class WatchedInputs {
 public:
  WatchedInputs(const Plan& plan, const std::vector<IValue>& inputs) {
    inputs_.reserve(plan.watched_inputs.size());
    for (const Index input : plan.watched_inputs) inputs_.push_back({inputs[input].toTensor()});
  }

  /// Below autograd no operator moves version counters, so it is done here, once an input.
  void note_write(const IValue& written, const std::vector<Index>& watched) {
    if (written.isTensor()) return note_write(written.toTensor(), watched);
    if (written.isTensorList())
      for (const at::Tensor& tensor : written.toTensorVector()) note_write(tensor, watched);
  }

  /// An output that is an input, or a view of one, shares its version counter, and is never the caller's own tensor object.
  IValue as_output(IValue value, const std::vector<Index>& watched) const {
    if (!value.isTensor() || !value.toTensor().defined()) return value;
    const at::Tensor& output = value.toTensor();
    at::Tensor own = output;
    for (const Index i : watched) {
      const at::Tensor& input = inputs_[i].tensor;
      if (!shares_storage(output, input)) continue;
      if (output.is_same(input)) own = at::detach(output);
      if (!input.is_inference() && !own.is_inference())
        own.unsafeGetTensorImpl()->set_version_counter(input.unsafeGetTensorImpl()->version_counter());
    }
    // An operator whose schema hides that it returns its argument.
    if (own.requires_grad()) own = at::detach(own);
    return own.is_same(output) ? std::move(value) : IValue(std::move(own));
  }

 private:
  struct Watched {
    at::Tensor tensor;
    bool written = false;
  };

  static bool shares_storage(const at::Tensor& a, const at::Tensor& b) {
    return a.defined() && b.defined() && a.has_storage() && b.has_storage() &&
           a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
  }

  void note_write(const at::Tensor& written, const std::vector<Index>& watched) {
    for (const Index i : watched) {
      Watched& input = inputs_[i];
      if (input.written || !shares_storage(written, input.tensor)) continue;
      input.written = true;
      if (!input.tensor.is_inference()) input.tensor.unsafeGetTensorImpl()->bump_version();
    }
  }

  std::vector<Watched> inputs_;
};

class Run {
 public:
  Run(const Plan& plan, std::vector<IValue> inputs) : plan_(plan), watched_(plan, inputs), slots_(std::move(inputs)) {
    slots_.resize(plan.n_slots);
    stack_.reserve(plan.max_arguments);
  }

  std::vector<IValue> operator()() {
    for (const auto& step : plan_.steps) {
      if (const CallStep* call = std::get_if<CallStep>(&step))
        run(*call);
      else
        run(std::get<ItemStep>(step));
    }
    std::vector<IValue> outputs;
    outputs.reserve(plan_.outputs.size());
    for (const Output& output : plan_.outputs) outputs.push_back(watched_.as_output(take(output.value), output.watched));
    return outputs;
  }

 private:
  IValue take(const Read& read) { return read.last ? std::move(slots_[read.slot]) : slots_[read.slot]; }
  IValue take(const std::variant<Read, IValue>& value) {
    const Read* read = std::get_if<Read>(&value);
    return read != nullptr ? take(*read) : std::get<IValue>(value);
  }

  void run(const CallStep& call) {
    stack_.assign(call.arguments.begin(), call.arguments.end());
    for (const ValueArgument& argument : call.values) stack_[argument.argument] = take(argument.value);
    for (const ListArgument& list : call.lists) stack_[list.argument] = build(list);
    for (const Write& write : call.writes) watched_.note_write(stack_[write.argument], write.watched);
    call.op.callBoxed(stack_);
    for (const Result& result : call.results) slots_[result.slot] = std::move(stack_[result.result]);
  }

  void run(const ItemStep& item) {
    const IValue source = take(item.list);
    const auto list = source.toListRef();
    if (static_cast<std::size_t>(item.index) >= list.size())
      throw PrecompileError(
          ErrorCode::invalid_artifact,
          fmt::format("element {} of a list of {}: the operator gave fewer results than at capture; compile again", item.index,
                      list.size()));
    slots_[item.slot] = list[static_cast<std::size_t>(item.index)];
  }

  IValue build(const ListArgument& argument) {
    c10::impl::GenericList list(argument.element_type);
    list.reserve(argument.elements.size());
    for (const auto& element : argument.elements) list.push_back(take(element));
    return {list};
  }

  const Plan& plan_;
  WatchedInputs watched_;
  std::vector<IValue> slots_;
  torch::jit::Stack stack_;
};

/// Kernels that allocate by device kind use the current device: it has to be the one that the inputs are on.
std::optional<c10::Device> accelerator_of(const std::vector<IValue>& inputs) {
  for (const IValue& input : inputs)
    if (input.isTensor() && input.toTensor().defined() && !input.toTensor().device().is_cpu()) return input.toTensor().device();
  return std::nullopt;
}

}  // namespace

Executor::Executor(const ir::Program& program)
    : plan_(std::make_unique<const Plan>(make_plan(program))), layout_(recorded_layouts(program.metadata, plan_->uses)) {}
Executor::~Executor() = default;

std::vector<IValue> Executor::run(std::vector<IValue> inputs) const {
  if (inputs.size() != plan_->n_inputs)
    throw PrecompileError(ErrorCode::internal,
                          fmt::format("eager executor: expected {} inputs, found {}", plan_->n_inputs, inputs.size()));
  const c10::AutoGradMode no_grad(false);
  const std::vector<CapturedLayout::StandIn> stand_ins = layout_.lay_out(inputs);
  std::vector<IValue> outputs = run_laid_out(std::move(inputs));
  CapturedLayout::write_back(stand_ins);
  return outputs;
}

std::vector<IValue> Executor::run_laid_out(std::vector<IValue> inputs) const {
  const BelowAutograd below_autograd;
  const c10::OptionalDeviceGuard device(accelerator_of(inputs));
  return Run(*plan_, std::move(inputs))();
}

}  // namespace precast::eager
