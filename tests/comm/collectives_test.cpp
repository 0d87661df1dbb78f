#include "rank_test.h"

#include "comm/byte_collectives.h"
#include "precast/error.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace precast {
namespace {

using rank_test::communicator;
using rank_test::kTime;
using ::testing::AllOf;
using ::testing::HasSubstr;

Deadline soon() {
  return after(kTime);
}
int rank() {
  return communicator().rank();
}
int size() {
  return communicator().size();
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// `length` bytes that differ from place to place and from seed to seed.
std::vector<std::byte> pattern(std::size_t length, int seed) {
  std::vector<std::byte> bytes(length);
  for (std::size_t i = 0; i < length; ++i)
    bytes[i] = static_cast<std::byte>((i * 131 + i / 251 + static_cast<std::size_t>(seed)) & 0xff);
  return bytes;
}

const std::vector<at::ScalarType> kDtypes = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                             at::kLong,  at::kInt,    at::kChar, at::kByte};

TEST(Collectives, RanksAreNumberedFromNoughtAndKnowTheirNumber) {  // C207
  const auto all = communicator().all_gather(bytes_of(std::to_string(rank()) + "/" + std::to_string(size())), soon());
  ASSERT_EQ(all.size(), static_cast<std::size_t>(size()));
  for (int other = 0; other < size(); ++other)
    EXPECT_EQ(all[static_cast<std::size_t>(other)], bytes_of(std::to_string(other) + "/" + std::to_string(size())));
  EXPECT_GE(communicator().local_rank(), 0);
  EXPECT_LT(communicator().local_rank(), communicator().local_size());
}

TEST(Collectives, EveryRootsBytesReplaceThoseOfTheOthers) {  // C204
  for (int root = 0; root < size(); ++root) {
    for (const std::size_t length : {0UL, 1UL, 4095UL, 4096UL, 3000001UL}) {
      auto bytes = rank() == root ? pattern(length, root) : pattern(17, 99);
      communicator().broadcast(bytes, root, soon());
      EXPECT_TRUE(bytes == pattern(length, root)) << length << " bytes of rank " << root;
    }
  }
}

TEST(Collectives, BytesArriveAtEachSideOfAChunksBorder) {  // C204
  constexpr int64_t kChunk = 64;
  const int root = size() - 1;
  for (const std::size_t length : {0UL, 1UL, 63UL, 64UL, 65UL, 127UL, 128UL, 129UL, 1000UL}) {
    auto bytes = rank() == root ? pattern(length, 5) : pattern(200, 99);
    broadcast_bytes(rank_test::transport(), bytes, root, soon(), kChunk);
    EXPECT_TRUE(bytes == pattern(length, 5)) << length << " bytes in chunks of " << kChunk;
  }
}

TEST(Collectives, EveryRootsTensorIsCopiedForEachDtype) {
  for (int root = 0; root < size(); ++root) {
    for (const auto dtype : kDtypes) {
      const auto expected = at::arange(12, at::kLong).view({3, 4}).add(root).to(dtype);
      const auto tensor = rank() == root ? expected.clone() : at::zeros_like(expected);
      communicator().broadcast(tensor, root, soon());
      EXPECT_TRUE(at::equal(tensor, expected)) << dtype << " of rank " << root;
    }
  }
}

TEST(Collectives, BroadcastFillsStridedBoolScalarAndEmptyTensors) {
  const auto expected = at::arange(12, at::kFloat).view({3, 4});
  const auto strided = at::zeros({4, 3}).t();
  if (rank() == 0) strided.copy_(expected);
  const auto* memory = strided.data_ptr();
  communicator().broadcast(strided, 0, soon());
  EXPECT_TRUE(at::equal(strided, expected));
  EXPECT_EQ(strided.data_ptr(), memory) << "filled in place";

  const auto flags = at::full({3}, rank() == 0, at::kBool);
  communicator().broadcast(flags, 0, soon());
  EXPECT_TRUE(flags.all().item<bool>());

  const auto scalar = at::full({}, rank());
  communicator().broadcast(scalar, size() - 1, soon());
  EXPECT_EQ(scalar.item<double>(), size() - 1);

  communicator().broadcast(at::empty({0, 5}), 0, soon());
}

TEST(Collectives, BroadcastFillsAParameterThatRequiresGrad) {
  const auto parameter = at::full({3}, rank(), at::kFloat).set_requires_grad(true);
  communicator().broadcast(parameter, 0, soon());
  EXPECT_TRUE(at::equal(parameter.detach(), at::zeros({3})));
  EXPECT_TRUE(parameter.requires_grad() && parameter.is_leaf());
}

TEST(Collectives, AllReduceIsTheSumMaximumOrMinimumOfTheRanks) {
  const int n = size();
  for (const auto dtype : kDtypes) {
    const auto mine = at::arange(6, at::kLong).view({2, 3}).mul(rank() + 1).to(dtype);
    const auto base = at::arange(6, at::kLong).view({2, 3});
    const auto check = [&](Reduction reduction, int factor, const char* name) {
      const auto tensor = mine.clone();
      communicator().all_reduce(tensor, reduction, soon());
      EXPECT_TRUE(at::equal(tensor, base.mul(factor).to(dtype))) << name << " of " << dtype << ": " << tensor;
    };
    check(Reduction::sum, n * (n + 1) / 2, "sum");
    check(Reduction::max, n, "maximum");
    check(Reduction::min, 1, "minimum");
  }
}

TEST(Collectives, AllReduceAveragesFloatingDtypesOnly) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const auto tensor = at::full({3}, 2.0 * rank() + 2, dtype);
    communicator().all_reduce(tensor, Reduction::avg, soon());
    EXPECT_TRUE(at::equal(tensor, at::full({3}, size() + 1.0, dtype))) << dtype << ": " << tensor;
  }
  for (const auto dtype : {at::kLong, at::kInt, at::kByte, at::kBool}) {
    const auto tensor = at::ones({3}, dtype);
    try {
      communicator().all_reduce(tensor, Reduction::avg, soon());
      FAIL() << dtype;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("expected a floating dtype"), HasSubstr(c10::toString(dtype))));
    }
    EXPECT_TRUE(at::equal(tensor, at::ones({3}, dtype)));
  }
}

