// One rank compiles by TorchInductor, every rank runs the package: against the eager backend and LibTorch eager on the same rank.

#include "dtensor/placed.h"
#include "precast/precast.h"
#include "rank_training.h"
#include "warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

namespace precast::test {
namespace {

namespace fs = std::filesystem;
using rank_test::communicator;
using rank_test::kTime;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Sets a variable of this process for a while.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() {
    if (before_)
      ::setenv(name_.c_str(), before_->c_str(), 1);
    else
      ::unsetenv(name_.c_str());
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

/// Each rank has a store of its own, empty at first and gone at the end: what a rank finds there must not decide what the job does.
class OwnStore : public ::testing::Environment {
 public:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("precast_inductor_rank_test_" + std::to_string(::getpid()));
    ::setenv("PRECAST_STORE", folder_.c_str(), 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

 private:
  fs::path folder_;
};
const auto* const kOwnStore = ::testing::AddGlobalTestEnvironment(new OwnStore);

Options inductor() {
  Options options{.backend = "inductor", .collective_deadline = kTime};
  options.inductor.target = "x86-64-v3";
  return options;
}

std::string maps() {
  std::ifstream file("/proc/self/maps");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::int64_t sum(std::int64_t mine) {
  const auto total = torch::tensor({mine});
  communicator().all_reduce(total, Reduction::sum, after(kTime));
  return total.item<std::int64_t>();
}

void expect_close(const at::Tensor& ours, const at::Tensor& expected, const std::string& what) {
  EXPECT_LE((ours - expected).norm().item<double>(), 1e-4 * expected.norm().item<double>() + 1e-7) << what;
}

TEST(InductorRanks, OneLoweringServesAllAndOthersNeedNoPythonOrCompiler) {  // C164, C147
  Mlp model = equal_model(), eager = copy_of(model, Mlp());
  const Batch batch(communicator().rank());
  CompileReport report;
  Step<at::Tensor> step;
  {
    std::optional<Variable> no_path, no_python;
    if (communicator().rank() != 0) {
      no_path.emplace("PATH", "");
      no_python.emplace("PRECAST_PYTHON", "/nowhere/python");
    }
    step = compile_on_one_rank(communicator(), kTrain, inductor(), report, model, batch.x, batch.y);
  }
  EXPECT_EQ(sum(report.lowerings), 1);
  EXPECT_EQ(report.lowerings, communicator().rank() == 0 ? 1 : 0);
  expect_close(step(model, batch.x, batch.y), kTrain(eager, batch.x, batch.y), "loss");
  for (const auto& parameter : eager->named_parameters())
    expect_close(model->named_parameters()[parameter.key()].grad(), parameter.value().grad(), parameter.key());
  for (const char* library : {"libpython", "libtorch_python"}) EXPECT_EQ(maps().find(library), std::string::npos) << library;
  EXPECT_NE(maps().find("precast-kernels"), std::string::npos);  // the package's own library
}

TEST(InductorRanks, ARankThatCannotRunThePackageRunsAloneOpByOp) {  // C69, C201
  Mlp model = equal_model(), eager = copy_of(model, Mlp());
  const Batch batch(communicator().rank());
  const bool odd = communicator().rank() == 1;
  std::optional<Variable> lesser;
  if (odd) lesser.emplace("PRECAST_CPU", "x86-64-v2");
  Warnings warnings;
  const auto step = compile_on_one_rank(communicator(), kTrain, inductor(), model, batch.x, batch.y);
  EXPECT_EQ(warnings.count("cannot run the kernel package"), odd ? 1 : 0);
  if (odd) {
    EXPECT_THAT(warnings.texts.back(), AllOf(HasSubstr("rank 1 of"), HasSubstr("x86-64-v3"), HasSubstr("avx2")));
  }
  expect_close(step(model, batch.x, batch.y), kTrain(eager, batch.x, batch.y), "loss");
}

TEST(InductorRanks, EachKindOfMachineCompilesOnce) {  // C203
  Mlp model = equal_model(), eager = copy_of(model, Mlp());
  const Batch batch(communicator().rank());
  std::optional<Variable> lesser;
  if (communicator().rank() == 1) lesser.emplace("PRECAST_CPU", "x86-64-v2");
  Options options = inductor();
  options.inductor.target.clear();
  CompileReport report;
  Warnings warnings;
  const auto step = compile_on_one_rank(communicator(), kTrain, options, report, model, batch.x, batch.y);
  EXPECT_EQ(sum(report.lowerings), communicator().size() > 1 ? 2 : 1);
  EXPECT_EQ(sum(report.captures), 1);
  EXPECT_EQ(warnings.count("kernel package"), 0);
  expect_close(step(model, batch.x, batch.y), kTrain(eager, batch.x, batch.y), "loss");
}

TEST(InductorRanks, AFailedLoweringIsOneErrorOnAllRanks) {  // C194
  Mlp model = equal_model();
  const Batch batch(communicator().rank());
  const Variable no_python("PRECAST_PYTHON", "/nowhere/python");
  Options options = inductor();
  options.inductor.wrapper_opt_level = "O2";  // not in the store
  const std::string error = error_of([&] { compile_on_one_rank(communicator(), kTrain, options, model, batch.x, batch.y); });
  EXPECT_THAT(error, AllOf(HasSubstr("rank 0 of"), HasSubstr("lower"), HasSubstr("/nowhere/python")));
  EXPECT_TRUE(is_one_text(error));
}

TEST(InductorRanks, OrAllRanksRunOpByOpWhereThatIsAskedFor) {  // C194
  Mlp model = equal_model(), eager = copy_of(model, Mlp());
  const Batch batch(communicator().rank());
  const Variable no_python("PRECAST_PYTHON", "/nowhere/python");
  Options options = inductor();
  options.inductor.wrapper_opt_level = "O2";
  options.fallback = "eager";
  Warnings warnings;
  const auto step = compile_on_one_rank(communicator(), kTrain, options, model, batch.x, batch.y);
  EXPECT_EQ(warnings.count("op by op"), communicator().rank() == 0 ? 1 : 0);
  EXPECT_TRUE(torch::equal(step(model, batch.x, batch.y), kTrain(eager, batch.x, batch.y)));
}

// ---------------------------------------------------------------- programs with collectives

/// Sharded parameters and batch: the step gathers and reduces.
struct Sharded {
  Sharded() {
    torch::manual_seed(8);
    model = Mlp(/*dropout=*/0.25);
    Shard stored(0);
    stored.stored = true;
    distribute_module(*model, line(), {.parameters = {{"*", {stored}}}});
    torch::manual_seed(9);
    x = distribute_tensor(torch::randn({8, 8}), line(), {Shard(0)});
    y = distribute_tensor(torch::randint(0, 4, {8}), line(), {Shard(0)});
  }
  Mlp model{nullptr};
  at::Tensor x, y;
};

at::Tensor sharded_step(Mlp& model, const at::Tensor& x, const at::Tensor& y) {
  auto loss = torch::nn::functional::cross_entropy(model->forward(x), y);
  loss.backward();
  return loss.detach();
}

void expect_like_eager_backend(const Options& options) {
  Sharded ours, eager;
  const auto step = compile_on_one_rank(communicator(), sharded_step, options, ours.model, ours.x, ours.y);
  const auto expected =
      compile_on_one_rank(communicator(), sharded_step, Options{.backend = "eager"}, eager.model, eager.x, eager.y);
  for (int i = 0; i < 2; ++i) {
    torch::manual_seed(20 + i);
    const auto loss = full_tensor(step(ours.model, ours.x, ours.y));
    torch::manual_seed(20 + i);
    expect_close(loss, full_tensor(expected(eager.model, eager.x, eager.y)), "loss");
  }
  scatter_gradients(*ours.model, communicator());
  scatter_gradients(*eager.model, communicator());
  for (const auto& parameter : eager.model->named_parameters())
    expect_close(full_tensor(ours.model->named_parameters()[parameter.key()].grad()), full_tensor(parameter.value().grad()),
                 parameter.key());
}

TEST(InductorRanks, CollectivesRunInsideThePackage) {  // C145, C164
  Warnings warnings;
  expect_like_eager_backend(inductor());
  EXPECT_EQ(warnings.count("op by op"), 0);
}

TEST(InductorRanks, WithCollectivesAllRanksLeaveThePackageTogether) {  // C201
  std::optional<Variable> lesser;
  if (communicator().rank() == communicator().size() - 1) lesser.emplace("PRECAST_CPU", "x86-64-v2");
  Warnings warnings;
  expect_like_eager_backend(inductor());
  EXPECT_EQ(warnings.count("all ranks run the program op by op"), communicator().rank() == 0 ? 1 : 0);
}

}  // namespace
}  // namespace precast::test
