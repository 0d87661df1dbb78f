#pragma once

#include "precast/options.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace gpt {

/// The job's settings. Names are those of the TOML keys; what each means is written in configs/gpt.toml.
struct Config {
  struct Data {
    std::string path = "${PRECAST_TORCH}";
    std::string glob = "**/*.py";
  } data;
  struct Model {
    std::int64_t layers = 4, width = 128, heads = 4;
    double dropout = 0.0;
    bool tied = true;
  } model;
  struct Train {
    std::int64_t steps = 1200, batch = 8, sequence = 128, accumulate = 1, seed = 1;
    std::string dtype = "float32";
  } train;
  struct Optimizer {
    double lr = 4e-3, min_lr = 2e-4;
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip = 1.0;
    std::int64_t warmup = 50, decay_steps = 1200;
  } optimizer;
  struct Evaluation {
    std::int64_t every = 200, batches = 16;
  } eval;
  struct Checkpoint {
    std::string path;
    std::int64_t every = 0;
    bool resume = false;
  } checkpoint;
  struct Deadline {
    std::int64_t compile = 600, collective = 60;
  } deadline;
  struct Network {
    std::string interface;
  } network;
  struct Mesh {
    std::int64_t dp = 0, tp = 0, replicate = 0, shard = 0;
  } mesh;
  std::string plan;
  std::string backend = "eager", fallback = "error";
  precast::InductorOptions inductor;
  std::int64_t threads = 0;
};

/// Reads a TOML file, then applies `key=value` overrides in their order; a value that is no TOML is a string. In data.path, ${NAME}
/// is replaced by the environment variable.
/// @throws JobError  unreadable file, syntax, unknown key, wrong type, value out of range: one line with key, expected, found.
Config read_config(const std::filesystem::path& file, const std::vector<std::string>& overrides);

/// The settings that decide the loss curve, as text: a resumed run must have the same.
std::map<std::string, std::string> curve_settings(const Config& config);

/// The settings that must be equal on all ranks, as text: all but those that say how one machine is used.
std::map<std::string, std::string> run_settings(const Config& config);

}  // namespace gpt
