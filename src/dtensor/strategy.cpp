#include "dtensor/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace precast::dtensor {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();
/// Decides between possibilities that are equal but for this. In bytes, so that no real transfer is as small.
constexpr double kPreference = 1e-3;

bool is_letter(char c) {
  return c != '.' && c != '1';
}

/// Bytes that a rank receives on one mesh dimension of n ranks for a tensor of `bytes`, with small additions for what is
/// undesirable.
double cost(const Placement& from, const Placement& to, double bytes, double n, bool computes) {
  const double sent = bytes * (n - 1) / n;
  const auto *source = std::get_if<Shard>(&from), *target = std::get_if<Shard>(&to);
  if (source != nullptr && target != nullptr && source->dim == target->dim) return source->stored && computes ? kImpossible : 0;
  if (from == to) return 0;
  if (n == 1) return kPreference;
  if (source != nullptr) {
    const double gather = source->stored ? 0 : sent;
    if (target != nullptr) return source->stored && computes ? kImpossible : sent / n;
    return std::holds_alternative<Partial>(to) ? gather + sent + kPreference : gather;
  }
  if (std::holds_alternative<Partial>(from)) {
    if (target != nullptr) return sent + kPreference;
    return std::holds_alternative<Replicate>(to) ? sent : 2 * sent;
  }
  // From a whole tensor nothing is sent; but what is made partial will have to be reduced.
  return target != nullptr ? kPreference : sent + kPreference;
}

/// One possibility on one mesh dimension.
struct Candidate {
  std::vector<Placement> inputs, outputs;
  bool local_form = false;
  char letter = '.';
};

class Chooser {
 public:
  Chooser(const Rule& rule, std::span<const Operand> operands, std::span<const std::int64_t> mesh)
      : rule_(rule), operands_(operands), mesh_(mesh) {
    for (const std::string& labels : rule.inputs)
      for (const char c : labels)
        if (is_letter(c) && letters_.find(c) == std::string::npos) letters_ += c;
  }

  Strategy choose() {
    Strategy strategy{.inputs = std::vector<Placements>(operands_.size()),
                      .outputs = std::vector<Placements>(rule_.outputs.size()),
                      .local_form = rule_.always_local_form};
    for (std::size_t m = 0; m < mesh_.size(); ++m) {
      const Candidate best = best_on(m);
      for (std::size_t i = 0; i < operands_.size(); ++i) strategy.inputs[i].push_back(best.inputs[i]);
      for (std::size_t i = 0; i < rule_.outputs.size(); ++i) strategy.outputs[i].push_back(best.outputs[i]);
      strategy.local_form = strategy.local_form || best.local_form;
      if (is_letter(best.letter)) parts_.try_emplace(best.letter, 1).first->second *= mesh_[m];
    }
    return strategy;
  }

 private:
  Candidate best_on(std::size_t m) {
    double least = kImpossible;
    Candidate best;
    const auto consider = [&](Candidate candidate) {
      const double bytes = total_cost(candidate, m);
      if (bytes >= least) return;
      least = bytes;
      best = std::move(candidate);
    };
    for (const char letter : letters_)
      if (may_shard(letter, m)) consider(sharded_on(letter, m));
    for (const Alternative& alternative : rule_.alternatives)
      consider({.inputs = alternative.inputs, .outputs = alternative.outputs, .local_form = alternative.local_form});
    consider({.inputs = std::vector<Placement>(operands_.size()),
              .outputs = std::vector<Placement>(rule_.outputs.size()),
              .letter = '.'});
    if (least == kImpossible) refuse(m);
    return best;
  }

