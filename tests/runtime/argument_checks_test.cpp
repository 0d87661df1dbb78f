#include "runtime/step_fixture.h"

#include <optional>
#include <string>
#include <vector>

namespace precast {
namespace {

using test::expect_refused;
using test::make_step;
using test::Net;
using test::ProgramBuilder;
using test::training_step;

/// Every refusal leaves gradients, buffers and the Step as they were.
class ArgumentChecksTest : public ::testing::Test {
 protected:
  ~ArgumentChecksTest() override {
    EXPECT_FALSE(net.fc->weight.grad().defined()) << "a refused call changed a gradient";
    EXPECT_NO_THROW(step(net, x)) << "a refused call left the step unusable";
  }

  Net net;
  at::Tensor x = torch::ones({4, 3});
  Step<std::tuple<at::Tensor>> step = training_step(net);
};

TEST_F(ArgumentChecksTest, TooFewOrTooManyArgumentsAreCounted) {  // C80
  expect_refused([&] { step(net); }, {"expected 2 arguments", "found 1"});
  expect_refused([&] { step(net, x, x); }, {"expected 2 arguments", "found 3"});
}

TEST_F(ArgumentChecksTest, ModuleInAnotherPositionIsNamed) {  // C80
  expect_refused([&] { step(x, net); }, {"argument 0: expected a module", "found an input", "positions [0]"});
}

TEST_F(ArgumentChecksTest, TensorWhereTheModuleWasIsNamed) {  // C81
  expect_refused([&] { step(x, x); }, {"argument 0: expected a module", "found an input"});
}

TEST_F(ArgumentChecksTest, EmptyModulePointerIsNamed) {  // C81
  expect_refused([&] { step(std::shared_ptr<Net>(), x); }, {"argument 0", "empty pointer"});
}

struct Deeper : Net {
  Deeper() { register_parameter("extra", torch::zeros({1})); }
};
struct Shallower : torch::nn::Module {
  Shallower() { register_module("fc", torch::nn::Linear(torch::nn::LinearOptions(3, 2).bias(false))); }
};

TEST_F(ArgumentChecksTest, ModelWithMoreOrFewerParametersIsNamed) {  // C82
  Deeper deeper;
  expect_refused([&] { step(deeper, x); }, {"parameter 0", "expected 'fc.weight'", "2 in all", "found 'extra'", "3 in all"});
  Shallower shallower;
  expect_refused([&] { step(shallower, x); }, {"parameter 1", "expected 'fc.bias'", "found none", "1 in all"});
}

struct Renamed : torch::nn::Module {
  Renamed() { register_module("gc", torch::nn::Linear(3, 2)); }
};

TEST_F(ArgumentChecksTest, ParameterWithAnotherNameIsNamed) {  // C83
  Renamed renamed;
  expect_refused([&] { step(renamed, x); }, {"parameter 0", "expected 'fc.weight'", "found 'gc.weight'"});
}

TEST_F(ArgumentChecksTest, ParameterOfAnotherShapeIsNamed) {  // C85
  Net wide(5);
  expect_refused([&] { step(wide, x); }, {"parameter 'fc.weight'", "shape [2, 3]", "found [5, 3]"});
}

TEST_F(ArgumentChecksTest, ParameterOfAnotherDtypeIsNamed) {  // C86
  Net other;
  other.fc->to(torch::kFloat64);
  expect_refused([&] { step(other, x); }, {"parameter 'fc.weight'", "dtype float32", "found float64"});
}

TEST_F(ArgumentChecksTest, BufferOfAnotherShapeIsNamed) {  // C87
  Net other;
  other.scale.set_data(torch::zeros({2, 1}));
  expect_refused([&] { step(other, x); }, {"buffer 'scale'", "shape [2]", "found [2, 1]"});
}

struct MetaLinear : torch::nn::LinearImpl {
  MetaLinear() : LinearImpl(3, 2) { parameters_["weight"] = torch::zeros({2, 3}, torch::kMeta); }
};
struct OnMeta : torch::nn::Module {
  OnMeta() {
    register_module("fc", std::make_shared<MetaLinear>());
    register_buffer("scale", torch::zeros({2}));
  }
};

TEST_F(ArgumentChecksTest, ParameterOnAnotherDeviceIsNamed) {  // C88
  OnMeta other;
  expect_refused([&] { step(other, x); }, {"parameter 'fc.weight'", "device cpu", "found meta"});
}

TEST_F(ArgumentChecksTest, InputOfAnotherShapeIsNamed) {  // C91
  expect_refused([&] { step(net, torch::ones({4, 2})); }, {"input leaf 0 (argument 1)", "shape [4, 3]", "found [4, 2]"});
  expect_refused([&] { step(net, torch::ones({4, 3, 1})); }, {"shape [4, 3]", "found [4, 3, 1]"});
}

TEST_F(ArgumentChecksTest, InputOfAnotherDtypeIsNamed) {  // C92
  expect_refused([&] { step(net, x.to(torch::kFloat64)); }, {"input leaf 0 (argument 1)", "dtype float32", "found float64"});
}

TEST_F(ArgumentChecksTest, InputOnAnotherDeviceIsNamed) {  // C93
  expect_refused([&] { step(net, x.to("meta")); }, {"input leaf 0 (argument 1)", "device cpu", "found meta"});
}

TEST_F(ArgumentChecksTest, EmptyInputOfAnotherShapeElsewhereIsNamed) {  // C96
  Net other;
  const auto empty_step = training_step(other, 0);
  expect_refused([&] { empty_step(other, torch::zeros({0, 4})); }, {"shape [0, 3]", "found [0, 4]"});
  EXPECT_NO_THROW(empty_step(other, torch::zeros({0, 3})));
}

TEST_F(ArgumentChecksTest, SparseInputIsNamed) {  // C14
  expect_refused([&] { step(net, x.to_sparse()); }, {"input leaf 0", "layout strided", "found Sparse"});
}

TEST_F(ArgumentChecksTest, UndefinedTensorIsNoTensor) {
  expect_refused([&] { step(net, at::Tensor()); }, {"input leaf 0", "tensor of shape [4, 3]", "an undefined tensor"});
}

TEST_F(ArgumentChecksTest, WrongInputIsReportedBeforeAWrongModel) {  // C98
  Net wide(5);
  expect_refused([&] { step(wide, x.to(torch::kInt64)); }, {"input leaf 0", "found int64"});
}

TEST_F(ArgumentChecksTest, ModuleInAnotherModeIsNamed) {  // C10
  net.drop->eval();
  expect_refused([&] { step(net, x); }, {"module 'drop'", "training mode", "found evaluation mode", "train()"});
  net.eval();
  expect_refused([&] { step(net, x); }, {"module argument", "training mode", "found evaluation mode"});
  net.train();
}

TEST_F(ArgumentChecksTest, ModulesOfAPythonArtifactMayBeInAnyMode) {  // C48
  ProgramBuilder program;
  program.modules({{0, &net}});
  program.program().metadata.module_training.clear();
  program.output(program.call("aten::neg", {program.input(x)}));
  net.eval();
  EXPECT_NO_THROW(make_step(program)(net, x));
  net.train();
}

struct Tied : torch::nn::Module {
  explicit Tied(bool tie) {
    a = register_parameter("a", torch::ones({2}));
    b = register_parameter("b", tie ? a : torch::ones({2}));
  }
  at::Tensor a, b;
};

Step<std::tuple<at::Tensor>> step_of(torch::nn::Module& module) {
  ProgramBuilder program;
  const auto lifted = program.modules({{0, &module}});
  program.output(program.call("aten::add.Tensor", {lifted.front(), lifted.back()}));
  return make_step(program);
}

TEST(TiesTest, BrokenTieIsNamed) {  // C84
  Tied tied(true), untied(false);
  const auto step = step_of(tied);
  expect_refused([&] { step(untied); }, {"parameter 1", "expected none", "found 'b'", "tie it again"});
  EXPECT_NO_THROW(step(tied));
}

TEST(TiesTest, NewTieIsNamed) {  // C84
  Tied tied(true), untied(false);
  const auto step = step_of(untied);
  expect_refused([&] { step(tied); }, {"parameter 1", "expected 'b'", "'b' is now tied to 'a'"});
}

TEST(TwoModulesTest, NamesArePrefixedByModuleNumber) {  // C123, C85
  torch::nn::Linear first(2, 2), second(2, 2), wrong(2, 3);
  ProgramBuilder program;
  const auto lifted = program.modules({{0, first.get()}, {1, second.get()}});
  program.output(program.call("aten::mm", {lifted.at(0), lifted.at(2)}));
  const auto step = make_step(program);
  EXPECT_TRUE(torch::equal(std::get<0>(step(first, second)), torch::mm(first->weight, second->weight)));
  expect_refused([&] { step(first, wrong); }, {"parameter 'm1.weight'", "shape [2, 2]", "found [3, 2]"});
}

/// A step over inputs of any structure that returns its last leaf plus one.
template <class... Args>
Step<std::tuple<at::Tensor>> step_over(const Args&... args) {
  const detail::CallArguments call = detail::bind_arguments(args...);
  ProgramBuilder program;
  ir::ValueId last;
  for (const Leaf& leaf : call.inputs.leaves) {
    if (const auto* tensor = std::get_if<at::Tensor>(&leaf)) last = program.input(*tensor);
    if (const auto* number = std::get_if<std::int64_t>(&leaf)) program.plain({*number});
    if (const auto* number = std::get_if<double>(&leaf)) program.plain({*number});
    if (const auto* flag = std::get_if<bool>(&leaf)) program.plain({*flag});
    if (const auto* text = std::get_if<std::string>(&leaf)) program.plain({*text});
    if (std::holds_alternative<std::monostate>(leaf)) program.plain({ir::None{}});
  }
  program.program().metadata.in_spec = call.inputs.spec;
  program.program().metadata.num_positional_args = call.n_positional;
  program.output(program.call("aten::add.Tensor", {last, 1}));
  return make_step(program);
}

TEST(StructureTest, AnotherNestingIsNamed) {  // C90
  const at::Tensor t = torch::zeros({2});
  const auto step = step_over(std::vector{t, t});
  expect_refused([&] { step(std::pair{t, t}); }, {"structure ([*, *])", "structure ((*, *))"});
  expect_refused([&] { step(std::vector{t, t, t}); }, {"structure ([*, *])", "structure ([*, *, *])"});
}

TEST(StructureTest, OtherMapKeysAreNamed) {  // C90
  using Map = std::map<std::string, at::Tensor>;
  const at::Tensor t = torch::zeros({2});
  const auto step = step_over(Map{{"tokens", t}});
  expect_refused([&] { step(Map{{"targets", t}}); }, {"structure", "'tokens'", "'targets'"});
}

TEST(StructureTest, WithoutARecordedStructureTheLeavesAreCounted) {  // C72
  const at::Tensor t = torch::zeros({2});
  ProgramBuilder program;
  program.output(program.call("aten::add.Tensor", {program.input(t), program.input(t)}));
  program.program().metadata.in_spec.reset();
  program.program().metadata.num_positional_args = 1;
  const auto step = make_step(program);
  EXPECT_NO_THROW(step(std::vector{t, t}));
  EXPECT_NO_THROW(step(std::pair{t, t.clone()}));
  expect_refused([&] { step(std::vector{t}); }, {"expected 2 input leaves", "found 1"});
}

TEST(PlainLeavesTest, AnotherValueIsNamed) {  // C101
  const at::Tensor t = torch::zeros({2});
  const auto step = step_over(3, 0.5, true, std::string("mean"), std::optional<at::Tensor>(), t);
  const std::optional<at::Tensor> none;
  EXPECT_NO_THROW(step(3, 0.5, true, std::string("mean"), none, t));
  expect_refused([&] { step(4, 0.5, true, std::string("mean"), none, t); }, {"input leaf 0 (argument 0)", "expected 3", "found 4"});
  expect_refused([&] { step(3, 0.25, true, std::string("mean"), none, t); }, {"input leaf 1", "expected 0.5", "found 0.25"});
  expect_refused([&] { step(3, 0.5, false, std::string("mean"), none, t); }, {"input leaf 2", "expected True", "found False"});
  expect_refused([&] { step(3, 0.5, true, std::string("sum"), none, t); }, {"input leaf 3", "expected 'mean'", "found 'sum'"});
  expect_refused([&] { step(3, 0.5, true, std::string("mean"), std::optional(t), t); },
                 {"input leaf 4", "expected None", "a tensor"});
  expect_refused([&] { step(3.0, 0.5, true, std::string("mean"), none, t); }, {"input leaf 0", "expected 3", "found 3.0"});
}

TEST(PlainLeavesTest, UnrecordedValuesOfAPythonArtifactGoUnchecked) {  // C48
  const at::Tensor t = torch::zeros({2});
  ProgramBuilder program;
  const ir::ValueId a = program.input(t);
  program.plain({2.0});
  program.program().metadata.inputs.back().value.reset();
  program.output(program.call("aten::mul.Tensor", {a, 2.0}));
  const auto step = make_step(program);
  EXPECT_NO_THROW(step(t, 2.0));
  expect_refused([&] { step(t, t); }, {"input leaf 1", "expected a plain value", "a tensor"});
}

TEST(GeneratorLeafTest, AnythingElseIsNamed) {
  ProgramBuilder program;
  const ir::ValueId a = program.input(torch::zeros({2})), generator = program.generator();
  program.output(program.call("aten::normal_functional", {a, 0.0, 1.0}, {{"generator", generator}}));
  const auto step = make_step(program);
  EXPECT_NO_THROW(step(torch::zeros({2}), at::detail::createCPUGenerator()));
  expect_refused([&] { step(torch::zeros({2}), 7); }, {"input leaf 1", "expected a generator", "found 7"});
}

TEST(LayoutTest, TransposedWeightAndInputEqualEager) {  // C89, C94
  Net net;
  const auto step = training_step(net);
  const at::Tensor x = torch::randn({3, 4}).t();
  net.fc->weight.set_data(torch::randn({3, 2}).t());
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(torch::equal(std::get<0>(step(net, x)), net.loss(x)));
}

TEST(LayoutTest, DimensionOfSizeOneMayHaveAnyStride) {  // C95
  const auto step = step_over(torch::zeros({1, 3}));
  EXPECT_NO_THROW(step(torch::zeros({4, 3}).as_strided({1, 3}, {7, 1})));
}

TEST(LayoutTest, InputOfWhichOnlyTheShapeIsUsedIsStillChecked) {  // C97
  ProgramBuilder program;
  program.input(torch::zeros({2, 3}));
  program.output(program.call("aten::zeros", {{2, 3}}));
  const auto step = make_step(program);
  EXPECT_NO_THROW(step(torch::zeros({3, 2}).t()));
  expect_refused([&] { step(torch::zeros({3, 2})); }, {"shape [2, 3]", "found [3, 2]"});
}

TEST(AliasesTest, OneTensorPassedTwiceMustBeOneAgain) {  // C102
  const at::Tensor t = torch::zeros({2});
  ProgramBuilder program;
  const ir::ValueId a = program.input(t);
  program.input(t);
  program.output(program.call("aten::add.Tensor", {a, a}));
  program.program().metadata.input_aliases = {{0, 1}};
  const auto step = make_step(program);
  EXPECT_NO_THROW(step(t, t));
  expect_refused([&] { step(t, t.clone()); },
                 {"input leaf 0 (argument 0)", "input leaf 1 (argument 1)", "one tensor", "found two"});
}

TEST(AliasesTest, ParameterPassedAsInputTooWouldMissGradient) {  // C102
  Net net;
  const auto step = training_step(net, 2);
  expect_refused([&] { step(net, net.fc->weight); }, {"'fc.weight'", "input leaf 0 (argument 1)", "two tensors", "found one"});
}

}  // namespace
}  // namespace precast
