// Operators on DTensors against LibTorch eager on the whole tensors, for every placement of every operand. All ranks hold the same
// whole tensors (one seed), so each compares for itself.
#include "dtensor/placed.h"
#include "precast/error.h"

#include <functional>

namespace precast::test {
namespace {

using Inputs = std::vector<at::Tensor>;

struct Case {
  std::string name;
  Inputs inputs;
  std::function<at::Tensor(const Inputs&)> fn;
  bool partial = true;   ///< Operands may be sums still to be made: floating dtypes.
  bool backward = true;  ///< Gradients of the floating operands are compared too.
};

at::Tensor r(at::IntArrayRef sizes) {
  return torch::randn(sizes);
}

std::vector<Case> cases() {
  torch::manual_seed(11);
  const auto ids = [](std::int64_t n, at::IntArrayRef sizes) { return torch::randint(n, sizes); };
  namespace F = torch::nn::functional;
  return {
      {"add", {r({4, 6}), r({4, 6})}, [](const Inputs& x) { return x[0] + x[1]; }},
      {"add broadcast", {r({4, 6}), r({6})}, [](const Inputs& x) { return x[0] + x[1]; }},
      {"add broadcast 1", {r({4, 1}), r({4, 6})}, [](const Inputs& x) { return x[0] - x[1] * 2; }},
      {"add uneven", {r({5, 3}), r({5, 3})}, [](const Inputs& x) { return x[0] + x[1]; }},
      {"mul div", {r({4, 6}), r({4, 6})}, [](const Inputs& x) { return x[0] * x[1] / (x[1].abs() + 1); }},
      {"chain", {r({4, 6})}, [](const Inputs& x) { return torch::gelu(x[0]).exp().sigmoid() + torch::relu(x[0]).pow(2) + 1.0; }},
      {"one row", {r({1, 6})}, [](const Inputs& x) { return x[0].tanh() * 3; }},
      {"0-dim", {r({})}, [](const Inputs& x) { return x[0] * 2 + 1; }},
      {"where", {r({4, 6}), r({4, 6})}, [](const Inputs& x) { return at::where(x[0] > 0, x[0], x[1] * 2); }},
      {"addcmul", {r({4, 6}), r({4, 6}), r({4, 6})}, [](const Inputs& x) { return at::addcmul(x[0], x[1], x[2], 0.5); }},
      {"clamp", {r({4, 6})}, [](const Inputs& x) { return x[0].clamp(-0.5, 0.5) + x[0].abs(); }},
      {"to bf16", {r({4, 6})}, [](const Inputs& x) { return (x[0].to(at::kBFloat16) * 2).to(at::kFloat); }, false},
      {"mm", {r({4, 8}), r({8, 12})}, [](const Inputs& x) { return x[0].mm(x[1]); }},
      {"mm uneven", {r({5, 7}), r({7, 3})}, [](const Inputs& x) { return x[0].mm(x[1]); }},
      {"linear", {r({4, 6, 8}), r({12, 8}), r({12})}, [](const Inputs& x) { return torch::linear(x[0], x[1], x[2]); }},
      {"linear 2d", {r({4, 8}), r({12, 8}), r({12})}, [](const Inputs& x) { return torch::linear(x[0], x[1], x[2]); }},
      {"bmm", {r({4, 3, 8}), r({4, 8, 5})}, [](const Inputs& x) { return x[0].bmm(x[1]); }},
      {"baddbmm", {r({5}), r({4, 3, 8}), r({4, 8, 5})}, [](const Inputs& x) { return at::baddbmm(x[0], x[1], x[2]); }},
      {"matmul 4d", {r({2, 4, 3, 8}), r({2, 4, 8, 3})}, [](const Inputs& x) { return x[0].matmul(x[1]); }},
      {"sum", {r({4, 6})}, [](const Inputs& x) { return x[0].sum() + x[0].sum(0).sum() + x[0].sum(1, true).sum(); }},
      {"mean", {r({4, 12})}, [](const Inputs& x) { return x[0].mean({1}) + x[0].mean(); }},
      {"mean uneven", {r({5, 7})}, [](const Inputs& x) { return x[0].mean({0}); }},
      {"amax", {r({4, 6})}, [](const Inputs& x) { return x[0].amax({0}) + x[0].amin({1}).sum(); }},
      {"amax uneven", {r({3, 2})}, [](const Inputs& x) { return x[0].amax({0}); }},
      {"max dim", {r({4, 6})}, [](const Inputs& x) { return std::get<0>(x[0].max(1)); }},
      {"logsumexp", {r({4, 6})}, [](const Inputs& x) { return x[0].logsumexp(1); }},
      {"norm", {r({4, 6})}, [](const Inputs& x) { return x[0].norm() + at::linalg_vector_norm(x[0], 3, {0}).sum(); }},
      {"norm inf",
       {r({4, 6})},
       [](const Inputs& x) { return at::linalg_vector_norm(x[0], std::numeric_limits<double>::infinity()); }},
      {"view merge",
       {r({4, 6, 2})},
       [](const Inputs& x) {
         return x[0].view({24, 2}) * 2;
       }},
      {"view split",
       {r({24, 2})},
       [](const Inputs& x) {
         return x[0].view({4, 6, 2}) * 2;
       }},
      {"view -1",
       {r({4, 6, 2})},
       [](const Inputs& x) {
         return x[0].view({4, -1}).view({-1}) * 2;
       }},
      {"heads",
       {r({2, 3, 8})},
       [](const Inputs& x) {
         return x[0].view({2, 3, 4, 2}).transpose(1, 2).contiguous().view({8, 6}) * 2;
       }},
      {"transpose", {r({4, 6})}, [](const Inputs& x) { return x[0].t().relu().t() + 1; }},
      {"reshape copy", {r({4, 6})}, [](const Inputs& x) { return x[0].t().reshape({24}) * 2; }},
      {"permute",
       {r({4, 6, 2})},
       [](const Inputs& x) {
         return x[0].permute({2, 0, 1}) * x[0].permute({2, 0, 1});
       }},
      {"unsqueeze expand",
       {r({4, 6})},
       [](const Inputs& x) {
         return x[0].unsqueeze(1).expand({4, 3, 6}) * 2;
       }},
      {"squeeze", {r({4, 1, 6})}, [](const Inputs& x) { return x[0].squeeze(1) * 2; }},
      {"select slice",
       {r({4, 6})},
       [](const Inputs& x) { return x[0].select(0, 1) + x[0].narrow(0, 2, 2).sum(0) + x[0].slice(1, 0, 6, 1)[0]; }},
      {"split cat",
       {r({4, 6})},
       [](const Inputs& x) {
         const auto p = x[0].split(2, 1);
         return at::cat({p[2], p[0] * 2}, 1);
       }},
      {"chunk stack",
       {r({4, 6})},
       [](const Inputs& x) {
         const auto p = x[0].chunk(2, 1);
         return at::stack({p[0], p[1]}, 1);
       }},
      {"unbind",
       {r({4, 3, 2})},
       [](const Inputs& x) {
         const auto p = x[0].unbind(1);
         return p[0] * p[2];
       }},
      {"flip roll", {r({4, 6})}, [](const Inputs& x) { return x[0].flip({0}) + x[0].roll(1, 1); }},
      {"tril pad",
       {r({4, 6})},
       [](const Inputs& x) {
         return at::constant_pad_nd(x[0].tril(), {1, 0});
       }},
      {"cumsum sort", {r({4, 6})}, [](const Inputs& x) { return x[0].cumsum(1) + std::get<0>(x[0].sort(1)); }},
      {"repeat",
       {r({4, 6})},
       [](const Inputs& x) {
         return x[0].repeat({1, 2}) * 2;
       }},
      {"softmax", {r({4, 6})}, [](const Inputs& x) { return x[0].softmax(1) * x[0].log_softmax(0); }},
      {"layer_norm", {r({4, 6, 8}), r({8}), r({8})}, [](const Inputs& x) { return torch::layer_norm(x[0], {8}, x[1], x[2]); }},
      {"embedding", {r({12, 8}), ids(12, {4, 6})}, [](const Inputs& x) { return torch::embedding(x[0], x[1]); }},
      {"gather", {r({4, 6}), ids(6, {4, 3})}, [](const Inputs& x) { return x[0].gather(1, x[1]); }},
      {"scatter_add", {r({4, 6}), ids(6, {4, 3}), r({4, 3})}, [](const Inputs& x) { return x[0].scatter_add(1, x[1], x[2]); }},
      {"index", {r({4, 6}), ids(4, {5})}, [](const Inputs& x) { return x[0].index({x[1]}) + x[0].index_select(0, x[1]); }},
      {"cross_entropy", {r({8, 12}), ids(12, {8})}, [](const Inputs& x) { return F::cross_entropy(x[0], x[1]); }},
      {"cross_entropy ignored",
       {r({8, 12}), ids(12, {8})},
       [](const Inputs& x) { return F::cross_entropy(x[0], x[1], F::CrossEntropyFuncOptions().ignore_index(3)); }},
      {"cross_entropy sum",
       {r({7, 5}), ids(5, {7})},
       [](const Inputs& x) { return F::cross_entropy(x[0], x[1], F::CrossEntropyFuncOptions().reduction(torch::kSum)); }},
      {"nll none",
       {r({8, 12}), ids(12, {8})},
       [](const Inputs& x) { return F::nll_loss(x[0].log_softmax(1), x[1], F::NLLLossFuncOptions().reduction(torch::kNone)); }},
      {"mse",
       {r({4, 6}), r({4, 6})},
       [](const Inputs& x) { return torch::mse_loss(x[0], x[1]) + torch::mse_loss(x[0], x[1], at::Reduction::Sum); }},
      {"sdpa",
       {r({2, 4, 6, 8}), r({2, 4, 6, 8}), r({2, 4, 6, 8})},
       [](const Inputs& x) { return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0.0, true); }},
      {"conv", {r({4, 3, 6, 6}), r({8, 3, 3, 3}), r({8})}, [](const Inputs& x) { return torch::conv2d(x[0], x[1], x[2]); }},
      {"pool", {r({4, 4, 6, 6})}, [](const Inputs& x) { return torch::max_pool2d(x[0], 2) + torch::avg_pool2d(x[0], 2); }},
      {"comparison",
       {r({4, 6}), r({4, 6})},
       [](const Inputs& x) { return (x[0] > x[1]).logical_and(x[0] > 0).to(at::kFloat); },
       true,
       false},
      {"in place",
       {r({4, 6}), r({4, 6})},
       [](const Inputs& x) {
         at::Tensor y = x[0] * 2;
         y.add_(x[1]).mul_(0.5);
         return y + 1;
       }},
      {"factories",
       {r({4, 6})},
       [](const Inputs& x) {
         return at::zeros_like(x[0]) + at::ones_like(x[0]) + x[0].new_full({4, 6}, 2.0) + x[0];
       }},
  };
}

std::vector<Placement> placements_for(const at::Tensor& tensor, bool partial) {
  std::vector<Placement> choices = {Replicate()};
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) choices.emplace_back(Shard(dim));
  if (partial && tensor.is_floating_point()) choices.emplace_back(Partial());
  return choices;
}

