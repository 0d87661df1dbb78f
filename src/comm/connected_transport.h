#pragma once

#include "comm/environment.h"
#include "comm/group_names.h"
#include "comm/lost_ranks.h"
#include "comm/sigterm.h"
#include "comm/transport.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

namespace precast {

/// What the transports of several ranks share: place, phase, groups, and the way from a collective that does not end to one error
/// on every rank that is left.
class ConnectedTransport : public Transport {
 public:
  ConnectedTransport(JobEnvironment job, const CommunicatorOptions& options);

  [[nodiscard]] std::string_view launcher() const noexcept override { return job_.launcher; }
  [[nodiscard]] int rank() const noexcept override { return job_.rank; }
  [[nodiscard]] int size() const noexcept override { return job_.size; }
  [[nodiscard]] int local_rank() const noexcept override { return job_.local_rank; }
  [[nodiscard]] int local_size() const noexcept override { return job_.local_size; }
  [[nodiscard]] std::string phase() const override;
  void set_phase(std::string_view phase) override;
  void register_group(const std::string& name, const Partition& partition) override;
  [[nodiscard]] std::map<std::string, int> groups() const override { return groups_.sizes(); }

  /// How long a functional collective may take.
  [[nodiscard]] std::chrono::milliseconds collective_deadline() const noexcept { return collective_deadline_; }

  /// Calls `done` until it returns true, with naps that grow to a millisecond, so that a waiting rank leaves its core to others.
  /// At the deadline, when `done` throws, and when another rank gave up, throws PrecompileError lost_rank (see give_up).
  /// @param ranks  the group that must come, this rank among them.
  void wait_for(std::string_view operation, const std::vector<int>& ranks, Deadline deadline, const std::function<bool()>& done);
  [[nodiscard]] const std::vector<int>& all_ranks() const noexcept { return all_ranks_; }
  /// Throws the error of an earlier loss, if there was one; else counts one more collective.
  void begin_collective();
  [[nodiscard]] bool lost() const noexcept { return lost_; }

 protected:
  /// Tells the others that this rank gives up, hears from them for up to a second, and throws. From then on lost().
  /// @param waits_for  as RankStatus::waits_for.
  [[noreturn]] void give_up(std::string_view operation, const std::vector<int>& waits_for, std::string_view cause);

  /// Whether another rank has given up. Called while waiting, a few times a millisecond at most.
  virtual bool another_gave_up() = 0;
  /// Sends `mine` to all ranks and returns what arrived from each within a second. Must not throw, and must not block for longer.
  virtual std::vector<std::optional<RankStatus>> exchange_statuses(const RankStatus& mine) = 0;
  /// The group of one list of a partition, in which this rank is number `place`. Collective, as register_group.
  /// @param list  its number in the partition.
  virtual c10::intrusive_ptr<c10d::ProcessGroup> make_group(const std::string& name, int list, const std::vector<int>& ranks,
                                                            int place) = 0;
  /// Before the groups end.
  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> unregister_groups() { return groups_.unregister(); }

  [[nodiscard]] const JobEnvironment& job() const noexcept { return job_; }

 private:
  JobEnvironment job_;
  std::chrono::milliseconds collective_deadline_;
  std::vector<int> all_ranks_;
  mutable std::mutex mutex_;  // Guards phase_ and loss_.
  std::string phase_ = "start";
  std::string loss_;
  GroupNames groups_;
  std::atomic<bool> lost_ = false;
  std::atomic<std::uint64_t> collectives_ = 0;
  std::optional<SigtermNotice> sigterm_;
};

}  // namespace precast
