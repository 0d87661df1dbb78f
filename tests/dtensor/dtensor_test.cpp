// DTensors as tensors: redistribution, autograd, modules and optimizers, against the same on whole tensors.
#include "dtensor/placed.h"
#include "precast/error.h"

#include <gmock/gmock.h>

namespace precast::test {
namespace {

using rank_test::communicator;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<Placement> all_placements(std::int64_t n_dims) {
  std::vector<Placement> all = {Replicate(), Partial(), Partial(Reduction::avg), Partial(Reduction::max), Partial(Reduction::min)};
  for (std::int64_t dim = 0; dim < n_dims; ++dim) all.emplace_back(Shard(dim));
  return all;
}

TEST(Redistribute, EveryPairKeepsTheTensor) {  // C154, C155
  const DeviceMesh mesh = line();
  torch::manual_seed(1);
  for (const auto& shape : {std::vector<std::int64_t>{12, 8}, std::vector<std::int64_t>{7, 5}, std::vector<std::int64_t>{1, 3}}) {
    const at::Tensor whole = torch::randn(shape);
    for (const Placement& from : all_placements(2))
      for (const Placement& to : all_placements(2)) {
        const at::Tensor moved = redistribute(place(whole, mesh, {from}), {to});
        EXPECT_EQ(placements_of(moved), Placements{to});
        EXPECT_TRUE(close(full_tensor(moved), whole)) << to_string(from) << " to " << to_string(to);
      }
  }
}

TEST(Redistribute, ShardsRoundTripExactly) {  // C155
  const DeviceMesh mesh = line();
  const at::Tensor whole = torch::arange(35).view({7, 5}).to(at::kFloat);
  const at::Tensor rows = distribute_tensor(whole, mesh, {Shard(0)});
  EXPECT_TRUE(at::equal(local_part(redistribute(redistribute(rows, {Shard(1)}), {Shard(0)})), local_part(rows)));
  EXPECT_TRUE(at::equal(full_tensor(rows), whole));
  EXPECT_EQ(redistribute(rows, {Replicate()}).sizes(), whole.sizes()) << "the true size, not ranks x ceiling";
}

TEST(Redistribute, StridedShardsGatherOneDimensionAtATime) {
  const DeviceMesh mesh = grid();
  Shard outer(0);
  outer.strided = true;
  const at::Tensor whole = torch::arange(24).view({12, 2}).to(at::kFloat);
  const at::Tensor both = distribute_tensor(whole, mesh, {outer, Shard(0)});
  EXPECT_TRUE(at::equal(local_part(redistribute(both, {Replicate(), Shard(0)})),
                        local_part(distribute_tensor(whole, mesh, {Replicate(), Shard(0)}))));
  EXPECT_TRUE(at::equal(full_tensor(both), whole));
}

TEST(Redistribute, GradientComesBackAsTheTensorLies) {  // C157
  const DeviceMesh mesh = line();
  const at::Tensor whole = torch::randn({6, 4});
  for (const Placement& from : {Placement(Shard(0)), Placement(Replicate()), Placement(Shard(1))})
    for (const Placement& to : {Placement(Shard(0)), Placement(Replicate()), Placement(Shard(1))}) {
      const at::Tensor x = distribute_tensor(whole, mesh, {from}).requires_grad_();
      redistribute(x, {to}).pow(2).sum().backward();
      EXPECT_EQ(placements_of(x.grad()), Placements{from});
      EXPECT_TRUE(close(full_tensor(x.grad()), whole * 2));
    }
}

TEST(FromAndToLocal, CarryGradients) {
  const DeviceMesh mesh = line();
  const at::Tensor local = torch::full({2, 3}, communicator().rank() + 1.0).requires_grad_();
  const at::Tensor x = from_local(local, mesh, {Shard(0)});
  EXPECT_EQ(x.size(0), 2 * communicator().size());
  to_local(x * 3).sum().backward();
  EXPECT_TRUE(at::equal(local.grad(), torch::full({2, 3}, 3.0)));
}

TEST(FromLocal, RefusesPartsThatDoNotFit) {
  const DeviceMesh mesh = line();
  EXPECT_THROW(static_cast<void>(from_local(torch::ones({2}), mesh, {Shard(1)})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(from_local(torch::ones({2}), mesh, {Shard(0), Shard(0)})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(from_local(torch::ones({2}), mesh, {Shard(0)}, std::vector<std::int64_t>{100})),
               std::invalid_argument);
}

TEST(DTensor, IsATensorWithGlobalSizes) {
  const DeviceMesh mesh = line();
  const at::Tensor x = distribute_tensor(torch::ones({8, 4}), mesh, {Shard(0)});
  EXPECT_EQ(x.sizes(), at::IntArrayRef({8, 4}));
  EXPECT_EQ(x.numel(), 32);
  EXPECT_EQ(x.dtype(), at::kFloat);
  EXPECT_TRUE(is_dtensor(x.detach()));
  EXPECT_TRUE(is_dtensor(x.data()));
  EXPECT_EQ(x.sum().item<float>(), 32);
  try {
    static_cast<void>(x.const_data_ptr());
    ADD_FAILURE() << "memory of a DTensor";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("full_tensor"));
  }
}

struct NetImpl : torch::nn::Module {
  NetImpl() {
    fc1 = register_module("fc1", torch::nn::Linear(8, 16));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})));
    fc2 = register_module("fc2", torch::nn::Linear(16, 4));
  }
  at::Tensor forward(const at::Tensor& x) { return fc2(torch::gelu(norm(fc1(x)))); }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};
TORCH_MODULE(Net);

