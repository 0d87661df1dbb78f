#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace precast::artifact {

/// Lower-case hex digest (FIPS 180-4), by OpenSSL.
std::string sha256(std::span<const std::byte> bytes);
std::string sha256(std::string_view text);

}  // namespace precast::artifact
