#include "capture/modules.h"
#include "precast/precast.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <optional>

// Programs captured and run on a model, against LibTorch eager on a copy of it: EXACT.
namespace precast::test {
namespace {

bool same(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() && torch::equal(a, b);
}

void expect_same_state(torch::nn::Module& got, torch::nn::Module& eager) {
  const auto parameters = got.named_parameters(), expected = eager.named_parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(same(parameters[i].value(), expected[i].value())) << parameters[i].key();
    EXPECT_TRUE(same(parameters[i].value().grad(), expected[i].value().grad())) << parameters[i].key() << ".grad";
  }
  const auto buffers = got.named_buffers(), expected_buffers = eager.named_buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i)
    EXPECT_TRUE(same(buffers[i].value(), expected_buffers[i].value())) << buffers[i].key();
}

class Programs : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(5); }
};

template <class Fn, class... Args>
auto compile(Fn&& fn, Args&&... args) {
  return load<step_result_t<Fn, Args...>>(precompile(fn, Options{.backend = "eager"}, args...));
}

template <class Fn>
void expect_equals_eager(Fn&& fn, const at::Tensor& x) {
  const auto step = compile(fn, x);
  EXPECT_TRUE(same(step(x), fn(x)));
}

TEST_F(Programs, TwoTensorsAndTwoResultsKeepTheirOrder) {  // C120
  const auto fn = [](const at::Tensor& a, const at::Tensor& b) { return std::pair{a - b, b / a}; };
  const auto a = torch::rand({3}) + 1, b = torch::rand({3}) + 1;
  const auto got = compile(fn, a, b)(a, b);
  EXPECT_TRUE(same(got.first, a - b));
  EXPECT_TRUE(same(got.second, b / a));
}

TEST_F(Programs, OneOfEachKind) {  // C121
  expect_equals_eager([](const at::Tensor& x) { return torch::gelu(x).exp().sin() + torch::silu(x); }, torch::randn({4, 6}));
  expect_equals_eager([](const at::Tensor& x) { return torch::linear(x, x.t().matmul(x)); }, torch::randn({4, 6}));
  expect_equals_eager(
      [](const at::Tensor& x) {
        return torch::stack({x.sum(), x.mean(), x.max(), x.logsumexp(0).sum()});
      },
      torch::randn({4, 6}));
  expect_equals_eager([](const at::Tensor& x) { return torch::conv2d(x, x.narrow(0, 0, 1), {}, 1, 1); },
                      torch::randn({2, 3, 4, 4}));
  expect_equals_eager([](const at::Tensor& x) { return torch::scaled_dot_product_attention(x, x, x, {}, 0.0, true); },
                      torch::randn({2, 2, 5, 8}));
  expect_equals_eager([](const at::Tensor& x) { return torch::layer_norm(x, {6}); }, torch::randn({4, 6}));
  expect_equals_eager(
      [](const at::Tensor& x) {
        return torch::cat(x.split(2, 1), 0).index({torch::arange(2), torch::indexing::Slice()});
      },
      torch::randn({4, 6}));
  expect_equals_eager([](const at::Tensor& x) { return torch::einsum("bi,ci->bc", {x, x}); }, torch::randn({4, 6}));
}

TEST_F(Programs, BuffersAndAnotherCheckpoint) {  // C122, C131
  NormNet model;
  const auto x = torch::randn({2, 3, 5, 5}), y = torch::randint(0, 3, {2});
  const auto fn = [](NormNet& m, const at::Tensor& in, const at::Tensor& target) {
    auto loss = torch::nn::functional::cross_entropy(m->forward(in), target);
    loss.backward();
    return loss;
  };
  const auto step = compile(fn, model, x, y);
  NormNet other;  // other values, same structure
  NormNet eager = copy_of(other, NormNet());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same(step(other, x, y), fn(eager, x, y)));
  expect_same_state(*other, *eager);
}

TEST_F(Programs, BatchNormInEvalKeepsItsStatistics) {  // C131
  NormNet model;
  model->eval();
  const auto x = torch::randn({2, 3, 5, 5});
  const auto fn = [](NormNet& m, const at::Tensor& in) { return m->forward(in); };
  const auto mean = model->bn->running_mean.clone();
  EXPECT_TRUE(same(compile(fn, model, x)(model, x), fn(model, x).detach()));
  EXPECT_TRUE(torch::equal(model->bn->running_mean, mean));
}