Net seeded_net() {
  torch::manual_seed(21);
  return {};
}

Shard stored(std::int64_t dim) {
  Shard shard(dim);
  shard.stored = true;
  return shard;
}

/// Plans by name: how the parameters lie on one mesh dimension.
ParallelPlan plan_of(const std::string& name) {
  if (name == "ddp") return {.parameters = {}};
  if (name == "fsdp") return {.parameters = {{"*", {stored(0)}}}};
  return {.parameters = {{"fc1.*", {Shard(0)}}, {"fc2.weight", {Shard(1)}}}};  // tensor parallel
}

template <class Make>
void expect_same_training(const std::string& plan, const Make& make_optimizer) {
  SCOPED_TRACE(plan);
  const DeviceMesh mesh = line();
  Net ours = seeded_net(), eager = seeded_net();
  distribute_module(*ours, mesh, plan_of(plan));
  auto our_optimizer = make_optimizer(ours->parameters()), optimizer = make_optimizer(eager->parameters());
  const Placement batch = plan == "tp" ? Placement(Replicate()) : Placement(Shard(0));
  for (int step = 0; step < 5; ++step) {
    torch::manual_seed(100 + step);
    const at::Tensor x = torch::randn({12, 8}), y = torch::randn({12, 4});
    const at::Tensor loss = torch::mse_loss(eager->forward(x), y);
    loss.backward();
    const at::Tensor our_loss =
        torch::mse_loss(ours->forward(distribute_tensor(x, mesh, {batch})), distribute_tensor(y, mesh, {batch}));
    our_loss.backward();
    EXPECT_NEAR(our_loss.item<double>(), loss.item<double>(), 1e-5);
    scatter_gradients(*ours, communicator());
    for (const at::Tensor& parameter : ours->parameters()) EXPECT_EQ(placements_of(parameter.grad()), placements_of(parameter));
    torch::nn::utils::clip_grad_norm_(ours->parameters(), 0.5);
    torch::nn::utils::clip_grad_norm_(eager->parameters(), 0.5);
    our_optimizer.step();
    optimizer.step();
    our_optimizer.zero_grad();
    optimizer.zero_grad();
  }
  const auto got = ours->named_parameters(), expected = eager->named_parameters();
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(close(full_tensor(got[i].value().detach()), expected[i].value())) << got[i].key();
}

TEST(Training, EqualsOneProcessUnderEveryPlanAndOptimizer) {  // C142, C143, C144, C138
  for (const char* plan : {"ddp", "fsdp", "tp"}) {
    expect_same_training(
        plan, [](const std::vector<at::Tensor>& p) { return torch::optim::SGD(p, torch::optim::SGDOptions(0.1).momentum(0.9)); });
    expect_same_training(plan, [](const std::vector<at::Tensor>& p) { return torch::optim::Adam(p, 1e-2); });
    expect_same_training(plan, [](const std::vector<at::Tensor>& p) { return torch::optim::AdamW(p, 1e-2); });
  }
}

TEST(ScatterGradients, ReducesSumsOnceHoweverManyMicroBatchesCame) {  // C156
  const DeviceMesh mesh = line();
  Net ours = seeded_net(), eager = seeded_net();
  distribute_module(*ours, mesh, plan_of("fsdp"));
  torch::manual_seed(5);
  const at::Tensor x = torch::randn({24, 8}), y = torch::randn({24, 4});
  torch::mse_loss(eager->forward(x), y).backward();
  const auto xs = x.chunk(2), ys = y.chunk(2);
  for (std::size_t i = 0; i < 2; ++i)
    (torch::mse_loss(ours->forward(distribute_tensor(xs[i], mesh, {Shard(0)})), distribute_tensor(ys[i], mesh, {Shard(0)})) / 2)
        .backward();
  if (communicator().size() > 1) {
    EXPECT_EQ(placements_of(ours->fc1->weight.grad()), Placements{Partial()}) << "not reduced before it is asked for";
  }
  scatter_gradients(*ours, communicator());
  scatter_gradients(*ours, communicator());  // changes nothing
  const auto got = ours->named_parameters(), expected = eager->named_parameters();
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(close(full_tensor(got[i].value().grad()), expected[i].value().grad())) << got[i].key();
}

TEST(DistributeModule, TurnsParametersIntoDTensorsUnderEveryName) {
  const DeviceMesh mesh = line();
  Net net = seeded_net();
  distribute_module(*net, mesh, plan_of("fsdp"));
  EXPECT_TRUE(is_dtensor(net->fc1->weight));
  EXPECT_TRUE(net->fc1->weight.is_same(net->named_parameters()["fc1.weight"]));
  EXPECT_TRUE(net->fc1->weight.requires_grad());
  EXPECT_TRUE(net->fc1->weight.is_leaf());
}

TEST(DistributeModule, RefusesPatternsThatMatchNothingAndDimensionsThatAreMissing) {
  const DeviceMesh mesh = line();
  Net net = seeded_net();
  try {
    distribute_module(*net, mesh, {.parameters = {{"fc9.*", {Shard(0)}}}});
    ADD_FAILURE();
  } catch (const PrecompileError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("fc9.*"), HasSubstr("fc1.weight")));
  }
  try {
    distribute_module(*net, mesh, {.parameters = {{"*.bias", {Shard(1)}}}});
    ADD_FAILURE();
  } catch (const PrecompileError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("bias"), HasSubstr("Shard(1)")));
  }
  EXPECT_FALSE(is_dtensor(net->fc1->weight)) << "nothing is half distributed";
}

}  // namespace
}  // namespace precast::test
