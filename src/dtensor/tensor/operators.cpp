#include "dtensor/tensor/operators.h"

#include "aten/op_effects.h"
#include "dispatch/interposer.h"
#include "dtensor/shards.h"
#include "dtensor/strategy.h"
#include "dtensor/tensor/dtensor_data.h"
#include "dtensor/tensor/local_call.h"
#include "dtensor/tensor/redistribute.h"
#include "dtensor/tensor/shard_offset.h"
#include "dtensor/tensor/special_operators.h"
#include "precast/error.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace precast::dtensor {
namespace {

using torch::jit::Stack;

std::string op_name(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

std::string describe(const at::Tensor& tensor) {
  const DTensorData* dtensor = as_dtensor(tensor);
  return fmt::format("[{}] {}", fmt::join(tensor.sizes(), ", "),
                     dtensor == nullptr ? "plain" : to_string(dtensor->layout().placements));
}

[[noreturn]] void refuse(const std::string& text) {
  throw PrecompileError(ErrorCode::argument_mismatch, text);
}

/// Visits the tensors of a stack's arguments in order; a list's one after the other, undefined ones left out.
template <class Visit>
void visit_tensors(c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) value = visit(value.toTensor());
  } else if (value.isList()) {
    const auto items = value.toListRef();
    if (std::ranges::none_of(items, [](const c10::IValue& item) { return item.isTensor(); })) return;
    // The caller's list is shared: it gets a copy.
    auto replaced = value.toList().copy();
    for (std::size_t i = 0; i < items.size(); ++i) {
      c10::IValue item = items[i];
      visit_tensors(item, visit);
      replaced.set(i, item);
    }
    value = replaced;
  }
}

/// What an output is made of, once its local tensor is there. Plans outlive calls, so they must not keep a mesh and its connection
/// alive: a layout is that of an operand, or is made anew.
struct OutputPlan {
  Placements placements;
  std::int64_t layout_id;
  Sizes sharded_sizes;  ///< The global size of each dimension that is sharded; -1: the local size.
};

/// How calls with equal operators, layouts, shapes and plain arguments are run.
struct Plan {
  Strategy strategy;
  std::vector<bool> moves;  ///< Of each tensor argument: whether it is redistributed first.
  struct LocalShape {
    std::size_t argument;
    Sizes value;
  };
  std::vector<LocalShape> shapes;
  std::vector<OutputPlan> outputs;  ///< Empty: no rule, so every result is whole.
  std::vector<int> same_as;         ///< Of each result: the argument it is (in-place and out= forms), or -1.
  LocalForm local_form = nullptr;   ///< Where the strategy asks for one.
};

/// What a plan depends on: operator, layouts, dtypes and shapes of the operands, plain arguments.
using PlanKey = std::vector<std::int64_t>;

struct PlanKeyHash {
  std::size_t operator()(const PlanKey& key) const noexcept {
    std::size_t hash = key.size();
    for (const std::int64_t word : key) hash = hash * 0x9e3779b97f4a7c15ULL + static_cast<std::size_t>(word);
    return hash ^ (hash >> 32);
  }
};

/// The plans of one thread's calls so far.
class PlanCache {
 public:
  [[nodiscard]] std::shared_ptr<const Plan> find(const PlanKey& key) const {
    const auto known = plans_.find(key);
    return known == plans_.end() ? nullptr : known->second;
  }
  void insert(PlanKey key, std::shared_ptr<const Plan> plan) {
    constexpr std::size_t many = 8192;  // shapes that change with every call would fill the memory
    if (plans_.size() >= many) plans_.clear();
    plans_.insert_or_assign(std::move(key), std::move(plan));
  }

 private:
  std::unordered_map<PlanKey, std::shared_ptr<const Plan>, PlanKeyHash> plans_;
};

