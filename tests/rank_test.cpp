#include "rank_test.h"

#include "comm/connect.h"

#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <optional>
#include <string>

namespace precast::rank_test {
namespace {

struct Job {
  std::shared_ptr<Transport> transport;
  std::optional<Communicator> communicator;
};

Job& job() {
  static Job instance;
  return instance;
}

/// Keeps a failure inside its own test: no rank goes on while another still runs the last one.
class BarrierAfterEachTest : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo&) override { communicator().barrier(after(kTime)); }
};

/// Other ranks than 0 say only what failed.
class FailuresOfOtherRanks : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override { test_ = std::string(test.test_suite_name()) + "." + test.name(); }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::cerr << "rank " << communicator().rank() << ": " << test_ << ": "
              << (result.file_name() != nullptr ? result.file_name() : "?") << ":" << result.line_number() << "\n"
              << result.summary() << std::endl;
  }

  std::string test_;  // GoogleTest holds its lock here, under which it would also look up the current test.
};

}  // namespace

const Communicator& communicator() {
  return *job().communicator;
}

Transport& transport() {
  return *job().transport;
}

}  // namespace precast::rank_test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  auto& job = precast::rank_test::job();
  job.transport = precast::connect({});
  job.communicator.emplace(job.transport);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (job.communicator->rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new precast::rank_test::FailuresOfOtherRanks);
  }
  listeners.Append(new precast::rank_test::BarrierAfterEachTest);
  const int failed = RUN_ALL_TESTS();
  job = {};
  return failed;
}
