#pragma once

#include "ir/program.h"

#include <ATen/core/function_schema.h>

#include <cstdint>
#include <vector>

namespace precast::eager {

/// Arguments of an operator that it writes into: those its schema says, and the running statistics that batch normalisation in
/// training updates without saying so. `operands` has null for defaults.
std::vector<std::uint32_t> written_arguments(const c10::FunctionSchema& schema, const std::vector<const ir::Operand*>& operands);

/// Arguments that a result may be, or be a view of.
std::vector<std::uint32_t> aliased_arguments(const c10::FunctionSchema& schema, const c10::Argument& returned);

/// Union of two ascending lists.
std::vector<std::uint32_t> merge(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b);

}  // namespace precast::eager