/// Appends what a plan depends on of an argument. False: that cannot be told.
bool append_key(PlanKey& key, const c10::IValue& value) {
  const auto append = [&](std::initializer_list<std::int64_t> words) { key.insert(key.end(), words); };
  if (value.isTensor() && !value.toTensor().defined()) {
    append({-1});
  } else if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    const DTensorData* dtensor = as_dtensor(tensor);
    append({dtensor != nullptr ? dtensor->layout().id : -2, static_cast<std::int64_t>(tensor.scalar_type()), tensor.dim()});
    key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
  } else if (value.isNone()) {
    append({0});
  } else if (value.isInt()) {
    append({1, value.toInt()});
  } else if (value.isBool()) {
    append({2, static_cast<std::int64_t>(value.toBool())});
  } else if (value.isDouble()) {
    append({3, std::bit_cast<std::int64_t>(value.toDouble())});
  } else if (value.isDevice()) {
    append({4, static_cast<std::int64_t>(value.toDevice().type())});
  } else if (value.isList()) {
    const auto list = value.toListRef();
    append({5, static_cast<std::int64_t>(list.size())});
    return std::ranges::all_of(list, [&](const c10::IValue& item) { return append_key(key, item); });
  } else {
    return false;
  }
  return true;
}

/// One call: its operands, and the plan for it.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack& stack) : op_(op), schema_(op.schema()), stack_(stack) {
    const auto arguments = torch::jit::last(stack, schema_.arguments().size());
    for (std::size_t i = 0; i < arguments.size(); ++i) collect(arguments[i]);
  }

  void run() {
    check_operands();
    const std::shared_ptr<const Plan> plan = find_plan();
    Stack local = local_arguments(*plan);
    Stack results;
    if (plan->local_form != nullptr) {
      results = plan->local_form({op_, std::move(local), *mesh_, plan->strategy, shapes_});
    } else {
      op_.callBoxed(local);
      results = std::move(local);
    }
    finish(*plan, std::move(results));
  }

 private:
  void collect(const c10::IValue& value) {
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (!tensor.defined()) return;
      const DTensorData* dtensor = as_dtensor(tensor);
      if (dtensor != nullptr && mesh_ == nullptr) mesh_ = &dtensor->layout().mesh;
      operands_.push_back(tensor);
      shapes_.push_back(tensor.sizes().vec());
    } else if (value.isList()) {
      for (const c10::IValue& item : value.toListRef()) {
        if (!item.isTensor() && !item.isNone()) return;
        collect(item);
      }
    }
  }

  [[nodiscard]] std::string described_operands() const {
    std::vector<std::string> texts;
    for (const at::Tensor& operand : operands_) texts.push_back(describe(operand));
    return fmt::format("{}", fmt::join(texts, "; "));
  }

  void check_operands() const {
    for (const at::Tensor& operand : operands_) {
      const DTensorData* dtensor = as_dtensor(operand);
      if (dtensor == nullptr) {
        // A backward makes plain tensors of its own (zeros to scatter into), the same on every rank.
        if (operand.dim() == 0 || is_implicitly_replicated() || torch::autograd::get_current_node()) continue;
        refuse(fmt::format(
            "{}: a plain tensor of shape [{}] among DTensors on {}; make it a DTensor (distribute_tensor or from_local) "
            "first; operands: {}",
            op_name(schema_), fmt::join(operand.sizes(), ", "), to_string(mesh_->layout()), described_operands()));
      }
      if (!(dtensor->layout().mesh == *mesh_))
        refuse(fmt::format("{}: operands on two meshes, {} and {}; bring them to one mesh (full_tensor, then distribute_tensor)",
                           op_name(schema_), to_string(mesh_->layout()), to_string(dtensor->layout().mesh.layout())));
    }
  }

  [[nodiscard]] Placements placements_of(const at::Tensor& tensor) const {
    const DTensorData* dtensor = as_dtensor(tensor);
    return dtensor != nullptr ? dtensor->layout().placements : Placements(static_cast<std::size_t>(mesh_->ndim()));
  }

  std::shared_ptr<const Plan> find_plan() const {
    thread_local PlanCache cache;
    PlanKey key = {reinterpret_cast<std::intptr_t>(&schema_)};
    const auto arguments = torch::jit::last(stack_, schema_.arguments().size());
    const bool keyed = std::ranges::all_of(arguments, [&](const c10::IValue& value) { return append_key(key, value); });
    if (!keyed) return make_plan();
    if (auto known = cache.find(key)) return known;
    std::shared_ptr<const Plan> plan = make_plan();
    cache.insert(std::move(key), plan);
    return plan;
  }

  std::shared_ptr<const Plan> make_plan() const {
    const auto arguments = torch::jit::last(stack_, schema_.arguments().size());
    auto plan = std::make_shared<Plan>();
    const std::vector<std::uint32_t> written =
        aten::written_arguments(schema_, [&](std::size_t i) { return arguments[i].isBool() && !arguments[i].toBool(); });
    const OpCall call = describe_call(arguments);
    const auto rule = rule_of(call);
    plan->strategy = strategy_of(rule, written);
    for (std::size_t i = 0; i < operands_.size(); ++i)
      plan->moves.push_back(placements_of(operands_[i]) != plan->strategy.inputs[i]);
    plan_outputs(*plan, rule, call, written);
    if (plan->strategy.local_form) plan->local_form = local_form_of(op_name(schema_));
    return plan;
  }

  OpCall describe_call(c10::ArrayRef<c10::IValue> arguments) const {
    std::vector<OpCall::Argument> described;
    int next = 0;
    for (const c10::IValue& value : arguments) described.push_back(describe_argument(value, next));
    return {op_name(schema_), std::move(described), shapes_};
  }

  static OpCall::Argument describe_argument(const c10::IValue& value, int& next) {
    if (value.isTensor()) return OpCall::TensorIndex{value.toTensor().defined() ? next++ : -1};
    if (value.isBool()) return value.toBool();
    if (value.isInt()) return value.toInt();
    if (value.isDouble()) return value.toDouble();
    if (value.isString()) return value.toStringRef();
    if (value.isList()) {
      const auto items = value.toListRef();
      const auto is_tensor = [](const c10::IValue& item) { return item.isTensor() || item.isNone(); };
      if (!items.empty() && std::ranges::all_of(items, is_tensor)) {
        std::vector<OpCall::TensorIndex> tensors;
        for (const c10::IValue& item : items) tensors.push_back({item.isTensor() && item.toTensor().defined() ? next++ : -1});
        return tensors;
      }
      Sizes integers;
      for (const c10::IValue& item : items) integers.push_back(item.isInt() ? item.toInt() : item.isBool() ? item.toBool() : 0);
      return integers;
    }
    return std::monostate();
  }

  Rule rule_of(const OpCall& call) const {
    try {
      if (auto rule = find_rule(call)) return *std::move(rule);
    } catch (const std::invalid_argument& error) {
      refuse(fmt::format("{}: {}; operands: {}", op_name(schema_), error.what(), described_operands()));
    }
    if (op_.hasTag(at::Tag::nondeterministic_seeded))
      refuse(fmt::format(
          "{} draws random numbers and is not known to DTensor: each rank would draw its own; draw on a plain tensor and "
          "distribute it, or use bernoulli, uniform, normal, rand_like or randn_like",
          op_name(schema_)));
    // Whole operands need no rule: every rank computes the same.
    const bool whole = std::ranges::all_of(operands_, [&](const at::Tensor& operand) {
      return std::ranges::all_of(placements_of(operand), [](const Placement& p) { return std::holds_alternative<Replicate>(p); });
    });
    const std::string_view name = schema_.name();
    const bool speaks_of_memory =
        name.starts_with("aten::as_strided") || name.starts_with("aten::set_") || name.starts_with("aten::resize");
    if (!whole || speaks_of_memory)
      refuse(fmt::format(
          "{} has no sharding rule; redistribute its operands to Replicate() on every mesh dimension first, or add a row "
          "to the rule tables; operands: {}",
          op_name(schema_), described_operands()));
    Rule rule;
    for (const Sizes& shape : shapes_) rule.inputs.emplace_back(shape.size(), '.');
    return rule;
  }

  Strategy strategy_of(const Rule& rule, const std::vector<std::uint32_t>& written) const {
    std::vector<Operand> operands;
    std::vector<bool> fixed(operands_.size(), false);
    mark_fixed(written, fixed);
    for (std::size_t i = 0; i < operands_.size(); ++i)
      operands.push_back({.shape = shapes_[i],
                          .placements = placements_of(operands_[i]),
                          .element_bytes = static_cast<std::int64_t>(operands_[i].element_size()),
                          .fixed = fixed[i]});
    try {
      return choose_strategy(rule, operands, mesh_sizes(*mesh_));
    } catch (const std::invalid_argument& error) {
      refuse(fmt::format("{}: {}; redistribute that operand first", op_name(schema_), error.what()));
    }
  }

  /// Which of the flattened tensor arguments belong to the written arguments of the schema.
  void mark_fixed(const std::vector<std::uint32_t>& written, std::vector<bool>& fixed) const {
    const auto arguments = torch::jit::last(stack_, schema_.arguments().size());
    std::size_t next = 0;
    for (std::uint32_t i = 0; i < arguments.size(); ++i) {
      const bool is_written = std::ranges::find(written, i) != written.end();
      const auto mark = [&](const c10::IValue& value) {
        if (value.isTensor() && value.toTensor().defined()) fixed[next++] = is_written;
      };
      mark(arguments[i]);
      if (arguments[i].isList())
        for (const c10::IValue& item : arguments[i].toListRef()) mark(item);
    }
  }

  void plan_outputs(Plan& plan, const Rule& rule, const OpCall& call, const std::vector<std::uint32_t>& written) const {
    const Sizes mesh = mesh_sizes(*mesh_), here = mesh_coordinates(*mesh_);
    std::map<int, Sizes> given;  // global shapes that arguments give
    for (const Rule::ShapeArgument& shape : rule.shape_arguments)
      if (!shape.is_strides) given[shape.output] = resolve_sizes(call, call.integers(static_cast<std::size_t>(shape.argument)));
    for (std::size_t o = 0; o < rule.outputs.size(); ++o) {
      const Placements& placements = plan.strategy.outputs[o];
      OutputPlan output{.placements = placements,
                        .layout_id = layout_of(*mesh_, placements)->id,
                        .sharded_sizes = Sizes(rule.outputs[o].size(), -1)};
      for (const Placement& placement : placements)
        if (const auto* shard = std::get_if<Shard>(&placement)) {
          const auto dim = static_cast<std::size_t>(shard->dim);
          const auto shape = given.find(static_cast<int>(o));
          output.sharded_sizes[dim] = shape != given.end() ? shape->second.at(dim) : size_of(rule, rule.outputs[o][dim]);
        }
      plan.outputs.push_back(std::move(output));
    }
    for (const Rule::ShapeArgument& shape : rule.shape_arguments) {
      const auto argument = static_cast<std::size_t>(shape.argument);
      const Sizes global = given.at(shape.output);
      Sizes local = local_shape(global, plan.strategy.outputs[static_cast<std::size_t>(shape.output)], mesh, here);
      if (shape.is_strides) local = strides_like(local, global, call.integers(argument));
      plan.shapes.push_back({argument, std::move(local)});
    }
    for (const c10::Argument& result : schema_.returns()) {
      int same = -1;
      if (result.alias_info() != nullptr && result.alias_info()->isWrite())
        for (const std::uint32_t i : aten::aliased_arguments(schema_, result))
          if (std::ranges::find(written, i) != written.end()) same = static_cast<int>(i);
      plan.same_as.push_back(same);
    }
  }

  /// A size that view or expand is to find out (-1).
  Sizes resolve_sizes(const OpCall& call, Sizes sizes) const {
    const Sizes& from = call.tensors.at(0);
    if (schema_.name() == "aten::expand") {
      for (std::size_t i = 0; i < sizes.size(); ++i)
        if (sizes[i] == -1) sizes[i] = from.at(i + from.size() - sizes.size());
      return sizes;
    }
    const auto unknown = std::ranges::find(sizes, -1);
    if (unknown == sizes.end()) return sizes;
    std::int64_t have = 1, rest = 1;
    for (const std::int64_t size : from) have *= size;
    for (const std::int64_t size : sizes)
      if (size != -1) rest *= size;
    *unknown = rest == 0 ? 0 : have / rest;
    return sizes;
  }

  [[nodiscard]] std::int64_t size_of(const Rule& rule, char letter) const {
    for (std::size_t i = 0; i < operands_.size(); ++i)
      if (const auto position = rule.inputs[i].find(letter); position != std::string::npos) return shapes_[i][position];
    throw PrecompileError(ErrorCode::internal,
                          fmt::format("{}: its rule has no operand with dimension '{}'", op_name(schema_), letter));
  }

  Stack local_arguments(const Plan& plan) const {
    Stack local = torch::jit::last(stack_, schema_.arguments().size()).vec();
    std::size_t next = 0;
    for (c10::IValue& value : local)
      visit_tensors(value, [&](const at::Tensor& tensor) {
        const std::size_t i = next++;
        const DTensorData* dtensor = as_dtensor(tensor);
        const at::Tensor& here = dtensor != nullptr ? dtensor->local() : tensor;
        return plan.moves[i] ? redistribute_local(here, shapes_[i], *mesh_, placements_of(tensor), plan.strategy.inputs[i]) : here;
      });
    for (const Plan::LocalShape& shape : plan.shapes) local[shape.argument] = shape.value;
    return local;
  }

  /// Local results become DTensors, in place of the arguments on the stack.
  void finish(const Plan& plan, Stack results) const {
    Stack outer;
    std::size_t output = 0;
    const auto arguments = torch::jit::last(stack_, schema_.arguments().size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (plan.same_as[i] >= 0) {
        outer.push_back(arguments[static_cast<std::size_t>(plan.same_as[i])]);
        ++output;
        continue;
      }
      outer.push_back(wrapped(plan, results[i], output));
    }
    torch::jit::drop(stack_, schema_.arguments().size());
    for (c10::IValue& value : outer) stack_.push_back(std::move(value));
  }

  c10::IValue wrapped(const Plan& plan, const c10::IValue& result, std::size_t& output) const {
    if (result.isTensor()) {
      const std::size_t o = output++;
      if (!result.toTensor().defined()) return result;
      return wrap_output(plan, result.toTensor(), o);
    }
    if (result.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : result.toTensorVector()) list.push_back(wrap_output(plan, tensor, output++));
      return list;
    }
    return result;
  }

  at::Tensor wrap_output(const Plan& plan, const at::Tensor& local, std::size_t o) const {
    if (plan.outputs.empty())
      return wrap(local, layout_of(*mesh_, Placements(static_cast<std::size_t>(mesh_->ndim()))), local.sizes());
    if (o >= plan.outputs.size())
      throw PrecompileError(ErrorCode::internal,
                            fmt::format("{}: its rule names {} results, it has more", op_name(schema_), plan.outputs.size()));
    const OutputPlan& output = plan.outputs[o];
    Sizes sizes = local.sizes().vec();
    for (std::size_t dim = 0; dim < output.sharded_sizes.size(); ++dim)
      if (output.sharded_sizes[dim] >= 0) sizes.at(dim) = output.sharded_sizes[dim];
    return wrap(local, shared_layout(output), sizes);
  }

  [[nodiscard]] SharedLayout shared_layout(const OutputPlan& output) const {
    for (const at::Tensor& operand : operands_)
      if (const DTensorData* dtensor = as_dtensor(operand); dtensor != nullptr && dtensor->layout().id == output.layout_id)
        return dtensor->shared_layout();
    return std::make_shared<const Layout>(Layout{*mesh_, output.placements, output.layout_id});
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  Stack& stack_;
  const DeviceMesh* mesh_ = nullptr;
  std::vector<at::Tensor> operands_;  // flattened; strong references for the time of the call
  std::vector<Sizes> shapes_;
};

void handle(const c10::OperatorHandle& op, Stack& stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (const SpecialOperator special = special_operator(op.schema())) return special(op, stack);
  Call(op, stack).run();
}

}  // namespace

void ensure_operators() {
  static const bool registered = [] {
    dispatch::set_dtensor_handler(&handle);
    return true;
  }();
  static_cast<void>(registered);
}

}  // namespace precast::dtensor
