// Inputs and weights whose memory is laid out otherwise than at capture: LibTorch eager is the oracle.

#include "capture/modules.h"
#include "precast/precast.h"
#include "warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <tuple>
#include <vector>

namespace precast::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class CapturedLayout : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(5); }
  Warnings warnings_;
};

/// The same values, the last two dimensions stored in the other order.
at::Tensor stored_transposed(const at::Tensor& tensor) {
  return tensor.transpose(-2, -1).contiguous().transpose(-2, -1);
}

void relay(torch::nn::Module& module) {
  for (at::Tensor& parameter : module.parameters())
    if (parameter.dim() == 2) parameter.set_data(stored_transposed(parameter.detach()));
}

TEST_F(CapturedLayout, ALstmEqualsEagerWithOtherwiseStoredInputsAndWeights) {  // C89, C94
  const auto fn = [](torch::nn::LSTM& lstm, const at::Tensor& x) {
    auto loss = std::get<0>(lstm->forward(x)).pow(2).sum();
    loss.backward();
    return loss;
  };
  torch::nn::LSTM captured(torch::nn::LSTMOptions(4, 6)), ours(torch::nn::LSTMOptions(4, 6));
  const auto x = torch::randn({3, 2, 4});
  const auto step = load<at::Tensor>(precompile(fn, Options{.backend = "eager"}, captured, x));
  auto eager = copy_of(ours, torch::nn::LSTM(torch::nn::LSTMOptions(4, 6)));
  relay(*ours);
  const auto y = stored_transposed(torch::randn({3, 2, 4}));
  EXPECT_TRUE(torch::allclose(step(ours, y), fn(eager, y)));
  for (std::size_t i = 0; i < ours->parameters().size(); ++i)
    EXPECT_TRUE(torch::allclose(ours->parameters()[i].grad(), eager->parameters()[i].grad())) << i;
}

TEST_F(CapturedLayout, AViewThatNeedsTheCapturedStridesEqualsEager) {  // C94
  const auto fn = [](const at::Tensor& x) { return x.view({12}) * 2; };
  const auto step = load<at::Tensor>(precompile(fn, Options{.backend = "eager"}, torch::randn({3, 4})));
  const auto x = stored_transposed(torch::randn({3, 4}));
  EXPECT_TRUE(torch::equal(step(x), x.reshape({12}) * 2));
}

TEST_F(CapturedLayout, AChannelsLastImageEqualsEager) {  // C94
  const auto fn = [](NormNet& net, const at::Tensor& x) {
    auto loss = net->forward(x).pow(2).mean();
    loss.backward();
    return loss;
  };
  NormNet captured, ours;
  auto eager = copy_of(ours, NormNet());
  const auto step = load<at::Tensor>(precompile(fn, Options{.backend = "eager"}, captured, torch::randn({2, 3, 5, 5})));
  const auto x = torch::randn({2, 3, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(torch::allclose(step(ours, x), fn(eager, x)));
  EXPECT_TRUE(torch::allclose(ours->conv->weight.grad(), eager->conv->weight.grad(), 1e-4, 1e-6));
  EXPECT_TRUE(torch::allclose(ours->bn->running_mean, eager->bn->running_mean));
}

TEST_F(CapturedLayout, OneWarningNamesTheInputAndBothLayouts) {
  const auto step =
      load<at::Tensor>(precompile([](const at::Tensor& x) { return x.exp(); }, Options{.backend = "eager"}, torch::randn({3, 4})));
  const auto x = stored_transposed(torch::randn({3, 4}));
  step(x);
  step(x);
  EXPECT_EQ(warnings_.count("strides"), 1);
  EXPECT_THAT(warnings_.texts, Contains(AllOf(HasSubstr("input leaf 0"), HasSubstr("[1, 3]"), HasSubstr("[4, 1]"))));
}

TEST_F(CapturedLayout, WhatTheStepWritesArrivesInTheCallersTensor) {  // C134
  const auto fn = [](const at::Tensor& x) {
    const at::Tensor y = x;
    y.view({12}).mul_(2);
    return y.sum();
  };
  const auto step = load<at::Tensor>(precompile(fn, Options{.backend = "eager"}, torch::ones({3, 4})));
  const auto x = stored_transposed(torch::ones({3, 4}));
  const auto before = x._version();
  EXPECT_EQ(step(x).item<float>(), 24);
  EXPECT_TRUE(torch::equal(x, torch::full({3, 4}, 2.0)));
  EXPECT_GT(x._version(), before);
  EXPECT_EQ(x.stride(0), 1);
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), ErrorCode::argument_mismatch);
    return error.what();
  }
  return "not refused";
}

TEST_F(CapturedLayout, AResultThatIsAViewOfSuchAnInputIsRefused) {  // C132
  const auto step = load<at::Tensor>(
      precompile([](const at::Tensor& x) { return x.view({12}); }, Options{.backend = "eager"}, torch::ones({3, 4})));
  const auto x = stored_transposed(torch::ones({3, 4}));
  EXPECT_THAT(refusal([&] { step(x); }),
              AllOf(HasSubstr("input leaf 0"), HasSubstr("[4, 1]"), HasSubstr("[1, 3]"), HasSubstr("view of it")));
}

TEST_F(CapturedLayout, AnInputWithSharedElementsIsReadButNotWritten) {
  const auto x = torch::ones({1, 4}).expand({3, 4});
  const auto reading = load<at::Tensor>(
      precompile([](const at::Tensor& in) { return in.view({12}) + 1; }, Options{.backend = "eager"}, torch::ones({3, 4})));
  EXPECT_TRUE(torch::equal(reading(x), torch::full({12}, 2.0)));
  const auto writing = load<at::Tensor>(precompile(
      [](const at::Tensor& in) {
        const at::Tensor y = in;
        return y.add_(1).sum();
      },
      Options{.backend = "eager"}, torch::ones({3, 4})));
  EXPECT_THAT(refusal([&] { writing(x); }), HasSubstr("share memory"));
}

TEST_F(CapturedLayout, ACaptureOfAnExpandedInputTakesAnyOther) {  // C27
  const auto fn = [](const at::Tensor& x) { return x * 2 + x.sum(0); };
  const auto step = load<at::Tensor>(precompile(fn, Options{.backend = "eager"}, torch::randn({1, 4}).expand({3, 4})));
  const auto x = torch::randn({3, 4});
  EXPECT_TRUE(torch::equal(step(x), fn(x)));
  const auto y = stored_transposed(x);
  EXPECT_TRUE(torch::equal(step(y), fn(x)));
}

TEST_F(CapturedLayout, StridesOfSizeOneAndOfUnreadInputsDoNotCount) {  // C95, C97
  const auto fn = [](const at::Tensor& x, const at::Tensor& like) { return x * 2 + like.size(0); };
  const auto step = load<at::Tensor>(precompile(fn, Options{.backend = "eager"}, torch::randn({3, 1}), torch::randn({3, 4})));
  const auto x = torch::randn({3, 9}).as_strided({3, 1}, {1, 7});
  EXPECT_TRUE(torch::equal(step(x, stored_transposed(torch::randn({3, 4}))), x * 2 + 3));
  EXPECT_EQ(warnings_.count("strides"), 0);
}

}  // namespace
}  // namespace precast::test
