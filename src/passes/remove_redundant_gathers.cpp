#include "ir/renumber.h"
#include "ir/visit.h"
#include "passes/collectives.h"
#include "passes/memory.h"
#include "passes/passes.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace precast::passes {
namespace {

using Index = std::size_t;

/// An all-gather of which only the wait makes use.
struct Gather {
  Index call, wait;
  ir::ValueId source;
  std::int64_t group_size;
  std::string group;
  ir::ValueId result;  ///< The wait's.

  [[nodiscard]] bool same_as(const Gather& other) const {
    return source == other.source && group_size == other.group_size && group == other.group;
  }
};

std::optional<std::int64_t> integer(const ir::Operand& operand) {
  if (const auto* number = std::get_if<std::int64_t>(&operand.is)) return *number;
  return std::nullopt;
}

class Rewriter {
 public:
  Rewriter(ir::Program& program, const OperatorEffects& effects)
      : program_(program),
        memory_(program, effects),
        definition_(program.values.size()),
        n_uses_(program.values.size(), 0),
        last_user_(program.values.size(), 0),
        dropped_(program.statements.size(), false) {
    for (Index i = 0; i < program.statements.size(); ++i) {
      definition_[program.statements[i].result.index] = i;
      ir::visit_uses(program.statements[i], [&](ir::ValueId value) {
        ++n_uses_[value.index];
        last_user_[value.index] = i;
      });
    }
    for (const ir::Operand& output : program.outputs)
      ir::visit_values(output, [&](ir::ValueId value) {
        ++n_uses_[value.index];
        outputs_.push_back(value);
      });
  }

  bool run() {
    const bool own = take_back_own_shards();
    const bool repeated = drop_repeated();
    if (!own && !repeated) return false;
    std::vector<ir::Statement> statements;
    for (Index i = 0; i < program_.statements.size(); ++i)
      if (!dropped_[i]) statements.push_back(std::move(program_.statements[i]));
    program_.statements = std::move(statements);
    ir::renumber(program_);
    return true;
  }

 private:
  [[nodiscard]] const ir::Call* call(Index i) const { return call_of(program_.statements[i]); }

  /// The call that gave a value, if its name is `name`.
  [[nodiscard]] const ir::Call* defined_by(const ir::Operand& operand, std::string_view name) const {
    const auto value = value_of(operand);
    if (!value || !definition_[value->index]) return nullptr;
    const ir::Call* definition = call(*definition_[value->index]);
    return definition != nullptr && definition->name == name ? definition : nullptr;
  }

  [[nodiscard]] std::optional<Gather> gather_at(Index i) const {
    const ir::Call* gather = call(i);
    const ir::ValueId in_flight = program_.statements[i].result;
    if (dropped_[i] || gather == nullptr || gather->name != "_c10d_functional::all_gather_into_tensor" ||
        gather->arguments.size() != 3 || !gather->keywords.empty() || n_uses_[in_flight.index] != 1)
      return std::nullopt;
    const Index wait = last_user_[in_flight.index];
    const ir::Call* user = wait > i ? call(wait) : nullptr;  // no user: an output
    const auto source = value_of(gather->arguments[0]);
    const auto group_size = integer(gather->arguments[1]);
    const auto* group = std::get_if<std::string>(&gather->arguments[2].is);
    if (user == nullptr || dropped_[wait] || user->name != "_c10d_functional::wait_tensor" || !source || !group_size ||
        group == nullptr)
      return std::nullopt;
    return Gather{.call = i,
                  .wait = wait,
                  .source = *source,
                  .group_size = *group_size,
                  .group = *group,
                  .result = program_.statements[wait].result};
  }

  [[nodiscard]] bool leaves_program(const Gather& gather) const {
    return std::ranges::any_of(outputs_,
                               [&](ir::ValueId output) { return overlap(memory_.of(output), memory_.of(gather.result)); });
  }

