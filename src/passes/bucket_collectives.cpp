#include "ir/renumber.h"
#include "passes/collectives.h"
#include "passes/dependencies.h"
#include "passes/passes.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <queue>
#include <string_view>
#include <utility>
#include <vector>

namespace precast::passes {
namespace {

struct Kind {
  std::string_view name;
  std::size_t n_arguments;
  bool result_is_larger;
};
constexpr std::array kKinds = {
    Kind{.name = "_c10d_functional::all_reduce", .n_arguments = 3, .result_is_larger = false},
    Kind{.name = "_c10d_functional::all_gather_into_tensor", .n_arguments = 3, .result_is_larger = true},
    Kind{.name = "_c10d_functional::reduce_scatter_tensor", .n_arguments = 4, .result_is_larger = false},
};

/// A collective that may go into a bucket, beside others for which `alike` holds.
struct Member {
  std::size_t statement;
  const ir::Call* call;
  std::string_view dtype;
  std::size_t bytes;

  [[nodiscard]] bool alike(const Member& other) const {
    return call->name == other.call->name && dtype == other.dtype &&
           std::equal(call->arguments.begin() + 1, call->arguments.end(), other.call->arguments.begin() + 1,
                      other.call->arguments.end());
  }
};

std::optional<Member> as_member(const ir::Program& program, std::size_t i) {
  const ir::Statement& statement = program.statements[i];
  const ir::Call* call = call_of(statement);
  const auto kind = std::ranges::find(kKinds, std::string_view(call->name), &Kind::name);
  if (kind == kKinds.end() || !call->overload.empty() || call->arguments.size() != kind->n_arguments || !call->keywords.empty())
    return std::nullopt;
  const auto operand = value_of(call->arguments[0]);
  if (!operand) return std::nullopt;
  const ir::ValueId larger = kind->result_is_larger ? statement.result : *operand;
  const std::string_view note = program.values[larger.index].note;
  const auto bytes = note_bytes(note);
  if (!bytes) return std::nullopt;
  return Member{.statement = i, .call = call, .dtype = note_dtype(note), .bytes = *bytes};
}

/// Everything that stands behind given statements, which may grow.
class Behind {
 public:
  explicit Behind(const std::vector<std::vector<std::size_t>>& after) : after_(after), is_behind_(after.size(), false) {}

  void add(std::size_t i) {
    std::vector<std::size_t> open = {i};
    while (!open.empty()) {
      const std::size_t at = open.back();
      open.pop_back();
      for (const std::size_t later : after_[at]) {
        if (is_behind_[later]) continue;
        is_behind_[later] = true;
        open.push_back(later);
      }
    }
  }
  [[nodiscard]] bool contains(std::size_t i) const { return is_behind_[i]; }

 private:
  const std::vector<std::vector<std::size_t>>& after_;
  std::vector<bool> is_behind_;
};

using Bucket = std::vector<std::size_t>;

/// All collectives in their order: those that become one call together.
std::vector<Bucket> choose_buckets(const ir::Program& program, const std::vector<std::vector<std::size_t>>& after,
                                   std::size_t max_bytes) {
  std::vector<Bucket> buckets;
  std::optional<Member> last;  // of the newest bucket
  std::optional<Behind> behind;
  std::size_t room = 0;
  for (std::size_t i = 0; i < program.statements.size(); ++i) {
    const ir::Call* call = call_of(program.statements[i]);
    if (call == nullptr || !is_collective(*call)) continue;
    const std::optional<Member> member = as_member(program, i);
    if (member && last && member->alike(*last) && member->bytes <= room && !behind->contains(i)) {
      buckets.back().push_back(i);
      room -= member->bytes;
    } else {
      buckets.push_back({i});
      behind.emplace(after);
      room = member && member->bytes <= max_bytes ? max_bytes - member->bytes : 0;
    }
    last = member;
    behind->add(i);
  }
  return buckets;
}

/// The order of statements once each bucket is one, its first statement: the old order, where it is possible.
std::vector<std::size_t> order_with(std::vector<std::vector<std::size_t>> after, const std::vector<Bucket>& buckets) {
  std::vector<std::size_t> first(after.size());
  for (std::size_t i = 0; i < first.size(); ++i) first[i] = i;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    for (const std::size_t member : buckets[i]) first[member] = buckets[i].front();
    if (i > 0) after[buckets[i - 1].front()].push_back(buckets[i].front());
  }
  std::vector<std::vector<std::size_t>> merged(after.size());
  for (std::size_t i = 0; i < after.size(); ++i)
    for (const std::size_t later : after[i]) merged[first[i]].push_back(first[later]);

  std::vector<std::size_t> missing = count_predecessors(merged);
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < merged.size(); ++i)
    if (first[i] == i && missing[i] == 0) ready.push(i);
  std::vector<std::size_t> order;
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (const std::size_t later : merged[order.back()])
      if (--missing[later] == 0) ready.push(later);
  }
  return order;
}

/// The members' calls as one, then its items under the members' names.
void append_coalesced(ir::Program& program, const Bucket& bucket, std::vector<ir::Statement>& statements) {
  ir::Call call = *call_of(program.statements[bucket.front()]);
  call.name += "_coalesced";
  ir::Operand::List operands;
  for (const std::size_t member : bucket) operands.push_back(call_of(program.statements[member])->arguments[0]);
  call.arguments[0] = {std::move(operands)};
  const ir::ValueId all{static_cast<int>(program.values.size())};
  program.values.push_back({call.name.substr(call.name.find("::") + 2), ""});
  statements.push_back({.result = all, .is = std::move(call)});
  for (std::size_t i = 0; i < bucket.size(); ++i)
    statements.push_back(
        {.result = program.statements[bucket[i]].result, .is = ir::GetItem{.source = all, .index = static_cast<std::int64_t>(i)}});
}

}  // namespace

bool bucket_collectives(ir::Program& program, const OperatorEffects& effects, const BucketOptions& options) {
  const auto after = dependents(program, Memory(program, effects));
  const std::vector<Bucket> buckets = choose_buckets(program, after, options.max_bytes);
  if (std::ranges::all_of(buckets, [](const Bucket& bucket) { return bucket.size() == 1; })) return false;

  std::vector<const Bucket*> bucket_at(program.statements.size(), nullptr);
  for (const Bucket& bucket : buckets)
    if (bucket.size() > 1) bucket_at[bucket.front()] = &bucket;
  std::vector<ir::Statement> statements;
  for (const std::size_t i : order_with(after, buckets)) {
    if (bucket_at[i] != nullptr)
      append_coalesced(program, *bucket_at[i], statements);
    else
      statements.push_back(program.statements[i]);
  }
  program.statements = std::move(statements);
  ir::renumber(program);
  return true;
}

}  // namespace precast::passes