  /// What has to be sent, and that operands written in place stay.
  [[nodiscard]] double total_cost(const Candidate& candidate, std::size_t m) const {
    double sum = 0;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const Operand& operand = operands_[i];
      const double c = cost(operand.placements[m], candidate.inputs[i], bytes_without(operand, m), static_cast<double>(mesh_[m]),
                            rule_.computes);
      if (operand.fixed && c > 0) return kImpossible;
      if (operand.fixed && std::holds_alternative<Replicate>(candidate.inputs[i]) &&
          !std::holds_alternative<Replicate>(operand.placements[m]))
        return kImpossible;
      sum += c;
    }
    return sum;
  }

  /// Bytes of the operand that a rank would hold if mesh dimension m did not shard it.
  [[nodiscard]] double bytes_without(const Operand& operand, std::size_t m) const {
    double bytes = static_cast<double>(operand.element_bytes) *
                   std::accumulate(operand.shape.begin(), operand.shape.end(), 1.0,
                                   [](double product, std::int64_t size) { return product * static_cast<double>(size); });
    for (std::size_t other = 0; other < mesh_.size(); ++other)
      if (other != m && std::holds_alternative<Shard>(operand.placements[other])) bytes /= static_cast<double>(mesh_[other]);
    return bytes;
  }

  [[nodiscard]] bool may_shard(char letter, std::size_t m) const {
    for (std::size_t i = 0; i < rule_.outputs.size(); ++i)
      if (rule_.outputs[i].find(letter) == std::string::npos &&
          (i >= rule_.over_missing.size() || rule_.over_missing[i] == Missing::none))
        return false;
    const auto parts = parts_.find(letter);
    const std::int64_t all = mesh_[m] * (parts == parts_.end() ? 1 : parts->second);
    if (const auto divisible = rule_.divisible.find(letter); divisible != rule_.divisible.end() && divisible->second % all != 0)
      return false;
    if (rule_.never_empty.find(letter) != std::string::npos) {
      const std::int64_t size = size_of(letter), block = (size + all - 1) / all;
      if (block * (all - 1) >= size) return false;
    }
    // An average of averages is the average only where every rank holds equally much.
    for (std::size_t i = 0; i < rule_.outputs.size() && i < rule_.over_missing.size(); ++i)
      if (rule_.over_missing[i] == Missing::avg && rule_.outputs[i].find(letter) == std::string::npos && size_of(letter) % all != 0)
        return false;
    return true;
  }

  [[nodiscard]] std::int64_t size_of(char letter) const {
    for (std::size_t i = 0; i < operands_.size(); ++i)
      if (const auto position = rule_.inputs[i].find(letter); position != std::string::npos) return operands_[i].shape[position];
    return 0;
  }

  [[nodiscard]] Candidate sharded_on(char letter, std::size_t m) const {
    Candidate candidate;
    candidate.local_form = rule_.local_form_letters.find(letter) != std::string::npos;
    candidate.letter = letter;
    // How the letter is split where it already is: nested splits of one dimension must be nested alike in every tensor.
    Shard like(0);
    for (std::size_t i = 0; i < operands_.size(); ++i)
      if (const auto* shard = std::get_if<Shard>(&operands_[i].placements[m]))
        if (rule_.inputs[i].find(letter) == static_cast<std::size_t>(shard->dim)) {
          like = *shard;
          break;
        }
    const auto place = [&](const std::string& labels) -> std::optional<Placement> {
      const auto position = labels.find(letter);
      if (position == std::string::npos) return std::nullopt;
      Shard shard = like;
      shard.dim = static_cast<std::int64_t>(position);
      return shard;
    };
    for (const std::string& labels : rule_.inputs) candidate.inputs.push_back(place(labels).value_or(Replicate()));
    for (std::size_t i = 0; i < rule_.outputs.size(); ++i)
      candidate.outputs.push_back(place(rule_.outputs[i]).value_or(missing(i)));
    return candidate;
  }

  [[nodiscard]] Placement missing(std::size_t output) const {
    switch (output < rule_.over_missing.size() ? rule_.over_missing[output] : Missing::none) {
      case Missing::sum: return Partial(Reduction::sum);
      case Missing::avg: return Partial(Reduction::avg);
      case Missing::max: return Partial(Reduction::max);
      case Missing::min: return Partial(Reduction::min);
      case Missing::none:
      case Missing::whole: break;
    }
    return Replicate();
  }

  [[noreturn]] void refuse(std::size_t m) const {
    std::string placements;
    for (const Operand& operand : operands_)
      placements +=
          fmt::format("{}{}{}", placements.empty() ? "" : ", ", to_string(operand.placements), operand.fixed ? " (written)" : "");
    throw std::invalid_argument(
        fmt::format("nothing leaves the operand that it writes as it lies on mesh dimension {}; operands: {}", m, placements));
  }

  const Rule& rule_;
  std::span<const Operand> operands_;
  std::span<const std::int64_t> mesh_;
  std::string letters_;
  std::map<char, std::int64_t> parts_;  // into how many parts the mesh dimensions decided so far split a letter
};

}  // namespace

Strategy choose_strategy(const Rule& rule, std::span<const Operand> operands, std::span<const std::int64_t> mesh) {
  return Chooser(rule, operands, mesh).choose();
}

}  // namespace precast::dtensor
