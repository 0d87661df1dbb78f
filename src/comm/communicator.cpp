#include "precast/communicator.h"

#include "comm/connect.h"
#include "comm/findings.h"
#include "comm/single/single_transport.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace precast {
namespace {

constexpr std::int64_t kChunkBytes = std::int64_t{1} << 30;  // MPI counts are ints
constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;   // a length beyond this is damage, not data

/// `tensor` as a transport takes it: itself, or a contiguous copy where the transport can reach it.
at::Tensor reachable(const Transport& transport, const at::Tensor& tensor) {
  const at::Tensor here = transport.takes(tensor) ? tensor : tensor.to(at::kCPU);
  return here.contiguous();
}

at::Tensor as_tensor(std::span<std::byte> bytes) {
  return at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, at::TensorOptions(at::kByte));
}

/// One number of each rank, by rank.
std::vector<std::int64_t> all_gather_number(Transport& transport, std::int64_t mine, Deadline deadline) {
  const at::Tensor out = at::empty({transport.size()}, at::kLong);
  transport.all_gather(out, at::full({1}, mine, at::kLong), deadline);
  const auto* numbers = out.const_data_ptr<std::int64_t>();
  return {numbers, numbers + out.numel()};
}

/// Root's length, once all ranks have heard the same.
std::int64_t agree_on_length(Transport& transport, std::int64_t mine, int root, Deadline deadline) {
  const at::Tensor length = at::full({1}, mine, at::kLong);
  transport.broadcast(length, root, deadline);
  const auto heard = all_gather_number(transport, length.item<std::int64_t>(), deadline);
  const std::int64_t expected = heard[static_cast<std::size_t>(root)];
  for (int rank = 0; rank < transport.size(); ++rank) {
    const std::int64_t found = heard[static_cast<std::size_t>(rank)];
    if (found != expected || found < 0 || found > kMostBytes)
      throw PrecompileError(
          ErrorCode::artifact_mismatch,
          fmt::format("rank {} of {}, {}: a broadcast announced {} bytes, rank {} sent {}; the transfer was damaged, try again",
                      rank, transport.size(), transport.phase(), found, root, expected));
  }
  return expected;
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
  if (size() == 1) return;
  try {
    const auto length =
        static_cast<std::size_t>(agree_on_length(*transport_, static_cast<std::int64_t>(bytes.size()), root, deadline));
    if (rank() != root) bytes.assign(length, std::byte{0});
    for (std::size_t start = 0; start < length; start += kChunkBytes) {
      const std::size_t n = std::min<std::size_t>(kChunkBytes, length - start);
      transport_->broadcast(as_tensor(std::span(bytes).subspan(start, n)), root, deadline);
    }
  } catch (const PrecompileError&) {
    if (rank() != root) bytes.clear();
    throw;
  }
}

void Communicator::broadcast(const at::Tensor& tensor, int root, Deadline deadline) const {
  if (size() == 1 || tensor.numel() == 0) return;
  const at::NoGradGuard no_grad;
  const at::Tensor here = reachable(*transport_, tensor.detach());
  transport_->broadcast(here, root, deadline);
  if (rank() != root && here.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(here);
}

void Communicator::all_reduce(const at::Tensor& tensor, Reduction reduction, Deadline deadline) const {
  if (size() == 1 || tensor.numel() == 0) return;
  const at::NoGradGuard no_grad;
  const at::Tensor here = reachable(*transport_, tensor.detach());
  transport_->all_reduce(here, reduction, deadline);
  if (here.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(here);
}

std::vector<std::vector<std::byte>> Communicator::all_gather(std::span<const std::byte> bytes, Deadline deadline) const {
  const auto lengths = all_gather_number(*transport_, static_cast<std::int64_t>(bytes.size()), deadline);
  const std::int64_t longest = std::ranges::max(lengths);
  std::vector<std::vector<std::byte>> all(lengths.size());
  if (longest == 0) return all;
  const at::Tensor mine = at::zeros({longest}, at::kByte), out = at::empty({longest * size()}, at::kByte);
  std::ranges::copy(bytes, static_cast<std::byte*>(mine.data_ptr()));
  transport_->all_gather(out, mine, deadline);
  const auto* gathered = static_cast<const std::byte*>(out.const_data_ptr());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::byte* start = gathered + static_cast<std::int64_t>(rank) * longest;
    all[rank].assign(start, start + lengths[rank]);
  }
  return all;
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

void Communicator::register_group(const std::string& name) const {
  transport_->register_group(name);
}

std::vector<std::string> Communicator::groups() const {
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
