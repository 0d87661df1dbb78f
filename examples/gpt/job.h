#pragma once

#include "config.h"

#include "precast/communicator.h"

#include <filesystem>

namespace gpt {

/// What the command line asks for besides the config. Empty paths: not asked for.
struct JobOptions {
  std::filesystem::path report, artifact;
  bool check_eager = false;
};

/// Trains from the first step (or the checkpoint's) to the last. Collective. Returns the exit code: 1 where --check eager found a
/// difference that must not be.
/// @throws AgreedError, precast::PrecompileError
int run_job(const precast::Communicator& comm, const Config& config, const JobOptions& options);

}  // namespace gpt
