// Both parts of a split program run by the eager executor, against LibTorch eager on the whole function.

#include "backends/inductor/split.h"

#include "backends/eager/executor.h"
#include "ir/text.h"
#include "precast/precast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <tuple>
#include <vector>

namespace precast::inductor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class Fn, class... Args>
ir::Program captured(Fn&& fn, const Args&... args) {
  return ir::read_python_code(precompile(fn, Options{.backend = "eager"}, args...).python_code);
}

std::vector<c10::IValue> run_parts(const ir::Program& program, std::vector<c10::IValue> inputs) {
  const Split parts = split(program);
  for (c10::IValue& result : eager::Executor(parts.compiled).run(inputs)) inputs.push_back(std::move(result));
  return eager::Executor(parts.views).run(std::move(inputs));
}

bool share_memory(const c10::IValue& a, const c10::IValue& b) {
  return a.toTensor().is_alias_of(b.toTensor());
}

TEST(Split, ResultsThatAreNotShared) {
  const auto fn = [](const at::Tensor& x) { return std::make_tuple(x * 2, (x + 1).view({6})); };
  const auto x = torch::randn({2, 3});
  const auto program = captured(fn, x);
  const auto results = run_parts(program, {x});
  EXPECT_TRUE(torch::equal(results[0].toTensor(), x * 2));
  EXPECT_TRUE(torch::equal(results[1].toTensor(), (x + 1).view({6})));
  EXPECT_TRUE(split(program).views.statements.empty());
}

TEST(Split, AViewOfAnInputSharesItsMemory) {  // C132
  const auto fn = [](const at::Tensor& x) { return std::make_tuple(x.t().select(0, 1), x.sum()); };
  const auto x = torch::randn({2, 3});
  const auto results = run_parts(captured(fn, torch::randn({2, 3})), {x});
  EXPECT_TRUE(share_memory(results[0], x));
  x.fill_(7);
  EXPECT_TRUE(torch::equal(results[0].toTensor(), torch::full({2}, 7.0)));
}

TEST(Split, TwoViewsOfOneIntermediateShareItsMemory) {  // C133
  const auto fn = [](const at::Tensor& x) {
    const auto y = x.exp();
    return std::make_tuple(y.view({6}), y.t(), y.chunk(2, 0)[1]);
  };
  const auto x = torch::randn({2, 3});
  const auto results = run_parts(captured(fn, torch::randn({2, 3})), {x});
  EXPECT_TRUE(share_memory(results[0], results[1]) && share_memory(results[0], results[2]));
  EXPECT_TRUE(torch::equal(results[0].toTensor(), x.exp().view({6})));
  EXPECT_TRUE(torch::equal(results[1].toTensor(), x.exp().t()));
  EXPECT_TRUE(torch::equal(results[2].toTensor(), x.exp()[1].unsqueeze(0)));
}

TEST(Split, AnInputWrittenInPlaceAndReturnedIsThatInput) {  // C134
  const auto fn = [](const at::Tensor& x) {
    const at::Tensor y = x;
    return std::make_tuple(y.mul_(3), y.view({6}));
  };
  const auto x = torch::ones({2, 3});
  const auto program = captured(fn, torch::ones({2, 3}));
  const auto results = run_parts(program, {x});
  EXPECT_TRUE(torch::equal(x, torch::full({2, 3}, 3.0)));
  EXPECT_TRUE(share_memory(results[0], x) && share_memory(results[1], x));
  EXPECT_TRUE(split(program).compiled.outputs.empty());
}

TEST(Split, OneResultTwice) {
  const auto fn = [](const at::Tensor& x) {
    const auto y = x * 2;
    return std::make_tuple(y, y);
  };
  const auto x = torch::randn({3});
  const auto program = captured(fn, x);
  const auto results = run_parts(program, {x});
  EXPECT_TRUE(share_memory(results[0], results[1]));
  EXPECT_EQ(split(program).compiled.outputs.size(), 1U);
}

TEST(Split, ConstantsAndPlainInputsStayOutside) {  // C20
  const auto fn = [](const at::Tensor& x, std::int64_t n, const std::optional<at::Tensor>&) {
    return std::make_tuple(x * n, std::int64_t{3}, std::optional<at::Tensor>());
  };
  const auto x = torch::ones({2});
  const auto program = captured(fn, x, std::int64_t{5}, std::optional<at::Tensor>());
  EXPECT_THAT(split(program).tensor_inputs, ::testing::ElementsAre(0U));
  const auto results = run_parts(program, {x, std::int64_t{5}, c10::IValue()});
  EXPECT_TRUE(torch::equal(results[0].toTensor(), x * 5));
  EXPECT_EQ(results[1].toInt(), 3);
  EXPECT_TRUE(results[2].isNone());
}

TEST(Split, TheCompiledPartSurvivesTheText) {
  const auto fn = [](const at::Tensor& x) {
    const auto y = x.exp();
    return std::make_tuple(y.view({6}), y.t(), x.t());
  };
  const ir::Program compiled = split(captured(fn, torch::randn({2, 3}))).compiled;
  const ir::Program read = ir::read_python_code(ir::write_python_code(compiled));
  EXPECT_EQ(read.outputs.size(), 1U);
  EXPECT_EQ(read.statements.size(), compiled.statements.size());
}

template <class Fn, class... Args>
std::string refusal(Fn&& fn, const Args&... args) {
  try {
    split(captured(fn, args...));
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), ErrorCode::refused_capture);
    return error.what();
  }
  return "not refused";
}

TEST(Split, RefusesProgramsWithoutCompute) {  // C19
  const auto x = torch::ones({2, 3});
  EXPECT_THAT(refusal([](const at::Tensor& in) { return in; }, x), AllOf(HasSubstr("computes nothing"), HasSubstr("'eager'")));
  EXPECT_THAT(refusal([](const at::Tensor& in) { return in.t().detach(); }, x), HasSubstr("computes nothing"));
  EXPECT_THAT(refusal([](const at::Tensor&) { return std::int64_t{4}; }, x), HasSubstr("computes nothing"));
}

TEST(Split, RefusesDoublesAndStrings) {  // C20
  const auto x = torch::ones({2});
  EXPECT_THAT(refusal([](const at::Tensor& in) { return std::make_tuple(in * 2, 0.5); }, x),
              AllOf(HasSubstr("result leaf 1"), HasSubstr("double")));
  EXPECT_THAT(refusal([](const at::Tensor& in) { return std::make_tuple(in * 2, std::string("a")); }, x), HasSubstr("string"));
}

TEST(Split, RefusesGeneratorsAmongTheInputs) {  // C137
  const auto fn = [](const at::Tensor& x, const at::Generator& g) { return x + torch::rand({2}, g); };
  EXPECT_THAT(refusal(fn, torch::ones({2}), at::make_generator<at::CPUGeneratorImpl>(3)),
              AllOf(HasSubstr("argument 1"), HasSubstr("random generator")));
}

}  // namespace
}  // namespace precast::inductor