  bool drop_repeated() {
    struct Kept {
      Gather gather;
      bool leaves_program;
    };
    std::vector<Kept> kept;
    std::vector<std::optional<ir::ValueId>> instead(program_.values.size());
    bool changed = false;
    for (Index i = 0; i < program_.statements.size(); ++i) {
      const auto gather = gather_at(i);
      if (!gather) continue;
      const bool leaves = leaves_program(*gather);
      if (memory_.written(memory_.of(gather->result))) continue;
      const auto earlier = std::ranges::find_if(kept, [&](const Kept& other) { return other.gather.same_as(*gather); });
      if (earlier == kept.end()) {
        kept.push_back({*gather, leaves});
        continue;
      }
      if ((leaves && earlier->leaves_program) ||
          memory_.written(memory_.of(gather->source), earlier->gather.call + 1, gather->call)) {
        *earlier = {*gather, leaves};
        continue;
      }
      // Whichever wait comes first waits for the first gather.
      const Index first = std::min(earlier->gather.wait, gather->wait), second = std::max(earlier->gather.wait, gather->wait);
      program_.statements[first] = program_.statements[earlier->gather.wait];
      dropped_[second] = dropped_[gather->call] = true;
      earlier->gather.wait = first;
      earlier->leaves_program = earlier->leaves_program || leaves;
      instead[gather->result.index] = earlier->gather.result;
      changed = true;
    }
    const auto replace = [&](ir::ValueId& value) {
      if (instead[value.index]) value = *instead[value.index];
    };
    for (ir::Statement& statement : program_.statements) ir::visit_uses(statement, replace);
    for (ir::Operand& output : program_.outputs) ir::visit_values(output, replace);
    return changed;
  }

  bool take_back_own_shards() {
    bool changed = false;
    for (Index i = 0; i < program_.statements.size(); ++i) {
      const auto own = own_shard(i);
      if (!own) continue;
      // A rank's block as index_select gives it: alone in a new dimension, and in memory of its own.
      ir::Call copy{.name = "aten::stack", .overload = "", .arguments = {}, .keywords = {}};
      copy.arguments.push_back({ir::Operand::List{{own->shard}}});
      if (own->dim != 0) copy.arguments.push_back({own->dim});
      const ir::Call old = std::exchange(std::get<ir::Call>(program_.statements[i].is), std::move(copy));
      ++n_uses_[own->shard.index];
      for (const ir::Operand& argument : old.arguments) release(argument);
      changed = true;
    }
    return changed;
  }

  struct OwnShard {
    ir::ValueId shard;
    std::int64_t dim;
  };

  /// Whether statement i is index_select(unflatten(whole, dim, [n, block]), dim, [this rank]), where `whole` is the shards of all
  /// ranks side by side in dim: how a capture takes a shard of a replicated tensor.
  [[nodiscard]] std::optional<OwnShard> own_shard(Index i) const {
    const ir::Call* select = call(i);
    if (select == nullptr || select->name != "aten::index_select" || select->arguments.size() != 3) return std::nullopt;
    const auto dim = integer(select->arguments[1]);
    const ir::Call* blocks = defined_by(select->arguments[0], "aten::unflatten");
    if (!dim || blocks == nullptr || blocks->arguments.size() != 3 || blocks->arguments[1] != select->arguments[1])
      return std::nullopt;
    const auto* sizes = std::get_if<ir::Operand::List>(&blocks->arguments[2].is);
    if (sizes == nullptr || sizes->size() != 2) return std::nullopt;

    const auto gather = *dim == 0 ? gather_of(blocks->arguments[0]) : gather_side_by_side(blocks->arguments[0], *dim);
    if (!gather || integer((*sizes)[0]) != gather->group_size || !is_rank_in(gather->group, select->arguments[2]))
      return std::nullopt;
    // Between the gather and now nobody may have written the shard, the whole or what was made of it.
    const auto read = [&](const ir::Operand& operand) { return memory_.of(std::get<ir::ValueId>(operand.is)); };
    if (memory_.written(memory_.of(gather->source), gather->call + 1, i) ||
        memory_.written(memory_.of(gather->result), gather->call, i) ||
        memory_.written(read(blocks->arguments[0]), gather->call, i) || memory_.written(read(select->arguments[2])))
      return std::nullopt;
    return OwnShard{.shard = gather->source, .dim = *dim};
  }

