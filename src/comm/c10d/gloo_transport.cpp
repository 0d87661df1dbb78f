// The wheel has Gloo's code inside libtorch_cpu; its headers, which it lacks, serve for declarations only.
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO 1  // NOLINT(readability-identifier-naming): LibTorch's name
#endif
#include "comm/c10d/gloo_transport.h"

#include "comm/c10d/nccl_backend.h"
#include "comm/c10d/watched_backend.h"
#include "comm/connected_transport.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

namespace precast {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kStatusTime = std::chrono::seconds(1);
constexpr auto kStoreTime = milliseconds(500);     // for one answer of the store once a rank is lost
constexpr auto kBetweenLooks = milliseconds(100);  // at the store, while waiting in a collective
constexpr auto kGoodbyeTime = std::chrono::seconds(5);
constexpr const char* kLeaving = "leaving";         // how many ranks no longer wait for the others to come
constexpr auto kNcclTime = std::chrono::hours(24);  // NCCL's own watchdog ends the process: our deadlines come first

c10d::ReduceOp reduce_op(Reduction reduction) {
  switch (reduction) {
    case Reduction::max: return c10d::ReduceOp::MAX;
    case Reduction::min: return c10d::ReduceOp::MIN;
    case Reduction::avg:  // divided by the caller
    case Reduction::sum: break;
  }
  return c10d::ReduceOp::SUM;
}

c10::intrusive_ptr<c10d::Store> open_store(const JobEnvironment& job, const CommunicatorOptions& options) {
  c10d::TCPStoreOptions tcp;
  tcp.port = static_cast<std::uint16_t>(job.master_port);
  tcp.isServer = !job.agent_store && job.rank == 0;
  tcp.numWorkers = job.size;
  tcp.waitWorkers = false;
  tcp.timeout = options.init_deadline;
  auto store = c10::make_intrusive<c10d::TCPStore>(job.master_addr, tcp);
  // Ranks that torchrun started again must not meet keys of the ranks before them.
  // Nor may one connection of this process meet those of the one before.
  static std::atomic<int> connections = 0;
  return c10::make_intrusive<c10d::PrefixStore>(fmt::format("precast/{}/{}", job.restart, connections++), store);
}

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

/// Gloo's own words for a closed connection are long, and about its source files.
std::string plain_words(const std::exception& error) {
  const std::string text = first_line(error);
  const bool closed = text.find("Connection closed") != std::string::npos || text.find("Connection reset") != std::string::npos;
  return closed ? "the connection to another rank closed" : text;
}

/// What `call` returns; what it throws, in plain words.
template <class Call>
auto in_plain_words(const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    throw std::runtime_error(plain_words(error));
  }
}

/// The store may have ended with the rank or agent that hosted it: then there is nothing to hear, which is an answer too.
template <class T, class Ask>
T answered(T otherwise, const Ask& ask) {
  try {
    return ask();
  } catch (const std::exception&) {
    return otherwise;
  }
}

std::string arrival_key(int rank) {
  return fmt::format("here/{}", rank);
}

/// c10d's store, with what went wrong in words for the person who started the job.
c10::intrusive_ptr<c10d::Store> reach_store(const JobEnvironment& job, const CommunicatorOptions& options) {
  try {
    return open_store(job, options);
  } catch (const std::exception& error) {
    const std::string text = first_line(error);
    if (text.find("EADDRINUSE") != std::string::npos)
      throw PrecompileError(
          ErrorCode::environment,
          fmt::format(
              "rank {} of {}, connect: MASTER_PORT={} is used by another program, perhaps another job; set it to a free port",
              job.rank, job.size, job.master_port));
    throw PrecompileError(ErrorCode::lost_rank,
                          fmt::format("rank {} of {}, connect: expected rank 0 at {}:{} within {} s: {}", job.rank, job.size,
                                      job.master_addr, job.master_port, options.init_deadline.count() / 1000, text));
  }
}

/// Waits until all ranks have come, so that those who have not are named: Gloo itself would only say that it waited.
/// Where one gives up, all do; the rank that holds the store leaves last, or the others could not hear of it.
void await_all_ranks(c10d::Store& store, const JobEnvironment& job, const CommunicatorOptions& options) {
  const Deadline deadline = after(options.init_deadline);
  store.set(arrival_key(job.rank), "1");
  std::vector<int> missing(static_cast<std::size_t>(job.size));
  std::iota(missing.begin(), missing.end(), 0);
  while (true) {
    std::erase_if(missing, [&](int rank) { return store.check({arrival_key(rank)}); });
    if (missing.empty()) return;
    if (steady_clock::now() >= deadline || store.check({kLeaving})) break;
    std::this_thread::sleep_for(milliseconds(5));
  }
  store.add(kLeaving, 1);
  const auto n_here = job.size - static_cast<int>(missing.size());
  const Deadline end = after(kStatusTime);
  while (job.rank == 0 && !job.agent_store && store.add(kLeaving, 0) < n_here && steady_clock::now() < end)
    std::this_thread::sleep_for(milliseconds(5));
  throw PrecompileError(ErrorCode::lost_rank,
                        fmt::format("rank {} of {}, connect: expected all ranks at {}:{} within {} s; lost {} {}: did not come",
                                    job.rank, job.size, job.master_addr, job.master_port, options.init_deadline.count() / 1000,
                                    missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", ")));
}

