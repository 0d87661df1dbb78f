#include "runtime/step_fixture.h"

#include <ATen/autocast_mode.h>

#include <thread>

namespace precast {
namespace {

using test::make_step;
using test::Net;
using test::ProgramBuilder;
using test::training_step;

/// Whole numbers, so that sums are exact in any order.
at::Tensor whole_numbers(at::IntArrayRef shape) {
  return torch::randint(-4, 5, shape).to(torch::kFloat32);
}

struct Pair {
  Net ours, eager;
  Pair() {
    const at::NoGradGuard no_grad;
    for (Net* net : {&ours, &eager}) {
      torch::manual_seed(5);
      net->fc->weight.copy_(whole_numbers({2, 3}));
      net->fc->bias.copy_(whole_numbers({2}));
    }
  }
  void expect_equal_gradients() const {
    EXPECT_TRUE(torch::equal(ours.fc->weight.grad(), eager.fc->weight.grad()));
    EXPECT_TRUE(torch::equal(ours.fc->bias.grad(), eager.fc->bias.grad()));
    EXPECT_EQ(ours.fc->weight.grad().strides(), eager.fc->weight.grad().strides());
  }
};

class StepTest : public ::testing::Test, protected Pair {
 protected:
  void train_eager() { eager.loss(x).backward(); }
  at::Tensor x = whole_numbers({4, 3});
  Step<std::tuple<at::Tensor>> step = training_step(ours);
};

TEST_F(StepTest, FirstRunSetsGradientsAndReturnsTheLoss) {  // C125, C103
  const at::Tensor loss = std::get<0>(step(ours, x));
  EXPECT_TRUE(torch::equal(loss, eager.loss(x)));
  EXPECT_FALSE(loss.requires_grad());
  train_eager();
  expect_equal_gradients();
  EXPECT_FALSE(ours.fc->weight.grad().requires_grad());
}

TEST_F(StepTest, SecondRunAddsToTheSameTensorInPlace) {  // C125, C130
  step(ours, x);
  const at::Tensor grad = ours.fc->weight.grad();
  const auto version = grad._version();
  step(ours, x);
  train_eager();
  train_eager();
  expect_equal_gradients();
  EXPECT_TRUE(ours.fc->weight.grad().is_same(grad));
  EXPECT_EQ(grad._version(), version + 1);
}

TEST_F(StepTest, ClearedGradientsGiveOneGradient) {  // C125
  train_eager();
  for (const bool set_to_none : {true, false}) {
    step(ours, x);
    ours.zero_grad(set_to_none);
    step(ours, x);
    expect_equal_gradients();
    ours.zero_grad();
  }
}

TEST_F(StepTest, ParametersWithoutCapturedGradientStayUndefined) {  // C127
  ProgramBuilder program;
  const auto lifted = program.modules({{0, &ours}});
  const ir::ValueId a = program.input(x);
  program.output(a).param_gradient(1, program.call("aten::ones_like", {lifted.at(1)}));
  make_step(program)(ours, x);
  EXPECT_FALSE(ours.fc->weight.grad().defined());
  EXPECT_FALSE(ours.scale.grad().defined());
  EXPECT_TRUE(torch::equal(ours.fc->bias.grad(), torch::ones({2})));
}

TEST_F(StepTest, RequiresGradAtRunTimeChangesNothing) {  // C129
  ours.fc->weight.requires_grad_(false);
  step(ours, x);
  train_eager();
  expect_equal_gradients();
  EXPECT_FALSE(ours.fc->weight.requires_grad());
}

TEST_F(StepTest, TiedWeightGetsOneSummedGradient) {  // C128
  struct Tied : torch::nn::Module {
    at::Tensor a = register_parameter("a", whole_numbers({3}));
    at::Tensor b = register_parameter("b", a);
  } tied;
  ProgramBuilder program;
  const auto lifted = program.modules({{0, &tied}});
  ASSERT_EQ(lifted.size(), 1U);
  const ir::ValueId input = program.input(x[0]);
  program.output(program.call("aten::sum", {program.call("aten::mul.Tensor", {lifted[0], input})}));
  program.param_gradient(0, program.call("aten::add.Tensor", {input, input}));
  make_step(program)(tied, x[0]);
  EXPECT_TRUE(torch::equal(tied.b.grad(), x[0] * 2));
  EXPECT_TRUE(tied.a.grad().is_same(tied.b.grad()));
}

TEST_F(StepTest, GradientsThatAreOneValueDoNotShareMemory) {
  torch::nn::Linear first(2, 1), second(2, 1);
  ProgramBuilder program;
  program.modules({{0, first.get()}, {1, second.get()}});
  const ir::ValueId grad = program.call("aten::mul.Tensor", {program.input(torch::zeros({1, 2})), 2.0});
  program.output(grad).param_gradient(0, grad).param_gradient(2, grad);
  const at::Tensor input = torch::tensor({{1.0F, 2.0F}}), expected = input * 2;
  const at::Tensor result = std::get<0>(make_step(program)(first, second, input));
  first->weight.mutable_grad().zero_();
  EXPECT_TRUE(torch::equal(second->weight.grad(), expected));
  EXPECT_TRUE(torch::equal(result, expected));
}

TEST_F(StepTest, GradientThatIsAnInputIsCopied) {
  struct Vector : torch::nn::Module {
    at::Tensor v = register_parameter("v", torch::zeros({3}));
  } module;
  ProgramBuilder program;
  program.modules({{0, &module}});
  const ir::ValueId a = program.input(x[0]);
  program.output(a).param_gradient(0, a);
  const at::Tensor input = x[0].clone();
  make_step(program)(module, input);
  module.v.mutable_grad().add_(1);
  EXPECT_TRUE(torch::equal(input, x[0]));
}

TEST_F(StepTest, GradientTakesTheLayoutOfItsParameterAsEagerDoes) {  // C125
  for (Net* net : {&ours, &eager}) net->fc->weight.set_data(net->fc->weight.detach().t().contiguous().t());
  step(ours, x);
  train_eager();
  expect_equal_gradients();
}

TEST_F(StepTest, InputGradientAccumulatesWhereItWasAskedFor) {  // C16
  ProgramBuilder program;
  const ir::ValueId a = program.input(x);
  program.output(program.call("aten::sum", {a})).input_gradient(0, program.call("aten::ones_like", {a}));
  const auto input_step = make_step(program);
  const at::Tensor input = x.clone().requires_grad_();
  input_step(input);
  input_step(input);
  EXPECT_TRUE(torch::equal(input.grad(), torch::full({4, 3}, 2.0)));
}

TEST_F(StepTest, AbsentGradientLeavesGradAlone) {
  ProgramBuilder program;
  program.modules({{0, &ours}});
  const ir::ValueId a = program.input(x);
  program.output(a);
  program.program().outputs.push_back({ir::None{}});
  program.program().metadata.grad_param_indices = {0};
  make_step(program)(ours, x);
  EXPECT_FALSE(ours.fc->weight.grad().defined());
}

TEST_F(StepTest, TheSameUnderNoGradAndUnderInferenceMode) {  // C103
  {
    const at::NoGradGuard no_grad;
    step(ours, x);
    EXPECT_FALSE(at::GradMode::is_enabled());
  }
  EXPECT_TRUE(at::GradMode::is_enabled());
  train_eager();
  expect_equal_gradients();
  ours.zero_grad();
  {
    const c10::InferenceMode inference;
    step(ours, x);
  }
  expect_equal_gradients();
  EXPECT_FALSE(ours.fc->weight.grad().is_inference());
}

TEST_F(StepTest, AutocastOutsideChangesNothingAndStaysOn) {  // C100
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor loss = std::get<0>(step(ours, x));
  const bool still_on = at::autocast::is_autocast_enabled(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_TRUE(still_on);
  EXPECT_TRUE(torch::equal(loss, eager.loss(x)));
}

TEST_F(StepTest, AnAssertionOfTheProgramArrivesWithItsOwnText) {  // C99
  ProgramBuilder program;
  program.call("aten::_assert_async.msg", {program.input(torch::zeros({1}, torch::kBool)), "weights must be positive"});
  program.output(1);
  const auto asserting = make_step<std::tuple<int>>(program);
  try {
    asserting(torch::zeros({1}, torch::kBool));
    FAIL() << "no error was thrown";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("weights must be positive"));
  }
  EXPECT_EQ(std::get<0>(asserting(torch::ones({1}, torch::kBool))), 1);
}

TEST_F(StepTest, OtherWeightsLoadedAfterCaptureAreUsed) {  // C122
  const at::NoGradGuard no_grad;
  for (Net* net : {&ours, &eager}) {
    net->fc->weight.fill_(2);
    net->scale.fill_(5);
  }
  EXPECT_TRUE(torch::equal(std::get<0>(step(ours, x)), eager.loss(x)));
}

TEST_F(StepTest, WrittenInputAndBufferHoldTheResult) {  // C134, C131
  ProgramBuilder program;
  const auto lifted = program.modules({{0, &ours}});
  const ir::ValueId a = program.input(x);
  program.call("aten::add_.Tensor", {lifted.at(2), 1});
  program.output(program.call("aten::mul_.Tensor", {a, 2.0}));
  const at::Tensor input = x.clone();
  const auto version = ours.scale._version();
  const at::Tensor result = std::get<0>(make_step(program)(ours, input));
  EXPECT_TRUE(torch::equal(input, x * 2));
  EXPECT_EQ(result.data_ptr(), input.data_ptr());
  EXPECT_TRUE(torch::equal(ours.scale, eager.scale + 1));
  EXPECT_GT(ours.scale._version(), version);
}

TEST_F(StepTest, PlainResultsAndEmptyOptionalsRoundTrip) {  // C20, C140
  ProgramBuilder program;
  program.input(x);
  program.output(7).output(2.5).output("name").output(ir::None{}).output(true);
  const auto result = make_step<std::tuple<int, double, std::string, std::optional<at::Tensor>, bool>>(program)(x);
  EXPECT_EQ(result, std::tuple(7, 2.5, std::string("name"), std::nullopt, true));
}

TEST_F(StepTest, StepsAreCopiedMovedAndDestroyedInAnyOrder) {  // C78
  auto copy = std::make_unique<Step<std::tuple<at::Tensor>>>(step);
  Step<std::tuple<at::Tensor>> moved = std::move(*copy);
  EXPECT_THROW((*copy)(ours, x), PrecompileError);
  copy.reset();
  step = {};
  EXPECT_THROW(step(ours, x), PrecompileError);
  EXPECT_NO_THROW(moved(ours, x));
}

TEST_F(StepTest, GradientsOfOneModelFromSeveralThreadsSum) {  // C169
  constexpr int kThreads = 4, kRuns = 50;
  struct Large : torch::nn::Module {
    at::Tensor v = register_parameter("v", torch::zeros({1 << 18}));  // large enough for additions to overlap
  } large;
  ProgramBuilder program;
  const auto lifted = program.modules({{0, &large}});
  program.output(1).param_gradient(0, program.call("aten::ones_like", {lifted[0]}));
  const auto first = make_step<std::tuple<int>>(program), second = make_step<std::tuple<int>>(program);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      for (int j = 0; j < kRuns; ++j) (i % 2 == 0 ? first : second)(large);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(torch::equal(large.v.grad(), torch::full({1 << 18}, kThreads * kRuns)));
}

TEST_F(StepTest, ThreadsWithTheirOwnModelsDoNotDisturbEachOther) {  // C169
  std::vector<std::unique_ptr<Pair>> pairs;
  for (int i = 0; i < 4; ++i) pairs.push_back(std::make_unique<Pair>());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int j = 0; j < 10; ++j) step(pairs[static_cast<std::size_t>(i)]->ours, x * i);
    });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 4; ++i) {
    Pair& pair = *pairs[static_cast<std::size_t>(i)];
    for (int j = 0; j < 10; ++j) pair.eager.loss(x * i).backward();
    pair.expect_equal_gradients();
  }
}

TEST_F(StepTest, HundredStepsOfSgdWithMomentumEqualEager) {  // C126
  const torch::optim::SGDOptions options = torch::optim::SGDOptions(0.001).momentum(0.9);
  torch::optim::SGD our_optimizer(ours.parameters(), options), eager_optimizer(eager.parameters(), options);
  for (int i = 0; i < 100; ++i) {
    our_optimizer.zero_grad();
    eager_optimizer.zero_grad();
    const at::Tensor loss = std::get<0>(step(ours, x)), eager_loss = eager.loss(x);
    eager_loss.backward();
    ASSERT_TRUE(torch::equal(loss, eager_loss)) << "step " << i;
    our_optimizer.step();
    eager_optimizer.step();
  }
}

TEST_F(StepTest, ProgramThatDoesNotFitItsMetadataIsNoArtifact) {  // C62
  ProgramBuilder program;
  program.output(program.input(x));
  program.program().metadata.grad_param_indices = {0};
  try {
    make_step(program);
    FAIL() << "accepted";
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_artifact);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("GRAD_PARAM_INDICES"));
  }
}

}  // namespace
}  // namespace precast
