#include "platform/cpu.h"

#include "precast/error.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#ifdef __x86_64__
#include <cpuid.h>
#else
#include <sys/utsname.h>
#endif

namespace precast::platform {
namespace {

enum class Register { ebx, ecx };

/// A row for each instruction set of the psABI's levels that a baseline x86-64 may lack, and where CPUID reports it.
struct Feature {
  int level;
  std::string_view name;
  unsigned leaf;  ///< Of CPUID, sub-leaf 0.
  Register reg;
  unsigned bit;
  std::uint64_t state = 0;  ///< Register state that the operating system must save (bits of XCR0).
};

constexpr unsigned kBasic = 1, kStructured = 7, kExtended = 0x80000001;
constexpr std::uint64_t kAvx = 0x6, kAvx512 = 0xE6;  // XMM and YMM; also opmask and both halves of ZMM

constexpr Feature kFeatures[] = {
    {2, "cx16", kBasic, Register::ecx, 13},
    {2, "lahf_lm", kExtended, Register::ecx, 0},
    {2, "popcnt", kBasic, Register::ecx, 23},
    {2, "pni", kBasic, Register::ecx, 0},  // SSE3
    {2, "sse4_1", kBasic, Register::ecx, 19},
    {2, "sse4_2", kBasic, Register::ecx, 20},
    {2, "ssse3", kBasic, Register::ecx, 9},
    {3, "avx", kBasic, Register::ecx, 28, kAvx},
    {3, "avx2", kStructured, Register::ebx, 5, kAvx},
    {3, "bmi1", kStructured, Register::ebx, 3},
    {3, "bmi2", kStructured, Register::ebx, 8},
    {3, "f16c", kBasic, Register::ecx, 29, kAvx},
    {3, "fma", kBasic, Register::ecx, 12, kAvx},
    {3, "abm", kExtended, Register::ecx, 5},  // LZCNT
    {3, "movbe", kBasic, Register::ecx, 22},
    {4, "avx512f", kStructured, Register::ebx, 16, kAvx512},
    {4, "avx512bw", kStructured, Register::ebx, 30, kAvx512},
    {4, "avx512cd", kStructured, Register::ebx, 28, kAvx512},
    {4, "avx512dq", kStructured, Register::ebx, 17, kAvx512},
    {4, "avx512vl", kStructured, Register::ebx, 31, kAvx512},
};

constexpr int kHighest = 4;

std::string name_of(int level) {
  return level == 1 ? "x86-64" : "x86-64-v" + std::to_string(level);
}

std::optional<int> level_of(const std::string& name) {
  for (int level = 1; level <= kHighest; ++level)
    if (name == name_of(level)) return level;
  return std::nullopt;
}

#ifdef __x86_64__
/// The register states that the operating system saves; none of these bits without XGETBV (psABI's OSXSAVE).
std::uint64_t saved_states() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  __get_cpuid(kBasic, &a, &b, &c, &d);
  constexpr unsigned osxsave = 1U << 27;
  if ((c & osxsave) == 0) return 0;
  std::uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

bool has(const Feature& feature, std::uint64_t saved) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(feature.leaf, 0, &a, &b, &c, &d) == 0) return false;
  const unsigned value = feature.reg == Register::ebx ? b : c;
  return ((value >> feature.bit) & 1U) != 0 && (saved & feature.state) == feature.state;
}
#else
std::string machine() {
  utsname name = {};
  ::uname(&name);
  return name.machine;
}
#endif

/// $PRECAST_CPU: this CPU is to count for no more than that level.
int highest_level_wanted() {
  const char* named = std::getenv("PRECAST_CPU");
  if (named == nullptr || *named == '\0') return kHighest;
  if (const std::optional<int> level = level_of(named)) return *level;
  throw PrecompileError(ErrorCode::environment,
                        fmt::format("PRECAST_CPU: expected x86-64, x86-64-v2, x86-64-v3 or x86-64-v4, found '{}'", named));
}

}  // namespace

std::string best_level(const CpuFeatures& features) {
  int level = kHighest;
  while (!missing_features(name_of(level), features).empty()) --level;
  return name_of(level);
}

std::vector<std::string> missing_features(const std::string& level, const CpuFeatures& features) {
  const std::optional<int> wanted = level_of(level);
  if (!wanted) return {level};
  std::vector<std::string> missing;
  for (const Feature& feature : kFeatures)
    if (feature.level <= *wanted && !features.contains(std::string(feature.name))) missing.emplace_back(feature.name);
  return missing;
}

#ifdef __x86_64__
CpuFeatures cpu_features() {
  const std::uint64_t saved = saved_states();
  const int highest = highest_level_wanted();
  CpuFeatures features;
  for (const Feature& feature : kFeatures)
    if (feature.level <= highest && has(feature, saved)) features.emplace(feature.name);
  return features;
}

std::string best_level() {
  return best_level(cpu_features());
}

std::vector<std::string> missing_features(const std::string& level) {
  return missing_features(level, cpu_features());
}
#else
CpuFeatures cpu_features() {
  return {};
}

std::string best_level() {
  return machine();
}

std::vector<std::string> missing_features(const std::string& level) {
  return level == machine() ? std::vector<std::string>{} : std::vector<std::string>{level};
}
#endif

bool supports(const std::string& level) {
  return missing_features(level).empty();
}

}  // namespace precast::platform