TEST_F(Programs, TwoModules) {  // C123
  Mlp a, b;
  const auto x = torch::randn({3, 8});
  const auto fn = [](Mlp& first, const at::Tensor& in, Mlp& second) {
    (first->forward(in) * second->forward(in)).sum().backward();
  };
  const auto artifact = precompile(fn, Options{.backend = "eager"}, a, x, b);
  EXPECT_THAT(artifact.python_code, ::testing::HasSubstr("'m0.fc1.weight'"));
  EXPECT_THAT(artifact.python_code, ::testing::HasSubstr("MODULE_POSITIONS = [0, 2]"));
  Mlp eager_a = copy_of(a, Mlp()), eager_b = copy_of(b, Mlp());
  load<void>(artifact)(a, x, b);
  fn(eager_a, x, eager_b);
  expect_same_state(*a, *eager_a);
  expect_same_state(*b, *eager_b);
}

TEST_F(Programs, InPlaceOpsOnIntermediates) {  // C124
  expect_equals_eager(
      [](const at::Tensor& x) {
        auto y = x * 2;
        y.add_(1).relu_();
        y[0].zero_();
        y.narrow(1, 0, 2).mul_(3);
        return y + x;
      },
      torch::randn({3, 4}));
}

TEST_F(Programs, GradientsAccumulate) {  // C125, C130
  Mlp model(0.3);
  Mlp eager = copy_of(model, Mlp(0.3));
  const auto x = torch::randn({5, 8}), y = torch::randint(0, 4, {5});
  const auto fn = [](Mlp& m, const at::Tensor& in, const at::Tensor& target) {
    auto loss = torch::nn::functional::cross_entropy(m->forward(in), target);
    loss.backward();
    return loss;
  };
  const auto step = compile(fn, model, x, y);
  const auto compare = [&] {
    torch::manual_seed(9);
    const auto got = step(model, x, y);
    torch::manual_seed(9);
    EXPECT_TRUE(same(got, fn(eager, x, y).detach()));
    expect_same_state(*model, *eager);
  };
  compare();
  const auto* grad = model->fc1->weight.grad().unsafeGetTensorImpl();
  compare();
  EXPECT_EQ(model->fc1->weight.grad().unsafeGetTensorImpl(), grad);
  model->zero_grad(/*set_to_none=*/false);
  eager->zero_grad(/*set_to_none=*/false);
  compare();
}

TEST_F(Programs, AHundredStepsWithAdamW) {  // C126, C136, C138
  Mlp model(0.2);
  Mlp eager = copy_of(model, Mlp(0.2));
  const auto fn = [](Mlp& m, const at::Tensor& in, const at::Tensor& target) {
    auto loss = torch::mse_loss(m->forward(in), target);
    loss.backward();
    return loss;
  };
  const auto x = torch::randn({16, 8}), y = torch::randn({16, 4});
  const auto step = compile(fn, model, x, y);
  const auto train = [&](Mlp& m, const auto& call) {
    torch::manual_seed(21);
    torch::optim::AdamW optimizer(m->parameters(), 1e-2);
    std::vector<float> losses;
    for (int i = 0; i < 100; ++i) {
      optimizer.zero_grad();
      losses.push_back(call(m, x, y).template item<float>());
      torch::nn::utils::clip_grad_norm_(m->parameters(), 0.5);
      optimizer.step();
    }
    return losses;
  };
  EXPECT_EQ(train(model, step), train(eager, fn));
  expect_same_state(*model, *eager);
}

TEST_F(Programs, FrozenAndUnusedParametersGetNoGradient) {  // C127, C129
  Mlp model;
  model->fc1->weight.requires_grad_(false);
  const auto x = torch::randn({5, 8});
  const auto fn = [](Mlp& m, const at::Tensor& in) { m->fc1(in).sum().backward(); };
  const auto step = compile(fn, model, x);
  model->fc1->weight.requires_grad_(true);
  model->fc1->bias.requires_grad_(false);
  step(model, x);
  EXPECT_FALSE(model->fc1->weight.grad().defined());
  EXPECT_TRUE(model->fc1->bias.grad().defined());
  EXPECT_FALSE(model->fc2->weight.grad().defined());
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(7, 6));
    head = register_module("head", torch::nn::Linear(torch::nn::LinearOptions(6, 7).bias(false)));
    head->weight = embedding->weight;
    head->register_parameter("tied", embedding->weight);
  }
  at::Tensor forward(const at::Tensor& tokens) { return torch::linear(embedding(tokens), embedding->weight); }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Tied);

