#pragma once

#include "comm/transport.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace precast::test {

/// Forwards everything to the real transport of the job: a base for what goes wrong on the way, and for counting.
class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(Transport& real) : real_(real) {}

  std::string_view name() const noexcept override { return real_.name(); }
  std::string_view launcher() const noexcept override { return real_.launcher(); }
  int rank() const noexcept override { return real_.rank(); }
  int size() const noexcept override { return real_.size(); }
  int local_rank() const noexcept override { return real_.local_rank(); }
  int local_size() const noexcept override { return real_.local_size(); }
  bool takes(const at::Tensor& tensor) const override { return real_.takes(tensor); }
  void broadcast(const at::Tensor& tensor, int root, Deadline deadline) override { real_.broadcast(tensor, root, deadline); }
  void all_reduce(const at::Tensor& tensor, Reduction reduction, Deadline deadline) override {
    real_.all_reduce(tensor, reduction, deadline);
  }
  void all_gather(const at::Tensor& out, const at::Tensor& in, Deadline deadline) override { real_.all_gather(out, in, deadline); }
  void barrier(Deadline deadline) override { real_.barrier(deadline); }
  std::string phase() const override { return real_.phase(); }
  void set_phase(std::string_view phase) override { real_.set_phase(phase); }
  c10::intrusive_ptr<c10d::ProcessGroup> process_group() override { return real_.process_group(); }
  void register_group(const std::string& name, const Partition& partition) override { real_.register_group(name, partition); }
  std::map<std::string, int> groups() const override { return real_.groups(); }

 private:
  Transport& real_;
};

/// Changes what the last rank receives by one broadcast: the n-th of bytes, or the n-th length.
class DamagingTransport final : public ForwardingTransport {
 public:
  using Damage = std::function<void(const at::Tensor& received)>;
  DamagingTransport(Transport& real, at::ScalarType dtype, int nth, Damage damage)
      : ForwardingTransport(real), dtype_(dtype), nth_(nth), damage_(std::move(damage)) {}

  void broadcast(const at::Tensor& tensor, int root, Deadline deadline) override {
    ForwardingTransport::broadcast(tensor, root, deadline);
    if (tensor.scalar_type() != dtype_ || nth_-- != 0) return;
    if (rank() == size() - 1) damage_(tensor);
  }

 private:
  at::ScalarType dtype_;
  int nth_;
  Damage damage_;
};

/// Keeps the number of elements of each all-reduce.
class CountingTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  void all_reduce(const at::Tensor& tensor, Reduction reduction, Deadline deadline) override {
    ForwardingTransport::all_reduce(tensor, reduction, deadline);
    reduced.push_back(tensor.numel());
  }

  std::vector<std::int64_t> reduced;
};

}  // namespace precast::test
