#include "passes/dependencies.h"

#include "ir/visit.h"

#include <algorithm>
#include <map>
#include <optional>

namespace precast::passes {
namespace {

/// Accesses to a storage since the last write, and that write.
struct Recent {
  std::optional<std::size_t> write;
  std::vector<std::size_t> reads;
};

}  // namespace

std::vector<std::vector<std::size_t>> dependents(const ir::Program& program, const Memory& memory) {
  std::vector<std::vector<std::size_t>> after(program.statements.size());
  std::vector<std::optional<std::size_t>> definition(program.values.size());
  std::map<int, Recent> recent;
  std::optional<std::size_t> last_in_order;
  for (std::size_t i = 0; i < program.statements.size(); ++i) {
    const auto depend_on = [&](std::optional<std::size_t> earlier) {
      if (earlier && *earlier != i) after[*earlier].push_back(i);
    };
    ir::visit_uses(program.statements[i], [&](ir::ValueId value) { depend_on(definition[value.index]); });
    definition[program.statements[i].result.index] = i;

    const Memory::Access& access = memory.access(i);
    for (const int storage : access.reads) {
      depend_on(recent[storage].write);
      recent[storage].reads.push_back(i);
    }
    for (const int storage : access.writes) {
      depend_on(recent[storage].write);
      for (const std::size_t read : recent[storage].reads) depend_on(read);
      recent[storage] = {.write = i, .reads = {}};
    }
    if (access.keeps_order) {
      depend_on(last_in_order);
      last_in_order = i;
    }
  }
  for (std::vector<std::size_t>& later : after) {
    std::ranges::sort(later);
    later.erase(std::unique(later.begin(), later.end()), later.end());
  }
  return after;
}

std::vector<std::size_t> count_predecessors(const std::vector<std::vector<std::size_t>>& dependents) {
  std::vector<std::size_t> counts(dependents.size(), 0);
  for (const std::vector<std::size_t>& later : dependents)
    for (const std::size_t i : later) ++counts[i];
  return counts;
}

}  // namespace precast::passes