TEST_F(Programs, ATiedWeightGetsOneSummedGradient) {  // C128
  Tied model;
  Tied eager = copy_of(model, Tied());
  const auto tokens = torch::randint(0, 7, {4, 3});
  const auto fn = [](Tied& m, const at::Tensor& in) { m->forward(in).pow(2).sum().backward(); };
  compile(fn, model, tokens)(model, tokens);
  fn(eager, tokens);
  EXPECT_TRUE(same(model->embedding->weight.grad(), eager->embedding->weight.grad()));
}

TEST_F(Programs, AResultThatIsAViewOfAnInputSharesItsMemory) {  // C132
  const auto fn = [](const at::Tensor& x) { return std::pair{x.view({-1}), x}; };
  auto x = torch::randn({2, 3});
  const auto got = compile(fn, x)(x);
  got.first.fill_(4);
  EXPECT_TRUE(torch::equal(x, torch::full({2, 3}, 4.0F)));
  x.zero_();
  EXPECT_EQ(got.second.sum().item<float>(), 0);
}

TEST_F(Programs, TwoResultsThatAreViewsOfOneValueShareIt) {  // C133
  const auto fn = [](const at::Tensor& x) {
    const auto y = x * 2;
    return std::pair{y.view({-1}), y.t()};
  };
  const auto x = torch::randn({2, 3});
  const auto got = compile(fn, x)(x);
  got.first.zero_();
  EXPECT_EQ(got.second.abs().sum().item<float>(), 0);
}

TEST_F(Programs, AnInputWrittenInPlaceHoldsTheResult) {  // C134
  const auto fn = [](at::Tensor& x) { return x.mul_(2).sum(); };
  auto x = torch::randn({3}), eager = x.clone();
  const auto step = compile(fn, x);
  const auto version = x._version();
  EXPECT_TRUE(same(step(x), fn(eager)));
  EXPECT_TRUE(same(x, eager));
  EXPECT_GT(x._version(), version);
}

TEST_F(Programs, OverlappingViewsOfOneBase) {  // C135
  const auto fn = [](at::Tensor& a, const at::Tensor& b) {
    a.add_(1);
    return b * 2;
  };
  const auto base = torch::randn({6}), eager = base.clone();
  auto a = base.narrow(0, 0, 4), b = base.narrow(0, 2, 4);
  auto eager_a = eager.narrow(0, 0, 4), eager_b = eager.narrow(0, 2, 4);
  const auto step = compile(fn, a, b);
  EXPECT_TRUE(same(step(a, b), fn(eager_a, eager_b)));
  EXPECT_TRUE(same(base, eager));
}

TEST_F(Programs, OneTensorPassedTwiceMustBeOneAtRunTime) {  // C102, C135
  const auto fn = [](const at::Tensor& a, const at::Tensor& b) { return a - 2 * b; };
  const auto x = torch::randn({3});
  const auto step = compile(fn, x, x);
  EXPECT_TRUE(same(step(x, x), fn(x, x)));
  EXPECT_THROW(step(x, torch::randn({3})), PrecompileError);
}

TEST_F(Programs, AGeneratorThatIsPassedIsDrawnFromAtRunTime) {  // C137
  const auto fn = [](const at::Tensor& x, at::Generator& g) { return x + torch::rand({3}, g); };
  const auto x = torch::zeros({3});
  auto example = at::make_generator<at::CPUGeneratorImpl>(1);
  const auto step = compile(fn, x, example);
  auto a = at::make_generator<at::CPUGeneratorImpl>(2), b = at::make_generator<at::CPUGeneratorImpl>(2);
  EXPECT_TRUE(same(step(x, a), fn(x, b)));
  EXPECT_TRUE(same(step(x, a), fn(x, b)));
}

TEST_F(Programs, DropoutDrawsAnewAndFollowsTheSeed) {  // C136
  const auto fn = [](const at::Tensor& x) { return torch::dropout(x, 0.5, true); };
  const auto x = torch::ones({64});
  const auto step = compile(fn, x);
  torch::manual_seed(2);
  const auto first = step(x), second = step(x);
  torch::manual_seed(2);
  EXPECT_TRUE(same(first, fn(x)));
  EXPECT_TRUE(same(second, fn(x)));
  EXPECT_FALSE(torch::equal(first, second));
}

