#pragma once

#include "dtensor/strategy.h"
#include "dtensor/tensor/layout.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string_view>
#include <vector>

namespace precast::dtensor {

/// An operator call once its operands lie as its strategy wants them.
struct LocalCall {
  const c10::OperatorHandle& op;
  torch::jit::Stack arguments;  ///< The op's arguments, tensors local, shapes local.
  const DeviceMesh& mesh;
  const Strategy& strategy;
  const std::vector<Sizes>& shapes;  ///< Global shapes of the tensor arguments, in order.
};

/// Runs an operator whose plain call on local tensors would be wrong, and returns its local results.
using LocalForm = torch::jit::Stack (*)(LocalCall call);

/// @throws std::out_of_range  the operator has no local form.
LocalForm local_form_of(std::string_view op);

}  // namespace precast::dtensor
