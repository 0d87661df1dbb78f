#include "backends/eager/plan.h"

#include "aten/op_effects.h"
#include "backends/eager/constants.h"
#include "precast/error.h"

#include <ATen/core/jit_type.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

namespace precast::eager {
namespace {

using ir::Operand;
using ir::ValueId;

/// Union of two ascending lists.
std::vector<Index> merge(const std::vector<Index>& a, const std::vector<Index>& b) {
  std::vector<Index> both;
  std::ranges::set_union(a, b, std::back_inserter(both));
  return both;
}

/// What is known of a value before any run.
struct Known {
  c10::TypePtr type;           ///< Null for a plain input, whose type the text does not say.
  std::optional<Index> slot;   ///< None yet for a result that nothing reads.
  std::vector<Index> aliases;  ///< Inputs whose memory it may share, ascending.
};

/// A value of the program: one result, or those of an operator with several (or none), which only GetItem takes apart.
struct Definition {
  std::vector<Known> results;
  std::size_t step = 0;  ///< The call that gives them.
  bool single = true;
};

class PlanBuilder {
 public:
  explicit PlanBuilder(const ir::Program& program) : program_(program), definitions_(program.values.size()) {}

  Plan build() {
    add_inputs();
    for (std::size_t i = 0; i < program_.statements.size(); ++i) add(program_.statements[i], i);
    add_outputs();
    mark_last_reads();
    note_uses();
    return std::move(plan_);
  }

 private:
  void add_inputs();
  void add(const ir::Statement& statement, std::size_t index);
  void add(const ir::Call& call, ValueId result);
  void add(const ir::GetItem& item, ValueId result);
  void add_outputs();
  void mark_last_reads();
  void note_uses();

  c10::OperatorHandle resolve(const ir::Call& call) const;
  std::vector<const Operand*> match(const ir::Call& call, const c10::FunctionSchema& schema) const;
  void place(const Operand& operand, const c10::Argument& argument, Index position, CallStep& step);
  ListArgument make_list(const Operand::List& items, const c10::Argument& argument, Index position);
  std::vector<std::vector<Index>> argument_aliases(const std::vector<const Operand*>& operands);
  std::vector<Write> find_writes(const c10::FunctionSchema& schema, const std::vector<const Operand*>& operands);
  void define(ValueId result, const c10::FunctionSchema& schema, const std::vector<const Operand*>& operands);

  Definition& defined(ValueId value);
  Known& single(ValueId value);
  Read read(ValueId value) { return {.slot = slot_of(single(value), definition_step(value), 0)}; }
  std::size_t definition_step(ValueId value) const { return definitions_[static_cast<std::size_t>(value.index)]->step; }
  Index slot_of(Known& known, std::size_t step, Index result);
  std::vector<Index> watch(const std::vector<Index>& inputs);
  std::string name(ValueId value) const { return program_.values[static_cast<std::size_t>(value.index)].name; }

  [[noreturn]] void fail(const std::string& what) const {
    throw PrecompileError(ErrorCode::invalid_artifact, fmt::format("python_code, {}: {}", where_, what));
  }

