#include "capture/modules.h"
#include "precast/precast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

namespace precast::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class Fn, class... Args>
std::string refusal(Fn&& fn, Args&&... args) {
  try {
    precompile(fn, Options{.backend = "eager"}, args...);
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), ErrorCode::refused_capture) << error.what();
    return error.what();
  }
  return "not refused";
}

template <class Fn, class... Args>
void expect_equals_eager(Fn&& fn, const at::Tensor& x) {
  const auto artifact = precompile(fn, Options{.backend = "eager"}, x);
  EXPECT_TRUE(torch::equal(load<at::Tensor>(artifact)(x), fn(x)));
}

const at::Tensor& global_tensor() {
  static const at::Tensor tensor = torch::ones({7});
  return tensor;
}

struct PlainMemberImpl : torch::nn::Module {
  PlainMemberImpl() : scale(torch::ones({5})) {}
  at::Tensor forward(const at::Tensor& x) { return x * scale; }
  at::Tensor scale;
};
TORCH_MODULE(PlainMember);

TEST(CaptureRefuses, ATensorThatTheLambdaCaptured) {  // C1
  const auto captured = torch::ones({3});
  EXPECT_THAT(refusal([&](const at::Tensor& x) { return x + captured; }, torch::ones({3})),
              AllOf(HasSubstr("f32[3]"), HasSubstr("aten::add"), HasSubstr("pass it as an argument or register it")));
}

TEST(CaptureRefuses, AGlobalTensor) {      // C2
  ASSERT_TRUE(global_tensor().defined());  // made before the capture: one made inside fn is a factory's value like any other
  EXPECT_THAT(refusal([](const at::Tensor& x) { return x + global_tensor(); }, torch::ones({7})), HasSubstr("f32[7]"));
}

TEST(CaptureRefuses, AnUnregisteredMember) {  // C3
  PlainMember model;
  EXPECT_THAT(refusal([](PlainMember& m, const at::Tensor& x) { return m->forward(x); }, model, torch::ones({5})),
              AllOf(HasSubstr("f32[5]"), HasSubstr("register it")));
}

TEST(CaptureRefuses, ACapturedTensorThatIsReturnedAsItIs) {  // C1
  const auto captured = torch::ones({3});
  EXPECT_THAT(refusal(
                  [&](const at::Tensor& x) {
                    return std::pair{x + 1, captured};
                  },
                  torch::ones({3})),
              HasSubstr("the result[1]"));
}

TEST(CaptureRefuses, ATensorLiteral) {  // C4
  EXPECT_THAT(refusal(
                  [](const at::Tensor& x) {
                    return x + torch::tensor({1.0F, 2.0F});
                  },
                  torch::ones({2})),
              HasSubstr("tensor literal"));
  EXPECT_THAT(refusal([](const at::Tensor& x) { return x + torch::tensor(2.0F); }, torch::ones({2})), HasSubstr("tensor literal"));
  EXPECT_THAT(refusal(
                  [](const at::Tensor& x) {
                    return x + torch::tensor(std::vector<float>{1, 2});
                  },
                  torch::ones({2})),
              HasSubstr("outside"));
}

TEST(CaptureRefuses, ATensorAroundHostMemory) {  // C4
  std::array<float, 2> memory = {1, 2};
  EXPECT_THAT(refusal([&](const at::Tensor& x) { return x + torch::from_blob(memory.data(), {2}); }, torch::ones({2})),
              HasSubstr("pass it as an argument"));
}

TEST(CaptureAccepts, PlainNumbersAndFactories) {  // C5
  expect_equals_eager([](const at::Tensor& x) { return (x * 2.0 + 1).clamp(-0.5, 1.5) / 3; }, torch::randn({4}));
  expect_equals_eager([](const at::Tensor& x) { return 2.0 - x + torch::arange(4) * torch::full({4}, 0.5) + torch::zeros({4}); },
                      torch::randn({4}));
  expect_equals_eager([](const at::Tensor& x) { return torch::where(x > 0, x, 0.25); }, torch::randn({4}));
}

struct ScaleBy : torch::autograd::Function<ScaleBy> {
  static inline at::Tensor hidden;
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*, const torch::autograd::tensor_list& grads) {
    return {grads[0] * hidden};
  }
};

TEST(CaptureRefuses, ACapturedTensorThatOnlyTheBackwardReads) {  // C6
  ScaleBy::hidden = torch::ones({4});
  Mlp model;
  EXPECT_THAT(
      refusal([](Mlp& m, const at::Tensor& x) { ScaleBy::apply(m->forward(x)).sum().backward(); }, model, torch::ones({2, 8})),
      AllOf(HasSubstr("f32[4]"), HasSubstr("pass it as an argument")));
  ScaleBy::hidden.reset();
}

