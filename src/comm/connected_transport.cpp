#include "comm/connected_transport.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

namespace precast {

namespace {

constexpr auto kLongestNap = std::chrono::milliseconds(1);
constexpr int kPollsBeforeNaps = 64;  // A collective among ranks that are all there ends within these.

}  // namespace

ConnectedTransport::ConnectedTransport(JobEnvironment job, const CommunicatorOptions& options)
    : job_(std::move(job)), collective_deadline_(options.collective_deadline), all_ranks_(static_cast<std::size_t>(job_.size)) {
  std::iota(all_ranks_.begin(), all_ranks_.end(), 0);
  if (options.handle_sigterm) sigterm_.emplace(job_.rank, job_.size);
}

std::string ConnectedTransport::phase() const {
  const std::lock_guard lock(mutex_);
  return phase_;
}

void ConnectedTransport::set_phase(std::string_view phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  if (sigterm_) sigterm_->set_phase(phase);
}

void ConnectedTransport::register_group(const std::string& name, const Partition& partition) {
  groups_.add(name, partition, [&] {
    if (partition.size() == 1 && partition[0] == all_ranks_) return process_group();
    const auto contains_me = [&](const std::vector<int>& ranks) { return std::ranges::find(ranks, rank()) != ranks.end(); };
    const auto list = std::ranges::find_if(partition, contains_me);
    const auto place = static_cast<int>(std::ranges::find(*list, rank()) - list->begin());
    try {
      return make_group(name, static_cast<int>(list - partition.begin()), *list, place);
    } catch (const std::exception& error) {
      const std::string text = error.what();
      give_up("connect", *list, text.substr(0, text.find('\n')));
    }
  });
}

void ConnectedTransport::begin_collective() {
  if (lost_) {
    const std::lock_guard lock(mutex_);
    throw PrecompileError(ErrorCode::lost_rank, loss_);
  }
  ++collectives_;
}

void ConnectedTransport::wait_for(std::string_view operation, const std::vector<int>& ranks, Deadline deadline,
                                  const std::function<bool()>& done) {
  std::string failure;
  auto nap = std::chrono::microseconds(10);
  for (int polls = 0;; ++polls) {
    try {
      if (done()) return;
    } catch (const std::exception& error) {  // The connection's own words become the cause; what is thrown is ours.
      failure = error.what();
    }
    if (!failure.empty()) give_up(operation, ranks, failure.substr(0, failure.find('\n')));
    if (std::chrono::steady_clock::now() >= deadline) give_up(operation, ranks, "the deadline passed");
    if (polls < kPollsBeforeNaps) {
      std::this_thread::yield();
      continue;
    }
    if (another_gave_up()) give_up(operation, {}, "another rank gave up");
    std::this_thread::sleep_for(nap);
    nap = std::min<std::chrono::microseconds>(nap * 2, kLongestNap);
  }
}

void ConnectedTransport::give_up(std::string_view operation, const std::vector<int>& waits_for, std::string_view cause) {
  const RankStatus mine{collectives_, phase(), waits_for};
  auto statuses = exchange_statuses(mine);
  const std::lock_guard lock(mutex_);
  loss_ = lost_ranks_text(job_.rank, mine, operation, cause, statuses);
  lost_ = true;
  throw PrecompileError(ErrorCode::lost_rank, loss_);
}

}  // namespace precast
