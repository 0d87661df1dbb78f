#include "trainee.h"

#include "checkpoint.h"
#include "optimizer.h"
#include "steps.h"

#include "precast/data_parallel.h"

#include <cmath>
#include <limits>

namespace gpt {
namespace {

Gpt make_model(const Config& config, torch::Device device) {
  Gpt model(config.model, config.train.sequence);
  model->to(device);
  return model;
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// Largest absolute difference where infinities and NaNs that both have count as equal.
double difference_beside_equal(const torch::Tensor& x, const torch::Tensor& y) {
  const torch::Tensor equal = (x == y).logical_or(x.isnan().logical_and(y.isnan()));
  return (x - y).abs().masked_fill(equal, 0.0).max().item<double>();
}

}  // namespace

double mean_over_ranks(const precast::Communicator& comm, double value, const Config& config, torch::Device device) {
  if (comm.size() == 1 || !config.plan.empty()) return value;
  const torch::Tensor sum = torch::full({1}, value, torch::dtype(torch::kFloat64).device(device));
  comm.all_reduce(sum, precast::Reduction::sum, precast::after(std::chrono::seconds(config.deadline.collective)));
  return sum.item<double>() / comm.size();
}

Trainee::Trainee(const Config& config, torch::Device device)
    : model(make_model(config, device)), optimizer(make_optimizer(*model, config.optimizer)), device_(device) {}

Trainee Trainee::eager_twin(const Config& config, torch::Device device, const Parallel& parallel, Trainee& other) {
  Trainee twin(config, device);
  parallel.distribute(*twin.model);
  twin.step_function = make_train_step(config.train);
  // A checkpoint carries all there is to a training state, so it copies one too; the generator is the process's own.
  const auto bytes = pack_checkpoint({}, whole_state(*other.model, other.optimizer), {}, {torch::empty({0}, torch::kUInt8)});
  unpack_checkpoint(bytes, {}, *twin.model, twin.optimizer, 0);
  return twin;
}

double Trainee::accumulate_gradients(const precast::Communicator& comm, const Config& config, const Parallel& parallel,
                                     const Loader& loader, std::int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  double loss = 0.0;
  for (std::int64_t micro = 0; micro < config.train.accumulate; ++micro) {
    const Batch batch = loader.batch(step, micro);
    loss += step_function(model, parallel.place(batch.tokens), parallel.place(batch.targets))
                .item<double>();  // already divided by the number of micro-batches
  }
  precast::ScatterOptions options;
  options.deadline = std::chrono::seconds(config.deadline.collective);
  precast::scatter_gradients(*model, comm, options);
  step_ms.push_back(milliseconds_since(start));
  return mean_over_ranks(comm, loss, config, device_);
}

void Trainee::update(const Config& config, std::int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  gpt::update(*model, optimizer, config.optimizer, step);
  step_ms.back() += milliseconds_since(start);
}

double max_abs_grad_diff(const Gpt& a, const Gpt& b) {
  double largest = 0.0;
  const auto ours = a->parameters(), theirs = b->parameters();
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const torch::Tensor x = ours[i].grad(), y = theirs[i].grad();
    if (x.defined() != y.defined()) return std::numeric_limits<double>::infinity();
    if (!x.defined()) continue;
    double difference = (x - y).abs().max().item<double>();
    if (std::isnan(difference)) difference = difference_beside_equal(whole(x), whole(y));
    if (!(difference <= largest)) largest = difference;  // a NaN is a difference, and stays
    if (std::isnan(largest)) break;
  }
  return largest;
}

}  // namespace gpt
