#include "passes/memory.h"

#include "ir/visit.h"
#include "passes/collectives.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace precast::passes {
namespace {

void add(Storages& to, const Storages& more) {
  Storages both;
  std::ranges::set_union(to, more, std::back_inserter(both));
  to = std::move(both);
}

const ir::Operand& argument(const ir::Call& call, std::size_t i) {
  return i < call.arguments.size() ? call.arguments[i] : call.keywords.at(i - call.arguments.size()).second;
}

/// Arguments that the call's name says are written.
std::vector<std::uint32_t> written_by_name(const ir::Call& call) {
  std::vector<std::uint32_t> written;
  const std::string_view name = call.name;
  if (name.ends_with("_") && !name.ends_with("__") && !call.arguments.empty()) written.push_back(0);
  for (std::size_t i = 0; i < call.keywords.size(); ++i)
    if (call.keywords[i].first == "out") written.push_back(static_cast<std::uint32_t>(call.arguments.size() + i));
  return written;
}

}  // namespace

bool overlap(const Storages& a, const Storages& b) {
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    if (*i == *j) return true;
    *i < *j ? ++i : ++j;
  }
  return false;
}

Memory::Memory(const ir::Program& program, const OperatorEffects& effects)
    : of_value_(program.values.size()),
      fresh_(program.values.size(), false),
      items_(program.values.size()),
      item_of_(program.values.size()),
      access_(program.statements.size()) {
  define_inputs(program);
  std::map<std::pair<int, std::int64_t>, int> storage_of_item;
  for (const ir::Statement& statement : program.statements)
    if (const auto* item = std::get_if<ir::GetItem>(&statement.is)) {
      const auto [known, is_new] = storage_of_item.try_emplace({item->source.index, item->index}, n_storages_);
      if (is_new) items_[item->source.index].push_back(new_storage());
      item_of_[statement.result.index] = {known->second};
    }
  for (std::size_t i = 0; i < program.statements.size(); ++i) run(program, i, effects);
}

void Memory::define_inputs(const ir::Program& program) {
  const std::size_t n_lifted = program.metadata.params.size() + program.metadata.buffers.size();
  const int of_user = new_storage();
  for (std::size_t i = 0; i < program.inputs.size(); ++i)
    of_value_[program.inputs[i].index] = {i < n_lifted ? new_storage() : of_user};
  for (const auto& [i, j] : program.metadata.input_aliases) {
    Storages& first = of_value_[program.inputs.at(i).index];
    add(first, of_value_[program.inputs.at(j).index]);
    of_value_[program.inputs.at(j).index] = first;
  }
}

void Memory::run(const ir::Program& program, std::size_t i, const OperatorEffects& effects) {
  const ir::Statement& statement = program.statements[i];
  Access& access = access_[i];
  Storages& result = of_value_[statement.result.index];
  const auto of = [&](const ir::Operand& operand) {
    Storages all;
    ir::visit_values(operand, [&](ir::ValueId value) { add(all, of_value_[value.index]); });
    return all;
  };
  ir::visit_uses(statement, [&](ir::ValueId value) { add(access.reads, of_value_[value.index]); });

  if (const auto* item = std::get_if<ir::GetItem>(&statement.is)) {
    // Taking an item reads no memory; that the source is defined before is told by the value.
    access.reads.clear();
    result = fresh_[item->source.index] ? item_of_[statement.result.index] : of_value_[item->source.index];
    return;
  }
  const auto& call = std::get<ir::Call>(statement.is);
  access.keeps_order = effects.keeps_order(call);
  access.is_wait = is_wait(call);
  if (access.is_wait) {
    // Until now the collective was at work on its result, and possibly on its operands.
    access.writes = access.reads;
    result = access.reads;
    for (const int storage : access.writes)
      if (static_cast<std::size_t>(storage) < collectives_of_storage_.size())
        for (const std::size_t collective : collectives_of_storage_[storage]) access.waits_for.push_back(collective);
    std::ranges::sort(access.waits_for);
    access.waits_for.erase(std::unique(access.waits_for.begin(), access.waits_for.end()), access.waits_for.end());
    for (const std::size_t collective : access.waits_for) add(access.reads, access_[collective].reads);
  } else {
    std::vector<std::uint32_t> written = effects.written(call);
    for (const std::uint32_t by_name : written_by_name(call)) written.push_back(by_name);
    for (const std::uint32_t argument_index : written) add(access.writes, of(argument(call, argument_index)));
    result = access.writes;
    for (const std::uint32_t argument_index : effects.aliased(call)) add(result, of(argument(call, argument_index)));
  }
  if (result.empty()) {
    fresh_[statement.result.index] = true;
    result = {new_storage()};
    add(result, items_[statement.result.index]);
  }
  if (is_collective(call)) {
    collectives_of_storage_.resize(n_storages_);
    for (const int storage : result) collectives_of_storage_[storage].push_back(i);
  }
}

bool Memory::written(const Storages& storages, std::size_t begin, std::size_t end) const {
  for (std::size_t i = begin; i < end; ++i)
    if (!access_[i].is_wait && overlap(storages, access_[i].writes)) return true;
  return false;
}

}  // namespace precast::passes
