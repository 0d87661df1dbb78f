#include "comm/connected_transport.h"

#include <algorithm>
#include <thread>

namespace precast {

namespace {

constexpr auto kLongestNap = std::chrono::milliseconds(1);
constexpr int kPollsBeforeNaps = 64;  // A collective among ranks that are all there ends within these.

}  // namespace

ConnectedTransport::ConnectedTransport(JobEnvironment job, const CommunicatorOptions& options)
    : job_(std::move(job)), collective_deadline_(options.collective_deadline) {
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

void ConnectedTransport::begin_collective() {
  if (lost_) {
    const std::lock_guard lock(mutex_);
    throw PrecompileError(ErrorCode::lost_rank, loss_);
  }
  ++collectives_;
}

void ConnectedTransport::wait_for(std::string_view operation, Deadline deadline, const std::function<bool()>& done) {
  std::string failure;
  auto nap = std::chrono::microseconds(10);
  for (int polls = 0;; ++polls) {
    try {
      if (done()) return;
    } catch (const std::exception& error) {  // The connection's own words become the cause; what is thrown is ours.
      failure = error.what();
    }
    if (!failure.empty()) give_up(operation, failure.substr(0, failure.find('\n')));
    if (std::chrono::steady_clock::now() >= deadline) give_up(operation, "the deadline passed");
    if (polls < kPollsBeforeNaps) {
      std::this_thread::yield();
      continue;
    }
    if (another_gave_up()) give_up(operation, "another rank gave up");
    std::this_thread::sleep_for(nap);
    nap = std::min<std::chrono::microseconds>(nap * 2, kLongestNap);
  }
}

void ConnectedTransport::give_up(std::string_view operation, std::string_view cause) {
  const RankStatus mine{collectives_, phase()};
  auto statuses = exchange_statuses(mine);
  const std::lock_guard lock(mutex_);
  loss_ = lost_ranks_text(job_.rank, mine, operation, cause, statuses);
  lost_ = true;
  throw PrecompileError(ErrorCode::lost_rank, loss_);
}

}  // namespace precast
