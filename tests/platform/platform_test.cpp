#include "platform/platform.h"

#include "platform/cpu.h"
#include "precast/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace precast::platform {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CpuFeatures words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// As the x86-64 psABI lists them, in the kernel's spelling.
const std::string kV2 = "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3";
const std::string kV3 = kV2 + " avx avx2 bmi1 bmi2 f16c fma abm movbe";
const std::string kV4 = kV3 + " avx512f avx512bw avx512cd avx512dq avx512vl";

TEST(CpuLevels, ALevelNeedsEveryFeatureOfItAndOfThoseBelow) {
  EXPECT_EQ(best_level({}), "x86-64");
  EXPECT_EQ(best_level(words(kV2)), "x86-64-v2");
  EXPECT_EQ(best_level(words(kV3)), "x86-64-v3");
  EXPECT_EQ(best_level(words(kV4)), "x86-64-v4");
  for (const std::string& feature : words(kV4)) {
    CpuFeatures features = words(kV4);
    features.erase(feature);
    const std::string expected = words(kV2).contains(feature) ? "x86-64" : words(kV3).contains(feature) ? "x86-64-v2" : "x86-64-v3";
    EXPECT_EQ(best_level(features), expected) << feature;
    EXPECT_THAT(missing_features("x86-64-v4", features), ElementsAre(feature));
  }
}

TEST(CpuLevels, WhatIsMissingIsNamedLowestLevelFirst) {  // C201
  CpuFeatures features = words(kV4);
  for (const char* feature : {"avx512vl", "movbe", "popcnt"}) features.erase(feature);
  EXPECT_THAT(missing_features("x86-64-v4", features), ElementsAre("popcnt", "movbe", "avx512vl"));
  EXPECT_THAT(missing_features("x86-64-v3", features), ElementsAre("popcnt", "movbe"));
  EXPECT_THAT(missing_features("x86-64", {}), IsEmpty());
}

TEST(CpuLevels, AnotherArchitectureLacksItself) {
  EXPECT_THAT(missing_features("aarch64", words(kV4)), ElementsAre("aarch64"));
  EXPECT_THAT(missing_features("x86-64-v5", words(kV4)), ElementsAre("x86-64-v5"));
}

#ifdef __x86_64__
TEST(CpuLevels, ThisCpuHasWhatTheKernelLists) {
  std::ifstream file("/proc/cpuinfo");
  CpuFeatures kernel;
  for (std::string line; kernel.empty() && std::getline(file, line);)
    if (line.starts_with("flags")) kernel = words(line);
  ASSERT_FALSE(kernel.empty());
  CpuFeatures expected;
  for (const std::string& feature : words(kV4))
    if (kernel.contains(feature)) expected.insert(feature);
  EXPECT_EQ(cpu_features(), expected);
}

TEST(CpuLevels, ThisCpuHasTheLevelsThatTheCompilersRuntimeFinds) {
  const std::map<std::string, bool> levels = {{"x86-64-v2", __builtin_cpu_supports("x86-64-v2")},
                                              {"x86-64-v3", __builtin_cpu_supports("x86-64-v3")},
                                              {"x86-64-v4", __builtin_cpu_supports("x86-64-v4")}};
  for (const auto& [level, supported] : levels) EXPECT_EQ(supports(level), supported) << level;
  EXPECT_TRUE(supports(best_level()));
}
#endif

const Platform kCpu{"2.15.0", "d0f2af8b", "x86-64-v3", "", ""};
const Platform kGpu{"2.15.0", "d0f2af8b", "x86-64-v3", "sm_90", "13.2"};

TEST(PlatformFields, ComeBackAsTheSamePlatformBesideOtherFields) {
  auto fields = kGpu.fields();
  EXPECT_THAT(fields, ::testing::SizeIs(5));
  fields["settings"] = "x";
  EXPECT_EQ(from_fields(fields), kGpu);
}

TEST(PlatformFields, AMissingOneIsNamed) {
  for (const char* name : {"torch_version", "torch_git", "cpu", "gpu", "cuda"}) {
    auto fields = kGpu.fields();
    fields.erase(name);
    try {
      from_fields(fields);
      ADD_FAILURE() << name;
    } catch (const PrecompileError& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_artifact);
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  }
}

TEST(WhyNot, EqualPlatformsAndLowerLevelsRun) {  // C203
  EXPECT_THAT(why_not(kGpu, kGpu, {}), IsEmpty());
  Platform better = kCpu;
  better.cpu = "x86-64-v4";
  EXPECT_THAT(why_not(kCpu, better, {}), IsEmpty());
}

TEST(WhyNot, EachFieldThatDiffersIsNamedWithBothValues) {  // C201, C203
  Platform target = kGpu;
  target.torch_version = "2.14.0";
  target.torch_git = "0badcafe";
  target.cpu = "x86-64-v4";
  target.gpu = "sm_100";
  target.cuda = "12.8";
  EXPECT_THAT(why_not(target, kCpu, {"avx512f", "avx512bw"}),
              ElementsAre("torch_version: made for 2.14.0, this process has 2.15.0",
                          "torch_git: made for 0badcafe, this process has d0f2af8b",
                          "cpu: made for x86-64-v4, this CPU (x86-64-v3) lacks avx512f, avx512bw",
                          "gpu: made for sm_100, this process has none", "cuda: made for 12.8, this process has none"));
}

TEST(TorchBuildOf, ReadsVersionAndRevision) {
  const TorchBuild build = torch_build(
      "PyTorch built with:\n  - GCC 13.3\n  - Build settings: BLAS_INFO=mkl, COMMIT_SHA=0123abcd, CXX_FLAGS= -DX, "
      "TORCH_VERSION=2.15.0, USE_CUDA=1, \n");
  EXPECT_EQ(build.version, "2.15.0");
  EXPECT_EQ(build.git, "0123abcd");
}

TEST(TorchBuildOf, SaysWhatItMisses) {
  try {
    torch_build("PyTorch built with:\n - Build settings: TORCH_VERSION=2.15.0, ");
    ADD_FAILURE();
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), ErrorCode::environment);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("COMMIT_SHA"), HasSubstr("TORCH_VERSION=2.15.0")));
  }
}

}  // namespace
}  // namespace precast::platform
