#include "capture/modules.h"
#include "peak_memory.h"
#include "precast/precast.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <barrier>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace precast::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

const auto kTrain = [](Mlp& model, const at::Tensor& x, const at::Tensor& y) {
  auto loss = torch::nn::functional::cross_entropy(model->forward(x), y);
  loss.backward();
  return loss;
};

struct Batch {
  at::Tensor x = torch::randn({5, 8});
  at::Tensor y = torch::randint(0, 4, {5});
};

class CaptureSideEffects : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(3); }
};

TEST_F(CaptureSideEffects, WarmUpGradientsAreNotInTheProgram) {  // C29
  Mlp model;
  const Batch batch;
  Mlp eager = copy_of(model, Mlp());
  kTrain(model, batch.x, batch.y);
  const auto step = load<at::Tensor>(precompile(kTrain, Options{.backend = "eager"}, model, batch.x, batch.y));
  model->zero_grad();
  step(model, batch.x, batch.y);
  kTrain(eager, batch.x, batch.y);
  EXPECT_TRUE(torch::equal(model->fc1->weight.grad(), eager->fc1->weight.grad()));
}

TEST_F(CaptureSideEffects, GradientsAreTheSameObjectsAfterwards) {  // C31, C33
  Mlp model;
  const Batch batch;
  kTrain(model, batch.x, batch.y);
  const auto* before = model->fc1->weight.grad().unsafeGetTensorImpl();
  const auto value = model->fc1->weight.grad().clone();
  model->fc2->weight.mutable_grad().reset();
  precompile(kTrain, Options{.backend = "eager"}, model, batch.x, batch.y);
  EXPECT_EQ(model->fc1->weight.grad().unsafeGetTensorImpl(), before);
  EXPECT_TRUE(torch::equal(model->fc1->weight.grad(), value));
  EXPECT_FALSE(model->fc2->weight.grad().defined());
}

TEST_F(CaptureSideEffects, AnExceptionOfFnPassesThroughAndGradientsAreBack) {  // C32
  struct MyError : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  Mlp model;
  const Batch batch;
  kTrain(model, batch.x, batch.y);
  const auto* before = model->fc1->weight.grad().unsafeGetTensorImpl();
  const auto throws = [](Mlp& m, const at::Tensor& x, const at::Tensor& y) {
    kTrain(m, x, y);
    throw MyError("after backward");
  };
  try {
    precompile(throws, Options{.backend = "eager"}, model, batch.x, batch.y);
    FAIL();
  } catch (const MyError& error) {
    EXPECT_STREQ(error.what(), "after backward");
  }
  EXPECT_EQ(model->fc1->weight.grad().unsafeGetTensorImpl(), before);
  precompile(kTrain, Options{.backend = "eager"}, model, batch.x, batch.y);
}

TEST_F(CaptureSideEffects, ValuesThatFnWroteAreAsBefore) {  // C34
  NormNet model;
  auto x = torch::randn({2, 3, 5, 5});
  const auto before = x.clone(), mean = model->bn->running_mean.clone();
  const auto fn = [](NormNet& m, at::Tensor& in) {
    const auto out = m->forward(in);
    in.mul_(2);
    in[0].zero_();
    return out;
  };
  precompile(fn, Options{.backend = "eager"}, model, x);
  EXPECT_TRUE(torch::equal(x, before));
  EXPECT_TRUE(torch::equal(model->bn->running_mean, mean));
  EXPECT_EQ(model->bn->num_batches_tracked.item<std::int64_t>(), 0);
}

TEST_F(CaptureSideEffects, RandomStateIsAsBefore) {  // C35
  const auto x = torch::randn({64});
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  torch::manual_seed(11);
  const auto expected = torch::rand({4}), expected_own = torch::rand({4}, generator);
  torch::manual_seed(11);
  auto again = at::make_generator<at::CPUGeneratorImpl>(7);
  precompile([](const at::Tensor& in, at::Generator& g) { return torch::dropout(in, 0.5, true) + torch::rand({64}, g); },
             Options{.backend = "eager"}, x, again);
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected));
  EXPECT_TRUE(torch::equal(torch::rand({4}, again), expected_own));
}