/// CPU tensors go by Gloo. Where every rank has a GPU of its own, CUDA tensors go by NCCL.
class GlooTransport final : public ConnectedTransport {
 public:
  GlooTransport(const JobEnvironment& job, const CommunicatorOptions& options, c10::intrusive_ptr<c10d::Store> store)
      : ConnectedTransport(job, options), options_(options), store_(std::move(store)) {
    backend_ = make_gloo_backend(store_, job.rank, job.size);
    group_ = make_process_group(store_, job.rank, all_ranks(), backend_);
  }

  /// Collective: one rank without a usable GPU keeps all on Gloo.
  void use_nccl_if_all_can(const CommunicatorOptions& options) {
    const at::Tensor usable = at::full({1}, nccl_is_usable(job()) ? 1 : 0, at::kInt);
    all_reduce(usable, Reduction::min, after(options.init_deadline));
    if (usable.item<int>() == 0) return;
    nccl_ = make_nccl_backend(c10::make_intrusive<c10d::PrefixStore>("nccl", store_), rank(), size(), kNcclTime);
    group_->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL, nccl_);
  }

  ~GlooTransport() override {
    auto groups = unregister_groups();
    if (lost()) {
      for (auto& nccl : sub_nccl_) {
        nccl->abort();
        std::ignore = nccl.release();
      }
      if (nccl_) nccl_->abort();
      std::ignore = nccl_.release();
      // Gloo's threads may still wait for the lost rank, and its destructor for them: it stays until the process ends.
      for (auto& group : groups) std::ignore = group.release();
      std::ignore = group_.release();
      std::ignore = backend_.release();
      return;
    }
    say_goodbye();
  }

  [[nodiscard]] std::string_view name() const noexcept override { return nccl_ ? "nccl" : "gloo"; }
  [[nodiscard]] bool takes(const at::Tensor& tensor) const override { return tensor.is_cpu() || (nccl_ && tensor.is_cuda()); }

  void broadcast(const at::Tensor& tensor, int root, Deadline deadline) override {
    run("broadcast", deadline, [&](milliseconds left) {
      std::vector<at::Tensor> tensors = {tensor};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      options.timeout = time_of(tensor, left);
      return backend_of(tensor).broadcast(tensors, options);
    });
  }

  void all_reduce(const at::Tensor& tensor, Reduction reduction, Deadline deadline) override {
    run("all_reduce", deadline, [&](milliseconds left) {
      std::vector<at::Tensor> tensors = {tensor};
      c10d::AllreduceOptions options;
      options.reduceOp = reduce_op(reduction);
      options.timeout = time_of(tensor, left);
      return backend_of(tensor).allreduce(tensors, options);
    });
  }

  void all_gather(const at::Tensor& output, const at::Tensor& input, Deadline deadline) override {
    run("all_gather", deadline, [&](milliseconds left) {
      at::Tensor out = output, in = input;
      c10d::AllgatherOptions options;
      options.timeout = time_of(input, left);
      return backend_of(input).all_gather_single(out, in, options);
    });
  }

  // An all-reduce of one number: c10d's own Gloo barrier blocks inside its constructor of work, beyond our deadline.
  void barrier(Deadline deadline) override {
    const at::Tensor one = at::ones({1}, at::kInt);
    run("barrier", deadline, [&](milliseconds left) {
      std::vector<at::Tensor> tensors = {one};
      c10d::AllreduceOptions options;
      options.timeout = left;
      return backend_->allreduce(tensors, options);
    });
  }

  [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> process_group() override { return group_; }

 protected:
  bool another_gave_up() override {
    if (const auto now = steady_clock::now(); now < next_look_)
      return false;
    else
      next_look_ = now + kBetweenLooks;
    return answered(false, [&] { return store_->check({kGaveUp}); });
  }

  std::vector<std::optional<RankStatus>> exchange_statuses(const RankStatus& mine) override {
    std::vector<std::optional<RankStatus>> statuses(static_cast<std::size_t>(size()));
    statuses[static_cast<std::size_t>(rank())] = mine;
    store_->setTimeout(kStoreTime);
    const bool sent = answered(false, [&] {
      store_->set(status_key(rank()), to_text(mine));
      store_->set(kGaveUp, "1");
      return true;
    });
    if (!sent) return statuses;
    const auto end = steady_clock::now() + kStatusTime;
    while (steady_clock::now() < end && std::ranges::any_of(statuses, [](const auto& status) { return !status.has_value(); })) {
      for (int other = 0; other < size(); ++other) {
        auto& status = statuses[static_cast<std::size_t>(other)];
        if (!status) status = answered(std::optional<RankStatus>(), [&] { return read_status(other); });
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
    return statuses;
  }

  c10::intrusive_ptr<c10d::ProcessGroup> make_group(const std::string& name, int list, const std::vector<int>& ranks,
                                                    int place) override {
    const auto size = static_cast<int>(ranks.size());
    const auto store = c10::make_intrusive<c10d::PrefixStore>(fmt::format("group/{}/{}", name, list), store_);
    const auto gloo = in_plain_words([&] { return make_gloo_backend(store, place, size); });
    auto group = make_process_group(store, place, ranks, gloo);
    if (nccl_) {
      sub_nccl_.push_back(make_nccl_backend(c10::make_intrusive<c10d::PrefixStore>("nccl", store), place, size, kNcclTime));
      group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL, sub_nccl_.back());
    }
    return group;
  }

 private:
  static constexpr const char* kGaveUp = "gave-up";

  [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroupGloo> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                                             int size) const {
    auto gloo = c10d::ProcessGroupGloo::Options::create(options_.init_deadline);
    gloo->devices.push_back(options_.network_interface.empty()
                                ? c10d::ProcessGroupGloo::createDefaultDevice()
                                : c10d::ProcessGroupGloo::createDeviceForInterface(options_.network_interface));
    auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, gloo);
    backend->setTimeout(options_.collective_deadline);
    return backend;
  }

  /// @param place  of this rank among `ranks`.
  c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(const c10::intrusive_ptr<c10d::Store>& store, int place,
                                                            const std::vector<int>& ranks,
                                                            const c10::intrusive_ptr<c10d::ProcessGroupGloo>& backend) {
    auto group = c10::make_intrusive<c10d::ProcessGroup>(store, place, static_cast<int>(ranks.size()));
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                      c10::make_intrusive<WatchedBackend>(backend, watch_among(ranks)));
    group->setGroupName("precast");
    return group;
  }

  WatchedBackend::Watch watch_among(const std::vector<int>& ranks) {
    return {.begin = [this] { begin_collective(); },
            .wait =
                [this, ranks](std::string_view operation, const std::function<bool()>& done) {
                  wait_for(operation, ranks, after(collective_deadline()), [&] { return in_plain_words(done); });
                }};
  }

  [[nodiscard]] c10d::Backend& backend_of(const at::Tensor& tensor) const {
    return tensor.is_cuda() ? *nccl_ : static_cast<c10d::Backend&>(*backend_);
  }
  [[nodiscard]] static milliseconds time_of(const at::Tensor& tensor, milliseconds left) {
    return tensor.is_cuda() ? milliseconds(kNcclTime) : left;
  }

  static std::string status_key(int rank) { return fmt::format("status/{}", rank); }

  std::optional<RankStatus> read_status(int other) {
    if (!store_->check({status_key(other)})) return std::nullopt;
    const auto bytes = store_->get(status_key(other));
    return status_from_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  template <class Start>
  void run(std::string_view operation, Deadline deadline, const Start& start) {
    begin_collective();
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    c10::intrusive_ptr<c10d::Work> work;
    const auto done = [&] {
      if (!work) work = start(std::max(left, milliseconds(1)));
      if (!work->isCompleted()) return false;
      if (!work->isSuccess()) std::rethrow_exception(work->exception());
      work->synchronize();  // The caller's CUDA stream goes on after it.
      return true;
    };
    wait_for(operation, all_ranks(), deadline, [&] { return in_plain_words(done); });
  }

  /// Where a rank hosts the store, it leaves last: the others say goodbye, it waits for them.
  void say_goodbye() {
    if (job().agent_store) return;
    try {
      const std::string key = "goodbye";
      store_->add(key, 1);
      const auto end = steady_clock::now() + kGoodbyeTime;
      while (rank() == 0 && store_->add(key, 0) < size() && steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(2));
    } catch (const std::exception&) {
      // A destructor at the end of a job: whoever is gone already needs no goodbye.
    }
  }

  CommunicatorOptions options_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> backend_;
  c10::intrusive_ptr<c10d::Backend> nccl_;                   // Null: not used.
  std::vector<c10::intrusive_ptr<c10d::Backend>> sub_nccl_;  // Of the groups of some ranks.
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  steady_clock::time_point next_look_ = steady_clock::now();
};

}  // namespace

std::shared_ptr<Transport> connect_gloo(const JobEnvironment& job, const CommunicatorOptions& options) {
  const auto store = reach_store(job, options);
  try {
    await_all_ranks(*store, job, options);
    auto transport = std::make_shared<GlooTransport>(job, options, store);
    transport->use_nccl_if_all_can(options);
    return transport;
  } catch (const PrecompileError&) {
    throw;
  } catch (const std::exception& error) {
    throw PrecompileError(ErrorCode::lost_rank, fmt::format("rank {} of {}, connect: a rank that came was lost: {}", job.rank,
                                                            job.size, plain_words(error)));
  }
}

}  // namespace precast