TEST_F(Programs, OtherDtypes) {  // C139
  for (const auto dtype : {at::kDouble, at::kBFloat16}) {
    Mlp model;
    model->to(dtype);
    Mlp fresh;
    fresh->to(dtype);
    Mlp eager = copy_of(model, fresh);
    const auto fn = [](Mlp& m, const at::Tensor& in) {
      auto loss = m->forward(in).to(at::kFloat).pow(2).mean();
      loss.backward();
      return loss;
    };
    const auto x = torch::randn({5, 8}).to(dtype);
    EXPECT_TRUE(same(compile(fn, model, x)(model, x), fn(eager, x).detach()));
    expect_same_state(*model, *eager);
  }
}

TEST_F(Programs, AStepCapturedUnderAutocastEqualsEagerUnderAutocast) {  // C100
  Mlp model;
  Mlp eager = copy_of(model, Mlp());
  const auto x = torch::randn({5, 8});
  const auto fn = [](Mlp& m, const at::Tensor& in) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    auto loss = m->forward(in).to(at::kFloat).pow(2).mean();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    loss.backward();
    return loss;
  };
  EXPECT_TRUE(same(compile(fn, model, x)(model, x), fn(eager, x).detach()));
  expect_same_state(*model, *eager);
}

TEST_F(Programs, NestedArgumentsAndResultsRoundTrip) {  // C17, C120, C140
  using Nested = std::map<std::string, std::vector<at::Tensor>>;
  const auto fn = [](const Nested& in, std::optional<at::Tensor> bias, int scale, const std::string& mode) {
    auto out = in.at("a")[1] * scale;
    if (bias) out = out + *bias;
    return std::tuple{Nested{{"sum", {out, in.at("b")[0]}}}, std::optional<at::Tensor>(), at::Tensor(), mode, scale + 0.5};
  };
  const Nested in = {{"a", {torch::ones({2}), torch::rand({2})}}, {"b", {torch::zeros({1})}}};
  const auto step = compile(fn, in, std::optional<at::Tensor>(torch::ones({2})), 3, std::string("train"));
  const auto [nested, none, undefined, mode, number] =
      step(in, std::optional<at::Tensor>(torch::ones({2})), 3, std::string("train"));
  EXPECT_TRUE(same(nested.at("sum")[0], in.at("a")[1] * 3 + 1));
  EXPECT_TRUE(same(nested.at("sum")[1], in.at("b")[0]));
  EXPECT_FALSE(none.has_value());
  EXPECT_FALSE(undefined.defined());
  EXPECT_EQ(mode, "train");
  EXPECT_EQ(number, 3.5);
  EXPECT_THROW(step(in, std::optional<at::Tensor>(torch::ones({2})), 4, std::string("train")), PrecompileError);  // C101
}

TEST_F(Programs, GradientsByAutogradGrad) {
  Mlp model;
  const auto x = torch::randn({5, 8});
  const auto fn = [](Mlp& m, const at::Tensor& in) { return torch::autograd::grad({m->forward(in).sum()}, m->parameters()); };
  const auto got = compile(fn, model, x)(model, x), expected = fn(model, x);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same(got[i], expected[i]));
  EXPECT_FALSE(model->fc1->weight.grad().defined());
}

struct OddNamesImpl : torch::nn::Module {
  OddNamesImpl() {
    for (const char* name : {"class", "call", "forward", "torch", "BACKEND", "args", "inf", "device"})
      register_parameter(name, torch::randn({2}));
  }
};

TEST_F(Programs, NamesThatPythonOrTheTextUses) {  // C76
  OddNamesImpl model;
  const auto fn = [](OddNamesImpl& m, const at::Tensor& x) {
    auto out = x;
    for (const auto& parameter : m.parameters()) out = out * parameter + float(1e-3);
    return out;
  };
  const auto x = torch::randn({2});
  EXPECT_TRUE(same(compile(fn, model, x)(model, x), fn(model, x).detach()));
}

TEST_F(Programs, NumbersSurviveTheText) {  // C77
  for (const double value : {0.1 + 0.2, 1e-310, -0.0, 1.7976931348623157e308, std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()}) {
    const auto fn = [value](const at::Tensor& x) { return torch::full_like(x, value); };
    expect_equals_eager(fn, torch::zeros({1}, at::kDouble));
  }
  for (const std::int64_t value : {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()})
    expect_equals_eager([value](const at::Tensor& x) { return torch::full_like(x, value); }, torch::zeros({1}, at::kLong));
  const auto nan = [](const at::Tensor& x) { return torch::full_like(x, std::numeric_limits<double>::quiet_NaN()).isnan(); };
  expect_equals_eager(nan, torch::zeros({1}));
}

