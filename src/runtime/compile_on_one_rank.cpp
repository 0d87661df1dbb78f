#include "precast/compile_on_one_rank.h"

#include "base/log.h"
#include "runtime/equal_values.h"
#include "runtime/load.h"
#include "runtime/lowering.h"
#include "runtime/pair_broadcast.h"
#include "runtime/phase.h"
#include "runtime/precompile.h"
#include "runtime/rank_description.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace precast {
namespace {

using runtime::check_pair;
using runtime::compare_ranks;
using runtime::describe_rank;
using runtime::exchange_header;
using runtime::exchange_pair;
using runtime::header_of;
using runtime::PairHeader;
using runtime::Phase;

constexpr int kLeader = 0;

/// What the leader has to say after its capture: a pair, or a failure and the exception behind it.
struct Captured {
  Artifact artifact;
  PairHeader header;
  std::exception_ptr exception;
};

Captured capture_on_leader(const Communicator& comm, const detail::CallArguments& arguments, const std::function<Flat()>& fn,
                           const Options& options, CompileReport& report) {
  const Phase phase(comm, report, "capture");
  Captured captured;
  const auto fail = [&](ErrorCode code, const std::string& text) {
    captured.exception = std::current_exception();
    captured.header.failure = {code, fmt::format("rank {} of {}, capture: {}", kLeader, comm.size(), text)};
  };
  ++report.captures;
  // Whatever fn throws, the other ranks wait for word of it: the exception travels as text and is rethrown here once they have it.
  try {
    captured.artifact = capture_to_artifact(arguments, fn, options, comm.groups());
    captured.header = header_of(captured.artifact);
  } catch (const PrecompileError& error) {
    fail(error.code(), error.what());
  } catch (const std::exception& error) {
    fail(ErrorCode::refused_capture, error.what());
  } catch (...) {
    fail(ErrorCode::refused_capture, "fn threw an exception that is no std::exception");
  }
  return captured;
}

/// What one rank thinks of running the package, for all to know.
std::vector<std::string> gather_texts(const Communicator& comm, const std::string& mine, Deadline deadline) {
  std::vector<std::string> texts;
  for (const auto& bytes : comm.all_gather(std::as_bytes(std::span(mine)), deadline))
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return texts;
}

/// A rank that cannot run the package runs the program op by op, after a warning. Ranks that meet in collectives must issue them in
/// one order, which the compiler may have changed: there all ranks do so.
void leave_package_together(const Communicator& comm, const Artifact& artifact, LoadedStep& loaded, Deadline deadline) {
  const std::vector<std::string> reasons = gather_texts(comm, loaded.cache_not_used, deadline);
  const auto failed = std::ranges::find_if(reasons, [](const std::string& reason) { return !reason.empty(); });
  if (failed == reasons.end()) return;
  if (loaded.has_collectives) {
    if (comm.rank() == kLeader)
      warn(
          "prime: rank {} of {} cannot run the kernel package: {}; all ranks run the program op by op instead, with the same "
          "results",
          failed - reasons.begin(), comm.size(), *failed);
    if (!loaded.runs_eagerly) loaded.runner = load_eagerly(artifact);
  } else if (!loaded.cache_not_used.empty()) {
    warn("prime: rank {} of {} cannot run the kernel package: {}; it runs the program op by op instead, with the same results",
         comm.rank(), comm.size(), loaded.cache_not_used);
  }
}

std::shared_ptr<detail::StepRunner> prime(const Communicator& comm, const Artifact& artifact, Deadline deadline, bool has_package) {
  LoadedStep loaded;
  Finding finding;
  try {
    loaded = load_trusted(artifact, WithoutPackage::run_eagerly);
  } catch (const PrecompileError& error) {
    finding = {error.code(), fmt::format("prime: {}", error.what())};
  } catch (const std::exception& error) {  // out of memory, or LibTorch: the other ranks wait for word of it all the same
    finding = {ErrorCode::internal, fmt::format("prime: {}", error.what())};
  }
  comm.agree(finding, deadline).throw_if_failed();
  if (has_package) leave_package_together(comm, artifact, loaded, deadline);
  return std::move(loaded.runner);
}

/// Checks at its first run that the ranks start from equal values.
class JobStep final : public detail::StepRunner {
 public:
  JobStep(Communicator comm, std::shared_ptr<detail::StepRunner> step, std::chrono::milliseconds deadline)
      : comm_(std::move(comm)), step_(std::move(step)), deadline_(deadline) {}

  std::vector<Leaf> run(const detail::CallArguments& arguments) override {
    if (comm_.size() > 1) check_once(arguments);
    return step_->run(arguments);
  }
  [[nodiscard]] const TreeSpec& result_spec() const override { return step_->result_spec(); }
  [[nodiscard]] const Artifact& artifact() const override { return step_->artifact(); }

 private:
  /// A failed check is made again: the caller may have broadcast the module meanwhile.
  void check_once(const detail::CallArguments& arguments) {
    const std::lock_guard lock(mutex_);
    if (checked_) return;
    const auto phase = comm_.enter("first step");
    runtime::compare_values(comm_, arguments, after(deadline_)).throw_if_failed();
    checked_ = true;
  }

  Communicator comm_;
  std::shared_ptr<detail::StepRunner> step_;
  std::chrono::milliseconds deadline_;
  std::mutex mutex_;  // Guards checked_.
  bool checked_ = false;
};

}  // namespace

std::shared_ptr<detail::StepRunner> detail::compile_on_one_rank(const Communicator& comm, const CallArguments& arguments,
                                                                const std::function<Flat()>& fn, const Options& options,
                                                                CompileReport* report) {
  {
    const auto phase = comm.enter("agree on arguments");
    compare_ranks(comm, "agree on arguments", describe_rank(arguments, options), after(options.collective_deadline))
        .throw_if_failed();
  }
  check_names(options);  // of one rank alone would leave the others waiting for its description
  Captured captured;
  if (comm.rank() == kLeader) captured = capture_on_leader(comm, arguments, fn, options, *report);
  // The other ranks wait here while the leader captures, so the header has the long deadline.
  PairHeader header;
  {
    const auto phase = comm.enter("capture");
    header = exchange_header(comm, captured.header, kLeader, after(options.compile_deadline));
  }
  if (captured.exception) std::rethrow_exception(captured.exception);
  if (!header.failure.ok()) throw PrecompileError(header.failure.code, header.failure.text);

  Artifact artifact;
  {
    const Phase phase(comm, *report, "broadcast");
    artifact = exchange_pair(comm, std::move(captured.artifact), kLeader, after(options.collective_deadline));
  }
  {
    const Phase phase(comm, *report, "verify");
    comm.agree(check_pair(artifact, header), after(options.collective_deadline)).throw_if_failed();
  }
  bool has_package = false;
  if (options.backend == "inductor") {
    std::vector<std::byte> without_package = artifact.cache;
    artifact.cache = runtime::lower_once_per_platform(comm, artifact.python_code, options, *report);
    has_package = artifact.cache != without_package;
  }
  std::shared_ptr<StepRunner> runner;
  {
    const Phase phase(comm, *report, "prime");
    runner = prime(comm, artifact, after(options.collective_deadline), has_package);
  }
  report->phases.try_emplace("capture", 0.0);
  report->phases.try_emplace("lower", 0.0);
  report->code_hash = header.code_digest;
  report->code_bytes = artifact.python_code.size();
  report->cache_bytes = artifact.cache.size();
  return std::make_shared<JobStep>(comm, std::move(runner), options.collective_deadline);
}

}  // namespace precast
