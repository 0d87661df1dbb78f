// precast_gpt: trains a byte-level GPT whose step one rank captures and every rank runs. Started by torchrun --no-python, mpirun,
// srun, or alone; launcher/train is a comfortable way to do so.

#include "agreement.h"
#include "config.h"
#include "error.h"
#include "job.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <optional>

namespace {

struct CommandLine {
  std::string config_file;
  std::vector<std::string> overrides;
  std::string check;
  gpt::JobOptions options;
  std::string error;  ///< What is wrong with the command line itself.
};

void describe(CLI::App& app, CommandLine& line) {
  app.add_option("config", line.config_file, "TOML file, see configs/gpt.toml")->required();
  app.add_option("--set", line.overrides, "KEY=VALUE: overrides a key of the config; VALUE is TOML, else a string")
      ->expected(1)
      ->take_all();
  app.add_option("--report", line.options.report, "writes the job's report to this JSON file");
  app.add_option("--check", line.check, "eager: runs the same steps by LibTorch eager beside it and compares")
      ->check(CLI::IsMember({"eager"}));
  app.add_option("--save-artifact", line.options.artifact, "writes step.py and step.cache into this folder");
}

/// What all ranks must learn before they connect as the config says; an error travels over a connection of default settings.
struct Settings {
  std::optional<gpt::Config> config;
  std::string error;
};

Settings read_settings(const CommandLine& line) {
  if (!line.error.empty()) return {std::nullopt, line.error + "; see --help"};
  try {
    return {gpt::read_config(line.config_file, line.overrides), ""};
  } catch (const std::exception& error) {
    return {std::nullopt, gpt::one_line(error)};
  }
}

precast::Communicator connect(const Settings& settings) {
  precast::CommunicatorOptions options;
  if (settings.config) {
    options.collective_deadline = std::chrono::seconds(settings.config->deadline.collective);
    options.network_interface = settings.config->network.interface;
    options.threads = static_cast<int>(settings.config->threads);
  }
  return precast::Communicator::from_environment(options);
}

/// What each rank was told, where all must have been told the same.
std::map<std::string, std::string> orders(const gpt::Config& config, const gpt::JobOptions& options) {
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : gpt::run_settings(config)) out[fmt::format("config key '{}'", key)] = value;
  const auto add = [&](const char* option, bool given) { out[option] = given ? "given" : "not given"; };
  add("--check", options.check_eager);
  add("--report", !options.report.empty());
  add("--save-artifact", !options.artifact.empty());
  return out;
}

void print_error(const std::string& text) {
  std::fflush(stdout);
  fmt::print(stderr, "precast_gpt: {}\n", text);
}

int run(const CommandLine& line) {
  const Settings settings = read_settings(line);
  const precast::Communicator comm = connect(settings);
  try {
    const std::chrono::seconds deadline(settings.config ? settings.config->deadline.collective : 60);
    gpt::together(comm, deadline, [&] {
      if (!settings.config) throw gpt::JobError(settings.error);
    });
    gpt::require_equal(comm, deadline, orders(*settings.config, line.options));
    return gpt::run_job(comm, *settings.config, line.options);
  } catch (const gpt::AgreedError& error) {
    if (comm.rank() == 0) print_error(error.what());
    // A launcher that sees one rank fail ends the others: rank 0 must have printed by then.
    comm.barrier(precast::after(std::chrono::seconds(10)));
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a byte-level GPT; one rank compiles the step for all.");
  CommandLine line;
  describe(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    line.error = error.what();
  }
  line.options.check_eager = line.check == "eager";
  try {
    return run(line);
  } catch (const std::exception& error) {  // known to this rank only, or no connection is left to tell the others
    print_error(gpt::one_line(error));
    return 1;
  }
}
