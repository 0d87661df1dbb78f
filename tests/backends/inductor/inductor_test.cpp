// Programs that TorchInductor compiled, against LibTorch eager. Compiling takes 10 to 30 s, so few programs are compiled and each
// is looked at from several sides; the binary is one entry of ctest, with an empty store.

#include "artifact/envelope.h"
#include "capture/modules.h"
#include "precast/precast.h"
#include "warnings.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <tuple>
#include <variant>

namespace precast::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

Options inductor() {
  return Options{.backend = "inductor"};
}

/// What a language model is made of, with tied weights, dropout, and batch normalisation for its hidden writes.
struct LanguageModelImpl : torch::nn::Module {
  LanguageModelImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(19, 16));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})));
    qkv = register_module("qkv", torch::nn::Linear(16, 48));
    drop = register_module("drop", torch::nn::Dropout(0.25));
    bn = register_module("bn", torch::nn::BatchNorm1d(16));
    head = register_module("head", std::make_shared<torch::nn::Module>());
    head->register_parameter("weight", embedding->weight);
    frozen = register_module("frozen", torch::nn::Linear(16, 16));
    for (at::Tensor& parameter : frozen->parameters()) parameter.requires_grad_(false);
  }
  at::Tensor forward(const at::Tensor& tokens) {
    auto x = embedding(tokens);
    const auto parts = qkv(norm(x)).view({x.size(0), x.size(1), 3, 2, 8}).permute({2, 0, 3, 1, 4}).unbind(0);
    const auto attention = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    x = x + drop(attention.transpose(1, 2).reshape(x.sizes()));
    x = frozen(bn(x.transpose(1, 2)).transpose(1, 2));
    return torch::linear(x, embedding->weight);
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear qkv{nullptr}, frozen{nullptr};
  torch::nn::Dropout drop{nullptr};
  torch::nn::BatchNorm1d bn{nullptr};
  std::shared_ptr<torch::nn::Module> head;
};
TORCH_MODULE(LanguageModel);

const auto kTrain = [](LanguageModel& model, const at::Tensor& tokens, const at::Tensor& targets) {
  auto loss = torch::nn::functional::cross_entropy(model->forward(tokens).view({-1, 19}), targets.view({-1}));
  loss.backward();
  return loss;
};

class InductorTraining : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    torch::manual_seed(2);
    LanguageModel example;
    artifact_ = precompile(kTrain, inductor(), example, tokens(), tokens());
  }
  static void TearDownTestSuite() { artifact_ = {}; }
  void SetUp() override {
    torch::manual_seed(4);
    eager_ = copy_of(model_, LanguageModel());
    step_ = load<at::Tensor>(artifact_);
  }

  static at::Tensor tokens() { return torch::randint(0, 19, {4, 6}); }

  static inline Artifact artifact_;
  LanguageModel model_, eager_;
  Step<at::Tensor> step_;
};

void expect_close(const at::Tensor& ours, const at::Tensor& eager, const std::string& what) {
  EXPECT_LE((ours - eager).norm().item<double>(), 1e-4 * eager.norm().item<double>() + 1e-7) << what;
}

TEST_F(InductorTraining, LossAndGradientsAreThoseOfEagerAndDropoutFollowsTheSeed) {  // C121, C125, C128, C136
  const auto x = tokens(), y = tokens();
  std::vector<double> losses;
  for (int i = 0; i < 3; ++i) {  // gradients accumulate
    torch::manual_seed(30 + i);
    const auto ours = step_(model_, x, y);
    torch::manual_seed(30 + i);
    expect_close(ours, kTrain(eager_, x, y), "loss");
    losses.push_back(ours.item<double>());
  }
  EXPECT_NE(losses[0], losses[1]);
  for (const auto& parameter : eager_->named_parameters()) {
    const at::Tensor& gradient = model_->named_parameters()[parameter.key()].grad();
    ASSERT_EQ(gradient.defined(), parameter.value().grad().defined()) << parameter.key();
    if (gradient.defined()) expect_close(gradient, parameter.value().grad(), parameter.key());
  }
}

