#pragma once

#include "ir/program.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>

namespace precast::eager {

/// The boxed form of a constant operand in the place of `argument`, or nothing where it does not fit the argument's type.
/// Enumerations become integers, a number in a tensor's place becomes a wrapped number, one integer fills a list of fixed length.
std::optional<c10::IValue> box_constant(const ir::Operand& operand, const c10::Argument& argument);

/// The boxed form of a constant operand by itself. Only None and Python's own literals have one; a list has none.
std::optional<c10::IValue> box_literal(const ir::Operand& operand);

/// Whether the operand is a list with values in it, which has to be put together at each run.
[[nodiscard]] bool holds_values(const ir::Operand& operand);

/// A constant element of such a list. The argument must be a list or an optional list.
std::optional<c10::IValue> box_element(const ir::Operand& operand, const c10::Argument& argument);

/// The element type of a list argument as the stack has it; null if the argument is no list.
c10::TypePtr element_type(const c10::Argument& argument);

/// For messages: "None", "the string 'mean'", "the list [1, 2]", ...
std::string describe(const ir::Operand& operand);

}  // namespace precast::eager
