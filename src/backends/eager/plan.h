#pragma once

#include "backends/eager/input_layout.h"
#include "ir/program.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace precast::eager {

using Index = std::uint32_t;

/// A read of a slot. The last one empties it, so that a value lives no longer than it is needed.
struct Read {
  Index slot;
  bool last = false;
};

/// A value as an argument of an operator.
struct ValueArgument {
  Index argument;
  Read value;
};

/// A list argument that holds values: built anew for each run, since a kernel may write into the list itself.
struct ListArgument {
  Index argument;
  c10::TypePtr element_type;
  std::vector<std::variant<Read, c10::IValue>> elements;
};

/// Keeps one of the operator's results.
struct Result {
  Index result;
  Index slot;
};

/// The operator writes into an argument which may share memory with these inputs (places in Plan::watched_inputs).
struct Write {
  Index argument;
  std::vector<Index> watched;
};

struct CallStep {
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;  ///< Constants in their places, None where a value or a list goes.
  std::vector<ValueArgument> values;
  std::vector<ListArgument> lists;
  std::vector<Write> writes;
  std::vector<Result> results;
};

/// Takes one tensor out of a Tensor[] value.
struct ItemStep {
  Read list;
  std::int64_t index;
  Index slot;
};

struct Output {
  std::variant<Read, c10::IValue> value;
  std::vector<Index> watched;  ///< Inputs (places in Plan::watched_inputs) that it may be, or be a view of.
};

/// A program with everything decided that does not depend on its inputs. Slots 0 .. n_inputs - 1 are the inputs.
struct Plan {
  Index n_inputs = 0;
  Index n_slots = 0;
  std::size_t max_arguments = 0;
  std::vector<std::variant<CallStep, ItemStep>> steps;
  std::vector<Output> outputs;
  std::vector<Index> watched_inputs;  ///< Inputs that the program may write into or return.
  std::vector<InputUse> uses;         ///< One entry an input.
};

/// @throws PrecompileError invalid_artifact  names line, operator, and what does not fit its schema.
Plan make_plan(const ir::Program& program);

}  // namespace precast::eager