TEST(CaptureRefuses, AnOpWithAnEffectOutsideItsTensors) {  // C7
  EXPECT_THAT(
      refusal(
          [](const at::Tensor& x) {
            c10::Dispatcher::singleton().findSchemaOrThrow("aten::_print", "").typed<void(c10::string_view)>().call("effect\n");
            return x + 1;
          },
          torch::ones({2})),
      AllOf(HasSubstr("aten::_print"), HasSubstr("effect")));
}

at::Tensor all_reduce(const at::Tensor& x, const std::string& group) {
  torch::jit::Stack stack = {x, std::string("sum"), group};
  c10::Dispatcher::singleton().findSchemaOrThrow("_c10d_functional::all_reduce", "").callBoxed(&stack);
  return stack.at(0).toTensor();
}

TEST(CaptureRefuses, ACollectiveOverAGroupThatIsNoMeshDimension) {  // C8
  EXPECT_THAT(refusal([](const at::Tensor& x) { return all_reduce(x, "0"); }, torch::ones({2})),
              AllOf(HasSubstr("_c10d_functional::all_reduce"), HasSubstr("'0'")));
}

TEST(CaptureRefuses, ReadingAComputedValue) {  // C9
  const auto x = torch::ones({2});
  EXPECT_THAT(refusal([](const at::Tensor& a) { return a * a.sum().item<double>(); }, x), HasSubstr("aten::_local_scalar_dense"));
  EXPECT_THAT(refusal([](const at::Tensor& a) { return (a.sum() > 0).item<bool>() ? a + 1 : a; }, x), HasSubstr("reads the value"));
  EXPECT_THAT(refusal([](const at::Tensor& a) { return torch::equal(a, a + 1) ? a + 1 : a + 2; }, x), HasSubstr("aten::equal"));
  EXPECT_THAT(refusal([](const at::Tensor& a) { return torch::nonzero(a); }, x), HasSubstr("aten::nonzero"));
  EXPECT_THAT(refusal([](const at::Tensor& a) { return a.index({a > 0}); }, x), HasSubstr("depends on values"));
}

TEST(CaptureRefuses, ReachingForTheMemoryOfAComputedTensor) {  // C9
  const auto x = torch::ones({2});
  EXPECT_THAT(refusal([](const at::Tensor& a) { return a * (a + 1).data_ptr<float>()[0]; }, x),
              AllOf(HasSubstr("aten::add"), HasSubstr("outside of any op")));
  EXPECT_THAT(refusal(
                  [](const at::Tensor& a) {
                    std::ostringstream out;
                    out << a * 2;
                    return a + 1;
                  },
                  x),
              HasSubstr("outside of any op"));
}

TEST(CaptureAccepts, BranchesOnShapesAndModes) {  // C10
  const auto branch = [](const at::Tensor& x) { return x.size(0) > 3 && x.dim() == 1 ? x + 1 : x - 1; };
  expect_equals_eager(branch, torch::ones({4}));
  expect_equals_eager(branch, torch::ones({2}));
}

TEST(CaptureRefuses, ABufferThatGetsAGradient) {  // C15
  struct NetImpl : torch::nn::Module {
    NetImpl() { scale = register_buffer("scale", torch::ones({3}).requires_grad_()); }
    at::Tensor scale;
  };
  NetImpl model;
  EXPECT_THAT(refusal([](NetImpl& m, const at::Tensor& x) { (m.scale * x).sum().backward(); }, model, torch::ones({3})),
              AllOf(HasSubstr("'scale'"), HasSubstr("register it as a parameter")));
  EXPECT_FALSE(model.scale.grad().defined());
}

TEST(CaptureRefuses, AnInputThatGetsAGradientByDefault) {  // C16
  const auto x = torch::ones({3}, torch::requires_grad());
  EXPECT_THAT(refusal([](const at::Tensor& a) { (a * a).sum().backward(); }, x),
              AllOf(HasSubstr("leaf 0"), HasSubstr("argument 0")));
}

TEST(CaptureAccepts, InputGradientsOnRequest) {  // C16
  const auto fn = [](const at::Tensor& a) { (a * a).sum().backward(); };
  const auto x = torch::randn({3}, torch::requires_grad()), eager = x.detach().clone().requires_grad_();
  const auto step = load<void>(precompile(fn, Options{.backend = "eager", .input_gradients = true}, x));
  for (int i = 0; i < 2; ++i) {
    step(x);
    fn(eager);
  }
  EXPECT_TRUE(torch::equal(x.grad(), eager.grad()));
}

