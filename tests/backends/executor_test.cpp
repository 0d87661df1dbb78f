#include "backends/eager/executor.h"

#include "backends/program_builder.h"
#include "precast/error.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <thread>

namespace precast::eager {
namespace {

using at::Tensor;
using ir::None;
using ir::ValueId;
using test::ProgramBuilder;
using ::testing::HasSubstr;

std::vector<c10::IValue> run(ProgramBuilder& builder, std::vector<c10::IValue> inputs) {
  return Executor(builder.program()).run(std::move(inputs));
}

void expect_identical(const Tensor& got, const Tensor& expected) {
  ASSERT_EQ(got.defined(), expected.defined());
  EXPECT_EQ(got.scalar_type(), expected.scalar_type());
  EXPECT_EQ(got.sizes(), expected.sizes());
  EXPECT_EQ(got.strides(), expected.strides());
  EXPECT_TRUE(at::equal(got, expected)) << got << "\n" << expected;
  EXPECT_FALSE(got.requires_grad());
}

/// Runs `program` on fresh copies of `inputs` and compares every output with `eager` on other copies.
void expect_equals_eager(ProgramBuilder& program, const std::vector<Tensor>& inputs,
                         const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& eager) {
  const at::NoGradGuard no_grad;
  std::vector<c10::IValue> ours;
  std::vector<Tensor> theirs;
  for (const Tensor& input : inputs) {
    ours.emplace_back(input.clone());
    theirs.push_back(input.clone());
  }
  const std::vector<c10::IValue> got = run(program, ours);
  const std::vector<Tensor> expected = eager(theirs);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) expect_identical(got[i].toTensor(), expected[i]);
  for (std::size_t i = 0; i < inputs.size(); ++i) expect_identical(ours[i].toTensor(), theirs[i]);
}

PrecompileError error_of(const ir::Program& program) {
  try {
    const Executor executor(program);
  } catch (const PrecompileError& error) {
    return error;
  }
  return {ErrorCode::internal, "no error was thrown"};
}

void expect_invalid(ProgramBuilder& builder, std::initializer_list<const char*> named) {
  const PrecompileError error = error_of(builder.program());
  EXPECT_EQ(error.code(), ErrorCode::invalid_artifact) << error.what();
  for (const char* text : named) EXPECT_THAT(error.what(), HasSubstr(text));
}

class ExecutorTest : public ::testing::Test {
 protected:
  ExecutorTest() { torch::manual_seed(7); }
  ProgramBuilder program;
};

TEST_F(ExecutorTest, PointwiseProgramEqualsEager) {  // C121
  const Tensor x = torch::randn({3, 4}), y = torch::randn({4});
  const ValueId a = program.input(x), b = program.input(y);
  const ValueId sum = program.call("aten::add.Tensor", {a, b}, {{"alpha", 2}});
  program.output(program.call("aten::gelu", {program.call("aten::mul.Scalar", {sum, 0.5})}, {{"approximate", "tanh"}}));
  expect_equals_eager(program, {x, y},
                      [](const auto& in) { return std::vector{at::gelu(at::add(in[0], in[1], 2) * 0.5, "tanh")}; });
}

TEST_F(ExecutorTest, TwoOutputsKeepTheirOrder) {  // C120
  const Tensor x = torch::randn({2, 3}), y = torch::randn({2, 3});
  const ValueId a = program.input(x), b = program.input(y);
  const ValueId difference = program.call("aten::sub.Tensor", {a, b});
  program.output(program.call("aten::mul.Tensor", {a, b})).output(difference);
  expect_equals_eager(program, {x, y}, [](const auto& in) { return std::vector{in[0] * in[1], in[0] - in[1]}; });
}

TEST_F(ExecutorTest, LinearAndItsBackwardEqualEager) {  // C121
  const Tensor x = torch::randn({5, 4}), w = torch::randn({3, 4}), bias = torch::randn({3});
  const ValueId a = program.input(x), b = program.input(w), c = program.input(bias);
  const ValueId out = program.call("aten::addmm", {c, a, program.call("aten::t", {b})});
  program.output(out).output(program.call("aten::sum.dim_IntList", {out, {0}, true}));
  expect_equals_eager(program, {x, w, bias}, [](const auto& in) {
    const Tensor out = at::linear(in[0], in[1], in[2]);
    return std::vector{out, at::sum(out, {0}, true)};
  });
}

TEST_F(ExecutorTest, ConvolutionAndItsBackwardWithAMaskEqualEager) {  // C121, C140
  const Tensor x = torch::randn({2, 3, 8, 8}), w = torch::randn({4, 3, 3, 3}), bias = torch::randn({4});
  const ValueId a = program.input(x), b = program.input(w), c = program.input(bias);
  const ValueId out = program.call("aten::convolution", {a, b, c, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1});
  const ValueId grads =
      program.call("aten::convolution_backward", {out, a, b, {4}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1, {false, true, true}});
  program.output(out).output(program.item(grads, 0)).output(program.item(grads, 1)).output(program.item(grads, 2));
  const std::vector<c10::IValue> got = run(program, {x, w, bias});
  const Tensor expected = at::conv2d(x, w, bias, 1, 1);
  const auto [gx, gw, gb] = at::convolution_backward(expected, x, w, at::OptionalIntArrayRef(at::IntArrayRef{4}),
                                                     at::IntArrayRef{1, 1}, at::IntArrayRef{1, 1}, at::IntArrayRef{1, 1}, false,
                                                     at::IntArrayRef{0, 0}, 1, std::array<bool, 3>{false, true, true});
  expect_identical(got[0].toTensor(), expected);
  EXPECT_FALSE(got[1].toTensor().defined());
  expect_identical(got[2].toTensor(), gw);
  expect_identical(got[3].toTensor(), gb);
}

TEST_F(ExecutorTest, EmbeddingAndItsBackwardEqualEager) {  // C121
  const Tensor weight = torch::randn({10, 4}), tokens = torch::randint(0, 10, {2, 5});
  const ValueId w = program.input(weight), t = program.input(tokens);
  const ValueId out = program.call("aten::embedding", {w, t});
  program.output(out).output(program.call("aten::embedding_dense_backward", {out, t, 10, -1, false}));
  expect_equals_eager(program, {weight, tokens}, [](const auto& in) {
    const Tensor out = at::embedding(in[0], in[1]);
    return std::vector{out, at::embedding_dense_backward(out, in[1], 10, -1, false)};
  });
}

TEST_F(ExecutorTest, FlashAttentionOnCpuEqualsEager) {  // C121
  const Tensor q = torch::randn({2, 2, 8, 16}), k = torch::randn({2, 2, 8, 16}), v = torch::randn({2, 2, 8, 16});
  const ValueId a = program.input(q), b = program.input(k), c = program.input(v);
  const ValueId pair = program.call("aten::_scaled_dot_product_flash_attention_for_cpu", {a, b, c, 0.0, true},
                                    {{"attn_mask", None()}, {"scale", 0.25}});
  const ValueId out = program.item(pair, 0), logsumexp = program.item(pair, 1);
  const ValueId grads = program.call("aten::_scaled_dot_product_flash_attention_for_cpu_backward",
                                     {out, a, b, c, out, logsumexp, 0.0, true}, {{"attn_mask", None()}, {"scale", 0.25}});
  program.output(out).output(program.item(grads, 0)).output(program.item(grads, 1)).output(program.item(grads, 2));
  expect_equals_eager(program, {q, k, v}, [](const auto& in) {
    const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(in[0], in[1], in[2], 0.0, true, std::nullopt, 0.25);
    const auto [gq, gk, gv] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(out, in[0], in[1], in[2], out, lse, 0.0, true, std::nullopt, 0.25);
    return std::vector{out, gq, gk, gv};
  });
}

TEST_F(ExecutorTest, LayerNormForwardAndBackwardEqualEager) {  // C121
  const Tensor x = torch::randn({3, 4, 8}), w = torch::randn({8}), bias = torch::randn({8});
  const ValueId a = program.input(x), b = program.input(w), c = program.input(bias);
  const ValueId out = program.call("aten::native_layer_norm", {a, {8}, b, c, 1e-5});
  const ValueId y = program.item(out, 0);
  const ValueId grads = program.call("aten::native_layer_norm_backward",
                                     {y, a, {8}, program.item(out, 1), program.item(out, 2), b, c, {true, true, true}});
  program.output(y).output(program.item(grads, 0)).output(program.item(grads, 1)).output(program.item(grads, 2));
  expect_equals_eager(program, {x, w, bias}, [](const auto& in) {
    const auto [y, mean, rstd] = at::native_layer_norm(in[0], {8}, in[1], in[2], 1e-5);
    const auto [gx, gw, gb] = at::native_layer_norm_backward(y, in[0], {8}, mean, rstd, in[1], in[2], {true, true, true});
    return std::vector{y, gx, gw, gb};
  });
}

TEST_F(ExecutorTest, BatchNormInTrainingUpdatesItsStatisticsAndTheirVersions) {  // C131, C134
  const Tensor x = torch::randn({4, 3, 5}), w = torch::ones({3}), bias = torch::zeros({3});
  Tensor mean = torch::zeros({3}), var = torch::ones({3}), expected_mean = mean.clone(), expected_var = var.clone();
  const ValueId a = program.input(x), b = program.input(w), c = program.input(bias), m = program.input(mean),
                v = program.input(var);
  const ValueId out = program.call("aten::native_batch_norm", {a, b, c, m, v, true, 0.1, 1e-5});
  program.output(program.item(out, 0));
  const Executor executor(program.program());
  const auto version = mean._version();
  for (int i = 0; i < 3; ++i) {
    const std::vector<c10::IValue> got = executor.run({x, w, bias, mean, var});
    expect_identical(got[0].toTensor(), at::batch_norm(x, w, bias, expected_mean, expected_var, true, 0.1, 1e-5, false));
  }
  expect_identical(mean, expected_mean);
  expect_identical(var, expected_var);
  EXPECT_EQ(mean._version(), version + 3);
}

TEST_F(ExecutorTest, BatchNormInEvaluationLeavesItsStatisticsAndTheirVersions) {  // C131
  const Tensor x = torch::randn({4, 3, 5}), mean = torch::randn({3}), var = torch::ones({3}), before = mean.clone();
  const ValueId a = program.input(x), m = program.input(mean), v = program.input(var);
  program.output(program.item(program.call("aten::native_batch_norm", {a, None(), None(), m, v, false, 0.1, 1e-5}), 0));
  const auto version = mean._version();
  run(program, {x, mean, var});
  expect_identical(mean, before);
  EXPECT_EQ(mean._version(), version);
}

TEST_F(ExecutorTest, DropoutWithTheSameSeedEqualsEagerExactly) {  // C136
  const Tensor x = torch::randn({64});
  const ValueId a = program.input(x);
  const ValueId noise = program.call("aten::empty_like", {a}, {{"memory_format", ir::MemoryFormat{"preserve_format"}}});
  const ValueId mask = program.call("aten::bernoulli_.float", {noise, 0.75});
  program.output(program.call("aten::mul.Tensor", {a, program.call("aten::div_.Scalar", {mask, 0.75})}));
  const Executor executor(program.program());
  torch::manual_seed(3);
  const Tensor first = executor.run({x})[0].toTensor(), second = executor.run({x})[0].toTensor();
  torch::manual_seed(3);
  expect_identical(first, at::dropout(x, 0.25, true));
  expect_identical(second, at::dropout(x, 0.25, true));
  EXPECT_FALSE(at::equal(first, second));
}

TEST_F(ExecutorTest, GeneratorInputIsHonoured) {  // C137
  const Tensor x = torch::zeros({16});
  const ValueId a = program.input(x), generator = program.generator();
  program.output(program.call("aten::normal_functional", {a, 0.0, 1.0}, {{"generator", generator}}));
  at::Generator ours = at::detail::createCPUGenerator(11), theirs = at::detail::createCPUGenerator(11);
  expect_identical(run(program, {x, ours})[0].toTensor(), at::empty_like(x).normal_(0, 1, theirs));
}

TEST_F(ExecutorTest, ElementsOfSplitAndUnbindEqualEager) {
  const Tensor x = torch::randn({4, 6});
  const ValueId a = program.input(x);
  const ValueId halves = program.call("aten::split.Tensor", {a, 3, 1});
  const ValueId rows = program.call("aten::unbind.int", {a});
  const ValueId last = program.item(halves, 1);
  program.output(program.call("aten::cat", {{last, program.item(halves, 0), last}, 1}));
  program.output(program.call("aten::stack", {{program.item(rows, 3), program.item(rows, 0)}}));
  program.output(program.call("aten::cat", {rows}));
  expect_equals_eager(program, {x}, [](const auto& in) {
    const auto halves = in[0].split(3, 1);
    const auto rows = in[0].unbind();
    return std::vector{at::cat({halves[1], halves[0], halves[1]}, 1), at::stack({rows[3], rows[0]}), at::cat(rows)};
  });
}

TEST_F(ExecutorTest, IndexWithAbsentIndicesEqualsEager) {
  const Tensor x = torch::randn({4, 6, 2}), index = torch::tensor({3, 0, 3}), source = torch::randn({4, 3, 2});
  const ValueId a = program.input(x), i = program.input(index), s = program.input(source);
  program.output(program.call("aten::index.Tensor", {a, {None(), i}}));
  program.output(program.call("aten::index_put_", {program.call("aten::clone", {a}), {None(), i}, s, true}));
  expect_equals_eager(program, {x, index, source}, [](const auto& in) {
    const c10::List<std::optional<Tensor>> indices{std::nullopt, in[1]};
    return std::vector{at::index(in[0], indices), in[0].clone().index_put_(indices, in[2], true)};
  });
}

TEST_F(ExecutorTest, WhereWithAScalarTensorEqualsEager) {
  const Tensor x = torch::randn({5});
  const ValueId a = program.input(x);
  const ValueId zero = program.call("aten::scalar_tensor", {0.0}, {{"dtype", ir::Dtype{"float32"}}, {"device", ir::Device{"cpu"}}});
  program.output(program.call("aten::where.self", {program.call("aten::gt.Scalar", {a, 0}), a, zero}));
  expect_equals_eager(program, {x}, [](const auto& in) { return std::vector{at::where(in[0] > 0, in[0], 0.0)}; });
}

TEST_F(ExecutorTest, FactoriesTakeDtypeLayoutDeviceAndMemoryFormat) {  // C5
  const Tensor x = torch::randn({2, 3, 4, 5});
  const ValueId a = program.input(x);
  program.output(program.call(
      "aten::arange.start_step", {0, 6, 2},
      {{"dtype", ir::Dtype{"int16"}}, {"layout", ir::Layout{"strided"}}, {"device", ir::Device{"cpu"}}, {"pin_memory", false}}));
  program.output(program.call("aten::full", {{2, 2}, 3}, {{"dtype", ir::Dtype{"bfloat16"}}}));
  program.output(program.call("aten::clone", {a}, {{"memory_format", ir::MemoryFormat{"channels_last"}}}));
  program.output(program.call("aten::_to_copy", {a}, {{"dtype", ir::Dtype{"float64"}}}));
  expect_equals_eager(program, {x}, [](const auto& in) {
    return std::vector{at::arange(0, 6, 2, at::kShort), at::full({2, 2}, 3, at::kBFloat16),
                       in[0].clone(at::MemoryFormat::ChannelsLast), in[0].to(at::kDouble)};
  });
}

TEST_F(ExecutorTest, NumbersInTensorPlacesPromoteAsPythonNumbersDo) {  // C5
  const Tensor half = torch::randn({3}).to(at::kHalf), scalar = torch::tensor(2.0F), whole = torch::arange(3);
  const ValueId a = program.input(half), b = program.input(scalar), c = program.input(whole);
  program.output(program.call("aten::mul.Tensor", {a, 2.5})).output(program.call("aten::add.Tensor", {b, 0.1}));
  program.output(program.call("aten::add.Tensor", {c, 1})).output(program.call("aten::mul.Tensor", {c, 0.5}));
  expect_equals_eager(program, {half, scalar, whole}, [](const auto& in) {
    return std::vector{in[0] * 2.5, in[1] + 0.1, in[2] + 1, in[2] * 0.5};
  });
}

TEST_F(ExecutorTest, IntegersStandForFloatsAndFillFixedLists) {
  const Tensor x = torch::rand({1, 1, 6, 6});
  const ValueId a = program.input(x);
  program.output(program.call("aten::avg_pool2d", {a, 2}, {{"stride", {2, 2}}}));
  program.output(program.call("aten::layer_norm", {a, {6}}, {{"eps", 1}}));
  expect_equals_eager(program, {x}, [](const auto& in) {
    return std::vector{at::avg_pool2d(in[0], 2, 2), at::layer_norm(in[0], {6}, {}, {}, 1)};
  });
}

TEST_F(ExecutorTest, InPlaceOnIntermediatesEqualsEager) {  // C124
  const Tensor x = torch::randn({2, 3});
  const ValueId a = program.input(x);
  const ValueId copy = program.call("aten::clone", {a});
  const ValueId row = program.call("aten::select.int", {copy, 0, 1});
  program.call("aten::zero_", {row});
  program.output(program.call("aten::relu_", {copy}));
  expect_equals_eager(program, {x}, [](const auto& in) {
    Tensor copy = in[0].clone();
    copy.select(0, 1).zero_();
    return std::vector{copy.relu_()};
  });
}

TEST_F(ExecutorTest, WritingIntoAnInputThroughAViewMovesItsVersionOnce) {  // C134
  const Tensor x = torch::randn({2, 3}), other = torch::randn({2, 3}), before = x.clone();
  const ValueId a = program.input(x), b = program.input(other);
  const ValueId flat = program.call("aten::view", {a, {6}});
  program.call("aten::mul_.Scalar", {flat, 2.0});
  program.output(program.call("aten::add_.Tensor", {program.call("aten::clone", {b}), a}));
  const auto version = x._version(), other_version = other._version();
  expect_identical(run(program, {x, other})[0].toTensor(), other + before * 2);
  expect_identical(x, before * 2);
  EXPECT_EQ(x._version(), version + 1);
  EXPECT_EQ(other._version(), other_version);
}

TEST_F(ExecutorTest, ContiguousCopyThatIsWrittenLeavesTheInputsVersion) {  // C134
  const Tensor x = torch::randn({2, 3}).t();
  const ValueId a = program.input(x);
  program.output(program.call("aten::zero_", {program.call("aten::contiguous", {a})}));
  const auto version = x._version();
  run(program, {x});
  EXPECT_EQ(x._version(), version) << "contiguous() of a transposed tensor is a copy";
}

TEST_F(ExecutorTest, OutputThatIsAnInputIsAnAliasWithoutGrad) {  // C132, C103
  const Tensor x = torch::randn({3}).requires_grad_();
  const ValueId a = program.input(x);
  program.output(a).output(program.call("aten::add_.Tensor", {a, 1}));
  const std::vector<c10::IValue> got = run(program, {x});
  for (const c10::IValue& output : got) {
    EXPECT_FALSE(output.toTensor().is_same(x));
    EXPECT_FALSE(output.toTensor().requires_grad());
    EXPECT_EQ(output.toTensor().data_ptr(), x.data_ptr());
    EXPECT_EQ(output.toTensor()._version(), x._version());
  }
  EXPECT_TRUE(x.requires_grad());
}

TEST_F(ExecutorTest, OutputThatIsAViewOfAnInputSharesItsMemoryAndVersion) {  // C132
  const Tensor x = torch::randn({2, 3});
  program.output(program.call("aten::t", {program.input(x)}));
  const Tensor out = run(program, {x})[0].toTensor();
  out.fill_(4);
  EXPECT_TRUE(at::equal(x, at::full({2, 3}, 4.0)));
  EXPECT_EQ(out._version(), x._version());
}

TEST_F(ExecutorTest, TwoViewsOfOneIntermediateShareMemory) {  // C133
  const Tensor x = torch::randn({2, 3});
  const ValueId sum = program.call("aten::add.Tensor", {program.input(x), 1});
  program.output(program.call("aten::t", {sum})).output(program.call("aten::view", {sum, {6}}));
  const std::vector<c10::IValue> got = run(program, {x});
  got[0].toTensor().zero_();
  EXPECT_TRUE(at::equal(got[1].toTensor(), at::zeros({6})));
}

TEST_F(ExecutorTest, PlainOutputsAndAbsentTensorsArriveAsTheyAre) {  // C140
  program.input(torch::zeros({1}));
  program.output(None()).output(3).output(2.5).output(true).output("text");
  const std::vector<c10::IValue> got = run(program, {torch::zeros({1})});
  EXPECT_TRUE(got[0].isNone());
  EXPECT_EQ(got[1].toInt(), 3);
  EXPECT_EQ(got[2].toDouble(), 2.5);
  EXPECT_TRUE(got[3].toBool());
  EXPECT_EQ(got[4].toStringRef(), "text");
}

TEST_F(ExecutorTest, NoneInATensorsPlaceReachesTheOperatorAsAnUndefinedTensor) {  // C140
  program.output(program.call("aten::is_same_size", {None(), None()}));
  EXPECT_EQ(run(program, {})[0].toBool(), true);
}

TEST_F(ExecutorTest, AutocastOutsideChangesNothingInsideAndStaysOn) {  // C100
  const Tensor x = torch::randn({3, 3});
  const ValueId a = program.input(x);
  program.output(program.call("aten::mm", {a, a})).output(program.call("aten::matmul", {a, a}));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const std::vector<c10::IValue> got = run(program, {x});
  const bool still_on = at::autocast::is_autocast_enabled(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_TRUE(still_on);
  for (const c10::IValue& output : got) expect_identical(output.toTensor(), at::mm(x, x));
}

TEST_F(ExecutorTest, GradModeMakesNoDifferenceAndIsAsBefore) {  // C103
  const Tensor x = torch::randn({3}).requires_grad_();
  program.output(program.call("aten::exp", {program.input(x)}));
  const Executor executor(program.program());
  const Tensor with_grad = executor.run({x})[0].toTensor();
  EXPECT_TRUE(at::GradMode::is_enabled());
  const at::NoGradGuard no_grad;
  expect_identical(executor.run({x})[0].toTensor(), with_grad);
  EXPECT_FALSE(at::GradMode::is_enabled());
  EXPECT_FALSE(with_grad.requires_grad());
}

TEST_F(ExecutorTest, ResultsUnderInferenceModeAreOrdinaryTensors) {
  const Tensor x = torch::randn({3});
  program.output(program.call("aten::exp", {program.input(x)}));
  const Executor executor(program.program());
  const c10::InferenceMode inference;
  EXPECT_FALSE(executor.run({x})[0].toTensor().is_inference());
  EXPECT_TRUE(c10::InferenceMode::is_enabled());
}

TEST_F(ExecutorTest, AnErrorOfAnOperatorArrivesWithItsOwnTextAndLeavesTheStateAlone) {  // C99, C100
  const Tensor x = torch::zeros({1}).to(at::kBool);
  program.call("aten::_assert_async.msg", {program.input(x), "the user's own assertion"});
  const Executor executor(program.program());
  try {
    (void)executor.run({x});
    FAIL() << "no error was thrown";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the user's own assertion"));
  }
  EXPECT_TRUE(at::GradMode::is_enabled());
  EXPECT_TRUE((torch::ones({1}).requires_grad_() * 2).requires_grad()) << "autograd is off after an error";
  EXPECT_NO_THROW((void)executor.run({at::ones({1}, at::kBool)}));
}

TEST_F(ExecutorTest, ValuesAreFreedAtTheirLastUse) {
  const Tensor x = torch::randn({4});
  const ValueId a = program.input(x);
  const ValueId kept = program.call("aten::exp", {a});
  const ValueId sum = program.call("aten::add.Tensor", {kept, kept});
  program.output(program.call("aten::mul.Tensor", {sum, a}));
  const std::vector<c10::IValue> got = run(program, {x});
  expect_identical(got[0].toTensor(), (x.exp() + x.exp()) * x);
  EXPECT_EQ(x.use_count(), 1);
  EXPECT_EQ(got[0].toTensor().storage().use_count(), 1);
}

TEST_F(ExecutorTest, ThreadsShareOneExecutor) {  // C169
  const Tensor x = torch::randn({64});
  const ValueId a = program.input(x);
  program.output(program.call("aten::cat", {{program.call("aten::mul.Tensor", {a, 2.0}), a}}));
  const Executor executor(program.program());
  const Tensor expected = at::cat({x * 2, x});
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 200; ++j)
        if (!at::equal(executor.run({x})[0].toTensor(), expected)) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(ExecutorTest, UnknownOperatorIsNamedWithItsLine) {  // C62
  program.call("mylib::fused.fast", {program.input(torch::zeros({1}))});
  expect_invalid(program, {"line 100", "torch.ops.mylib.fused.fast", "unknown operator"});
}

TEST_F(ExecutorTest, WrongNumberOfArgumentsIsNamed) {  // C62
  const ValueId a = program.input(torch::zeros({1}));
  program.call("aten::relu", {a, a});
  expect_invalid(program, {"line 100", "torch.ops.aten.relu.default", "at most 1 positional", "found 2"});
}

TEST_F(ExecutorTest, MissingArgumentIsNamed) {  // C62
  program.call("aten::mm", {program.input(torch::zeros({1}))});
  expect_invalid(program, {"torch.ops.aten.mm.default", "'mat2' is missing"});
}

TEST_F(ExecutorTest, UnknownKeywordIsNamed) {  // C62
  program.call("aten::relu", {program.input(torch::zeros({1}))}, {{"slope", 1.0}});
  expect_invalid(program, {"torch.ops.aten.relu.default", "unknown keyword 'slope'"});
}

TEST_F(ExecutorTest, ArgumentGivenTwiceIsNamed) {  // C62
  const ValueId a = program.input(torch::zeros({1}));
  program.call("aten::relu", {a}, {{"self", a}});
  expect_invalid(program, {"'self' is given twice"});
}

TEST_F(ExecutorTest, ArgumentOfTheWrongKindIsNamed) {  // C62
  const ValueId a = program.input(torch::zeros({2}));
  program.call("aten::view", {a, "two"});
  expect_invalid(program, {"torch.ops.aten.view.default", "'size'", "the string 'two'"});
}

TEST_F(ExecutorTest, UnknownDtypeIsNamed) {  // C62
  program.call("aten::_to_copy", {program.input(torch::zeros({2}))}, {{"dtype", ir::Dtype{"float33"}}});
  expect_invalid(program, {"'dtype'", "torch.float33"});
}

TEST_F(ExecutorTest, ListWhereATensorIsDueIsNamed) {  // C62
  const ValueId parts = program.call("aten::unbind.int", {program.input(torch::zeros({2}))});
  program.call("aten::relu", {parts});
  expect_invalid(program, {"line 101", "torch.ops.aten.relu.default", "Tensor[]"});
}

TEST_F(ExecutorTest, ValueUsedBeforeItIsDefinedIsNamed) {  // C62
  const ValueId a = program.input(torch::zeros({2}));
  program.call("aten::relu", {ValueId{a.index + 2}});
  program.call("aten::relu", {a});
  expect_invalid(program, {"line 100", "'v2' is used before it is defined"});
}

TEST_F(ExecutorTest, OperatorWithSeveralResultsMustBeTakenApart) {  // C62
  const ValueId pair = program.call("aten::max.dim", {program.input(torch::zeros({2, 2})), 0});
  program.call("aten::relu", {pair});
  expect_invalid(program, {"line 101", "'v1' has 2 results"});
}

TEST_F(ExecutorTest, ResultThatTheOperatorDoesNotHaveIsNamed) {  // C62
  program.item(program.call("aten::max.dim", {program.input(torch::zeros({2, 2})), 0}), 2);
  expect_invalid(program, {"line 101", "'v1[2]'", "2 results"});
}

TEST_F(ExecutorTest, ANumberIsNoPlaceToWriteInto) {
  program.input(torch::zeros({2}));
  program.call("aten::add_.Tensor", {1.0, 2.0});
  expect_invalid(program, {"torch.ops.aten.add_.Tensor", "could write"});
}

}  // namespace
}  // namespace precast::eager