TEST_F(InductorTraining, BuffersAreUpdated) {  // C131
  for (int i = 0; i < 3; ++i) {
    torch::manual_seed(i);
    const auto x = tokens(), y = tokens();
    torch::manual_seed(50 + i);
    step_(model_, x, y);
    torch::manual_seed(50 + i);
    kTrain(eager_, x, y);
  }
  expect_close(model_->bn->running_mean, eager_->bn->running_mean, "running mean");
  expect_close(model_->bn->running_var, eager_->bn->running_var, "running variance");
  EXPECT_EQ(model_->bn->num_batches_tracked.item<std::int64_t>(), 3);
}

TEST_F(InductorTraining, ALossCurveFollowsEager) {  // C126
  torch::optim::AdamW ours(model_->parameters(), torch::optim::AdamWOptions(1e-2)),
      eager(eager_->parameters(), torch::optim::AdamWOptions(1e-2));
  const auto x = tokens(), y = tokens();
  double first = 0, last = 0;
  for (int i = 0; i < 100; ++i) {
    torch::manual_seed(i);
    last = step_(model_, x, y).item<double>();
    torch::manual_seed(i);
    const double expected = kTrain(eager_, x, y).item<double>();
    ASSERT_NEAR(last, expected, 1e-3 * expected) << "step " << i;
    if (i == 0) first = last;
    for (auto* optimizer : {&ours, &eager}) {
      optimizer->step();
      optimizer->zero_grad();
    }
  }
  EXPECT_LT(last, 0.5 * first);
}

TEST_F(InductorTraining, AWeightLaidOutOtherwiseIsRefusedAndNamed) {  // C89
  model_->qkv->weight.set_data(model_->qkv->weight.detach().t().contiguous().t());
  try {
    step_(model_, tokens(), tokens());
    ADD_FAILURE();
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), ErrorCode::argument_mismatch);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'qkv.weight'"), HasSubstr("[16, 1]"), HasSubstr("[1, 48]")));
  }
  EXPECT_FALSE(model_->embedding->weight.grad().defined());
}

TEST_F(InductorTraining, AnInputLaidOutOtherwiseIsRefusedAndToldWhatToDo) {  // C94
  const auto x = tokens().t().contiguous().t();
  try {
    step_(model_, x, tokens());
    ADD_FAILURE();
  } catch (const PrecompileError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("input leaf 0"), HasSubstr("contiguous()"), HasSubstr("'eager'")));
  }
}