bool is_differentiable(const at::Tensor& tensor) {
  return tensor.is_floating_point();
}

/// Runs a case with its operands placed, and compares result and gradients with the whole tensors'.
void check(const Case& c, const DeviceMesh& mesh, const std::vector<Placements>& placements) {
  Inputs whole, placed;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    whole.push_back(c.inputs[i].detach().clone());
    placed.push_back(place(c.inputs[i], mesh, placements[i]).detach());
    if (c.backward && is_differentiable(c.inputs[i])) {
      whole.back().requires_grad_();
      placed.back().requires_grad_();
    }
  }
  const at::Tensor expected = c.fn(whole), got = c.fn(placed);
  ASSERT_TRUE(is_dtensor(got));
  EXPECT_TRUE(close(full_tensor(got.detach()), expected.detach()));
  if (!c.backward) return;
  const at::Tensor weight = torch::linspace(0.5, 1.5, expected.numel()).view(expected.sizes());
  (expected * weight).sum().backward();
  (got * distribute_tensor(weight, mesh, Placements(static_cast<std::size_t>(mesh.ndim())))).sum().backward();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    ASSERT_EQ(placed[i].grad().defined(), whole[i].grad().defined()) << "gradient of operand " << i;
    if (whole[i].grad().defined()) {
      const at::Tensor gradient = placed[i].grad();
      EXPECT_TRUE(close(is_dtensor(gradient) ? full_tensor(gradient) : gradient, whole[i].grad())) << "gradient of operand " << i;
    }
  }
}

