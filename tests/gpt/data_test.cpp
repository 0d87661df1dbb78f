#include "data.h"

#include "error.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace gpt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / fmt::format("gpt-data-{}-{}", ::getpid(), counter_++)) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  [[nodiscard]] Config::Data config(const std::string& glob) const { return {path_.string(), glob}; }

 private:
  inline static int counter_ = 0;
  fs::path path_;
};

std::string as_text(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const JobError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Corpus, ReadsMatchingFilesByNameAndHoldsTheLastOut) {
  const Folder folder;
  folder.write("b.py", "BBB");
  folder.write("a/z.py", "AZ");
  folder.write("c.py", "CCCC");
  folder.write("c.txt", "no");
  const Corpus corpus = read_corpus(folder.config("**/*.py"));
  EXPECT_EQ(as_text(corpus.train), "AZBBB");
  EXPECT_EQ(as_text(corpus.held_out), "CCCC");
}

TEST(Corpus, GlobWithoutFoldersTakesTheTopFolderOnly) {
  const Folder folder;
  folder.write("a/deep.py", "deep");
  folder.write("b.py", "top");
  folder.write("c.py", "held");
  EXPECT_EQ(as_text(read_corpus(folder.config("*.py")).train), "top");
}

TEST(Corpus, HoldsOutEveryTwentiethOfManyFiles) {
  const Folder folder;
  for (int i = 0; i < 60; ++i) folder.write(fmt::format("{:02}.py", i), fmt::format("{:02} ", i));
  EXPECT_EQ(as_text(read_corpus(folder.config("*.py")).held_out), "19 39 59 ");
}

TEST(Corpus, OneFileHoldsOutItsLastTenth) {
  const Folder folder;
  folder.write("a.py", "0123456789abcdefghij");
  const Corpus corpus = read_corpus(folder.config("*.py"));
  EXPECT_EQ(as_text(corpus.train), "0123456789abcdefgh");
  EXPECT_EQ(as_text(corpus.held_out), "ij");
}

TEST(Corpus, MissingFolderIsNamed) {
  EXPECT_EQ(error_of([] {
              read_corpus({"/nonexistent/text", "*.py"});
            }),
            "data.path: expected a folder, found none at '/nonexistent/text'");
}

TEST(Corpus, GlobThatMatchesNothingIsNamed) {
  const Folder folder;
  folder.write("a.txt", "text");
  EXPECT_THAT(error_of([&] { read_corpus(folder.config("**/*.py")); }),
              HasSubstr("data.glob: expected files that match '**/*.py'"));
}

TEST(Corpus, OnlyEmptyFilesAreRefused) {
  const Folder folder;
  folder.write("a.py", "");
  folder.write("b.py", "");
  EXPECT_THAT(error_of([&] { read_corpus(folder.config("*.py")); }), HasSubstr("data: expected text, found 2 empty file(s)"));
}

Bytes numbered_text(std::size_t n_bytes) {
  Bytes text(n_bytes);
  for (std::size_t i = 0; i < n_bytes; ++i) text[i] = static_cast<std::uint8_t>((i * 2654435761U) >> 13);
  return text;
}

/// What all ranks read in one step, in the order of the sequences' numbers.
torch::Tensor step_of_all_ranks(const Bytes& text, std::int64_t step, std::int64_t batch, std::int64_t accumulate, int n_ranks) {
  std::vector<torch::Tensor> rows;
  for (std::int64_t micro = 0; micro < accumulate; ++micro)
    for (int rank = 0; rank < n_ranks; ++rank)
      rows.push_back(Loader(text, "text", {16, batch, accumulate, n_ranks, rank}, 7, torch::kCPU).batch(step, micro).tokens);
  return torch::cat(rows);
}

TEST(Loader, SequencesOfAStepAreTheSameWhateverRanksAndAccumulation) {
  const Bytes text = numbered_text(4000);
  for (const std::int64_t step : {0, 1, 9, 10, 11, 25}) {  // ten steps an epoch
    const torch::Tensor expected = step_of_all_ranks(text, step, 24, 1, 1);
    EXPECT_TRUE(torch::equal(step_of_all_ranks(text, step, 12, 1, 2), expected)) << "2 ranks, step " << step;
    EXPECT_TRUE(torch::equal(step_of_all_ranks(text, step, 12, 2, 1), expected)) << "2 micro-batches, step " << step;
    EXPECT_TRUE(torch::equal(step_of_all_ranks(text, step, 4, 2, 3), expected)) << "3 ranks of 2 micro-batches, step " << step;
  }
}

TEST(Loader, AnEpochReadsEachWindowOnceAndDropsTheShortStep) {
  const Bytes text = numbered_text(16 * 50 + 1);
  const Loader loader(text, "text", {16, 8, 1, 1, 0}, 3, torch::kCPU);
  ASSERT_EQ(loader.steps_per_epoch(), 6);  // 50 windows: the last two are no step
  std::set<std::string> seen;
  for (std::int64_t step = 0; step < 6; ++step) {
    const torch::Tensor tokens = loader.batch(step, 0).tokens;
    for (std::int64_t row = 0; row < 8; ++row) {
      const torch::Tensor bytes = tokens[row].to(torch::kUInt8).contiguous();
      seen.emplace(static_cast<const char*>(bytes.data_ptr()), 16);
    }
  }
  EXPECT_EQ(seen.size(), 48U);
}

TEST(Loader, TargetsAreTheNextBytes) {
  const Batch batch = Loader(numbered_text(500), "text", {16, 4, 1, 1, 0}, 1, torch::kCPU).batch(2, 0);
  EXPECT_TRUE(torch::equal(batch.tokens.slice(1, 1), batch.targets.slice(1, 0, 15)));
}

TEST(Loader, EpochsAndSeedsDifferInOrder) {
  const Bytes text = numbered_text(16 * 48 + 1);
  const Loader one(text, "text", {16, 48, 1, 1, 0}, 1, torch::kCPU), two(text, "text", {16, 48, 1, 1, 0}, 2, torch::kCPU);
  EXPECT_FALSE(torch::equal(one.batch(0, 0).tokens, one.batch(1, 0).tokens));
  EXPECT_FALSE(torch::equal(one.batch(0, 0).tokens, two.batch(0, 0).tokens));
}

TEST(Loader, TextShorterThanASequenceIsRefused) {
  EXPECT_EQ(error_of([] {
              Loader(numbered_text(16), "held-out text", {16, 1, 1, 1, 0}, 1, torch::kCPU);
            }),
            "data: expected at least 17 bytes of held-out text for one sequence, found 16");
}

TEST(Loader, TextTooShortForOneStepIsRefused) {
  EXPECT_EQ(error_of([] {
              Loader(numbered_text(16 * 5 + 1), "training text", {16, 2, 1, 3, 0}, 1, torch::kCPU);
            }),
            "data: expected at least 6 sequences of training text for one step of all ranks, found 5 (81 bytes)");
}

}  // namespace
}  // namespace gpt
