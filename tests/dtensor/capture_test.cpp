// Steps over DTensors, captured: one text on every rank, and rank 0's text on each rank against that rank's eager DTensors.
#include "dtensor/placed.h"
#include "precast/compile_on_one_rank.h"
#include "precast/error.h"

#include <gmock/gmock.h>

#include <span>

namespace precast::test {
namespace {

using rank_test::communicator;
using rank_test::kTime;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(double dropout = 0.0) : dropout(dropout) {
    embedding = register_module("embedding", torch::nn::Embedding(12, 8));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
    up = register_module("up", torch::nn::Linear(8, 24));
    down = register_module("down", torch::nn::Linear(24, 8));
  }
  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor x = embedding(tokens);
    const at::Tensor y = x + torch::dropout(down(torch::gelu(up(norm(x)))), dropout, is_training());
    return torch::linear(y, embedding->weight);
  }
  double dropout;
  torch::nn::Embedding embedding{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Net);

Shard stored(std::int64_t dim) {
  Shard shard(dim);
  shard.stored = true;
  return shard;
}

struct Layout {
  std::string name;
  DeviceMesh mesh;
  ParallelPlan plan;
  Placements batch;
};

std::vector<Layout> layouts() {
  const DeviceMesh one = line(), two = grid();
  Shard fsdp = stored(0), over = stored(0);
  over.strided = true;
  return {
      {"ddp", one, {}, {Shard(0)}},
      {"fsdp", one, {.parameters = {{"*", {fsdp}}}}, {Shard(0)}},
      {"tp",
       one,
       {.parameters = {{"up.*", {Shard(0)}}, {"down.weight", {Shard(1)}}, {"embedding.weight", {Shard(0)}}}},
       {Replicate()}},
      {"fsdp+tp",
       two,
       {.parameters = {{"up.*", {over, Shard(0)}}, {"down.weight", {fsdp, Shard(1)}}, {"*", {fsdp, Replicate()}}}},
       {Shard(0), Replicate()}},
  };
}

at::Tensor train_step(Net& net, const at::Tensor& tokens, const at::Tensor& targets) {
  const at::Tensor loss = torch::nn::functional::cross_entropy(net->forward(tokens).view({-1, 12}), targets.view({-1}));
  loss.backward();
  return loss.detach();
}

struct Batch {
  at::Tensor tokens, targets;
};

Batch batch_of(const Layout& layout, int seed) {
  torch::manual_seed(seed);
  const at::Tensor tokens = torch::randint(12, {12, 4}), targets = torch::randint(12, {12, 4});
  return {distribute_tensor(tokens, layout.mesh, layout.batch), distribute_tensor(targets, layout.mesh, layout.batch)};
}

Net net_of(const Layout& layout, double dropout) {
  torch::manual_seed(31);
  Net net(dropout);
  distribute_module(*net, layout.mesh, layout.plan);
  return net;
}

/// Whether the plan's sharded sizes are divided by the ranks: what is captured is even.
bool is_even(const Layout& layout) {
  for (int m = 0; m < layout.mesh.ndim(); ++m)
    if (8 % layout.mesh.size(m) != 0 && layout.name != "ddp" && layout.name != "tp") return false;
  return true;
}

std::string text_on_root(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  communicator().broadcast(bytes, 0, after(kTime));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(DTensorCapture, EveryRankWritesTheSameText) {  // C146, C148
  for (const Layout& layout : layouts()) {
    if (!is_even(layout)) continue;
    SCOPED_TRACE(layout.name);
    Net net = net_of(layout, 0.2);
    const Batch batch = batch_of(layout, 1);
    const Artifact mine = precompile(train_step, Options{.backend = "eager"}, net, batch.tokens, batch.targets);
    EXPECT_EQ(mine.python_code, text_on_root(mine.python_code));
    EXPECT_THAT(mine.python_code, HasSubstr("MESHES"));
    for (const auto& parameter : net->named_parameters()) EXPECT_FALSE(parameter.value().grad().defined());
  }
}

TEST(DTensorCapture, TextOfRankZeroEqualsEagerOnEveryRank) {  // C145, C147, C151, C160
  for (const Layout& layout : layouts()) {
    if (!is_even(layout)) continue;
    SCOPED_TRACE(layout.name);
    Net ours = net_of(layout, 0.2), eager = net_of(layout, 0.2);
    const Batch example = batch_of(layout, 1);
    CompileReport report;
    const auto step =
        compile_on_one_rank(communicator(), train_step, Options{.backend = "eager"}, report, ours, example.tokens, example.targets);
    EXPECT_EQ(report.captures, communicator().rank() == 0 ? 1 : 0);
    for (int i = 0; i < 3; ++i) {
      const Batch batch = batch_of(layout, 10 + i);
      torch::manual_seed(50 + i);
      const at::Tensor got = step(ours, batch.tokens, batch.targets);
      torch::manual_seed(50 + i);
      const at::Tensor expected = train_step(eager, batch.tokens, batch.targets);
      EXPECT_EQ(placements_of(got), placements_of(expected));
      EXPECT_EQ(mesh_of(got), layout.mesh);
      EXPECT_TRUE(at::equal(full_tensor(got), full_tensor(expected)));
    }
    const auto got = ours->named_parameters(), expected = eager->named_parameters();
    for (std::size_t i = 0; i < got.size(); ++i) {
      const at::Tensor a = got[i].value().grad(), b = expected[i].value().grad();
      EXPECT_EQ(placements_of(a), placements_of(b)) << got[i].key();
      EXPECT_TRUE(at::equal(local_part(a), local_part(b))) << got[i].key();
    }
  }
}

TEST(DTensorCapture, GradientsAreThoseOfOneProcess) {  // C142, C143, C144
  torch::manual_seed(31);
  Net whole;
  for (const Layout& layout : layouts()) {
    if (!is_even(layout)) continue;
    SCOPED_TRACE(layout.name);
    Net ours = net_of(layout, 0.0);
    const Batch batch = batch_of(layout, 3);
    const auto step =
        compile_on_one_rank(communicator(), train_step, Options{.backend = "eager"}, ours, batch.tokens, batch.targets);
    const at::Tensor loss = step(ours, batch.tokens, batch.targets);
    scatter_gradients(*ours, communicator());
    whole->zero_grad();
    const at::Tensor expected_loss = train_step(whole, full_tensor(batch.tokens), full_tensor(batch.targets));
    EXPECT_TRUE(close(full_tensor(loss), expected_loss));
    const auto got = ours->named_parameters(), expected = whole->named_parameters();
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(placements_of(got[i].value().grad()), placements_of(got[i].value()));
      EXPECT_TRUE(close(full_tensor(got[i].value().grad()), expected[i].value().grad())) << got[i].key();
    }
  }
}

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const PrecompileError& error) {
    return error.what();
  }
  return "no error";
}

