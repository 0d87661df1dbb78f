#include "comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace gpt {
namespace {

bool same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

/// Mean distance of the curves as a share of eager's mean loss; NaN where one has a NaN that the other has not.
double distance(const std::vector<double>& losses, const std::vector<double>& eager) {
  double apart = 0.0, level = 0.0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (same(losses[i], eager[i])) continue;
    apart += std::abs(losses[i] - eager[i]);
  }
  for (const double loss : eager)
    if (std::isfinite(loss)) level += std::abs(loss);
  return apart == 0.0 ? 0.0 : apart / level;
}

}  // namespace

CheckVerdict judge(const std::vector<double>& losses, const EagerComparison& eager, bool exact) {
  constexpr double kTolerance = 0.02;
  const auto difference = std::mismatch(losses.begin(), losses.end(), eager.losses.begin(), same).first;
  const bool equal = difference == losses.end();
  const double apart = distance(losses, eager.losses);
  const bool passed = exact ? equal && eager.max_abs_grad_diff == 0.0 : apart <= kTolerance && !std::isnan(eager.max_abs_grad_diff);
  return {passed,
          fmt::format("check eager: {}; {} over {} steps, largest difference of a gradient {:g}", passed ? "passed" : "FAILED",
                      equal ? std::string("losses equal to the last bit")
                            : fmt::format("losses differ from step {}, by {:.2g} % in the mean,", difference - losses.begin() + 1,
                                          100.0 * apart),
                      losses.size(), eager.max_abs_grad_diff)};
}

}  // namespace gpt