TEST_F(CaptureSideEffects, FnIsCalledOnceOnThisThread) {  // C36
  int calls = 0;
  std::thread::id thread;
  precompile([&](const at::Tensor& x) { return ++calls, thread = std::this_thread::get_id(), x + 1; }, Options{.backend = "eager"},
             torch::ones({2}));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(thread, std::this_thread::get_id());
}

struct Modes {
  bool grad = at::GradMode::is_enabled();
  bool autocast = at::autocast::is_autocast_enabled(at::kCPU);
  bool threads = c10::AutogradState::get_tls_state().get_multithreading_enabled();
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  bool operator==(const Modes& other) const {
    return grad == other.grad && autocast == other.autocast && threads == other.threads && keys.included_ == other.keys.included_ &&
           keys.excluded_ == other.keys.excluded_;
  }
};

TEST_F(CaptureSideEffects, ModesOfTheThreadAreAsBefore) {  // C37
  const Modes before;
  precompile([](const at::Tensor& x) { return x + 1; }, Options{.backend = "eager"}, torch::ones({2}));
  EXPECT_EQ(Modes(), before);
  EXPECT_THROW(precompile([](const at::Tensor& x) { return x.sum().item<double>() > 0 ? x : x + 1; }, Options{.backend = "eager"},
                          torch::ones({2})),
               PrecompileError);
  EXPECT_EQ(Modes(), before);
}

TEST_F(CaptureSideEffects, BackwardIsCapturedWithGradModeOff) {  // C38
  Mlp model;
  const Batch batch;
  const torch::NoGradGuard no_grad;
  const auto artifact = precompile(kTrain, Options{.backend = "eager"}, model, batch.x, batch.y);
  load<at::Tensor>(artifact)(model, batch.x, batch.y);
  EXPECT_TRUE(model->fc1->weight.grad().defined());
  EXPECT_FALSE(at::GradMode::is_enabled());
}

TEST_F(CaptureSideEffects, TwoCapturesGiveTheSameText) {  // C41
  Mlp model;
  const Batch batch;
  const auto first = precompile(kTrain, Options{.backend = "eager"}, model, batch.x, batch.y);
  kTrain(model, batch.x, batch.y);
  EXPECT_EQ(first.python_code, precompile(kTrain, Options{.backend = "eager"}, model, batch.x, batch.y).python_code);
}

TEST_F(CaptureSideEffects, TheTextHoldsNoWeightsAndDoesNotGrowWithThem) {  // C47
  const auto size = [](std::int64_t width) {
    torch::nn::Linear model(width, width);
    return precompile([](torch::nn::Linear& m, const at::Tensor& x) { m->forward(x).sum().backward(); },
                      Options{.backend = "eager"}, model, torch::ones({1, width}))
        .python_code.size();
  };
  EXPECT_LE(size(1000), size(100) + 100);
}

TEST_F(CaptureSideEffects, DeadOpsAreNotInTheProgram) {  // C43
  const auto artifact = precompile(
      [](const at::Tensor& x) {
        const auto unused = torch::sigmoid(x);
        auto scratch = torch::zeros({2});
        scratch.add_(3);
        return x + 1;
      },
      Options{.backend = "eager"}, torch::ones({2}));
  EXPECT_THAT(artifact.python_code, ::testing::Not(HasSubstr("sigmoid")));
  EXPECT_THAT(artifact.python_code, ::testing::Not(HasSubstr("zeros")));
  EXPECT_THAT(artifact.python_code, ::testing::Not(HasSubstr("aten.add_.")));
}

