#pragma once

#include <set>
#include <string>
#include <vector>

namespace precast::platform {

/// The instruction sets that the levels of the x86-64 psABI name, spelt as in /proc/cpuinfo ("avx512bw", "lahf_lm"; lzcnt is
/// "abm").
using CpuFeatures = std::set<std::string>;

/// What this CPU has and the operating system lets programs use; empty on other architectures than x86-64. $PRECAST_CPU names a
/// level above which nothing counts, so that a machine can be taken for a lesser one. @throws PrecompileError environment  it is no
/// level.
CpuFeatures cpu_features();

/// "x86-64", "x86-64-v2", "x86-64-v3" or "x86-64-v4": the highest level of which no feature is missing.
std::string best_level(const CpuFeatures& features);
/// Features of `level` and of those below it that `features` lacks, in the order of the levels. What is no level of x86-64
/// ("aarch64") lacks itself.
std::vector<std::string> missing_features(const std::string& level, const CpuFeatures& features);

/// The same of this CPU. On other architectures the one level is the machine's name as uname has it, and any other lacks itself.
std::string best_level();
std::vector<std::string> missing_features(const std::string& level);
bool supports(const std::string& level);

}  // namespace precast::platform