TEST(DTensorCapture, PlacementsAndMeshOfTheCallAreChecked) {  // C151, C152
  const DeviceMesh mesh = line();
  const auto fn = [](const at::Tensor& x) { return x * 2; };
  const at::Tensor rows = distribute_tensor(torch::ones({12, 12}), mesh, {Shard(0)});
  const auto step = load<at::Tensor>(precompile(fn, Options{.backend = "eager"}, rows));
  EXPECT_THAT(error_of([&] {
                step(distribute_tensor(torch::ones({12, 12}), mesh, {Shard(1)}));
              }),
              AllOf(HasSubstr("mesh dimension 'x'"), HasSubstr("Shard(0)"), HasSubstr("Shard(1)")));
  EXPECT_THAT(error_of([&] { step(torch::ones({12, 12})); }), AllOf(HasSubstr("expected a DTensor"), HasSubstr("plain")));
  const DeviceMesh other(communicator(), {1, communicator().size()}, {"a", "b"}, "other");
  EXPECT_THAT(error_of([&] {
                step(distribute_tensor(torch::ones({12, 12}), other, {Replicate(), Shard(0)}));
              }),
              AllOf(HasSubstr("line(x="), HasSubstr("other(a=1")));
  const auto plain_step = load<at::Tensor>(precompile(fn, Options{.backend = "eager"}, torch::ones({12, 12})));
  EXPECT_THAT(error_of([&] { plain_step(rows); }), HasSubstr("expected a plain tensor"));
}

TEST(DTensorCapture, UnevenShardsAreRefusedByName) {
  if (communicator().size() == 1) GTEST_SKIP() << "one rank holds everything";
  const DeviceMesh mesh = line();
  const at::Tensor x = distribute_tensor(torch::ones({13, 2}), mesh, {Shard(0)});
  EXPECT_THAT(error_of([&] {
                static_cast<void>(precompile([](const at::Tensor& t) { return full_tensor(t); }, Options{.backend = "eager"}, x));
              }),
              AllOf(HasSubstr("[13, 2]"), HasSubstr("unevenly")));
}

}  // namespace
}  // namespace precast::test
