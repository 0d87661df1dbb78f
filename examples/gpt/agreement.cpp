#include "agreement.h"

#include "error.h"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace gpt {
namespace {

using nlohmann::json;

/// The settings from bytes that another rank made of them.
std::map<std::string, std::string> unpack(std::span<const std::byte> bytes) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  return json::parse(text, text + bytes.size()).get<std::map<std::string, std::string>>();
}

/// As any other rank would have it after a transfer: bytes that are no UTF-8 are replaced alike everywhere.
std::vector<std::byte> pack(const std::map<std::string, std::string>& settings) {
  const std::string text = json(settings).dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

void require_equal(const precast::Communicator& comm, std::chrono::milliseconds deadline,
                   const std::map<std::string, std::string>& mine) {
  if (comm.size() == 1) return;
  const std::vector<std::byte> packed = pack(mine);
  std::vector<std::byte> first = packed;
  comm.broadcast(first, 0, precast::after(deadline));
  together(comm, deadline, [&] {
    const auto found = unpack(packed);
    for (const auto& [name, expected] : unpack(first))
      if (!found.contains(name) || found.at(name) != expected)
        throw JobError(fmt::format("{}: expected '{}' as on rank 0, found '{}'", name, expected,
                                   found.contains(name) ? found.at(name) : "nothing"));
  });
}

}  // namespace gpt
