#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace precast::platform {

/// What compiled code depends on. Two processes with equal platforms can run the same package.
struct Platform {
  std::string torch_version;  ///< "2.15.0"
  std::string torch_git;      ///< The revision LibTorch was built from, 40 hex digits.
  std::string cpu;            ///< "x86-64", "x86-64-v2", "-v3", "-v4", or another architecture's name: "aarch64".
  std::string gpu;            ///< "sm_90"; empty where the program uses no GPU.
  std::string cuda;           ///< Of LibTorch: "13.2"; empty where the program uses no GPU.

  bool operator==(const Platform&) const = default;

  /// By the names above, for the fingerprint of an envelope.
  [[nodiscard]] std::map<std::string, std::string> fields() const;
};

/// @param fields  may hold others, which are ignored.
/// @throws PrecompileError invalid_artifact, naming the field that is missing.
Platform from_fields(const std::map<std::string, std::string>& fields);

/// Why a package made for `target` cannot run on `here`, one text a field; empty if it can. A CPU runs what was compiled for a
/// lower level of its own. Example: "torch_version: made for 2.14.0, this process has 2.15.0"; "cpu: made for x86-64-v4, this CPU
/// (x86-64-v3) lacks avx512f, avx512bw".
/// @param lacking  what the CPU of `here` lacks of the target's: missing_features(target.cpu).
std::vector<std::string> why_not(const Platform& target, const Platform& here, const std::vector<std::string>& lacking);

/// "2.15.0" and the revision from what LibTorch says of its build (at::show_config).
/// @throws PrecompileError environment: they are not in it.
struct TorchBuild {
  std::string version, git;
};
TorchBuild torch_build(std::string_view config);

/// Of this process: the LibTorch it has loaded and the CPU it runs on.
/// @param gpu_index  the CUDA device that the program uses; -1: none.
/// @throws PrecompileError  environment: there is no such device, or LibTorch does not say what it was built from;
///                          not_built: a GPU is asked of a build without CUDA.
Platform this_platform(int gpu_index = -1);

}  // namespace precast::platform
