#include "comm/mpi/mpi_transport.h"

#include "comm/connected_transport.h"
#include "comm/mpi/mpi_backend.h"
#include "comm/mpi/mpi_channel.h"
#include "comm/mpi/mpi_session.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <memory>
#include <thread>

namespace precast {
namespace {

using std::chrono::steady_clock;

constexpr int kStatusTag = 1;
constexpr auto kStatusTime = std::chrono::seconds(1);

MPI_Comm duplicate_of_world() {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return comm;
}

class MpiTransport final : public ConnectedTransport {
 public:
  MpiTransport(const JobEnvironment& job, const CommunicatorOptions& options)
      : ConnectedTransport(job, options),
        session_(MpiSession::get()),
        status_comm_(duplicate_of_world()),
        channel_(duplicate_of_world(), wait_among(all_ranks())) {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != job.size)
      throw PrecompileError(
          ErrorCode::environment,
          fmt::format("the launcher's variables say {} ranks ({}), MPI sees {}: start the program with the mpirun of the MPI "
                      "library that it was built with",
                      job.size, job.launcher, size));
  }

  ~MpiTransport() override {
    unregister_groups();
    if (lost()) {
      channel_.abandon();
      for (const auto& channel : sub_channels_) channel->abandon();
      session_.leave_unfinalized();
      return;
    }
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0) MPI_Comm_free(&status_comm_);
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "mpi"; }
  [[nodiscard]] bool takes(const at::Tensor& tensor) const override { return tensor.device().is_cpu(); }

  void broadcast(const at::Tensor& tensor, int root, Deadline deadline) override {
    begin_collective();
    channel_.broadcast(tensor, root, deadline);
  }
  void all_reduce(const at::Tensor& tensor, Reduction reduction, Deadline deadline) override {
    begin_collective();
    channel_.all_reduce(tensor, reduction, deadline);
  }
  void all_gather(const at::Tensor& output, const at::Tensor& input, Deadline deadline) override {
    begin_collective();
    channel_.all_gather(output, input, deadline);
  }
  void barrier(Deadline deadline) override {
    begin_collective();
    channel_.barrier(deadline);
  }

  [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> process_group() override {
    if (group_) return group_;
    group_ = make_process_group(rank(), size(), channel_);
    return group_;
  }

 protected:
  // MPI's split knows no deadline. That all ranks are there is known from the exchange by which they agreed on the partition.
  c10::intrusive_ptr<c10d::ProcessGroup> make_group(const std::string&, int list, const std::vector<int>& ranks,
                                                    int place) override {
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(status_comm_, list, place, &comm), "MPI_Comm_split");
    sub_channels_.push_back(std::make_unique<MpiChannel>(comm, wait_among(ranks)));
    return make_process_group(place, static_cast<int>(ranks.size()), *sub_channels_.back());
  }

  bool another_gave_up() override {
    int waiting = 0;
    return MPI_Iprobe(MPI_ANY_SOURCE, kStatusTag, status_comm_, &waiting, MPI_STATUS_IGNORE) == MPI_SUCCESS && waiting != 0;
  }

  std::vector<std::optional<RankStatus>> exchange_statuses(const RankStatus& mine) override {
    std::vector<std::optional<RankStatus>> statuses(static_cast<std::size_t>(size()));
    statuses[static_cast<std::size_t>(rank())] = mine;
    sent_ = to_text(mine);
    for (int other = 0; other < size(); ++other) {
      // Never waited for: the text outlives the transport's last message, and a lost rank takes none.
      MPI_Request request = MPI_REQUEST_NULL;
      if (other != rank())
        MPI_Isend(sent_.data(), static_cast<int>(sent_.size()), MPI_BYTE, other, kStatusTag, status_comm_, &request);
    }
    const auto end = steady_clock::now() + kStatusTime;
    while (steady_clock::now() < end && std::ranges::any_of(statuses, [](const auto& status) { return !status.has_value(); })) {
      if (!receive_status(statuses)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return statuses;
  }

 private:
  Wait wait_among(const std::vector<int>& ranks) {
    return [this, ranks](std::string_view operation, Deadline deadline, const std::function<bool()>& done) {
      wait_for(operation, ranks, deadline, done);
    };
  }

  c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(int place, int size, MpiChannel& channel) {
    const auto store = c10::make_intrusive<c10d::HashStore>();  // c10d wants one; nothing is exchanged through it
    auto group = c10::make_intrusive<c10d::ProcessGroup>(store, place, size);
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                      c10::make_intrusive<MpiBackend>(
                          place, size, channel, [this] { begin_collective(); }, collective_deadline()));
    group->setGroupName("precast");
    return group;
  }

  bool receive_status(std::vector<std::optional<RankStatus>>& statuses) {
    int waiting = 0, length = 0;
    MPI_Status from;
    if (MPI_Iprobe(MPI_ANY_SOURCE, kStatusTag, status_comm_, &waiting, &from) != MPI_SUCCESS || waiting == 0) return false;
    MPI_Get_count(&from, MPI_BYTE, &length);
    std::string text(static_cast<std::size_t>(length), '\0');
    if (MPI_Recv(text.data(), length, MPI_BYTE, from.MPI_SOURCE, kStatusTag, status_comm_, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return false;
    statuses[static_cast<std::size_t>(from.MPI_SOURCE)] = status_from_text(text);
    return true;
  }

  MpiSession& session_;
  MPI_Comm status_comm_;
  MpiChannel channel_;
  std::vector<std::unique_ptr<MpiChannel>> sub_channels_;  // Of the groups of some ranks.
  std::string sent_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace

std::shared_ptr<Transport> connect_mpi(const JobEnvironment& job, const CommunicatorOptions& options) {
  return std::make_shared<MpiTransport>(job, options);
}

}  // namespace precast