TEST(Collectives, AllReduceWorksInPlaceOnStridedTensors) {
  const auto tensor = at::full({4, 3}, rank() + 1.0).t();
  communicator().all_reduce(tensor, Reduction::sum, soon());
  EXPECT_TRUE(at::equal(tensor, at::full({3, 4}, size() * (size() + 1) / 2.0)));
  communicator().all_reduce(at::empty({0}), Reduction::sum, soon());
}

TEST(Collectives, AllReduceGivesTheSameBitsOnEveryRankAndAgain) {
  at::manual_seed(100 + rank());
  const auto mine = at::randn({1001});
  const auto first = mine.clone(), second = mine.clone();
  communicator().all_reduce(first, Reduction::sum, soon());
  communicator().all_reduce(second, Reduction::sum, soon());
  EXPECT_TRUE(at::equal(first, second));
  const auto ofroot = first.clone();
  communicator().broadcast(ofroot, 0, soon());
  EXPECT_TRUE(at::equal(first, ofroot));
}

TEST(Collectives, AllGatherKeepsEachRanksLength) {
  const auto mine = pattern(static_cast<std::size_t>(rank()) * 1000, rank());  // rank 0 has none
  const auto all = communicator().all_gather(mine, soon());
  ASSERT_EQ(all.size(), static_cast<std::size_t>(size()));
  for (int other = 0; other < size(); ++other)
    EXPECT_TRUE(all[static_cast<std::size_t>(other)] == pattern(static_cast<std::size_t>(other) * 1000, other)) << "rank " << other;
}

TEST(Collectives, AllGatherOfNothingIsNothingForEachRank) {
  const auto all = communicator().all_gather({}, soon());
  EXPECT_EQ(all, std::vector<std::vector<std::byte>>(static_cast<std::size_t>(size())));
}

TEST(Agreement, AllWellIsWell) {
  const auto verdict = communicator().agree({}, soon());
  EXPECT_TRUE(verdict.ok());
  EXPECT_NO_THROW(verdict.throw_if_failed());
}

TEST(Agreement, OneRanksFindingIsEveryRanksVerdict) {  // C197
  const int finder = size() - 1;
  Finding mine;
  if (rank() == finder) mine = {ErrorCode::artifact_mismatch, "verify: expected digest aa, found bb"};
  const auto verdict = communicator().agree(mine, soon());
  EXPECT_EQ(verdict.code, ErrorCode::artifact_mismatch);
  EXPECT_THAT(verdict.text, HasSubstr("rank " + std::to_string(finder) + " of " + std::to_string(size())));
  EXPECT_THAT(verdict.text, HasSubstr("verify: expected digest aa, found bb"));
  try {
    verdict.throw_if_failed();
    ADD_FAILURE() << "a failed verdict throws";
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), ErrorCode::artifact_mismatch);
    EXPECT_EQ(error.what(), verdict.text);
  }
}

TEST(Agreement, EveryFindingIsInOneTextThatAllRanksShare) {  // C199
  const auto verdict = communicator().agree({ErrorCode::rank_mismatch, "width is " + std::to_string(rank())}, soon());
  for (int other = 0; other < size(); ++other) EXPECT_THAT(verdict.text, HasSubstr("width is " + std::to_string(other)));
  for (const auto& text : communicator().all_gather(bytes_of(verdict.text), soon())) EXPECT_EQ(text, bytes_of(verdict.text));
}

TEST(Agreement, OneFindingOfManyRanksIsSaidOnce) {
  const auto verdict = communicator().agree({ErrorCode::rank_mismatch, "the same words"}, soon());
  const auto first = verdict.text.find("the same words");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(verdict.text.find("the same words", first + 1), std::string::npos) << verdict.text;
}

}  // namespace
}  // namespace precast