struct Opaque {
  at::Tensor value;
  int hidden = 3;
};

}  // namespace
}  // namespace precast::test

template <>
struct precast::StructTraits<precast::test::Opaque> {
  static constexpr std::string_view name = "Opaque";
  static constexpr auto fields = std::tuple{precast::field("value", &precast::test::Opaque::value)};
  static constexpr bool writable = false;
};

namespace precast::test {
namespace {

TEST(CaptureRefuses, AResultWhoseStructureCannotBeWritten) {  // C18
  EXPECT_THAT(refusal([](const at::Tensor& x) { return Opaque{x + 1}; }, torch::ones({2})), HasSubstr("Opaque"));
}

TEST(CaptureAccepts, AnInputWhoseStructureCannotBeWritten) {  // C18, C72
  const auto step = load<at::Tensor>(
      precompile([](const Opaque& in) { return in.value + 1; }, Options{.backend = "eager"}, Opaque{torch::ones({2})}));
  EXPECT_TRUE(torch::equal(step(Opaque{torch::zeros({2})}), torch::ones({2})));
}

TEST(CaptureNames, AnUnknownBackendOrTracerIsTheCallersMistake) {  // C21
  int calls = 0;
  const auto fn = [&](const at::Tensor& x) { return ++calls, x + 1; };
  const auto message = [&](const Options& options) {
    try {
      precompile(fn, options, torch::ones({2}));
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message({.backend = "indutcor"}), AllOf(HasSubstr("'indutcor'"), HasSubstr("'eager'"), HasSubstr("'inductor'")));
  EXPECT_THAT(message({.backend = ""}), HasSubstr("''"));
  EXPECT_THAT(message({.tracer = "symbolic"}), AllOf(HasSubstr("'symbolic'"), HasSubstr("'dispatcher'")));
  EXPECT_EQ(calls, 0);
}

TEST(CaptureNames, AKnownTracerThatIsNotBuiltSaysSo) {  // C22
  try {
    precompile([](const at::Tensor& x) { return x + 1; }, Options{.backend = "eager", .tracer = "make_fx"}, torch::ones({2}));
    FAIL();
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_built);
    EXPECT_THAT(error.what(), HasSubstr("'make_fx'"));
  }
}

TEST(CaptureRefuses, AnOptimizerStepInsideFn) {  // C23
  Mlp model;
  const auto before = model->fc1->weight.clone();
  EXPECT_THAT(refusal(
                  [](Mlp& m, const at::Tensor& x) {
                    m->forward(x).sum().backward();
                    torch::optim::SGD(m->parameters(), 0.1).step();
                  },
                  model, torch::ones({2, 8})),
              AllOf(HasSubstr("'fc1.weight'"), HasSubstr("outside")));
  EXPECT_TRUE(torch::equal(model->fc1->weight, before));  // C28
  EXPECT_FALSE(model->fc1->weight.grad().defined());
}

TEST(CaptureRefuses, SparseAndQuantizedInputs) {  // C12, C14
  EXPECT_THAT(refusal([](const at::Tensor& x) { return x.to_dense(); }, torch::eye(3).to_sparse()),
              AllOf(HasSubstr("leaf 0"), HasSubstr("Sparse")));
}

TEST(CaptureRefuses, InferenceMode) {  // C39
  const auto x = torch::ones({2});
  const c10::InferenceMode inference;
  EXPECT_THAT(refusal([](const at::Tensor& a) { return a + 1; }, x), HasSubstr("InferenceMode"));
}

TEST(CaptureRefuses, WhatReadsOrWritesAccumulatedGradients) {  // C125, C130: at run time .grad may hold earlier micro-batches
  Mlp model;
  const auto x = torch::randn({2, 8});
  const auto backward = [](Mlp& m, const at::Tensor& in) { m->forward(in).sum().backward(); };
  const auto names_gradient = AllOf(HasSubstr(".grad of parameter 'fc"), HasSubstr("torch::autograd::grad"));
  const auto scales = [&](Mlp& m, const at::Tensor& in) {
    backward(m, in);
    m->fc1->weight.mutable_grad().mul_(0.5);
  };
  const auto scales_data = [&](Mlp& m, const at::Tensor& in) {
    backward(m, in);
    m->fc1->weight.grad().data().mul_(0.5);
  };
  const auto replaces = [&](Mlp& m, const at::Tensor& in) {
    backward(m, in);
    m->fc1->weight.mutable_grad() = m->fc1->weight.grad() * 2;
  };
  const auto clears = [&](Mlp& m, const at::Tensor& in) {
    backward(m, in);
    m->zero_grad(/*set_to_none=*/false);
  };
  const auto returns = [&](Mlp& m, const at::Tensor& in) {
    backward(m, in);
    return m->fc1->weight.grad();
  };
  EXPECT_THAT(refusal(scales, model, x), names_gradient);
  EXPECT_THAT(refusal(scales_data, model, x), names_gradient);
  EXPECT_THAT(refusal(replaces, model, x), names_gradient);
  EXPECT_THAT(refusal(clears, model, x), names_gradient);
  EXPECT_THAT(refusal(returns, model, x), AllOf(HasSubstr("the result"), names_gradient));
}

TEST(CaptureRefuses, AnInputThatIsGivenOtherMemory) {  // C34
  Mlp model;
  const auto x = torch::ones({2, 8});
  const auto* memory = model->fc1->weight.const_data_ptr();
  const auto fn = [](Mlp& m, const at::Tensor& in) {
    m->fc1->weight.set_data(m->fc1->weight * 2);
    return m->forward(in).detach();
  };
  EXPECT_THAT(refusal(fn, model, x), AllOf(HasSubstr("parameter 'fc1.weight'"), HasSubstr("other memory")));
  EXPECT_EQ(model->fc1->weight.const_data_ptr(), memory);
}

TEST(CaptureRefuses, AComplexNumberAmongArguments) {
  EXPECT_THAT(
      refusal([](const at::Tensor& x) { return at::real(at::complex(x, x) * c10::complex<float>(1, 2)); }, torch::ones({3})),
      AllOf(HasSubstr("aten::mul"), HasSubstr("'other'"), HasSubstr("complex")));
}

TEST(CaptureRefuses, AValueReadByABackwardAndNamesIt) {  // C9
  EXPECT_THAT(refusal([](Mlp& m, const at::Tensor& x) { m->forward(x).cumprod(1).sum().backward(); }, Mlp(), torch::ones({2, 8})),
              AllOf(HasSubstr("CumprodBackward0"), HasSubstr("_local_scalar_dense")));
}

TEST(CaptureRefuses, ShapesChangedInPlaceOfWhatOtherTensorsAreToo) {  // C34, C124
  const auto x = torch::randn({3, 3});
  EXPECT_THAT(refusal([](const at::Tensor& in) { return in.detach().unsqueeze_(0) * 2; }, x), HasSubstr("aten::unsqueeze_"));
  const auto shared = [](const at::Tensor& in) {
    const at::Tensor y = in * 2, z = y.detach();
    y.t_();
    return z + 1;
  };
  EXPECT_THAT(refusal(shared, x), AllOf(HasSubstr("aten::t_"), HasSubstr("returns a new tensor")));
  expect_equals_eager([](const at::Tensor& in) { return (in * 2).t_() + 1; }, x);
}

TEST(CaptureRefuses, AnInputThatWasComputedFromOthers) {  // C16
  const auto w = torch::ones({3}, torch::requires_grad());
  EXPECT_THAT(refusal([](const at::Tensor& x) { (x * x).sum().backward(); }, w * 2),
              AllOf(HasSubstr("input leaf 0"), HasSubstr("detached")));
  EXPECT_FALSE(w.grad().defined());
}

TEST(CaptureRefuses, EmptyGeneratorsAndModules) {
  EXPECT_THAT(refusal([](const at::Tensor& x, const at::Generator&) { return x * 2; }, torch::ones({3}), at::Generator()),
              HasSubstr("undefined generator"));
  try {
    precompile([](const std::shared_ptr<torch::nn::Module>&, const at::Tensor& x) { return x * 2; }, Options{.backend = "eager"},
               std::shared_ptr<torch::nn::Module>(), torch::ones({3}));
    ADD_FAILURE();
  } catch (const PrecompileError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("argument 0"), HasSubstr("empty pointer")));
  }
}