void check_traced(const Case& c, const DeviceMesh& mesh, const std::vector<Placements>& placements) {
  std::string text = c.name;
  for (const Placements& p : placements) text += " " + to_string(p);
  SCOPED_TRACE(text);
  try {
    check(c, mesh, placements);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

TEST(DTensorOperators, EveryPlacementOfEveryOperandGivesTheWholeResult) {
  const DeviceMesh mesh = line();
  for (const Case& c : cases()) {
    std::vector<std::vector<Placement>> choices;
    std::size_t n = 1;
    for (const at::Tensor& input : c.inputs) {
      choices.push_back(placements_for(input, c.partial));
      n *= choices.back().size();
    }
    for (std::size_t k = 0; k < n; ++k) {
      std::vector<Placements> placements;
      std::size_t rest = k;
      for (const auto& choice : choices) {
        placements.push_back({choice[rest % choice.size()]});
        rest /= choice.size();
      }
      check_traced(c, mesh, placements);
    }
  }
}

TEST(DTensorOperators, TwoMeshDimensionsGiveTheWholeResult) {  // C145, C153
  const DeviceMesh mesh = grid();
  std::srand(3);
  for (const Case& c : cases()) {
    for (int k = 0; k < 12; ++k) {
      std::vector<Placements> placements;
      for (const at::Tensor& input : c.inputs) {
        const auto choices = placements_for(input, c.partial);
        const auto draw = [&] { return choices[static_cast<std::size_t>(std::rand()) % choices.size()]; };
        placements.push_back({draw(), draw()});
      }
      check_traced(c, mesh, placements);
    }
  }
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), ErrorCode::argument_mismatch);
    return error.what();
  }
  return "no error";
}

