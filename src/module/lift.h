#pragma once

#include "precast/step.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace precast::module {

using Modules = std::vector<detail::ModuleArgument>;

/// A parameter or buffer as a flat input of a program. With several module arguments its name starts with "m<i>.", i counting the
/// module arguments of the call.
struct LiftedTensor {
  std::string name;
  at::Tensor tensor;
};

/// The parameters of all modules, in registration order (a module's own first, then those of its children). One that is registered
/// under several names counts once, under its first name: tied means the same tensor object.
std::vector<LiftedTensor> lift_parameters(const Modules& modules);

/// The buffers likewise, without tensors that are among `parameters`.
std::vector<LiftedTensor> lift_buffers(const Modules& modules, const std::vector<LiftedTensor>& parameters);

/// A second name of a lifted tensor.
struct Tie {
  std::string name;
  std::string first_name;
};
std::vector<Tie> find_ties(const Modules& modules);

struct TrainingMode {
  std::string name;  ///< "" is a lone module argument itself; with several, "m<i>" is the i-th and "m<i>.fc1" its child.
  bool training;
  torch::nn::Module* module;
};

/// Each module's training flag, parents before children.
std::vector<TrainingMode> training_modes(const Modules& modules);

}  // namespace precast::module