TEST_F(Programs, Lstm) {  // C121: oneDNN's kernel saves for its backward only where grad mode is on
  torch::nn::LSTM model(torch::nn::LSTMOptions(5, 6).num_layers(2));
  const auto eager = copy_of(model, torch::nn::LSTM(torch::nn::LSTMOptions(5, 6).num_layers(2)));
  const auto x = torch::randn({7, 3, 5});
  const auto fn = [](torch::nn::LSTM& m, const at::Tensor& in) {
    const at::Tensor y = std::get<0>(m->forward(in));
    y.pow(2).sum().backward();
    return y.detach();
  };
  auto reference = eager;
  EXPECT_TRUE(same(compile(fn, model, x)(model, x), fn(reference, x)));
  expect_same_state(*model, *reference);
}

TEST_F(Programs, SelfAttentionModule) {  // C121: asks whether query and key are equal
  const auto options = torch::nn::MultiheadAttentionOptions(8, 2);
  torch::nn::MultiheadAttention model(options);
  auto eager = copy_of(model, torch::nn::MultiheadAttention(options));
  const auto x = torch::randn({5, 3, 8});
  const auto fn = [](torch::nn::MultiheadAttention& m, const at::Tensor& in) {
    const at::Tensor y = std::get<0>(m->forward(in, in, in));
    y.pow(2).mean().backward();
    return y.detach();
  };
  EXPECT_TRUE(same(compile(fn, model, x)(model, x), fn(eager, x)));
  expect_same_state(*model, *eager);
}

TEST_F(Programs, CheckedLinearAlgebra) {  // C121: the check stays in the program
  const auto fn = [](const at::Tensor& a) { return at::linalg_cholesky(a.t().mm(a) + at::eye(4)); };
  const auto a = torch::randn({4, 4});
  const auto step = compile(fn, a);
  EXPECT_TRUE(same(step(a), fn(a)));
  EXPECT_THAT(step.artifact().python_code, ::testing::HasSubstr("_linalg_check_errors"));
}

TEST_F(Programs, AnIntermediateThatIsGivenOtherMemory) {  // C124
  expect_equals_eager(
      [](const at::Tensor& x) {
        const at::Tensor y = x.clone();
        y.set_data(x * 2);
        return y + 1;
      },
      torch::randn({3, 4}));
}

TEST_F(Programs, TheDefaultGeneratorPassedAsAnArgumentIsReplacedByTheCallers) {  // C137
  const auto fn = [](const at::Tensor& x, const at::Generator& g) { return at::empty_like(x).normal_(0.0, 1.0, g); };
  const auto x = torch::zeros({4});
  const auto step = compile(fn, x, at::globalContext().defaultGenerator(at::kCPU));
  auto ours = at::make_generator<at::CPUGeneratorImpl>(3), eager = at::make_generator<at::CPUGeneratorImpl>(3);
  EXPECT_TRUE(same(step(x, ours), fn(x, eager)));
}

TEST_F(Programs, ATensorAndItsDetachedSelfAreOneInput) {  // C135
  const auto fn = [](const at::Tensor& x, const at::Tensor& y) { return x * 2 + y; };
  const auto example = torch::ones({3});
  const auto step = load<at::Tensor>(precompile(fn, Options{.backend = "eager"}, example, example.detach()));
  const auto x = torch::randn({3});
  EXPECT_TRUE(torch::equal(step(x, x.detach()), x * 2 + x));
  EXPECT_THROW(step(x, x.clone()), PrecompileError);
}

TEST_F(Programs, AGeneratorPassedTwiceIsOneAgain) {  // C137
  const auto fn = [](const at::Generator& a, const at::Generator& b) { return torch::rand({3}, a) + torch::rand({3}, b); };
  const auto make = [](std::uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); };
  const auto example = make(1);
  const auto step = load<at::Tensor>(precompile(fn, Options{.backend = "eager"}, example, example));
  const auto ours = make(4), eager = make(4);
  EXPECT_TRUE(torch::equal(step(ours, ours), fn(eager, eager)));
  EXPECT_THROW(step(make(4), make(4)), PrecompileError);
}

}  // namespace
}  // namespace precast::test
