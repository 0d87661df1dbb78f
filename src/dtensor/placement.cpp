#include "precast/placement.h"

#include <fmt/format.h>

#include <charconv>
#include <stdexcept>
#include <string_view>

namespace precast {

std::string to_string(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return "sum";
    case Reduction::avg: return "avg";
    case Reduction::max: return "max";
    case Reduction::min: return "min";
  }
  return "unknown";
}

std::string to_string(const Placement& placement) {
  if (const auto* shard = std::get_if<Shard>(&placement))
    return fmt::format("{}({}{})", shard->strided ? "StridedShard" : "Shard", shard->dim, shard->stored ? ", stored" : "");
  if (const auto* partial = std::get_if<Partial>(&placement)) return fmt::format("Partial({})", to_string(partial->reduction));
  return "Replicate()";
}

std::string to_string(const Placements& placements) {
  std::string text;
  for (const Placement& placement : placements) text += (text.empty() ? "" : ", ") + to_string(placement);
  return "[" + text + "]";
}

Placement placement_from_string(const std::string& text) {
  for (const Reduction reduction : {Reduction::sum, Reduction::avg, Reduction::max, Reduction::min})
    if (text == to_string(Placement(Partial(reduction)))) return Partial(reduction);
  if (text == to_string(Placement(Replicate()))) return Replicate();
  std::string_view rest = text;
  Shard shard(0);
  if (rest.starts_with("Strided")) {
    shard.strided = true;
    rest.remove_prefix(std::string_view("Strided").size());
  }
  constexpr std::string_view kHead = "Shard(";
  if (rest.starts_with(kHead)) {
    rest.remove_prefix(kHead.size());
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), shard.dim);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    shard.stored = rest == ", stored)";
    if (error == std::errc() && (rest == ")" || shard.stored)) return shard;
  }
  throw std::invalid_argument(fmt::format("expected a placement as 'Shard(0)', 'Replicate()' or 'Partial(sum)', found '{}'", text));
}

}  // namespace precast
