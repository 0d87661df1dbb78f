#include "job.h"

#include "agreement.h"
#include "checkpoint.h"
#include "error.h"
#include "files.h"
#include "progress.h"
#include "report.h"
#include "steps.h"
#include "trainee.h"

#include "precast/precast.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>

namespace gpt {
namespace {

using torch::Tensor;

/// A GPU where the communicator can reduce what is on it and each rank of this machine has its own.
torch::Device choose_device(const precast::Communicator& comm) {
  const bool has_gpu =
      comm.transport() != "gloo" && torch::cuda::is_available() && torch::cuda::device_count() >= comm.local_size();
  return has_gpu ? torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(comm.local_rank())) : torch::Device(torch::kCPU);
}

Tensor generator_state(torch::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state().clone();
}

void set_generator_state(torch::Device device, const Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

class Job {
 public:
  Job(const precast::Communicator& comm, const Config& config, const JobOptions& options)
      : comm_(comm), config_(config), options_(options), device_(choose_device(comm)) {
    together(comm_, deadline(), [&] {
      check_memory();
      check_outputs();
    });
    parallel_ = make_parallel(comm_, config_);
    prepare_training();
  }

  int run();

 private:
  [[nodiscard]] std::chrono::seconds deadline() const { return std::chrono::seconds(config_.deadline.collective); }
  [[nodiscard]] std::filesystem::path checkpoint_file() const {
    return std::filesystem::path(config_.checkpoint.path) / "checkpoint";
  }
  [[nodiscard]] bool is_root() const { return comm_.rank() == 0; }

  void check_memory() const;
  void check_outputs() const;
  void prepare_training();
  void build();
  void broadcast_initial_state();
  void resume();
  template <class Fn>
  precast::Step<Tensor> compile(Fn fn, const Batch& example, precast::CompileReport& report);
  void train_one_step(std::int64_t step);
  void compare_with_eager(const Tensor& generator_before, std::int64_t step);
  double evaluate();
  void save_checkpoint();
  [[nodiscard]] Identity identity() const;
  int print_verdict() const;

  const precast::Communicator& comm_;
  const Config& config_;
  const JobOptions& options_;
  torch::Device device_;
  Parallel parallel_;
  std::unique_ptr<Loader> train_data_, held_out_;
  Identity text_;  // Path and size alone would not tell of text that was edited, or that differs between ranks.
  std::unique_ptr<Trainee> trainee_, eager_;
  Trainee::StepFunction eval_step_;
  JobRecord record_;
};

/// @param what  names the option; an empty folder is none.
void make_folder(std::string_view what, const std::filesystem::path& folder) {
  if (folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error || ::access(folder.c_str(), W_OK) != 0)
    throw JobError(fmt::format("{}: expected a folder that can be written, found '{}'{}", what, folder.string(),
                               error ? " (" + error.message() + ")" : ""));
}

// The kernel ends a process that takes too much, and nobody learns why. A mesh may share out all but the values, which each rank
// draws whole.
void Job::check_memory() const {
  const auto n = static_cast<double>(n_parameters(config_.model, config_.train.sequence));
  constexpr double kGigabyte = 1e9;
  const double tensors = !config_.plan.empty() || device_.is_cuda() ? 1 : options_.check_eager ? 8 : 4;  // gradient, two of AdamW
  const double needed = n * sizeof(float) * tensors * comm_.local_size() / kGigabyte;
  const double there = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / kGigabyte;
  if (needed > there)
    throw JobError(fmt::format(
        "config keys model.layers = {}, model.width = {}, train.sequence = {}: expected a model that {} rank(s) of this "
        "machine can hold in {:.0f} GB, found {:.3g} parameters, which take {:.0f} GB",
        config_.model.layers, config_.model.width, config_.train.sequence, comm_.local_size(), there, n, needed));
}

// A job of hours must not find out at its end that its report has nowhere to go.
void Job::check_outputs() const {
  if (!is_root()) return;
  if (!options_.report.empty()) {
    const auto folder = options_.report.has_parent_path() ? options_.report.parent_path() : std::filesystem::path(".");
    if (::access(folder.c_str(), W_OK) != 0 || !std::filesystem::is_directory(folder))
      throw JobError(fmt::format("--report: expected a folder that can be written, found '{}'", folder.string()));
    prepare_output(options_.report);
  }
  make_folder("--save-artifact", options_.artifact);
  make_folder("config key 'checkpoint.path'", config_.checkpoint.path);
  if (!options_.artifact.empty())
    for (const char* name : {"step.py", "step.cache"}) prepare_output(options_.artifact / name);
  if (!config_.checkpoint.path.empty()) prepare_output(checkpoint_file());
}

void Job::prepare_training() {
  const auto phase = comm_.enter("prepare training");
  together(comm_, deadline(), [&] { build(); });
  require_equal(comm_, deadline(), text_);
  broadcast_initial_state();
}

void Job::build() {
  Corpus corpus = read_corpus(config_.data);
  const Config::Train& t = config_.train;
  const Loader::Shape shape{t.sequence, t.batch, t.accumulate, parallel_.n_data_ranks, parallel_.data_rank};
  train_data_ =
      std::make_unique<Loader>(std::move(corpus.train), "training text", shape, static_cast<std::uint64_t>(t.seed), device_);
  Loader::Shape held_out_shape = shape;
  held_out_shape.accumulate = 1;
  constexpr std::uint64_t kHeldOutSeed = 0;  // every run of every seed is measured on the same text
  held_out_ = std::make_unique<Loader>(std::move(corpus.held_out), "held-out text", held_out_shape, kHeldOutSeed, device_);
  text_ = {{"bytes of training text", fmt::format("{}", train_data_->n_bytes())},
           {"fingerprint of training text", fmt::format("{:016x}", train_data_->fingerprint())},
           {"fingerprint of held-out text", fmt::format("{:016x}", held_out_->fingerprint())}};
  torch::manual_seed(static_cast<std::uint64_t>(t.seed));
  trainee_ = std::make_unique<Trainee>(config_, device_);
  trainee_->model->train();
}

void Job::broadcast_initial_state() {
  precast::broadcast_module(*trainee_->model, comm_, deadline());
  parallel_.distribute(*trainee_->model);
  // Rank 0 goes on with the stream that drew the weights, so that a run on one rank is what eager would do. DTensors draw by the
  // index of an element in the whole tensor, from one stream on all ranks.
  if (!is_root() && !parallel_.mesh) torch::manual_seed(static_cast<std::uint64_t>(config_.train.seed + comm_.rank()));
  if (config_.checkpoint.resume) resume();
  if (options_.check_eager) {
    const Tensor state = generator_state(device_);
    eager_ = std::make_unique<Trainee>(Trainee::eager_twin(config_, device_, parallel_, *trainee_));
    set_generator_state(device_, state);
    record_.eager.emplace().losses = record_.curve.losses;
  }
}

void Job::resume() {
  std::vector<std::byte> bytes;
  together(comm_, deadline(), [&] {  // rank 0 alone needs to see the file
    if (is_root()) bytes = read_file(checkpoint_file());
  });
  comm_.broadcast(bytes, 0, precast::after(deadline()));
  together(comm_, deadline(), [&] {
    Resumed resumed =
        unpack_checkpoint(bytes, identity(), *trainee_->model, trainee_->optimizer, parallel_.mesh ? 0 : comm_.rank());
    if (resumed.curve.step() >= config_.train.steps)
      throw JobError(
          fmt::format("config key 'train.steps': expected more than the checkpoint's {}, found {}: nothing is left to do",
                      resumed.curve.step(), config_.train.steps));
    record_.curve = std::move(resumed.curve);
    set_generator_state(device_, resumed.generator);
  });
}

Identity Job::identity() const {
  Identity out = curve_settings(config_);
  if (parallel_.mesh) {  // its curve does not depend on how the ranks are used
    out.erase("train.batch");
    out.erase("train.accumulate");
    out["global batch"] = fmt::format("{}", config_.train.batch * config_.train.accumulate * parallel_.n_data_ranks);
  } else {
    out["number of ranks"] = fmt::format("{}", comm_.size());
  }
  out.insert(text_.begin(), text_.end());
  out["device"] = c10::DeviceTypeName(device_.type(), /*lower_case=*/true);
  return out;
}

template <class Fn>
precast::Step<Tensor> Job::compile(Fn fn, const Batch& example, precast::CompileReport& report) {
  precast::Options options;
  options.backend = config_.backend;
  options.fallback = config_.fallback;
  options.inductor = config_.inductor;
  options.compile_deadline = std::chrono::seconds(config_.deadline.compile);
  options.collective_deadline = deadline();
  try {
    return precast::compile_on_one_rank(comm_, fn, options, report, trainee_->model, parallel_.place(example.tokens),
                                        parallel_.place(example.targets));
  } catch (const precast::PrecompileError& error) {
    if (error.code() == precast::ErrorCode::lost_rank) throw;  // rank 0 may be the one that is gone
    throw AgreedError(error.what());
  }
}

int Job::run() {
  const std::int64_t first = record_.curve.step(), last = config_.train.steps;
  record_.init_s = seconds_since_process_start();
  const auto phase = comm_.enter("training");
  const auto step = compile(make_train_step(config_.train), train_data_->batch(first, 0), record_.train);
  trainee_->step_function = step;
  if (!options_.artifact.empty())
    together(comm_, deadline(), [&] {
      if (is_root()) precast::save_artifact(step.artifact(), options_.artifact / "step.py", options_.artifact / "step.cache");
    });

  const std::int64_t tokens_per_step =
      config_.train.batch * config_.train.sequence * config_.train.accumulate * parallel_.n_data_ranks;
  Progress progress(is_root(), is_root() && output_is_terminal(comm_.launcher()), first, last, tokens_per_step);
  for (std::int64_t s = first; s < last; ++s) {
    train_one_step(s);
    progress.step_done(s, record_.curve.losses.back());
    if (s + 1 == last || (config_.eval.every > 0 && (s + 1) % config_.eval.every == 0)) {
      record_.curve.eval_losses.push_back(evaluate());
      progress.evaluated(s, record_.curve.eval_losses.back());
    }
    const bool due = config_.checkpoint.every > 0 && (s + 1) % config_.checkpoint.every == 0;
    if (!config_.checkpoint.path.empty() && (due || s + 1 == last)) save_checkpoint();
  }
  progress.finish();

  record_.step_ms = trainee_->step_ms;
  double total_ms = 0.0;
  for (const double ms : record_.step_ms) total_ms += ms;
  record_.tokens_per_s = static_cast<double>(tokens_per_step * (last - first)) / (total_ms / 1000.0);
  if (eager_) record_.eager->step_ms = eager_->step_ms;
  const auto report_phase = comm_.enter("write report");
  if (!options_.report.empty()) write_report(options_.report, comm_, config_, record_);
  return eager_ ? print_verdict() : 0;
}

void Job::train_one_step(std::int64_t step) {
  const Tensor generator_before = eager_ ? generator_state(device_) : Tensor();
  record_.curve.losses.push_back(trainee_->accumulate_gradients(comm_, config_, parallel_, *train_data_, step));
  if (record_.first_step_s == 0.0) record_.first_step_s = seconds_since_process_start();
  if (eager_) compare_with_eager(generator_before, step);
  trainee_->update(config_, step);
}

// The twin sees the same stream of random numbers; the compiled step's own position in it is put back.
void Job::compare_with_eager(const Tensor& generator_before, std::int64_t step) {
  const Tensor generator_after = generator_state(device_);
  set_generator_state(device_, generator_before);
  EagerComparison& found = *record_.eager;
  found.losses.push_back(eager_->accumulate_gradients(comm_, config_, parallel_, *train_data_, step));
  set_generator_state(device_, generator_after);
  const double difference = max_abs_grad_diff(trainee_->model, eager_->model);
  if (!std::isnan(found.max_abs_grad_diff) && !(difference <= found.max_abs_grad_diff)) found.max_abs_grad_diff = difference;
  eager_->update(config_, step);
}

double Job::evaluate() {
  const auto phase = comm_.enter("evaluation");
  trainee_->model->eval();
  if (!eval_step_) eval_step_ = compile(make_eval_step(config_.train), held_out_->batch(0, 0), record_.eval);
  const std::int64_t n_batches = std::min(config_.eval.batches, held_out_->steps_per_epoch());
  double loss = 0.0;
  for (std::int64_t i = 0; i < n_batches; ++i) {
    const Batch batch = held_out_->batch(i, 0);
    loss += eval_step_(trainee_->model, parallel_.place(batch.tokens), parallel_.place(batch.targets)).item<double>();
  }
  trainee_->model->train();
  return mean_over_ranks(comm_, loss / static_cast<double>(n_batches), config_, device_);
}

void Job::save_checkpoint() {
  const auto phase = comm_.enter("save checkpoint");
  const Tensor mine = generator_state(device_);
  std::vector<Tensor> generators;
  const std::span stream(static_cast<const std::byte*>(mine.data_ptr()), mine.nbytes());
  for (const auto& bytes : comm_.all_gather(stream, precast::after(deadline()))) {
    generators.push_back(torch::empty({static_cast<std::int64_t>(bytes.size())}, torch::kUInt8));
    std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(generators.back().data_ptr()));
  }
  const TrainingState state = whole_state(*trainee_->model, trainee_->optimizer);
  if (parallel_.mesh) generators.resize(1);  // all ranks draw from one stream
  together(comm_, deadline(), [&] {
    if (is_root()) write_atomically(checkpoint_file(), pack_checkpoint(identity(), state, record_.curve, generators));
  });
}

int Job::print_verdict() const {
  const bool exact = device_.is_cpu() && config_.backend == "eager";  // one order of additions on both sides
  const CheckVerdict verdict = judge(record_.curve.losses, *record_.eager, exact);
  if (is_root()) fmt::print("{}\n", verdict.text);
  return verdict.passed ? 0 : 1;
}

}  // namespace

int run_job(const precast::Communicator& comm, const Config& config, const JobOptions& options) {
  return Job(comm, config, options).run();
}

}  // namespace gpt
