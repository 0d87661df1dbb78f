#pragma once

#include <ATen/core/function_schema.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace precast::aten {

/// Arguments of an operator that it writes into: those its schema says, and the running statistics that batch normalisation in
/// training updates without saying so. `is_false(i)`: whether argument i is known to be false, which is how evaluation is told from
/// training.
std::vector<std::uint32_t> written_arguments(const c10::FunctionSchema& schema, const std::function<bool(std::size_t)>& is_false);

/// Arguments that a result may be, or be a view of.
std::vector<std::uint32_t> aliased_arguments(const c10::FunctionSchema& schema, const c10::Argument& returned);

}  // namespace precast::aten