  [[nodiscard]] std::optional<Gather> gather_of(const ir::Operand& operand) const {
    const ir::Call* wait = defined_by(operand, "_c10d_functional::wait_tensor");
    if (wait == nullptr || defined_by(wait->arguments.at(0), "_c10d_functional::all_gather_into_tensor") == nullptr)
      return std::nullopt;
    return gather_at(*definition_[std::get<ir::ValueId>(wait->arguments[0].is).index]);
  }

  /// cat(chunk(gathered, n), dim): a gather along another dimension than the first.
  [[nodiscard]] std::optional<Gather> gather_side_by_side(const ir::Operand& operand, std::int64_t dim) const {
    const ir::Call* cat = defined_by(operand, "aten::cat");
    if (cat == nullptr || cat->arguments.size() != 2 || integer(cat->arguments[1]) != dim) return std::nullopt;
    const auto* items = std::get_if<ir::Operand::List>(&cat->arguments[0].is);
    if (items == nullptr || items->empty()) return std::nullopt;
    std::optional<ir::ValueId> chunks;
    for (std::size_t k = 0; k < items->size(); ++k) {
      const auto value = value_of((*items)[k]);
      if (!value || !definition_[value->index]) return std::nullopt;
      const auto* item = std::get_if<ir::GetItem>(&program_.statements[*definition_[value->index]].is);
      if (item == nullptr || item->index != static_cast<std::int64_t>(k) || (chunks && *chunks != item->source))
        return std::nullopt;
      chunks = item->source;
    }
    const ir::Call* chunk = defined_by({*chunks}, "aten::chunk");
    if (chunk == nullptr || chunk->arguments.size() < 2 || (chunk->arguments.size() > 2 && integer(chunk->arguments[2]) != 0))
      return std::nullopt;
    auto gather = gather_of(chunk->arguments[0]);
    const auto n = static_cast<std::int64_t>(items->size());
    if (!gather || gather->group_size != n || integer(chunk->arguments[1]) != n) return std::nullopt;
    return gather;
  }

  /// Whether an operand is the input that says this rank's place in the group, as a tensor of one dimension.
  [[nodiscard]] bool is_rank_in(const std::string& group, const ir::Operand& operand) const {
    const ir::Call* view = defined_by(operand, "aten::view");
    if (view == nullptr) view = defined_by(operand, "aten::reshape");
    if (view == nullptr || view->arguments.size() != 2 || view->arguments[1] != ir::Operand{ir::Operand::List{{std::int64_t{1}}}})
      return false;
    const std::vector<std::string>& groups = program_.metadata.mesh_inputs;
    const auto found = std::ranges::find(groups, group);
    if (found == groups.end() || groups.size() > program_.inputs.size()) return false;
    const auto from_end = static_cast<std::size_t>(groups.end() - found);
    return value_of(view->arguments[0]) == program_.inputs[program_.inputs.size() - from_end];
  }

  /// One use less: what nobody uses any more goes, unless it does more than give its result.
  void release(const ir::Operand& operand) {
    ir::visit_values(operand, [&](ir::ValueId value) {
      if (--n_uses_[value.index] > 0 || !definition_[value.index]) return;
      const Index i = *definition_[value.index];
      const Memory::Access& access = memory_.access(i);
      if (dropped_[i] || access.keeps_order || (!access.is_wait && !access.writes.empty())) return;
      dropped_[i] = true;
      if (const auto* item = std::get_if<ir::GetItem>(&program_.statements[i].is)) return release({item->source});
      const ir::Call& gone = std::get<ir::Call>(program_.statements[i].is);
      for (const ir::Operand& argument : gone.arguments) release(argument);
      for (const auto& [name, argument] : gone.keywords) release(argument);
    });
  }

  ir::Program& program_;
  const Memory memory_;
  std::vector<std::optional<Index>> definition_;  ///< Of a value, unless it is an input.
  std::vector<int> n_uses_;                       ///< Of a value, in statements that are not dropped, and outputs.
  std::vector<Index> last_user_;
  std::vector<bool> dropped_;
  std::vector<ir::ValueId> outputs_;
};

}  // namespace

bool remove_redundant_gathers(ir::Program& program, const OperatorEffects& effects) {
  return Rewriter(program, effects).run();
}

}  // namespace precast::passes