TEST_F(InductorTraining, ACallFromSeveralThreadsSumsGradients) {  // C169
  const auto x = tokens(), y = tokens();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back([&] { step_(model_, x, y); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(model_->embedding->weight.grad().isfinite().all().item<bool>());
  EXPECT_EQ(model_->bn->num_batches_tracked.item<std::int64_t>(), 4);
}

TEST_F(InductorTraining, AnotherLowerCpuTargetIsRecordedInTheFingerprint) {  // C73
  const auto envelope = std::get<artifact::Envelope>(artifact::read_envelope(artifact_.cache));
  EXPECT_THAT(envelope.fingerprint, ::testing::Contains(::testing::Key("torch_git")));
  EXPECT_THAT(envelope.fingerprint.at("cpu"), ::testing::StartsWith("x86-64"));
  EXPECT_EQ(envelope.fingerprint.at("threads"), "any");
  EXPECT_GT(envelope.artifact.size(), 10'000U);
}

TEST_F(InductorTraining, ASecondCaptureTakesThePackageFromTheStore) {  // C66, C74
  std::vector<std::string> lines;
  const LogSink before = set_log_sink([&](LogLevel, std::string_view text) { lines.emplace_back(text); });
  torch::manual_seed(2);
  LanguageModel example;
  const Artifact again = precompile(kTrain, inductor(), example, tokens(), tokens());
  set_log_sink(before);
  EXPECT_EQ(again.python_code, artifact_.python_code);
  EXPECT_EQ(again.cache, artifact_.cache);
  for (const std::string& line : lines) EXPECT_THAT(line, ::testing::Not(HasSubstr("compiling"))) << line;
}

TEST_F(InductorTraining, TheTextAloneFindsThePackageInTheStore) {  // C45, C68
  Warnings warnings;
  const auto step = load<at::Tensor>({.python_code = artifact_.python_code, .cache = {}});
  EXPECT_EQ(warnings.count("the cache is not used"), 1);
  const auto x = tokens(), y = tokens();
  torch::manual_seed(9);
  const auto ours = step(model_, x, y);
  torch::manual_seed(9);
  EXPECT_TRUE(torch::equal(ours, step_(eager_, x, y)));
}

TEST_F(InductorTraining, SubnormalNumbersAreAsBefore) {  // C75
  const auto tiny = torch::full({8}, 1e-40);
  EXPECT_TRUE((tiny * 0.5 > 0).all().item<bool>());
  step_(model_, tokens(), tokens());
  EXPECT_TRUE((tiny * 0.5 > 0).all().item<bool>());
}

// ---------------------------------------------------------------- memory that results share

using Shared = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, std::optional<at::Tensor>, std::int64_t>;

const auto kShare = [](const at::Tensor& x, const at::Tensor& state) {
  const auto y = x.exp();
  const at::Tensor written = state;
  written.mul_(2).add_(y.sum());
  return Shared{x.t(), y.view({6}), y.t(), written, std::nullopt, 5};
};

class InductorSharing : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { artifact_ = precompile(kShare, inductor(), torch::randn({2, 3}), torch::ones({2})); }
  static void TearDownTestSuite() { artifact_ = {}; }
  static inline Artifact artifact_;
};

TEST_F(InductorSharing, ResultsShareMemoryAsInEager) {  // C132, C133, C134, C20
  const auto step = load<Shared>(artifact_);
  const auto x = torch::randn({2, 3}), state = torch::ones({2}), expected = torch::ones({2});
  const auto version = state._version();
  const auto [of_input, first, second, written, none, number] = step(x, state);
  const Shared eager = kShare(x, expected);
  EXPECT_TRUE(of_input.is_alias_of(x));
  EXPECT_TRUE(first.is_alias_of(second));
  EXPECT_TRUE(written.is_alias_of(state));
  EXPECT_GT(state._version(), version);
  expect_close(state, expected, "the written input");
  expect_close(first, std::get<1>(eager), "a view of an intermediate");
  EXPECT_TRUE(torch::equal(second.t().reshape({6}), first));
  EXPECT_FALSE(none.has_value());
  EXPECT_EQ(number, 5);
}

TEST_F(InductorSharing, InputsThatShareMemoryWithAWrittenOneAreRefused) {  // C135
  const auto step = load<Shared>(artifact_);
  const auto base = torch::ones({8});
  try {
    step(base.narrow(0, 0, 6).view({2, 3}), base.narrow(0, 5, 2));
    ADD_FAILURE();
  } catch (const PrecompileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("flat inputs 0 and 1 share memory"));
  }
  const auto [of_input, first, second, written, none, number] = step(base.narrow(0, 0, 6).view({2, 3}), base.narrow(0, 6, 2));
  EXPECT_TRUE(torch::allclose(written, torch::full({2}, 2 + 6 * std::exp(1.0))));
}

TEST(Inductor, AutocastToBfloat16) {  // C100, C139
  const auto fn = [](Mlp& model, const at::Tensor& x) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    auto out = model->forward(x);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    auto loss = out.to(at::kFloat).pow(2).mean();
    loss.backward();
    return loss;
  };
  torch::manual_seed(6);
  Mlp model, eager = copy_of(model, Mlp());
  const auto x = torch::randn({5, 8});
  const auto step = load<at::Tensor>(precompile(fn, inductor(), model, x));
  const auto ours = step(model, x), expected = fn(eager, x);
  EXPECT_NEAR(ours.item<double>(), expected.item<double>(), 0.02 * expected.item<double>());
  for (const auto& parameter : eager->named_parameters()) {
    const auto& gradient = model->named_parameters()[parameter.key()].grad();
    EXPECT_EQ(gradient.scalar_type(), at::kFloat);
    EXPECT_LE((gradient - parameter.value().grad()).norm().item<double>(),
              0.03 * parameter.value().grad().norm().item<double>() + 1e-6);
  }
}

