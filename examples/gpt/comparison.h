#pragma once

#include <string>
#include <vector>

namespace gpt {

/// What --check eager found: the same steps by LibTorch eager.
struct EagerComparison {
  std::vector<double> losses, step_ms;
  double max_abs_grad_diff = 0.0;  ///< Over all steps and parameters; NaN once only one side had one.
};

struct CheckVerdict {
  bool passed;
  std::string text;  ///< One line, with the first step that differs.
};

/// Compares the curves of the compiled step and of eager, which hold one loss a step; NaN equals NaN, as both may diverge.
/// @param exact  every loss and gradient must be equal to the last bit. Else the losses may be 2 % apart in the mean over all
/// steps: other kernels round otherwise, and training lets that grow.
CheckVerdict judge(const std::vector<double>& losses, const EagerComparison& eager, bool exact);

}  // namespace gpt
