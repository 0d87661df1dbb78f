#include "ir/renumber.h"
#include "passes/collectives.h"
#include "passes/dependencies.h"
#include "passes/passes.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

namespace precast::passes {
namespace {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

/// Puts statements in their new order, one at a time, from those of which everything before is there.
class Scheduler {
 public:
  Scheduler(const ir::Program& program, const Memory& memory, const OverlapOptions& options)
      : memory_(memory), options_(options), after_(dependents(program, memory)), claims_(after_.size(), kNever) {
    for (std::size_t i = 0; i < after_.size(); ++i) {
      const ir::Call* call = call_of(program.statements[i]);
      if (call == nullptr || !is_collective(*call)) continue;
      if (!collectives_.empty()) after_[collectives_.back()].push_back(i);
      claims_[i] = collectives_.size();
      collectives_.push_back(i);
    }
    for (std::size_t i = after_.size(); i-- > 0;)
      for (const std::size_t later : after_[i]) claims_[i] = std::min(claims_[i], claims_[later]);
    missing_ = count_predecessors(after_);
  }

  std::vector<std::size_t> run() {
    for (std::size_t i = 0; i < after_.size(); ++i)
      if (missing_[i] == 0) make_ready(i);
    std::vector<std::size_t> order;
    order.reserve(after_.size());
    while (order.size() < after_.size()) {
      order.push_back(take_next());
      for (const std::size_t later : after_[order.back()])
        if (--missing_[later] == 0) make_ready(later);
    }
    return order;
  }

 private:
  using Ready = std::set<std::pair<std::size_t, std::size_t>>;  ///< Claim and statement: the smallest comes first.

  void make_ready(std::size_t i) {
    if (memory_.access(i).is_wait) {
      // The wait whose result is used first; what nobody uses is waited for at the end.
      waits_.emplace(after_[i].empty() ? kNever : after_[i].front(), i);
    } else {
      others_.emplace(claims_[i], i);
    }
  }

  [[nodiscard]] bool is_next_collective(std::size_t i) const {
    return n_issued_ < collectives_.size() && collectives_[n_issued_] == i;
  }

  std::size_t take_next() {
    if (const auto chosen = choose_other(); chosen != others_.end()) return take_other(chosen);
    if (waits_.empty()) return take_other(others_.begin());
    const std::size_t wait = waits_.begin()->second;
    waits_.erase(waits_.begin());
    for (const std::size_t collective : memory_.access(wait).waits_for) in_flight_.erase(collective);
    return wait;
  }

  [[nodiscard]] Ready::const_iterator choose_other() const {
    if (in_flight_.size() < options_.max_in_flight || n_issued_ == collectives_.size()) return others_.begin();
    // No room for the next collective: nothing that stood behind it may run ahead, or its memory would be held in its stead.
    const std::size_t blocked = collectives_[n_issued_];
    return std::ranges::find_if(others_, [&](const auto& ready) { return ready.second < blocked; });
  }

  std::size_t take_other(Ready::const_iterator chosen) {
    const std::size_t i = chosen->second;
    others_.erase(chosen);
    if (is_next_collective(i)) {
      ++n_issued_;
      in_flight_.insert(i);
    }
    return i;
  }

  const Memory& memory_;
  const OverlapOptions& options_;
  std::vector<std::vector<std::size_t>> after_;
  std::vector<std::size_t> claims_;  ///< The first collective that cannot do without this statement.
  std::vector<std::size_t> missing_;
  std::vector<std::size_t> collectives_;
  std::size_t n_issued_ = 0;
  std::set<std::size_t> in_flight_;
  Ready others_, waits_;
};

}  // namespace

bool overlap_collectives(ir::Program& program, const OperatorEffects& effects, const OverlapOptions& options) {
  const Memory memory(program, effects);
  const std::vector<std::size_t> order = Scheduler(program, memory, options).run();
  if (std::ranges::is_sorted(order)) return false;
  std::vector<ir::Statement> statements;
  statements.reserve(order.size());
  for (const std::size_t i : order) statements.push_back(std::move(program.statements[i]));
  program.statements = std::move(statements);
  ir::renumber(program);
  return true;
}

}  // namespace precast::passes
