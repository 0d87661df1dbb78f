#include "comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gpt {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

EagerComparison eager(std::vector<double> losses, double max_abs_grad_diff) {
  return {.losses = std::move(losses), .max_abs_grad_diff = max_abs_grad_diff};
}

TEST(Comparison, ExactCurvesPassToTheLastBitOnly) {
  const double next = std::nextafter(2.0, 3.0);
  EXPECT_TRUE(judge({3.0, 2.0}, eager({3.0, 2.0}, 0.0), true).passed);
  EXPECT_FALSE(judge({3.0, next}, eager({3.0, 2.0}, 0.0), true).passed);
  EXPECT_FALSE(judge({3.0, 2.0}, eager({3.0, 2.0}, 1e-30), true).passed);
}

TEST(Comparison, TheFirstStepThatDiffersIsNamed) {
  EXPECT_NE(judge({3.0, 2.1}, eager({3.0, 2.0}, 0.0), true).text.find("FAILED; losses differ from step 2"), std::string::npos);
}

TEST(Comparison, OtherKernelsMayBeTwoPercentApartInTheMean) {
  EXPECT_TRUE(judge({3.0, 2.05}, eager({3.0, 2.0}, 0.1), false).passed);
  EXPECT_FALSE(judge({3.0, 2.2}, eager({3.0, 2.0}, 0.1), false).passed);
}

TEST(Comparison, ANotANumberOnOneSideAloneFails) {
  EXPECT_TRUE(judge({3.0, kNan}, eager({3.0, kNan}, 0.0), true).passed);
  for (const bool exact : {true, false}) {
    EXPECT_FALSE(judge({3.0, kNan}, eager({3.0, 2.0}, 0.0), exact).passed);
    EXPECT_FALSE(judge({3.0, 2.0}, eager({3.0, kNan}, 0.0), exact).passed);
    EXPECT_FALSE(judge({3.0, 2.0}, eager({3.0, 2.0}, kNan), exact).passed);
  }
}

}  // namespace
}  // namespace gpt
