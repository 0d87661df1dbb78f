#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace precast::artifact {

inline constexpr std::string_view kCacheFormat = "precast";
inline constexpr std::uint32_t kCacheVersion = 1;

/// The cache: what makes a python_code faster, and which text it belongs to.
struct Envelope {
  std::string format = std::string(kCacheFormat);
  std::uint32_t version = kCacheVersion;
  std::string backend;
  std::string code_hash;                           ///< sha256 of the exact bytes of python_code, lower-case hex.
  std::map<std::string, std::string> fingerprint;  ///< The platform and settings the artifact was made for, field by field.
  std::vector<std::byte> artifact;                 ///< Kernel package; empty for the eager backend.
  bool operator==(const Envelope&) const = default;
};

std::vector<std::byte> write_envelope(const Envelope& envelope);

/// Why a cache is not used. The text alone is run instead.
struct Unusable {
  std::string reason;
};

/// Reads foreign bytes: lengths are compared with what is left before anything is allocated; nothing is unpickled. A zip (a cache
/// written by Python's torch.save), another format or version, damage anywhere (the envelope carries a digest over its content) is
/// Unusable.
std::variant<Envelope, Unusable> read_envelope(std::span<const std::byte> bytes);

}  // namespace precast::artifact