TEST(CaptureRefuses, AnEmptyModuleHolder) {
  Mlp empty{nullptr};
  try {
    precompile([](Mlp&, const at::Tensor& x) { return x * 2; }, Options{.backend = "eager"}, empty, torch::ones({3}));
    ADD_FAILURE();
  } catch (const PrecompileError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("argument 0"), HasSubstr("empty pointer")));
  }
}

TEST(CaptureRefuses, HostReadsAndWritesOfInputs) {  // C9
  EXPECT_THAT(refusal([](const at::Tensor& x) { return x * x.data_ptr<float>()[0]; }, torch::ones({3})),
              AllOf(HasSubstr("argument 0"), HasSubstr("f32[3]"), HasSubstr("outside of any op")));
  EXPECT_THAT(refusal(
                  [](Mlp& m, const at::Tensor& x) {
                    m->fc1->bias.data_ptr<float>()[0] = 3;
                    return m->forward(x);
                  },
                  Mlp(), torch::ones({2, 8})),
              HasSubstr("fc1.bias"));
  const auto x = torch::ones({3});
  refusal([](const at::Tensor& in) { return in * in.data_ptr<float>()[0]; }, x);
  EXPECT_EQ(x.data_ptr<float>()[0], 1);  // readable again
}

TEST(CaptureRefuses, SeedingInsideOfFn) {  // C137
  const auto seeding = [](const at::Tensor& x) {
    torch::manual_seed(7);
    return torch::dropout(x, 0.5, true);
  };
  torch::manual_seed(3);
  const auto expected = torch::rand({3});
  torch::manual_seed(3);
  EXPECT_THAT(refusal(seeding, torch::ones({3})), HasSubstr("seeds a random generator"));
  EXPECT_TRUE(torch::equal(torch::rand({3}), expected));
  const auto own = at::make_generator<at::CPUGeneratorImpl>(2);
  const auto seeding_its_own = [](const at::Tensor& x, at::Generator generator) {
    generator.set_current_seed(9);
    return x + torch::rand({3}, generator);
  };
  EXPECT_THAT(refusal(seeding_its_own, torch::ones({3}), own), HasSubstr("seeds a random generator"));
}

