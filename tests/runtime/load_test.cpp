#include "runtime/load.h"

#include "artifact/envelope.h"
#include "artifact/sha256.h"
#include "backends/inductor/lower.h"
#include "ir/text.h"
#include "precast/log.h"
#include "runtime/step_fixture.h"
#include "warnings.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace precast {
namespace {

using test::ProgramBuilder;
using test::Warnings;
using ::testing::HasSubstr;

ir::Program program_that_adds(double number, const std::string& backend = "eager") {
  ProgramBuilder program;
  program.output(program.call("aten::add.Tensor", {program.input(torch::zeros({2})), number}));
  program.program().metadata.backend = backend;
  return program.program();
}

Artifact artifact_of(const ir::Program& program) {
  Artifact artifact{.python_code = ir::write_python_code(program), .cache = {}};
  artifact.cache = artifact::write_envelope({.backend = program.metadata.backend,
                                             .code_hash = artifact::sha256(artifact.python_code),
                                             .fingerprint = {},
                                             .artifact = {}});
  return artifact;
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void expect_adds(const Artifact& artifact, double number) {
  const auto step = load<std::tuple<at::Tensor>>(artifact);
  EXPECT_TRUE(torch::equal(std::get<0>(step(torch::ones({2}))), torch::ones({2}) + number));
}

void expect_load_fails(const Artifact& artifact, ErrorCode code, std::initializer_list<std::string> named) {
  try {
    load<std::tuple<at::Tensor>>(artifact);
    ADD_FAILURE() << "the pair was loaded";
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& text : named) EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

class LoadTest : public ::testing::Test {
 protected:
  Warnings warnings;
  Artifact artifact = artifact_of(program_that_adds(2));
};

TEST_F(LoadTest, PairRunsAfterOneWarningThatItIsTrusted) {  // C44, C63
  expect_adds(artifact, 2);
  EXPECT_EQ(warnings.texts.size(), 1U);
  EXPECT_EQ(warnings.count("trusted code"), 1U);
}

TEST_F(LoadTest, TrustedLoadGivesNoWarning) {  // C63
  EXPECT_NE(load_trusted(artifact, WithoutPackage::run_eagerly).runner, nullptr);
  EXPECT_TRUE(warnings.texts.empty()) << warnings.texts.front();
}

TEST_F(LoadTest, EmptyCacheWarnsAndRuns) {  // C45, C63
  artifact.cache.clear();
  expect_adds(artifact, 2);
  EXPECT_EQ(warnings.texts.size(), 2U);
  EXPECT_EQ(warnings.count("trusted code"), 1U);
  EXPECT_EQ(warnings.count("it is empty"), 1U);
}

TEST_F(LoadTest, CacheCutAtAnyLengthWarnsAndRuns) {  // C52
  for (std::size_t length = 1; length < artifact.cache.size(); ++length) {
    warnings.texts.clear();
    Artifact cut = artifact;
    cut.cache.resize(length);
    expect_adds(cut, 2);
    ASSERT_EQ(warnings.count("the cache is not used"), 1U) << "length " << length;
  }
}

TEST_F(LoadTest, CacheOfRandomBytesWarnsAndRuns) {  // C52
  artifact.cache = bytes_of("these are no bytes of an envelope, however long one reads on");
  expect_adds(artifact, 2);
  EXPECT_EQ(warnings.count("the cache is not used"), 1U);
}

TEST_F(LoadTest, CacheWithAnotherFormatTagWarnsAndRuns) {  // C53
  artifact.cache.front() ^= std::byte{1};
  expect_adds(artifact, 2);
  EXPECT_EQ(warnings.count("format tag"), 1U);
}

TEST_F(LoadTest, CacheWithAnotherVersionWarnsAndRuns) {  // C54
  artifact.cache = artifact::write_envelope(
      {.version = 99, .backend = "eager", .code_hash = artifact::sha256(artifact.python_code), .fingerprint = {}, .artifact = {}});
  expect_adds(artifact, 2);
  EXPECT_EQ(warnings.count("99"), 1U);
}

TEST_F(LoadTest, CacheOfPythonIsRecognisedAndNotUsed) {  // C48
  artifact.cache = bytes_of(std::string("PK\x03\x04", 4) + std::string(200, 'x'));
  expect_adds(artifact, 2);
  EXPECT_EQ(warnings.texts.size(), 2U);
  EXPECT_EQ(warnings.count("Python"), 1U) << warnings.texts.back();
}

TEST_F(LoadTest, CacheOfAnotherBackendIsRefused) {  // C55
  artifact.cache = artifact::write_envelope(
      {.backend = "inductor", .code_hash = artifact::sha256(artifact.python_code), .fingerprint = {}, .artifact = {}});
  expect_load_fails(artifact, ErrorCode::artifact_mismatch, {"'inductor'", "'eager'"});
}

TEST_F(LoadTest, TextOfOneCaptureWithTheCacheOfAnotherIsRefused) {  // C56
  const Artifact other = artifact_of(program_that_adds(3));
  expect_adds(artifact, 2);
  expect_adds(other, 3);
  expect_load_fails({.python_code = artifact.python_code, .cache = other.cache}, ErrorCode::artifact_mismatch,
                    {artifact::sha256(artifact.python_code), artifact::sha256(other.python_code)});
}

TEST_F(LoadTest, AChangedTextIsRefusedBeforeItIsParsed) {  // C57
  const std::string before = artifact::sha256(artifact.python_code);
  artifact.python_code = "this is no program (" + artifact.python_code;
  expect_load_fails(artifact, ErrorCode::artifact_mismatch, {before, artifact::sha256(artifact.python_code)});
}

TEST_F(LoadTest, ACommentIsEnoughToChangeTheText) {  // C57
  artifact.python_code += "# one more comment\n";
  expect_load_fails(artifact, ErrorCode::artifact_mismatch, {artifact::sha256(artifact.python_code)});
}

TEST_F(LoadTest, UnknownBackendIsNoArtifact) {
  expect_load_fails(artifact_of(program_that_adds(2, "turbo")), ErrorCode::invalid_artifact, {"'turbo'"});
}

/// Where no Python can compile.
class LoadWithoutPython : public LoadTest {
 protected:
  LoadWithoutPython() { ::setenv("PRECAST_PYTHON", "/nowhere/python", 1); }
  ~LoadWithoutPython() override { ::unsetenv("PRECAST_PYTHON"); }
};

TEST_F(LoadWithoutPython, InductorTextRunsEagerlyAfterAWarningThatSaysWhy) {  // C50, C64
  expect_adds(artifact_of(program_that_adds(2, "inductor")), 2);
  EXPECT_EQ(warnings.texts.size(), 2U);
  EXPECT_EQ(warnings.count("no kernel package"), 1U);
  EXPECT_EQ(warnings.count("/nowhere/python"), 1U);
}

TEST_F(LoadWithoutPython, APackageThatIsDamagedIsReportedAndTheTextRuns) {  // C51
  Artifact inductor = artifact_of(program_that_adds(2, "inductor"));
  const inductor::Fingerprint here = inductor::fingerprint_for(ir::read_python_code(inductor.python_code), {});
  const auto with_package = [&](const inductor::Fingerprint& fingerprint) {
    inductor.cache = artifact::write_envelope({.backend = "inductor",
                                               .code_hash = artifact::sha256(inductor.python_code),
                                               .fingerprint = fingerprint,
                                               .artifact = bytes_of("no zip archive")});
  };
  with_package(here);
  expect_adds(inductor, 2);
  EXPECT_EQ(warnings.count("the cache is not used"), 1U);
  inductor.cache[inductor.cache.size() - 3] ^= std::byte{1};
  warnings.texts.clear();
  expect_adds(inductor, 2);
  EXPECT_EQ(warnings.count("sha256"), 1U);
}

TEST_F(LoadWithoutPython, APackageForAnotherPlatformIsNotOpenedAndBothAreNamed) {  // C69, C70
  Artifact inductor = artifact_of(program_that_adds(2, "inductor"));
  for (const auto& [field, value] : std::map<std::string, std::string>{{"torch_version", "1.2.3"}, {"cpu", "x86-64-v9"}}) {
    inductor::Fingerprint other = inductor::fingerprint_for(ir::read_python_code(inductor.python_code), {});
    other[field] = value;
    inductor.cache = artifact::write_envelope({.backend = "inductor",
                                               .code_hash = artifact::sha256(inductor.python_code),
                                               .fingerprint = other,
                                               .artifact = bytes_of("code that must not run")});
    warnings.texts.clear();
    expect_adds(inductor, 2);
    EXPECT_EQ(warnings.count("made for " + value), 1U) << warnings.texts.back();
  }
}

TEST_F(LoadTest, OperatorUnknownHereIsNamedWithItsLine) {  // C62
  ir::Program program = program_that_adds(2);
  std::get<ir::Call>(program.statements.front().is).name = "mylib::fused";
  expect_load_fails(artifact_of(program), ErrorCode::invalid_artifact, {"line ", "torch.ops.mylib.fused", "unknown operator"});
}

TEST_F(LoadTest, TheStepKeepsThePairItCameFrom) {
  const auto step = load<std::tuple<at::Tensor>>(artifact);
  EXPECT_EQ(step.artifact().python_code, artifact.python_code);
  EXPECT_EQ(step.artifact().cache, artifact.cache);
}

}  // namespace
}  // namespace precast
