#include "comm/environment.h"

#include "precast/error.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace precast {

namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw PrecompileError(ErrorCode::environment, "environment: " + text);
}

int parse(std::string_view name, std::string_view text, int lowest) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < lowest)
    refuse(fmt::format("{}={}: expected a whole number of at least {}", name, text, lowest));
  return value;
}

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  [[nodiscard]] bool has(std::string_view name) const { return variables_.contains(name); }
  [[nodiscard]] std::string text(std::string_view name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? std::string() : found->second;
  }
  [[nodiscard]] std::optional<int> number(std::string_view name, int lowest) const {
    const auto found = variables_.find(name);
    if (found == variables_.end()) return std::nullopt;
    return parse(name, found->second, lowest);
  }
  [[nodiscard]] std::string shown(std::string_view name) const {
    return has(name) ? fmt::format("{}={}", name, text(name)) : fmt::format("{} not set", name);
  }

 private:
  const Variables& variables_;
};

/// The variables by which one launcher tells a process its place.
struct Names {
  std::string_view launcher;
  std::string_view rank;
  std::string_view size;
  std::string_view local_rank;
  std::string_view local_size;
};

constexpr Names kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi{"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kFlux{"flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", ""};
constexpr Names kSlurm{"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""};
constexpr Names kPmi{"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

void check_range(const Reader& reader, std::string_view rank_name, int rank, std::string_view size_name, int size) {
  if (rank >= size)
    refuse(fmt::format("{} and {} contradict each other: expected a rank below {}", reader.shown(rank_name),
                       reader.shown(size_name), size));
}

JobEnvironment read_place(const Reader& reader, const Names& names) {
  const auto rank = reader.number(names.rank, 0);
  const auto size = reader.number(names.size, 1);
  if (!rank || !size)
    refuse(fmt::format("{}, {}: only a part of what {} sets; set both, or unset both for one process", reader.shown(names.rank),
                       reader.shown(names.size), names.launcher));
  check_range(reader, names.rank, *rank, names.size, *size);
  JobEnvironment job;
  job.launcher = names.launcher;
  job.rank = *rank;
  job.size = *size;
  const auto local_rank = reader.number(names.local_rank, 0);
  const auto local_size = reader.number(names.local_size, 1);
  if (local_size && !local_rank)
    refuse(fmt::format("{}, {}: set both or neither", reader.shown(names.local_rank), reader.shown(names.local_size)));
  job.local_rank = local_rank.value_or(0);
  // A launcher that tells the local rank only leaves open how many share the node: at least those up to this one.
  job.local_size = local_size.value_or(job.local_rank + 1);
  if (local_size) check_range(reader, names.local_rank, job.local_rank, names.local_size, job.local_size);
  if (job.local_size > job.size)
    refuse(fmt::format("{} and {} contradict each other: a node holds more ranks than the job",
                       reader.shown(local_size ? names.local_size : names.local_rank), reader.shown(names.size)));
  return job;
}

/// "4(x2),3" is 4, 4 and 3 tasks on three nodes; the node's own index picks one.
std::optional<int> slurm_local_size(const Reader& reader) {
  std::string_view name = "SLURM_STEP_TASKS_PER_NODE";
  if (!reader.has(name)) name = "SLURM_TASKS_PER_NODE";
  const std::string text = reader.text(name);
  if (text.empty()) return std::nullopt;
  int node = reader.number("SLURM_NODEID", 0).value_or(0);
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const auto repeat = item.find("(x");
    const int tasks = parse(name, item.substr(0, repeat), 1);
    if (repeat != std::string_view::npos && item.back() != ')')
      refuse(fmt::format("{}={}: expected a form like 4(x2),3", name, text));
    const int nodes = repeat == std::string_view::npos ? 1 : parse(name, item.substr(repeat + 2, item.size() - repeat - 3), 1);
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

void read_master(const Reader& reader, JobEnvironment& job) {
  job.master_addr = reader.text("MASTER_ADDR");
  job.master_port = reader.number("MASTER_PORT", 1).value_or(0);
  if (job.master_port > 65535) refuse(fmt::format("MASTER_PORT={}: expected at most 65535", job.master_port));
  if (job.master_addr.empty() != (job.master_port == 0))
    refuse(fmt::format("{}, {}: set both or neither", reader.shown("MASTER_ADDR"), reader.shown("MASTER_PORT")));
}

bool has_torchrun(const Reader& reader) {
  return reader.has("RANK") || reader.has("WORLD_SIZE");
}

/// Users export RANK and WORLD_SIZE from their launcher's own variables; then both must say the same.
void check_same(const Reader& reader, const Names& names, const JobEnvironment& job) {
  if (!has_torchrun(reader)) return;
  if (reader.number(kTorchrun.rank, 0).value_or(job.rank) != job.rank)
    refuse(fmt::format("{} and {} contradict each other; unset one", reader.shown(kTorchrun.rank), reader.shown(names.rank)));
  if (reader.number(kTorchrun.size, 1).value_or(job.size) != job.size)
    refuse(fmt::format("{} and {} contradict each other; unset one", reader.shown(kTorchrun.size), reader.shown(names.size)));
}

JobEnvironment read_torchrun(const Reader& reader) {
  JobEnvironment job = read_place(reader, kTorchrun);
  read_master(reader, job);
  if (job.size > 1 && job.master_addr.empty())
    refuse(fmt::format(
        "{} of {}, but MASTER_ADDR and MASTER_PORT are not set: they say where rank 0 is; start the ranks with torchrun",
        reader.shown("RANK"), reader.shown("WORLD_SIZE")));
  job.agent_store = reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  job.restart = reader.number("TORCHELASTIC_RESTART_COUNT", 0).value_or(0);
  return job;
}

JobEnvironment read_other(const Reader& reader, const Names& names) {
  JobEnvironment job = read_place(reader, names);
  check_same(reader, names, job);
  read_master(reader, job);
  return job;
}

JobEnvironment read_slurm(const Reader& reader) {
  // An allocation's task count is not the step's: `srun -n 2` inside `salloc -n 8`.
  Names names = kSlurm;
  if (reader.has("SLURM_STEP_NUM_TASKS")) names.size = "SLURM_STEP_NUM_TASKS";
  JobEnvironment job = read_other(reader, names);
  if (const auto local_size = slurm_local_size(reader)) {
    if (job.local_rank >= *local_size)
      refuse(fmt::format(
          "{} and {} contradict each other", reader.shown("SLURM_LOCALID"),
          reader.shown(reader.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE")));
    job.local_size = *local_size;
  }
  return job;
}

}  // namespace

JobEnvironment job_environment(const Variables& variables) {
  const Reader reader(variables);
  if (reader.has("TORCHELASTIC_RUN_ID")) return read_torchrun(reader);
  if (reader.has(kOpenMpi.rank) || reader.has(kOpenMpi.size)) return read_other(reader, kOpenMpi);
  if (reader.has(kFlux.rank)) return read_other(reader, kFlux);
  // Outside a step (in a batch script) Slurm's variables describe the allocation, not this process.
  if (reader.has("SLURM_STEP_ID") && (reader.has(kSlurm.rank) || reader.has(kSlurm.size))) return read_slurm(reader);
  if (reader.has(kPmi.rank) || reader.has(kPmi.size)) return read_other(reader, kPmi);
  if (has_torchrun(reader)) return read_torchrun(reader);
  return {};
}

ThreadChoice choose_threads(const Variables& variables, const JobEnvironment& job, int requested, int cores) {
  if (requested < 0) refuse(fmt::format("threads = {}: expected a number of threads, or 0 for an automatic choice", requested));
  if (requested > 0) return {requested, "as requested"};
  const Reader reader(variables);
  if (const auto from_omp = reader.number("OMP_NUM_THREADS", 1)) {
    if (*from_omp == 1 && job.launcher == "torchrun")
      return {1, "OMP_NUM_THREADS=1, which torchrun sets where it is unset; set it, or threads, to use more cores"};
    return {*from_omp, fmt::format("OMP_NUM_THREADS={}", *from_omp)};
  }
  return {std::max(1, cores / job.local_size), fmt::format("{} cores for {} ranks on this node", cores, job.local_size)};
}

Variables process_variables() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

}  // namespace precast
