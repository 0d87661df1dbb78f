#pragma once

#include "checkpoint.h"
#include "comparison.h"
#include "config.h"

#include "precast/compile_on_one_rank.h"

#include <optional>
#include <vector>

namespace gpt {

/// What one rank knows about the job when it ends. The curve and the comparison are the same on every rank.
struct JobRecord {
  precast::CompileReport train, eval;
  double init_s = 0.0, first_step_s = 0.0;  ///< Since the process was started.
  Curve curve;
  std::vector<double> step_ms;
  double tokens_per_s = 0.0;
  std::optional<EagerComparison> eager;
};

/// Gathers what the ranks know and writes it on rank 0 as JSON, atomically. Collective; all ranks leave together.
void write_report(const std::filesystem::path& file, const precast::Communicator& comm, const Config& config,
                  const JobRecord& mine);

}  // namespace gpt