  const ir::Program& program_;
  std::vector<std::optional<Definition>> definitions_;
  std::string where_ = "inputs";
  Plan plan_;
};

void PlanBuilder::add_inputs() {
  const ir::Metadata& metadata = program_.metadata;
  const std::size_t n_lifted = metadata.params.size() + metadata.buffers.size(), n_leaves = metadata.inputs.size();
  const std::size_t n_inputs = n_lifted + n_leaves + metadata.mesh_inputs.size();
  if (program_.inputs.size() != n_inputs)
    fail(fmt::format("expected {} inputs (parameters, buffers, leaves and mesh coordinates of the metadata), found {}", n_inputs,
                     program_.inputs.size()));
  plan_.n_inputs = plan_.n_slots = static_cast<Index>(program_.inputs.size());
  for (Index i = 0; i < plan_.n_inputs; ++i) {
    Known known{.type = c10::TensorType::get(), .slot = i, .aliases = {i}};
    if (i >= n_lifted && i < n_lifted + n_leaves && !metadata.inputs[i - n_lifted].shape)
      known = {.type = metadata.inputs[i - n_lifted].is_generator ? c10::TypePtr(c10::GeneratorType::get()) : nullptr,
               .slot = i,
               .aliases = {}};
    definitions_.at(static_cast<std::size_t>(program_.inputs[i].index)) = Definition{.results = {std::move(known)}};
  }
}

void PlanBuilder::add(const ir::Statement& statement, std::size_t index) {
  where_ = statement.line > 0 ? fmt::format("line {}", statement.line) : fmt::format("statement {}", index);
  std::visit([&](const auto& is) { add(is, statement.result); }, statement.is);
}

void PlanBuilder::add(const ir::Call& call, ValueId result) {
  const std::size_t colons = call.name.find("::");
  const std::string python_name =
      colons == call.name.npos ? call.name : fmt::format("{}.{}", call.name.substr(0, colons), call.name.substr(colons + 2));
  where_ += fmt::format(", torch.ops.{}.{}", python_name, call.overload.empty() ? "default" : call.overload);

  const c10::OperatorHandle op = resolve(call);
  const c10::FunctionSchema& schema = op.schema();
  const std::vector<const Operand*> operands = match(call, schema);
  CallStep step{
      .op = op, .arguments = std::vector<c10::IValue>(operands.size()), .values = {}, .lists = {}, .writes = {}, .results = {}};
  for (Index i = 0; i < operands.size(); ++i) {
    if (operands[i] == nullptr)
      step.arguments[i] = *schema.arguments()[i].default_value();
    else
      place(*operands[i], schema.arguments()[i], i, step);
  }
  step.writes = find_writes(schema, operands);
  plan_.max_arguments = std::max({plan_.max_arguments, operands.size(), schema.returns().size()});
  define(result, schema, operands);
  plan_.steps.emplace_back(std::move(step));
}

c10::OperatorHandle PlanBuilder::resolve(const ir::Call& call) const {
  const auto op = c10::Dispatcher::singleton().findSchema({call.name, call.overload});
  if (!op) fail("unknown operator; register it in this process, or compile again with this version of torch");
  if (op->schema().is_vararg() || op->schema().is_varret()) fail("operators with a variable number of arguments are not supported");
  return *op;
}

/// One operand for each argument of the schema, null where its default stands.
std::vector<const Operand*> PlanBuilder::match(const ir::Call& call, const c10::FunctionSchema& schema) const {
  const auto& arguments = schema.arguments();
  const auto n_positional = static_cast<std::size_t>(
      std::ranges::count_if(arguments, [](const c10::Argument& argument) { return !argument.kwarg_only(); }));
  if (call.arguments.size() > n_positional)
    fail(fmt::format("expected at most {} positional arguments, found {}", n_positional, call.arguments.size()));
  std::vector<const Operand*> operands(arguments.size(), nullptr);
  for (std::size_t i = 0; i < call.arguments.size(); ++i) operands[i] = &call.arguments[i];
  for (const auto& [keyword, operand] : call.keywords) {
    const auto found = std::ranges::find(arguments, keyword, [](const c10::Argument& argument) { return argument.name(); });
    if (found == arguments.end())
      fail(fmt::format("unknown keyword '{}'; the schema is {}", keyword, fmt::to_string(schema.name())));
    const Operand*& place = operands[static_cast<std::size_t>(found - arguments.begin())];
    if (place != nullptr) fail(fmt::format("argument '{}' is given twice", keyword));
    place = &operand;
  }
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (operands[i] == nullptr && !arguments[i].default_value()) fail(fmt::format("argument '{}' is missing", arguments[i].name()));
  return operands;
}

void PlanBuilder::place(const Operand& operand, const c10::Argument& argument, Index position, CallStep& step) {
  const auto misfit = [&](const std::string& found) {
    fail(fmt::format("argument '{}' takes {}, found {}", argument.name(), argument.real_type()->str(), found));
  };
  if (const ValueId* value = std::get_if<ValueId>(&operand.is)) {
    const Known& known = single(*value);
    if (known.type != nullptr && !known.type->isSubtypeOf(*argument.type()))
      misfit(fmt::format("'{}', which is {}", name(*value), known.type->str()));
    step.values.push_back({.argument = position, .value = read(*value)});
  } else if (holds_values(operand)) {
    if (element_type(argument) == nullptr) misfit(describe(operand));
    step.lists.push_back(make_list(std::get<Operand::List>(operand.is), argument, position));
  } else {
    std::optional<c10::IValue> constant = box_constant(operand, argument);
    if (!constant) misfit(describe(operand));
    // A number is one constant for all runs: an operator that writes into it, or hands out a view of it, would change the program.
    if (constant->isTensor() && argument.alias_info() != nullptr)
      misfit(describe(operand) + ", into which the operator could write");
    step.arguments[position] = std::move(*constant);
  }
}

ListArgument PlanBuilder::make_list(const Operand::List& items, const c10::Argument& argument, Index position) {
  ListArgument list{.argument = position, .element_type = element_type(argument), .elements = {}};
  for (const Operand& item : items) {
    const ValueId* value = std::get_if<ValueId>(&item.is);
    const auto misfit = [&](const std::string& found) {
      fail(fmt::format("argument '{}' takes {}, found {} in the list", argument.name(), argument.real_type()->str(), found));
    };
    if (value != nullptr) {
      const Known& known = single(*value);
      if (known.type != nullptr && !known.type->isSubtypeOf(*list.element_type))
        misfit(fmt::format("'{}', which is {},", name(*value), known.type->str()));
      list.elements.emplace_back(read(*value));
    } else {
      std::optional<c10::IValue> constant = box_element(item, argument);
      if (!constant) misfit(describe(item));
      list.elements.emplace_back(std::move(*constant));
    }
  }
  return list;
}

std::vector<std::vector<Index>> PlanBuilder::argument_aliases(const std::vector<const Operand*>& operands) {
  std::vector<std::vector<Index>> aliases(operands.size());
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto include = [&](const Operand& operand) {
      if (const ValueId* value = std::get_if<ValueId>(&operand.is)) aliases[i] = merge(aliases[i], single(*value).aliases);
    };
    if (operands[i] == nullptr) continue;
    include(*operands[i]);
    if (const Operand::List* items = std::get_if<Operand::List>(&operands[i]->is)) std::ranges::for_each(*items, include);
  }
  return aliases;
}

std::vector<Write> PlanBuilder::find_writes(const c10::FunctionSchema& schema, const std::vector<const Operand*>& operands) {
  const std::vector<std::vector<Index>> aliases = argument_aliases(operands);
  std::vector<Write> writes;
  const auto is_false = [&](std::size_t i) {
    const bool* flag = operands[i] == nullptr ? nullptr : std::get_if<bool>(&operands[i]->is);
    return flag != nullptr && !*flag;
  };
  for (const Index argument : aten::written_arguments(schema, is_false))
    if (!aliases[argument].empty()) writes.push_back({.argument = argument, .watched = watch(aliases[argument])});
  return writes;
}

void PlanBuilder::define(ValueId result, const c10::FunctionSchema& schema, const std::vector<const Operand*>& operands) {
  const std::vector<std::vector<Index>> aliases = argument_aliases(operands);
  Definition definition{.results = {}, .step = plan_.steps.size(), .single = schema.returns().size() == 1};
  for (const c10::Argument& returned : schema.returns()) {
    Known& known = definition.results.emplace_back(Known{.type = returned.type(), .slot = std::nullopt, .aliases = {}});
    for (const Index argument : aten::aliased_arguments(schema, returned)) known.aliases = merge(known.aliases, aliases[argument]);
  }
  definitions_.at(static_cast<std::size_t>(result.index)) = std::move(definition);
}

void PlanBuilder::add(const ir::GetItem& item, ValueId result) {
  Definition& source = defined(item.source);
  const bool from_list = source.single;
  if (from_list) {
    Known& list = source.results.front();
    const auto* list_type = list.type == nullptr ? nullptr : list.type->castRaw<c10::ListType>();
    if (list_type == nullptr || item.index < 0)
      fail(fmt::format("'{}[{}]': expected a list or an operator with several results", name(item.source), item.index));
    Known known{.type = list_type->getElementType(), .slot = plan_.n_slots++, .aliases = list.aliases};
    plan_.steps.emplace_back(ItemStep{.list = read(item.source), .index = item.index, .slot = *known.slot});
    definitions_.at(static_cast<std::size_t>(result.index)) =
        Definition{.results = {std::move(known)}, .step = plan_.steps.size() - 1};
    return;
  }
  if (item.index < 0 || item.index >= static_cast<std::int64_t>(source.results.size()))
    fail(fmt::format("'{}[{}]': the operator has {} results", name(item.source), item.index, source.results.size()));
  Known& known = source.results[static_cast<std::size_t>(item.index)];
  slot_of(known, source.step, static_cast<Index>(item.index));
  definitions_.at(static_cast<std::size_t>(result.index)) = Definition{.results = {known}, .step = source.step};
}

void PlanBuilder::add_outputs() {
  for (std::size_t i = 0; i < program_.outputs.size(); ++i) {
    const Operand& operand = program_.outputs[i];
    where_ = fmt::format("output {}", i);
    if (const ValueId* value = std::get_if<ValueId>(&operand.is)) {
      const Known& known = single(*value);
      if (known.type != nullptr && known.type->castRaw<c10::ListType>() != nullptr)
        fail(fmt::format("'{}' is a list, no leaf", name(*value)));
      plan_.outputs.push_back({.value = read(*value), .watched = watch(known.aliases)});
    } else {
      std::optional<c10::IValue> constant = box_literal(operand);
      if (!constant) fail(fmt::format("expected a value or a plain literal, found {}", describe(operand)));
      plan_.outputs.push_back({.value = std::move(*constant), .watched = {}});
    }
  }
}

/// Goes through all reads from the last to the first.
void PlanBuilder::mark_last_reads() {
  std::vector<bool> read_later(plan_.n_slots, false);
  const auto mark = [&](Read& read) {
    read.last = !read_later[read.slot];
    read_later[read.slot] = true;
  };
  const auto mark_if_read = [&](std::variant<Read, c10::IValue>& value) {
    if (Read* read = std::get_if<Read>(&value)) mark(*read);
  };
  const auto backwards = [](auto& range, const auto& visit) { std::for_each(range.rbegin(), range.rend(), visit); };
  const auto mark_call = [&](CallStep& call) {
    backwards(call.lists, [&](ListArgument& list) { backwards(list.elements, mark_if_read); });
    backwards(call.values, [&](ValueArgument& value) { mark(value.value); });
  };
  backwards(plan_.outputs, [&](Output& output) { mark_if_read(output.value); });
  backwards(plan_.steps, [&](std::variant<CallStep, ItemStep>& step) {
    if (ItemStep* item = std::get_if<ItemStep>(&step))
      mark(item->list);
    else
      mark_call(std::get<CallStep>(step));
  });
}

void PlanBuilder::note_uses() {
  plan_.uses.resize(plan_.n_inputs);
  const auto read = [&](const Read& read) {
    if (read.slot < plan_.n_inputs) plan_.uses[read.slot].read = true;
  };
  const auto read_if = [&](const std::variant<Read, c10::IValue>& value) {
    if (const Read* is = std::get_if<Read>(&value)) read(*is);
  };
  for (const auto& step : plan_.steps) {
    const CallStep* call = std::get_if<CallStep>(&step);
    if (call == nullptr) {
      read(std::get<ItemStep>(step).list);
      continue;
    }
    for (const ValueArgument& argument : call->values) read(argument.value);
    for (const ListArgument& list : call->lists) std::ranges::for_each(list.elements, read_if);
    for (const Write& write : call->writes)
      for (const Index place : write.watched) plan_.uses[plan_.watched_inputs[place]].written = true;
  }
  for (const Output& output : plan_.outputs) {
    read_if(output.value);
    for (const Index place : output.watched) plan_.uses[plan_.watched_inputs[place]].returned = true;
  }
}

Definition& PlanBuilder::defined(ValueId value) {
  if (value.index < 0 || static_cast<std::size_t>(value.index) >= definitions_.size())
    fail(fmt::format("no value {}", value.index));
  std::optional<Definition>& definition = definitions_[static_cast<std::size_t>(value.index)];
  if (!definition) fail(fmt::format("'{}' is used before it is defined", name(value)));
  return *definition;
}

Known& PlanBuilder::single(ValueId value) {
  Definition& definition = defined(value);
  if (!definition.single)
    fail(fmt::format("'{}' has {} results: take one of them, as '{}[0]'", name(value), definition.results.size(), name(value)));
  return definition.results.front();
}

/// The slot of a result; the first read of it makes the call keep it.
Index PlanBuilder::slot_of(Known& known, std::size_t step, Index result) {
  if (!known.slot) {
    known.slot = plan_.n_slots++;
    std::get<CallStep>(plan_.steps[step]).results.push_back({.result = result, .slot = *known.slot});
  }
  return *known.slot;
}

std::vector<Index> PlanBuilder::watch(const std::vector<Index>& inputs) {
  std::vector<Index> places;
  for (const Index input : inputs) {
    auto found = std::ranges::find(plan_.watched_inputs, input);
    if (found == plan_.watched_inputs.end()) found = plan_.watched_inputs.insert(found, input);
    places.push_back(static_cast<Index>(found - plan_.watched_inputs.begin()));
  }
  return places;
}

}  // namespace

Plan make_plan(const ir::Program& program) {
  return PlanBuilder(program).build();
}

}  // namespace precast::eager
