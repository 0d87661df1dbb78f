#include "passes/collectives.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <variant>

namespace precast::passes {
namespace {

constexpr std::array<std::string_view, 4> kNamespaces = {
    "_c10d_functional::", "_c10d_functional_autograd::", "_dtensor::", "c10d::"};
/// Of these namespaces, but local.
constexpr std::array<std::string_view, 3> kLocal = {"_c10d_functional::wait_tensor", "_c10d_functional::wait_tensors",
                                                    "_c10d_functional::_wrap_tensor_autograd"};

std::optional<std::size_t> parse(std::string_view digits) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

}  // namespace

const ir::Call* call_of(const ir::Statement& statement) {
  return std::get_if<ir::Call>(&statement.is);
}

bool is_wait(const ir::Call& call) {
  return call.name == kLocal[0] || call.name == kLocal[1];
}

bool is_collective(const ir::Call& call) {
  for (const std::string_view name : kLocal)
    if (call.name == name) return false;
  for (const std::string_view prefix : kNamespaces)
    if (call.name.starts_with(prefix)) return true;
  return false;
}

std::optional<ir::ValueId> value_of(const ir::Operand& operand) {
  if (const auto* value = std::get_if<ir::ValueId>(&operand.is)) return *value;
  return std::nullopt;
}

std::string_view note_dtype(std::string_view note) {
  const std::size_t bracket = note.find('[');
  return bracket == std::string_view::npos ? std::string_view{} : note.substr(0, bracket);
}

std::optional<std::size_t> note_bytes(std::string_view note) {
  const std::string_view dtype = note_dtype(note);
  const std::size_t digits = dtype.find_first_of("0123456789");
  if (digits == std::string_view::npos || !note.ends_with(']')) return std::nullopt;
  const auto bits = parse(dtype.substr(digits, dtype.find_first_not_of("0123456789", digits) - digits));  // "f8_e4m3fn" has 8
  if (!bits || *bits == 0 || *bits % 8 != 0 || *bits > 128) return std::nullopt;
  std::size_t bytes = *bits / 8;
  std::string_view sizes = note.substr(dtype.size() + 1);
  sizes.remove_suffix(1);
  while (!sizes.empty()) {
    const std::size_t comma = sizes.find(", ");
    const auto size = parse(sizes.substr(0, comma));
    if (!size || __builtin_mul_overflow(bytes, *size, &bytes)) return std::nullopt;
    sizes = comma == std::string_view::npos ? std::string_view{} : sizes.substr(comma + 2);
  }
  return bytes;
}

}  // namespace precast::passes
