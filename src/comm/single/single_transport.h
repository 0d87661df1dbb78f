#pragma once

#include "comm/environment.h"
#include "comm/group_names.h"
#include "comm/transport.h"

namespace precast {

/// One process: every collective is already done. Functional collectives, which a program captured for several ranks holds, run on
/// a group of one that is made for the first name registered.
class SingleTransport final : public Transport {
 public:
  explicit SingleTransport(JobEnvironment job) : job_(std::move(job)) {}
  ~SingleTransport() override { groups_.unregister(); }

  [[nodiscard]] std::string_view name() const noexcept override { return "single"; }
  [[nodiscard]] std::string_view launcher() const noexcept override { return job_.launcher; }
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 1; }
  [[nodiscard]] int local_rank() const noexcept override { return 0; }
  [[nodiscard]] int local_size() const noexcept override { return 1; }
  [[nodiscard]] bool takes(const at::Tensor&) const override { return true; }
  void broadcast(const at::Tensor&, int, Deadline) override {}
  void all_reduce(const at::Tensor&, Reduction, Deadline) override {}
  void all_gather(const at::Tensor& output, const at::Tensor& input, Deadline) override { output.view_as(input).copy_(input); }
  void barrier(Deadline) override {}
  [[nodiscard]] std::string phase() const override { return phase_; }
  void set_phase(std::string_view phase) override { phase_ = phase; }
  [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> process_group() override;
  void register_group(const std::string& name, const Partition& partition) override {
    groups_.add(name, partition, [this] { return process_group(); });
  }
  [[nodiscard]] std::map<std::string, int> groups() const override { return groups_.sizes(); }

 private:
  JobEnvironment job_;
  std::string phase_ = "start";
  GroupNames groups_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace precast