// ---------------------------------------------------------------- what cannot be compiled

/// A Python that is a shell script of the test's.
class FakePython {
 public:
  explicit FakePython(const std::string& script) {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "python") << "#!/bin/sh\n" << script << "\n";
    fs::permissions(folder_ / "python", fs::perms::owner_all);
  }
  ~FakePython() { fs::remove_all(folder_); }
  FakePython(const FakePython&) = delete;
  FakePython& operator=(const FakePython&) = delete;
  [[nodiscard]] std::string path() const { return folder_ / "python"; }

 private:
  fs::path folder_ = fs::temp_directory_path() / ("precast_fake_python_" + std::to_string(::getpid()));
};

std::string failure(const Options& options, ErrorCode code) {
  const auto fn = [](const at::Tensor& x) { return x * 17 + 4; };
  try {
    precompile(fn, options, torch::ones({2, 7}));
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(InductorFails, WithoutPython) {  // C64
  Options options = inductor();
  options.inductor.python = "/nowhere/python";
  EXPECT_THAT(failure(options, ErrorCode::environment), AllOf(HasSubstr("/nowhere/python"), HasSubstr("'eager'")));
}

TEST(InductorFails, WhenTheCompilingPythonCrashes) {  // C194
  const FakePython python("echo out of luck >&2; kill -SEGV $$");
  Options options = inductor();
  options.inductor.python = python.path();
  EXPECT_THAT(failure(options, ErrorCode::environment), AllOf(HasSubstr("by signal 11"), HasSubstr("out of luck")));
}

TEST(InductorFails, WhenItDoesNotEndByTheDeadline) {  // C196
  const FakePython python("echo started; exec sleep 1000");
  Options options = inductor();
  options.inductor.python = python.path();
  options.compile_deadline = std::chrono::milliseconds(500);
  EXPECT_THAT(failure(options, ErrorCode::environment), AllOf(HasSubstr("deadline"), HasSubstr("started")));
}

TEST(InductorFails, AndRunsEagerlyWhereThatIsAskedFor) {  // C194
  Warnings warnings;
  Options options = inductor();
  options.inductor.python = "/nowhere/python";
  options.fallback = "eager";
  ::setenv("PRECAST_PYTHON", "/nowhere/python", 1);
  const auto step = load<at::Tensor>(precompile([](const at::Tensor& x) { return x * 17; }, options, torch::ones({2, 7})));
  ::unsetenv("PRECAST_PYTHON");
  EXPECT_TRUE(torch::equal(step(torch::ones({2, 7})), torch::full({2, 7}, 17.0)));
  EXPECT_EQ(warnings.count("op by op"), 2);  // at capture, and at load
}

TEST(InductorFails, OnASettingThatInductorDoesNotKnow) {
  Options options = inductor();
  options.inductor.settings["cpp.thread"] = std::int64_t{1};
  EXPECT_THAT(failure(options, ErrorCode::environment), AllOf(HasSubstr("'cpp.thread'"), HasSubstr("cpp.threads")));
}

}  // namespace
}  // namespace precast::test

/// With an empty store.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const auto store = std::filesystem::temp_directory_path() / ("precast_inductor_test_" + std::to_string(::getpid()));
  ::setenv("PRECAST_STORE", store.c_str(), 1);
  const int result = RUN_ALL_TESTS();
  std::filesystem::remove_all(store);
  return result;
}
