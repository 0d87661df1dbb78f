#include "comm/transport.h"
#include "forwarding_transport.h"
#include "precast/precast.h"
#include "rank_test.h"
#include "rank_training.h"
#include "runtime/pair_broadcast.h"
#include "runtime/rank_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

namespace precast::test {
namespace {

using rank_test::communicator;
using rank_test::kTime;
using ::testing::AllOf;
using ::testing::HasSubstr;

bool is_alone() {
  return communicator().size() == 1;
}

TEST(CompileOnOneRank, OnlyRank0CallsFnAndEveryRankRunsTheStep) {
  Mlp model = equal_model();
  Mlp eager = copy_of(model, Mlp());
  const Batch batch(communicator().rank());
  int calls = 0;
  const auto fn = [&](Mlp& m, const at::Tensor& x, const at::Tensor& y) { return ++calls, kTrain(m, x, y); };
  CompileReport report;
  const auto step = compile_on_one_rank(communicator(), fn, Options{.backend = "eager"}, report, model, batch.x, batch.y);
  EXPECT_EQ(calls, communicator().rank() == 0 ? 1 : 0);
  EXPECT_EQ(report.captures, communicator().rank() == 0 ? 1 : 0);
  EXPECT_TRUE(is_one_text(step.artifact().python_code));
  EXPECT_TRUE(is_one_text(report.code_hash));
  EXPECT_EQ(report.code_bytes, step.artifact().python_code.size());
  for (const char* phase : {"capture", "lower", "broadcast", "verify", "prime"}) EXPECT_EQ(report.phases.count(phase), 1U) << phase;
  EXPECT_TRUE(torch::equal(step(model, batch.x, batch.y), kTrain(eager, batch.x, batch.y).detach()));
  EXPECT_TRUE(torch::equal(model->fc1->weight.grad(), eager->fc1->weight.grad()));
}

TEST(CompileOnOneRank, AnExceptionOfFnReachesEveryRank) {  // C193
  Mlp model = equal_model();
  const Batch batch(0);
  const auto fn = [](Mlp&, const at::Tensor&, const at::Tensor&) -> at::Tensor { throw std::out_of_range("index 7 of 5"); };
  if (communicator().rank() == 0) {
    EXPECT_THROW(compile_on_one_rank(communicator(), fn, Options{.backend = "eager"}, model, batch.x, batch.y), std::out_of_range);
  } else {
    EXPECT_THAT(error_of([&] { compile_on_one_rank(communicator(), fn, Options{.backend = "eager"}, model, batch.x, batch.y); }),
                AllOf(HasSubstr("rank 0 of"), HasSubstr("capture"), HasSubstr("index 7 of 5")));
  }
  EXPECT_FALSE(model->fc1->weight.grad().defined());
}

TEST(CompileOnOneRank, ARefusedCaptureReachesEveryRankWithItsCode) {  // C193
  Mlp model = equal_model();
  const Batch batch(0);
  const auto fn = [](Mlp& m, const at::Tensor& x, const at::Tensor&) { return m->forward(x).sum().item<double>(); };
  try {
    compile_on_one_rank(communicator(), fn, Options{.backend = "eager"}, model, batch.x, batch.y);
    FAIL() << "not refused";
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), ErrorCode::refused_capture);
    if (communicator().rank() != 0) {
      EXPECT_THAT(error.what(), HasSubstr("rank 0 of"));
    }
  }
}

