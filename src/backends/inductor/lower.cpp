#include "backends/inductor/lower.h"

#include "backends/inductor/child_process.h"
#include "backends/inductor/load_folder.h"
#include "backends/inductor/lower_script.h"
#include "backends/inductor/split.h"
#include "base/log.h"
#include "ir/text.h"
#include "platform/cpu.h"
#include "platform/platform.h"
#include "precast/error.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

namespace precast::inductor {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Index of the CUDA device that the program's tensors are on in this process, or -1.
int gpu_of(const ir::Metadata& metadata) {
  const auto on_gpu = [](const auto& tensor) { return tensor.device == "cuda"; };
  if (std::ranges::none_of(metadata.params, on_gpu) && std::ranges::none_of(metadata.buffers, on_gpu) &&
      std::ranges::none_of(metadata.inputs, on_gpu))
    return -1;
  return c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->getDevice().index();
}

std::string target_cpu(const InductorOptions& options) {
  return options.target.empty() ? platform::best_level() : options.target;
}

std::string setting_text(const InductorOptions::Setting& setting) {
  return std::visit([](const auto& value) { return json(value).dump(); }, setting);
}

/// The interpreter of the environment that LibTorch comes from: ENV/lib/pythonX.Y/site-packages/torch/lib/libtorch_cpu.so.
fs::path python_of_libtorch() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  for (fs::path folder = fs::weakly_canonical(info.dli_fname, ignored).parent_path(); folder != folder.parent_path();
       folder = folder.parent_path())
    if (fs::path python = folder / "bin" / "python3"; ::access(python.c_str(), X_OK) == 0) return python;
  return {};
}

std::string find_python(const InductorOptions& options) {
  const char* variable = std::getenv("PRECAST_PYTHON");
  const std::string named = !options.python.empty() ? options.python : variable != nullptr ? variable : "";
  const fs::path python = named.empty() ? python_of_libtorch() : fs::path(named);
  if (python.empty())
    throw PrecompileError(ErrorCode::environment,
                          "lower: no Python beside the LibTorch of this process; set PRECAST_PYTHON to one with torch of the same "
                          "version, or use backend 'eager'");
  if (::access(python.c_str(), X_OK) != 0)
    throw PrecompileError(
        ErrorCode::environment,
        fmt::format("lower: '{}' is no program that can be run; set PRECAST_PYTHON to a Python with torch of this "
                    "process's version, or use backend 'eager'",
                    python.string()));
  return python.string();
}

/// The groups of the program's collectives, with their sizes as far as the program says them: the compiler keeps only the names.
std::map<std::string, std::int64_t> groups_of(const ir::Program& program) {
  std::map<std::string, std::int64_t> groups;
  for (const ir::MeshMeta& mesh : program.metadata.meshes)
    for (std::size_t d = 0; d < mesh.shape.size(); ++d) groups[mesh.name + "." + mesh.dim_names[d]] = mesh.shape[d];
  for (const ir::Statement& statement : program.statements) {
    const ir::Call* call = std::get_if<ir::Call>(&statement.is);
    if (call == nullptr || !call->name.starts_with("_c10d_functional::") || call->arguments.size() < 2) continue;
    const auto* name = std::get_if<std::string>(&call->arguments.back().is);
    if (name == nullptr) continue;
    const auto* size = std::get_if<std::int64_t>(&call->arguments[call->arguments.size() - 2].is);
    const bool says_size = call->name.find("gather") != std::string::npos || call->name.find("scatter") != std::string::npos;
    groups.try_emplace(*name, 1);
    if (says_size && size != nullptr) groups[*name] = *size;
  }
  return groups;
}

void write_file(const fs::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file)
    throw PrecompileError(ErrorCode::environment, fmt::format("lower: cannot write '{}': is the disk full?", path.string()));
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

