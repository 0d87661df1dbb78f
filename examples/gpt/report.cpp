#include "report.h"

#include "error.h"
#include "files.h"

#include <sys/resource.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace gpt {
namespace {

using nlohmann::json;

double peak_rss_mb() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

json quantiles(std::vector<double> values) {
  if (values.empty()) return {{"median", nullptr}, {"min", nullptr}, {"p95", nullptr}};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {  // the nearest rank: a value that was measured
    return values[static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size()))) - 1];
  };
  return {{"median", at(0.5)}, {"min", values.front()}, {"p95", at(0.95)}};
}

/// What differs from rank to rank.
json rank_part(const JobRecord& record) {
  json phases = {{"capture", 0.0}, {"lower", 0.0}, {"broadcast", 0.0}, {"verify", 0.0}, {"prime", 0.0}};
  for (const auto& [phase, seconds] : record.train.phases) phases[phase] = seconds;
  phases["init"] = record.init_s;
  phases["first_step"] = record.first_step_s;
  return {{"captures", record.train.captures},
          {"lowerings", record.train.lowerings},
          {"eval_captures", record.eval.captures},
          {"code_hash", record.train.code_hash},
          {"phases", phases},
          {"peak_rss_mb", peak_rss_mb()}};
}

std::vector<json> gather(const precast::Communicator& comm, const Config& config, const json& mine) {
  const std::string text = mine.dump();
  std::vector<json> parts;
  for (const auto& bytes :
       comm.all_gather(std::as_bytes(std::span(text)), precast::after(std::chrono::seconds(config.deadline.collective)))) {
    const auto* begin = reinterpret_cast<const char*>(bytes.data());
    parts.push_back(json::parse(begin, begin + bytes.size()));
  }
  return parts;
}

json combine(const precast::Communicator& comm, const Config& config, const JobRecord& mine, const std::vector<json>& parts) {
  json out = {{"world_size", comm.size()},
              {"launcher", comm.launcher()},
              {"transport", {{"broadcast", comm.transport()}, {"collectives", comm.transport()}}},
              {"backend", config.backend},
              {"code_hash", mine.train.code_hash},
              {"code_bytes", mine.train.code_bytes},
              {"cache_bytes", mine.train.cache_bytes},
              {"captures", 0},
              {"lowerings", 0},
              {"digests", json::array()},
              {"losses", mine.curve.losses},
              {"eval_losses", mine.curve.eval_losses},
              {"eval_captures", 0},
              {"phases", json::object()},
              {"step_ms", quantiles(mine.step_ms)},
              {"tokens_per_s", mine.tokens_per_s},
              {"peak_rss_mb", json::array()}};
  for (const json& part : parts) {
    for (const char* count : {"captures", "lowerings", "eval_captures"})
      out[count] = out[count].get<int>() + part.at(count).get<int>();
    out["digests"].push_back(part.at("code_hash"));
    out["peak_rss_mb"].push_back(part.at("peak_rss_mb"));
    for (const auto& [phase, seconds] : part.at("phases").items())
      out["phases"][phase] = std::max(out["phases"].value(phase, 0.0), seconds.get<double>());
  }
  if (mine.eager) {
    out["eager_losses"] = mine.eager->losses;
    out["max_abs_grad_diff"] = mine.eager->max_abs_grad_diff;
    out["eager_step_ms"] = quantiles(mine.eager->step_ms);
  }
  return out;
}

}  // namespace

void write_report(const std::filesystem::path& file, const precast::Communicator& comm, const Config& config,
                  const JobRecord& mine) {
  const std::vector<json> parts = gather(comm, config, rank_part(mine));
  together(comm, std::chrono::seconds(config.deadline.collective), [&] {
    if (comm.rank() != 0) return;
    const std::string text = combine(comm, config, mine, parts).dump(2) + "\n";
    write_atomically(file, std::as_bytes(std::span(text)));
  });
}

}  // namespace gpt