TEST(DTensorOperators, PlainTensorsAmongThemAreRefusedUnlessTheyHaveNoDimension) {
  const DeviceMesh mesh = line();
  const at::Tensor x = distribute_tensor(at::ones({4, 4}), mesh, {Shard(0)});
  const std::string error = error_of([&] { static_cast<void>(x + at::ones({4})); });
  EXPECT_NE(error.find("aten::add.Tensor"), std::string::npos) << error;
  EXPECT_NE(error.find("plain tensor of shape [4]"), std::string::npos) << error;
  EXPECT_TRUE(close(full_tensor(x + at::ones({})), at::full({4, 4}, 2.0f)));
  const ImplicitReplication promised;
  EXPECT_TRUE(close(full_tensor(x + at::ones({4})), at::full({4, 4}, 2.0f)));
}

TEST(DTensorOperators, TwoMeshesInOneCallAreRefused) {
  const at::Tensor x = distribute_tensor(at::ones({4, 4}), line(), {Shard(0)}),
                   y = distribute_tensor(at::ones({4, 4}), grid(), {Replicate(), Shard(0)});
  const std::string error = error_of([&] { static_cast<void>(x + y); });
  EXPECT_NE(error.find("line("), std::string::npos) << error;
  EXPECT_NE(error.find("grid("), std::string::npos) << error;
}

TEST(DTensorOperators, AnOpWithoutARuleNamesItselfAndThePlacements) {
  const DeviceMesh mesh = line();
  const at::Tensor x = torch::rand({4, 4});
  const std::string error = error_of([&] { static_cast<void>(at::linalg_inv(distribute_tensor(x, mesh, {Shard(0)}))); });
  EXPECT_NE(error.find("no sharding rule"), std::string::npos) << error;
  EXPECT_NE(error.find("Shard(0)"), std::string::npos) << error;
  EXPECT_NE(error.find("redistribute"), std::string::npos) << error;
}

}  // namespace
}  // namespace precast::test