TEST(CompileOnOneRank, ADifferenceBetweenRanksIsFoundBeforeFnIsCalled) {  // C199
  if (is_alone()) GTEST_SKIP() << "one rank differs from no other";
  const bool odd = communicator().rank() == communicator().size() - 1;
  Mlp model = equal_model();
  const Batch batch(0);
  int calls = 0;
  const auto fn = [&](Mlp& m, const at::Tensor& x, const at::Tensor& y) { return ++calls, kTrain(m, x, y); };
  const auto compile = [&](const Options& options, Mlp& m, const at::Tensor& x) {
    const std::string text = error_of([&] { compile_on_one_rank(communicator(), fn, options, m, x, batch.y); });
    EXPECT_TRUE(is_one_text(text)) << text;
    EXPECT_THAT(text, HasSubstr("rank " + std::to_string(communicator().size() - 1) + " of"));
    return text;
  };
  EXPECT_THAT(compile(Options{.backend = "eager"}, model, odd ? batch.x.narrow(0, 0, 4) : batch.x),
              AllOf(HasSubstr("[5, 8]"), HasSubstr("[4, 8]")));
  EXPECT_THAT(compile(Options{.backend = "eager"}, model, odd ? batch.x.to(at::kDouble) : batch.x),
              AllOf(HasSubstr("float32"), HasSubstr("float64")));
  EXPECT_THAT(compile(Options{.backend = "eager", .input_gradients = odd}, model, batch.x),
              AllOf(HasSubstr("input gradients"), HasSubstr("on")));
  Mlp other = equal_model();
  if (odd) other->fc2->eval();
  EXPECT_THAT(compile(Options{.backend = "eager"}, other, batch.x),
              AllOf(HasSubstr("'fc2'"), HasSubstr("train"), HasSubstr("eval")));
  EXPECT_THAT(compile(Options{.backend = odd ? "inductor" : "eager"}, model, batch.x),
              AllOf(HasSubstr("backend"), HasSubstr("eager"), HasSubstr("inductor")));
  EXPECT_EQ(calls, 0);
}

TEST(CompileOnOneRank, ADifferentLibraryVersionIsNamed) {  // C199
  if (is_alone()) GTEST_SKIP() << "one rank differs from no other";
  const bool odd = communicator().rank() == communicator().size() - 1;
  std::vector<runtime::Field> mine = runtime::describe_rank({}, {});
  const auto version = std::ranges::find(mine, "torch version", &runtime::Field::name);
  ASSERT_NE(version, mine.end());
  EXPECT_EQ(version->value, TORCH_VERSION);
  if (odd) version->value = "2.0.1";
  const Verdict verdict = runtime::compare_ranks(communicator(), "agree on arguments", mine, after(kTime));
  EXPECT_EQ(verdict.code, ErrorCode::rank_mismatch);
  EXPECT_THAT(verdict.text, AllOf(HasSubstr("torch version"), HasSubstr(TORCH_VERSION), HasSubstr("2.0.1")));
  EXPECT_TRUE(is_one_text(verdict.text));
}

TEST(CompileOnOneRank, DifferentValuesOfABufferAreFoundAtTheFirstStep) {
  if (is_alone()) GTEST_SKIP() << "one rank differs from no other";
  torch::manual_seed(3);
  NormNet model;
  const at::Tensor x = torch::randn({2, 3, 4, 4});
  if (communicator().rank() == communicator().size() - 1) model->bn->running_var[0] += 1;
  const auto fn = [](NormNet& m, const at::Tensor& input) {
    auto loss = m->forward(input).mean();
    loss.backward();
    return loss;
  };
  const auto step = compile_on_one_rank(communicator(), fn, Options{.backend = "eager"}, model, x);
  const std::string text = error_of([&] { step(model, x); });
  EXPECT_TRUE(is_one_text(text)) << text;
  EXPECT_THAT(text, HasSubstr("buffer 'bn.running_var'"));
}

TEST(CompileOnOneRank, DifferentValuesAreFoundAtTheFirstStep) {
  if (is_alone()) GTEST_SKIP() << "one rank differs from no other";
  Mlp model = equal_model();
  const Batch batch(0);
  {
    const torch::NoGradGuard no_grad;
    if (communicator().rank() == communicator().size() - 1) model->fc2->bias[1] += 1;
  }
  const auto step = compile_on_one_rank(communicator(), kTrain, Options{.backend = "eager"}, model, batch.x, batch.y);
  const std::string text = error_of([&] { step(model, batch.x, batch.y); });
  EXPECT_THAT(text, AllOf(HasSubstr("'fc2.bias'"), HasSubstr("rank " + std::to_string(communicator().size() - 1))));
  EXPECT_FALSE(model->fc1->weight.grad().defined());
}

TEST(CompileOnOneRank, AFailedFirstStepMayBeRepeatedAfterABroadcast) {
  torch::manual_seed(communicator().rank());
  Mlp model;
  const Batch batch(0);
  const auto step = compile_on_one_rank(communicator(), kTrain, Options{.backend = "eager"}, model, batch.x, batch.y);
  if (!is_alone()) {
    EXPECT_THAT(error_of([&] { step(model, batch.x, batch.y); }), HasSubstr("broadcast_module"));
  }
  broadcast_module(*model, communicator());
  Mlp eager = copy_of(model, Mlp());
  EXPECT_TRUE(torch::equal(step(model, batch.x, batch.y), kTrain(eager, batch.x, batch.y).detach()));
}

