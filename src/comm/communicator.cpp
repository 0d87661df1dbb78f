#include "precast/communicator.h"

#include "comm/byte_collectives.h"
#include "comm/connect.h"
#include "comm/findings.h"
#include "comm/same_on_all_ranks.h"
#include "comm/single/single_transport.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <algorithm>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>

namespace precast {
namespace {

/// `tensor` as a transport takes it: itself, or a contiguous copy where the transport can reach it.
at::Tensor reachable(const Transport& transport, const at::Tensor& tensor) {
  const at::Tensor here = transport.takes(tensor) ? tensor : tensor.to(at::kCPU);
  return here.contiguous();
}

bool is_partition(const Partition& partition, int n_ranks) {
  std::vector<int> found;
  for (const std::vector<int>& ranks : partition) {
    if (ranks.empty()) return false;
    found.insert(found.end(), ranks.begin(), ranks.end());
  }
  std::ranges::sort(found);
  std::vector<int> expected(static_cast<std::size_t>(n_ranks));
  std::iota(expected.begin(), expected.end(), 0);
  return found == expected;
}

}  // namespace

void Verdict::throw_if_failed() const {
  if (!ok()) throw PrecompileError(code, text);
}

Communicator Communicator::from_environment(const CommunicatorOptions& options) {
  return Communicator(connect(options));
}

Communicator Communicator::single() {
  return Communicator(std::make_shared<SingleTransport>(JobEnvironment()));
}

Communicator::Communicator(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {}

int Communicator::rank() const noexcept {
  return transport_->rank();
}
int Communicator::size() const noexcept {
  return transport_->size();
}
int Communicator::local_rank() const noexcept {
  return transport_->local_rank();
}
int Communicator::local_size() const noexcept {
  return transport_->local_size();
}
std::string_view Communicator::launcher() const noexcept {
  return transport_->launcher();
}
std::string_view Communicator::transport() const noexcept {
  return transport_->name();
}

void Communicator::broadcast(std::vector<std::byte>& bytes, int root, Deadline deadline) const {
  if (size() > 1) broadcast_bytes(*transport_, bytes, root, deadline);
}

void Communicator::broadcast(const at::Tensor& tensor, int root, Deadline deadline) const {
  if (size() == 1 || tensor.numel() == 0) return;
  const at::NoGradGuard no_grad;
  const at::Tensor here = reachable(*transport_, tensor.detach());
  transport_->broadcast(here, root, deadline);
  if (rank() != root && here.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(here);
}

void Communicator::all_reduce(const at::Tensor& tensor, Reduction reduction, Deadline deadline) const {
  if (reduction == Reduction::avg && at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true))
    throw std::invalid_argument(fmt::format("all_reduce: expected a floating dtype for an average, found {}; use sum, then divide",
                                            c10::toString(tensor.scalar_type())));
  if (size() == 1 || tensor.numel() == 0) return;
  const at::NoGradGuard no_grad;
  const at::Tensor here = reachable(*transport_, tensor.detach());
  transport_->all_reduce(here, reduction, deadline);
  if (reduction == Reduction::avg) here.div_(size());
  if (here.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(here);
}

std::vector<std::vector<std::byte>> Communicator::all_gather(std::span<const std::byte> bytes, Deadline deadline) const {
  return all_gather_bytes(*transport_, bytes, deadline);
}

void Communicator::barrier(Deadline deadline) const {
  transport_->barrier(deadline);
}

Verdict Communicator::agree(const Finding& mine, Deadline deadline) const {
  const std::string text = write_finding(mine);
  std::vector<Finding> findings;
  for (const auto& bytes : all_gather(std::as_bytes(std::span(text)), deadline)) findings.push_back(read_finding(bytes));
  return join_findings(findings);
}

void Communicator::register_group(const std::string& name, Deadline deadline) const {
  std::vector<int> ranks(static_cast<std::size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  register_group(name, {ranks}, deadline);
}

void Communicator::register_group(const std::string& name, const std::vector<std::vector<int>>& partition,
                                  Deadline deadline) const {
  const auto phase = enter("register group");
  const std::string text = fmt::format("'{}' = {}", name, partition);
  same_on_all_ranks(*this, "register group", text, "give all ranks the same groups", deadline).throw_if_failed();
  if (!is_partition(partition, size()))
    throw PrecompileError(
        ErrorCode::environment,
        fmt::format("register group: expected lists that hold each of the ranks 0 to {} once, found {}", size() - 1, text));
  Finding mine;
  if (c10d::is_process_group_registered(name) && !groups().contains(name))
    mine = {ErrorCode::environment,
            fmt::format("register group: '{}' is the name of another group of this process; choose another name", name)};
  agree(mine, deadline).throw_if_failed();
  transport_->register_group(name, partition);
}

std::map<std::string, int> Communicator::groups() const {
  return transport_->groups();
}

Communicator::PhaseGuard::PhaseGuard(std::shared_ptr<Transport> transport, std::string_view phase)
    : transport_(std::move(transport)), previous_(transport_->phase()) {
  transport_->set_phase(phase);
}

Communicator::PhaseGuard::~PhaseGuard() {
  transport_->set_phase(previous_);
}

}  // namespace precast
