#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

namespace precast::test {

/// Bytes of tensors, beyond those there before, that this thread holds at most while `work` runs, as LibTorch's allocators report
/// them to its profiler. Unlike resident memory it does not depend on what malloc keeps.
template <class Work>
std::int64_t peak_tensor_bytes(Work&& work) {
  struct Counter : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
      held += bytes;
      peak = std::max(peak, held);
    }
    bool memoryProfilingEnabled() const override { return true; }

    std::int64_t held = 0, peak = 0;
  };
  const auto counter = std::make_shared<Counter>();
  {
    const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, counter);
    std::forward<Work>(work)();
  }
  return counter->peak;
}

}  // namespace precast::test
