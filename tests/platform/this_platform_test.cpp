#include "platform/cpu.h"
#include "platform/platform.h"
#include "precast/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>

namespace precast::platform {
namespace {

TEST(ThisPlatform, IsTheLoadedLibTorchOnThisCpu) {
  const Platform platform = this_platform();
  EXPECT_EQ(platform.torch_version, TORCH_VERSION);
  EXPECT_EQ(platform.torch_git, PRECAST_WHEEL_GIT);  // torch/version.py of the wheel
  EXPECT_EQ(platform.cpu, best_level());
  EXPECT_EQ(platform.gpu, "");
  EXPECT_EQ(platform.cuda, "");
}

TEST(ThisPlatform, AGpuThatIsNotThereIsAnError) {
  const int beyond = static_cast<int>(torch::cuda::device_count());
  try {
    this_platform(beyond);
    ADD_FAILURE();
  } catch (const PrecompileError& error) {
    EXPECT_THAT(error.code(), ::testing::AnyOf(ErrorCode::environment, ErrorCode::not_built)) << error.what();
  }
}

TEST(ThisPlatform, NamesTheGpuAndLibTorchsCuda) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU here";
  const Platform platform = this_platform(0);
  EXPECT_THAT(platform.gpu, ::testing::MatchesRegex("sm_[0-9]+"));
  EXPECT_EQ(platform.cuda, PRECAST_WHEEL_CUDA);
}

}  // namespace
}  // namespace precast::platform