TEST(CaptureRefuses, FlagsThatFnSetsAndPutsThemBack) {  // C10, C34
  Mlp model;
  EXPECT_THAT(refusal(
                  [](Mlp& m, const at::Tensor& x) {
                    m->fc1->eval();
                    return m->forward(x);
                  },
                  model, torch::ones({2, 8})),
              AllOf(HasSubstr("eval()"), HasSubstr("'fc1'")));
  EXPECT_TRUE(model->fc1->is_training());
  EXPECT_THAT(refusal(
                  [](Mlp& m, const at::Tensor& x) {
                    m->fc2->bias.requires_grad_(false);
                    return m->forward(x);
                  },
                  model, torch::ones({2, 8})),
              AllOf(HasSubstr("requires_grad"), HasSubstr("'fc2.bias'")));
  EXPECT_TRUE(model->fc2->bias.requires_grad());
}

std::tuple<at::Tensor, double> mean_and_first(const at::Tensor& x) {
  return {x.mean(), x.data_ptr<float>()[0]};
}
TORCH_LIBRARY(capture_test, library) {
  library.def("mean_and_first(Tensor x) -> (Tensor, float)");
}
TORCH_LIBRARY_IMPL(capture_test, CPU, library) {
  library.impl("mean_and_first", mean_and_first);
}

TEST(CaptureRefuses, OperatorsOfTheUserThatReturnNumbers) {  // C9
  const auto fn = [](const at::Tensor& x) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("capture_test::mean_and_first", "")
                               .typed<std::tuple<at::Tensor, double>(const at::Tensor&)>();
    const auto [mean, first] = op.call(x);
    return mean * first;
  };
  EXPECT_THAT(refusal(fn, torch::ones({3})), AllOf(HasSubstr("capture_test::mean_and_first"), HasSubstr("plain value")));
}

TEST(CaptureRefuses, IntermediatesThatAreNotDense) {  // C14
  EXPECT_THAT(refusal([](const at::Tensor& x) { return x.to_sparse(1).to_dense(); }, torch::eye(3)), HasSubstr("to_sparse"));
  EXPECT_THAT(refusal([](const at::Tensor& x) { return x.to_mkldnn().to_dense(); }, torch::eye(3)),
              AllOf(HasSubstr("to_mkldnn"), HasSubstr("Mkldnn")));
}

TEST(CaptureRefuses, TwoGradientsOfOneMemory) {  // C16
  const auto x = torch::ones({3}, torch::requires_grad());
  const auto y = x.detach().requires_grad_();
  const auto fn = [](const at::Tensor& a, const at::Tensor& b) {
    auto loss = (a * b).sum();
    loss.backward();
    return loss;
  };
  Options options{.backend = "eager"};
  options.input_gradients = true;
  try {
    precompile(fn, options, x, y);
    ADD_FAILURE();
  } catch (const PrecompileError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("argument 1"), HasSubstr("shares its memory")));
  }
}

}  // namespace
}  // namespace precast::test
