#pragma once

#include "data.h"
#include "model.h"
#include "parallel.h"

#include "precast/communicator.h"

#include <functional>
#include <vector>

namespace gpt {

/// Mean over all ranks of what each found for its own data; a DTensor's loss is the mean already. Collective.
double mean_over_ranks(const precast::Communicator& comm, double value, const Config& config, torch::Device device);

/// A model with its optimizer, the step that fills its gradients, and a clock. The job trains one by the compiled step and, with
/// --check eager, a second one by LibTorch eager: all else is the same code.
class Trainee {
 public:
  using StepFunction = std::function<torch::Tensor(Gpt&, const torch::Tensor&, const torch::Tensor&)>;

  Trainee(const Config& config, torch::Device device);

  /// Copies of another's parameters and optimizer state; its step is eager's. Collective where they are distributed.
  static Trainee eager_twin(const Config& config, torch::Device device, const Parallel& parallel, Trainee& other);

  /// Runs the micro-batches of one step and averages the gradients over the ranks. Returns the mean loss over both. Collective.
  double accumulate_gradients(const precast::Communicator& comm, const Config& config, const Parallel& parallel,
                              const Loader& loader, std::int64_t step);
  /// Ends the step that accumulate_gradients began: clips, updates, clears the gradients.
  void update(const Config& config, std::int64_t step);

  Gpt model;
  torch::optim::AdamW optimizer;
  StepFunction step_function;
  std::vector<double> step_ms;  ///< One for each finished step.

 private:
  torch::Device device_;
};

/// Largest absolute difference between the gradients of two models of one structure; infinity where only one has a gradient.
/// Collective where they are distributed.
double max_abs_grad_diff(const Gpt& a, const Gpt& b);

}  // namespace gpt