TEST_F(CaptureSideEffects, CaptureAndStepHoldNoMoreThanAnEagerStep) {  // C42
  constexpr std::int64_t kConstant = 1 << 16;
  for (const std::int64_t rows : {1, 2048}) {  // mostly weights, mostly activations
    torch::nn::Sequential model(torch::nn::Linear(256, 1024), torch::nn::GELU(), torch::nn::Linear(1024, 1024), torch::nn::GELU(),
                                torch::nn::Linear(1024, 256));
    const auto x = torch::randn({rows, 256});
    const auto train = [](torch::nn::Sequential& model, const at::Tensor& x) {
      const auto loss = model->forward(x).square().mean();
      loss.backward();
      return loss.detach();
    };
    std::optional<Step<at::Tensor>> step;
    const auto capture =
        peak_tensor_bytes([&] { step = load<at::Tensor>(precompile(train, Options{.backend = "eager"}, model, x)); });
    const auto captured = peak_tensor_bytes([&] { (*step)(model, x); });
    model->zero_grad();
    const auto eager = peak_tensor_bytes([&] { train(model, x); });
    EXPECT_GT(eager, 4 * 1024 * 1024) << "nothing was counted";
    EXPECT_LE(capture, eager + kConstant) << rows << " rows";
    EXPECT_LE(captured, eager + kConstant) << rows << " rows";
  }
}

TEST_F(CaptureSideEffects, ThreadsCaptureDifferentModelsAtOnce) {  // C166
  const Batch batch;                                               // one for all
  const auto capture = [&](Mlp& model) {
    return precompile(kTrain, Options{.backend = "eager"}, model, batch.x, batch.y).python_code;
  };
  std::vector<Mlp> models = {Mlp(), Mlp(0.5), Mlp(), Mlp(0.1)};
  std::vector<std::string> alone;
  for (Mlp& model : models) alone.push_back(capture(model));
  constexpr int kRounds = 10;
  std::vector<std::vector<std::string>> texts(models.size());
  std::barrier start(static_cast<std::ptrdiff_t>(models.size()));
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < models.size(); ++i)
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        for (int round = 0; round < kRounds; ++round) texts[i].push_back(capture(models[i]));
      });
  }
  for (std::size_t i = 0; i < models.size(); ++i) EXPECT_THAT(texts[i], Each(alone[i])) << "thread " << i;
}

TEST_F(CaptureSideEffects, AThreadWaitsForItsTurnUntilTheDeadlineOnly) {  // C166
  const auto x = torch::randn({3});
  const auto captures_on_another_thread = [](const at::Tensor& x) {
    std::string error;
    std::jthread([&error] {
      try {
        const auto twice = [](const at::Tensor& y) { return y * 2; };
        precompile(twice, Options{.backend = "eager", .compile_deadline = std::chrono::milliseconds(50)}, torch::ones({2}));
      } catch (const PrecompileError& refusal) {
        error = refusal.what();
      }
    }).join();
    EXPECT_THAT(error, HasSubstr("compile deadline of 50 ms"));
    return x + 1;
  };
  precompile(captures_on_another_thread, Options{.backend = "eager"}, x);
}

TEST_F(CaptureSideEffects, ACaptureInsideAnotherGivesThePairItGivesOutside) {  // C118, C167
  const auto inner = [](const at::Tensor& x) { return torch::sigmoid(x) * 2; };
  const auto x = torch::ones({3});
  const std::string outside = precompile(inner, Options{.backend = "eager"}, x).python_code;
  std::string inside;
  const auto artifact = precompile(
      [&](const at::Tensor& y) {
        inside = precompile(inner, Options{.backend = "eager"}, x).python_code;
        return y + 1;
      },
      Options{.backend = "eager"}, torch::ones({2}));
  EXPECT_EQ(inside, outside);
  EXPECT_THAT(artifact.python_code, ::testing::Not(HasSubstr("sigmoid")));
}

TEST_F(CaptureSideEffects, AGraphThatFnHangsOnABufferIsTakenOff) {  // C34
  NormNet net;
  precompile(
      [](NormNet& m, const at::Tensor& x) {
        auto out = m->forward(x);
        m->bn->running_mean.add_(m->head->bias.sum());
        return out;
      },
      Options{.backend = "eager"}, net, torch::randn({2, 3, 5, 5}));
  EXPECT_TRUE(net->bn->running_mean.is_leaf());
  EXPECT_FALSE(net->bn->running_mean.requires_grad());
}

}  // namespace
}  // namespace precast::test
