#include "precast/artifact.h"
#include "precast/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace precast {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

Artifact pair(const std::string& code, std::size_t n_cache = 3) {
  return {code, std::vector<std::byte>(n_cache, std::byte{7})};
}

class ArtifactPair : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "precast-pair-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { fs::remove_all(folder); }

  template <class Call>
  std::string message(const Call& call) {
    try {
      call();
    } catch (const PrecompileError& error) {
      EXPECT_EQ(error.code(), ErrorCode::environment);
      return error.what();
    }
    return "no error";
  }
  [[nodiscard]] std::ptrdiff_t n_files() const { return std::distance(fs::directory_iterator(folder), {}); }

  fs::path folder;
  fs::path code() const { return folder / "step.py"; }
  fs::path cache() const { return folder / "step.cache"; }
};

TEST_F(ArtifactPair, ComesBackByteForByteAndLeavesNoOtherFile) {  // C175, C185
  const Artifact saved = pair("line\r\n\xC3\xBC\n", 100000);
  save_artifact(saved, code(), cache());
  const Artifact read = read_artifact(code(), cache());
  EXPECT_EQ(read.python_code, saved.python_code);
  EXPECT_EQ(read.cache, saved.cache);
  EXPECT_EQ(n_files(), 2);
}

TEST_F(ArtifactPair, ReplacesAPairAndKeepsItsPermissions) {  // C175
  save_artifact(pair("old"), code(), cache());
  ASSERT_EQ(::chmod(code().c_str(), 0600), 0);
  save_artifact(pair("new"), code(), cache());
  EXPECT_EQ(read_artifact(code(), cache()).python_code, "new");
  struct stat status = {};
  ::stat(code().c_str(), &status);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_EQ(n_files(), 2);
}

TEST_F(ArtifactPair, AFailureOnTheSecondHalfLeavesThePreviousPair) {  // C176, C177
  save_artifact(pair("old"), code(), cache());
  EXPECT_THAT(message([&] { save_artifact(pair("new"), code(), folder / "missing" / "step.cache"); }),
              AllOf(HasSubstr("missing"), HasSubstr("No such file")));
  EXPECT_EQ(read_artifact(code(), cache()).python_code, "old");
  EXPECT_EQ(n_files(), 2);
}

TEST_F(ArtifactPair, OneFileForBothHalvesOrAFolderIsRefused) {  // C183
  EXPECT_THAT(message([&] { save_artifact(pair("new"), code(), folder / "." / "step.py"); }), HasSubstr("name two files"));
  fs::create_directory(cache());
  EXPECT_THAT(message([&] { save_artifact(pair("new"), code(), cache()); }), HasSubstr("no regular file"));
  EXPECT_FALSE(fs::exists(code()));
}

TEST_F(ArtifactPair, AMissingHalfIsNamedWithTheReason) {  // C184
  save_artifact(pair("text"), code(), cache());
  fs::remove(cache());
  EXPECT_THAT(message([&] { read_artifact(code(), cache()); }),
              AllOf(HasSubstr("step.py"), HasSubstr("step.cache"), HasSubstr("No such file")));
}

}  // namespace
}  // namespace precast