json request_for(const ir::Program& compiled, const InductorOptions& options, const Fingerprint& fingerprint,
                 const std::vector<int>& cpus, const fs::path& folder) {
  const std::string cpu = target_cpu(options);
  const bool is_x86 = cpu.starts_with("x86-64");
  json settings = json::object();
  if (options.max_autotune) settings["max_autotune"] = true;
  for (const auto& entry : options.settings) std::visit([&](const auto& value) { settings[entry.first] = value; }, entry.second);
  const json no_value;
  return {{"program", folder / "program.py"},
          {"package", folder / "package.pt2"},
          {"result", folder / "result.json"},
          {"torch", {{"version", fingerprint.at("torch_version")}, {"git", fingerprint.at("torch_git")}}},
          {"groups", groups_of(compiled)},
          {"march", is_x86 ? cpu : "native"},
          {"simdlen", cpu == "x86-64-v4"   ? json(512)
                      : cpu == "x86-64-v3" ? json(256)
                                           : no_value},
          {"threads", options.threads > 0 ? json(options.threads) : no_value},
          {"wrapper_opt_level", options.wrapper_opt_level},
          {"options", settings},
          {"cpus", cpus.empty() ? own_cpus() : cpus}};
}

[[noreturn]] void throw_failure(const json& result) {
  const std::string kind = result.value("kind", "internal");
  const ErrorCode code = kind == "unsupported" ? ErrorCode::refused_capture
                         : kind == "internal"  ? ErrorCode::internal
                                               : ErrorCode::environment;
  throw PrecompileError(code, fmt::format("lower: {}", result.value("error", "no reason given")));
}

/// @throws PrecompileError  the script, which has ended, did not succeed.
void check_success(const ChildEnd& end, const fs::path& file) {
  if (end.timed_out)
    throw PrecompileError(
        ErrorCode::environment,
        fmt::format("lower: the compiler did not end by the compile deadline and was ended; raise the deadline. It "
                    "last said: {}",
                    end.last_output));
  const json result = json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  if (result.is_object() && !result.value("ok", false)) throw_failure(result);
  if (end.exit_code == 0 && result.is_object()) return;
  throw PrecompileError(ErrorCode::environment, fmt::format("lower: the compiling Python ended {}; it last said: {}",
                                                            end.signal != 0 ? fmt::format("by signal {}", end.signal)
                                                                            : fmt::format("with exit code {}", end.exit_code),
                                                            end.last_output));
}

}  // namespace

std::vector<int> own_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

Fingerprint fingerprint_for(const ir::Program& program, const InductorOptions& options) {
  platform::Platform here = platform::this_platform(gpu_of(program.metadata));
  here.cpu = target_cpu(options);
  Fingerprint fingerprint = here.fields();
  fingerprint["threads"] = options.threads > 0 ? std::to_string(options.threads) : "any";
  fingerprint["wrapper_opt_level"] = options.wrapper_opt_level;
  fingerprint["max_autotune"] = options.max_autotune ? "on" : "off";
  for (const auto& [key, setting] : options.settings) fingerprint["setting " + key] = setting_text(setting);
  return fingerprint;
}

std::string why_unusable(const Fingerprint& fingerprint) {
  const platform::Platform target = platform::from_fields(fingerprint);
  const int gpu = target.gpu.empty() ? -1 : c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->getDevice().index();
  return fmt::format("{}", fmt::join(why_not(target, platform::this_platform(gpu), platform::missing_features(target.cpu)), "; "));
}

Lowered lower(const ir::Program& program, const InductorOptions& options, const std::vector<int>& cpus, Deadline deadline) {
  Lowered lowered{.package = {}, .fingerprint = fingerprint_for(program, options)};
  const ir::Program compiled = split(program).compiled;
  const std::string python = find_python(options);
  const PrivateFolder folder("lower");
  write_file(folder.path() / "lower.py", kLowerScript);
  write_file(folder.path() / "program.py", ir::write_python_code(compiled));
  write_file(folder.path() / "request.json", request_for(compiled, options, lowered.fingerprint, cpus, folder.path()).dump());
  const ChildEnd end = run_child({python, "-u", folder.path() / "lower.py", folder.path() / "request.json"}, deadline,
                                 [](std::string_view line) { log(LogLevel::info, fmt::format("lower: {}", line)); });
  check_success(end, folder.path() / "result.json");
  const std::string package = read_file(folder.path() / "package.pt2");
  const auto bytes = std::as_bytes(std::span(package));
  lowered.package.assign(bytes.begin(), bytes.end());
  return lowered;
}

}  // namespace precast::inductor