constexpr int kHeader = 0, kCode = 1, kCache = 2;

/// compile_on_one_rank over a damaged broadcast: the one error of all ranks.
std::string compile_damaged(at::ScalarType dtype, int nth, DamagingTransport::Damage damage) {
  Mlp model = equal_model();
  const Batch batch(0);
  const Communicator comm(std::make_shared<DamagingTransport>(rank_test::transport(), dtype, nth, std::move(damage)));
  const std::string text =
      error_of([&] { compile_on_one_rank(comm, kTrain, Options{.backend = "eager"}, model, batch.x, batch.y); });
  EXPECT_TRUE(is_one_text(text)) << text;
  EXPECT_THAT(text, HasSubstr("rank " + std::to_string(communicator().size() - 1) + " of"));
  return text;
}

void flip_a_bit(const at::Tensor& bytes) {
  bytes[bytes.numel() / 2].bitwise_xor_(1);
}

TEST(CompileOnOneRank, AFlippedBitIsRejectedByAllRanksBeforeParsing) {  // C197
  if (is_alone()) GTEST_SKIP() << "one rank receives nothing";
  EXPECT_THAT(compile_damaged(at::kByte, kCode, flip_a_bit),
              AllOf(HasSubstr("python_code"), HasSubstr("expected sha256"), HasSubstr("found")));
  EXPECT_THAT(compile_damaged(at::kByte, kCache, flip_a_bit), AllOf(HasSubstr("cache"), HasSubstr("expected sha256")));
}

TEST(CompileOnOneRank, ADamagedHeaderIsRejectedByAllRanks) {  // C198
  if (is_alone()) GTEST_SKIP() << "one rank receives nothing";
  EXPECT_THAT(compile_damaged(at::kByte, kHeader, [](const at::Tensor& bytes) { bytes.zero_(); }), HasSubstr("header"));
  EXPECT_THAT(compile_damaged(at::kByte, kHeader, [](const at::Tensor& bytes) { bytes.narrow(0, 10, 12).fill_(255); }),
              HasSubstr("header"));
}

TEST(CompileOnOneRank, AWrongLengthIsRejectedByAllRanks) {  // C198
  if (is_alone()) GTEST_SKIP() << "one rank receives nothing";
  for (const int nth : {kHeader, kCode, kCache}) {
    EXPECT_THAT(compile_damaged(at::kLong, nth, [](const at::Tensor& length) { length.sub_(1); }), HasSubstr("announced"));
    EXPECT_THAT(compile_damaged(at::kLong, nth, [](const at::Tensor& length) { length.fill_(std::int64_t{1} << 62); }),
                HasSubstr("4611686018427387904"));
  }
}

TEST(PairHeader, RefusesEachFlippedBit) {  // C198
  runtime::PairHeader failed = runtime::header_of({.python_code = "text", .cache = {}});
  failed.failure = {ErrorCode::refused_capture, "rank 0 of 2, capture: why"};
  const std::string bytes = runtime::write_header(failed);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THROW(runtime::read_header(flipped), std::runtime_error) << "bit " << bit;
  }
}

TEST(PairHeader, NamesAnotherFormatVersion) {  // C198
  std::string bytes = runtime::write_header(runtime::header_of({.python_code = "text", .cache = {}}));
  const std::size_t version = bytes.find("precast pair") + std::string_view("precast pair").size();
  bytes.at(version) = 9;
  try {
    runtime::read_header(bytes);
    FAIL() << "not refused";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("format version is 9"), HasSubstr("expected 1")));
  }
}

TEST(PairHeader, RoundTripsAndRefusesWhatDoesNotFit) {  // C198
  const runtime::PairHeader header = runtime::header_of({.python_code = "text", .cache = {std::byte{1}}});
  const std::string bytes = runtime::write_header(header);
  EXPECT_EQ(runtime::read_header(bytes).code_digest, header.code_digest);
  for (std::size_t n = 0; n < bytes.size(); ++n)  // cut at each length
    EXPECT_THROW(runtime::read_header(std::string_view(bytes).substr(0, n)), std::runtime_error);
  runtime::PairHeader absurd = header;
  absurd.cache_size = ~std::uint64_t{0};
  EXPECT_THROW(runtime::read_header(runtime::write_header(absurd)), std::runtime_error);
}

}  // namespace
}  // namespace precast::test
