#include "precast/compile_on_one_rank.h"

#include "runtime/equal_values.h"
#include "runtime/load.h"
#include "runtime/pair_broadcast.h"
#include "runtime/precompile.h"
#include "runtime/rank_description.h"

#include <fmt/format.h>

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
using runtime::header_of;
using runtime::PairHeader;
using runtime::read_header;
using runtime::write_header;

constexpr int kLeader = 0;

/// Adds the seconds until its end to one phase of the report, and names the phase to the communicator.
class Phase {
 public:
  Phase(const Communicator& comm, CompileReport& report, const std::string& name)
      : guard_(comm.enter(name)), seconds_(report.phases[name]) {}
  ~Phase() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  Communicator::PhaseGuard guard_;
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

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

/// The header on every rank. A damaged one is a finding, so that the ranks decide together.
PairHeader exchange_header(const Communicator& comm, const PairHeader& mine, Deadline deadline) {
  std::vector<std::byte> bytes = comm.rank() == kLeader ? bytes_of(write_header(mine)) : std::vector<std::byte>();
  comm.broadcast(bytes, kLeader, deadline);
  Finding finding;
  PairHeader header;
  try {
    header = read_header(text_of(bytes));
  } catch (const std::runtime_error& error) {
    finding = {ErrorCode::artifact_mismatch,
               fmt::format("broadcast: the header of the pair is damaged: {}; compile again", error.what())};
  }
  comm.agree(finding, deadline).throw_if_failed();
  return header;
}

Artifact exchange_pair(const Communicator& comm, Artifact mine, Deadline deadline) {
  std::vector<std::byte> code = bytes_of(mine.python_code);
  comm.broadcast(code, kLeader, deadline);
  comm.broadcast(mine.cache, kLeader, deadline);
  if (comm.rank() != kLeader) mine.python_code = text_of(code);
  return mine;
}

std::shared_ptr<detail::StepRunner> prime(const Communicator& comm, const Artifact& artifact, Deadline deadline) {
  std::shared_ptr<detail::StepRunner> runner;
  Finding finding;
  try {
    runner = load_trusted(artifact);
  } catch (const PrecompileError& error) {
    finding = {error.code(), fmt::format("prime: {}", error.what())};
  } catch (const std::exception& error) {  // out of memory, or LibTorch: the other ranks wait for word of it all the same
    finding = {ErrorCode::internal, fmt::format("prime: {}", error.what())};
  }
  comm.agree(finding, deadline).throw_if_failed();
  return runner;
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
    header = exchange_header(comm, captured.header, after(options.compile_deadline));
  }
  if (captured.exception) std::rethrow_exception(captured.exception);
  if (!header.failure.ok()) throw PrecompileError(header.failure.code, header.failure.text);

  Artifact artifact;
  {
    const Phase phase(comm, *report, "broadcast");
    artifact = exchange_pair(comm, std::move(captured.artifact), after(options.collective_deadline));
  }
  {
    const Phase phase(comm, *report, "verify");
    Finding finding = check_pair(artifact, header);
    if (!finding.ok()) finding.text = "verify: " + finding.text;
    comm.agree(finding, after(options.collective_deadline)).throw_if_failed();
  }
  std::shared_ptr<StepRunner> runner;
  {
    const Phase phase(comm, *report, "prime");
    runner = prime(comm, artifact, after(options.collective_deadline));
  }
  report->phases.try_emplace("capture", 0.0);
  report->phases.try_emplace("lower", 0.0);
  report->code_hash = header.code_digest;
  report->code_bytes = artifact.python_code.size();
  report->cache_bytes = artifact.cache.size();
  return std::make_shared<JobStep>(comm, std::move(runner), options.collective_deadline);
}

}  // namespace precast
