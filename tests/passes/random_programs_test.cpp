#include "passes/toy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace precast::passes {
namespace {

using test::Builder;
using test::Reads;

/// Programs of all the toy can do: views, hidden and visible writes, random numbers, overlapping inputs, collectives waited for
/// later.
class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  ir::Program program(int n_statements) {
    builder_.program.metadata.params.resize(1);
    builder_.program.metadata.buffers.resize(1);
    builder_.program.metadata.mesh_inputs = {"dp", "tp"};
    for (int i = 0; i < 4; ++i) known_.push_back({builder_.input("x"), 4});
    for (ir::ValueId& rank : ranks_) rank = builder_.input("rank", "i64[]");
    for (int i = 0; i < n_statements; ++i) add_statement();
    while (!in_flight_.empty()) wait();
    std::vector<ir::ValueId> outputs = {known_.back().first};
    for (int i = 0; i < 5; ++i) outputs.push_back(any().first);
    return builder_.returning(outputs);
  }

 private:
  using Known = std::pair<ir::ValueId, std::int64_t>;  ///< A value of one dimension, and its length.

  unsigned below(std::size_t n) { return static_cast<unsigned>(random_() % n); }
  Known any() { return known_[std::max(below(known_.size()), below(known_.size()))]; }  // rather a late one
  static std::string note(std::int64_t length) { return "f32[" + std::to_string(length) + "]"; }

  void add(const std::string& op, std::vector<ir::Operand> arguments, std::int64_t length,
           std::vector<std::pair<std::string, ir::Operand>> keywords = {}) {
    known_.emplace_back(builder_.call(op, std::move(arguments), note(length), std::move(keywords)), length);
  }

  void wait() {
    const auto chosen = in_flight_.begin() + below(in_flight_.size());
    known_.emplace_back(builder_.wait(chosen->first), chosen->second);
    in_flight_.erase(chosen);
  }

  void issue() {
    // Mostly from few values, so that gathers repeat.
    const auto [x, n] = below(3) == 0 ? any() : known_[below(3)];
    const std::string group = below(4) == 0 ? "tp" : "dp";
    switch (below(4)) {
      case 0: in_flight_.emplace_back(builder_.all_reduce(x, group, below(4) == 0 ? "product" : "sum", note(n)), n); break;
      case 1:
        if (n % 2 == 0) in_flight_.emplace_back(builder_.reduce_scatter(x, group, note(n / 2)), n / 2);
        break;
      default:
        if (n <= 8) in_flight_.emplace_back(builder_.all_gather(x, group, note(2 * n)), 2 * n);
    }
  }

  void take_own_shard() {
    const auto [x, n] = any();
    if (n > 8) return;
    const std::size_t group = below(2);
    const auto whole = builder_.wait(builder_.all_gather(x, group == 0 ? "dp" : "tp", note(2 * n)));
    if (below(4) == 0) builder_.call("aten::add_", {{below(2) == 0 ? x : whole}, {any().first}}, "");
    const auto blocks =
        builder_.call("aten::unflatten.int", {{whole}, {std::int64_t{0}}, {ir::Operand::List{{std::int64_t{2}}, {n}}}}, "");
    const auto rank = ranks_[below(4) == 0 ? 1 - group : group];
    const auto index = builder_.call("aten::view", {{rank}, {ir::Operand::List{{std::int64_t{1}}}}}, "");
    const auto mine = builder_.call("aten::index_select", {{blocks}, {std::int64_t{0}}, {index}}, "");
    add("aten::squeeze.dim", {{mine}, {std::int64_t{0}}}, n);
    if (below(3) == 0) known_.emplace_back(whole, 2 * n);
  }

  void add_statement() {
    const auto [x, n] = any();
    const auto [y, m] = any();
    switch (below(16)) {
      case 0:
      case 1: return add("toy::add", {{x}, {y}}, n);
      case 2: return add("toy::triple", {{x}}, n);
      case 3: {
        const auto pair = builder_.call("toy::pair", {{x}}, "");
        for (std::int64_t i = 0; i < 2; ++i) known_.emplace_back(builder_.item(pair, i, note(n)), n);
        return;
      }
      case 4: return add("toy::bump", {{x}, {y}}, n);
      case 5: return add("toy::random", {{x}}, n);
      case 6:
        if (n % 2 == 0) add("toy::half", {{x}}, n / 2);
        return;
      case 7: return add("aten::add_", {{x}, {y}}, n);
      case 8: return add("toy::add.out", {{x}, {y}}, m, {{"out", {y}}});
      case 9: {
        if (n % 2 != 0) return;
        const auto chunks = builder_.call("aten::chunk", {{x}, {std::int64_t{2}}}, "");
        for (std::int64_t i = 0; i < 2; ++i) known_.emplace_back(builder_.item(chunks, i, note(n / 2)), n / 2);
        return;
      }
      case 10: return take_own_shard();
      case 11:
      case 12:
        if (!in_flight_.empty()) wait();
        return;
      default: return issue();
    }
  }

  std::mt19937 random_;
  Builder builder_;
  std::vector<Known> known_, in_flight_;
  ir::ValueId ranks_[2];
};

/// Runs a pass on many programs. Programs in which it matters when a collective reads have a race, and are left out.
/// Returns on how many programs it did something.
int count_changed(const std::function<bool(ir::Program&)>& pass, bool same_collectives) {
  int n_changed = 0, n_run = 0;
  for (unsigned seed = 0; seed < 1500; ++seed) {
    const ir::Program before = Generator(seed).program(8 + static_cast<int>(seed % 40));
    const test::Run expected = test::run_toy(before), late = test::run_toy(before, Reads::when_waited);
    if (expected.outcome != late.outcome || expected.collectives != late.collectives) continue;
    ++n_run;
    ir::Program after = before;
    n_changed += pass(after) ? 1 : 0;
    test::expect_valid(after);
    for (const Reads reads : {Reads::when_issued, Reads::when_waited}) {
      const test::Run found = test::run_toy(after, reads);
      EXPECT_EQ(found.outcome, expected.outcome) << "seed " << seed;
      if (same_collectives) {
        EXPECT_EQ(found.collectives, expected.collectives) << "seed " << seed;
      }
    }
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(n_run, 500);
  return n_changed;
}

TEST(RandomPrograms, OverlapKeepsWhatTheyDo) {
  for (const std::size_t max_in_flight : {1000U, 2U, 1U})
    EXPECT_GT(
        count_changed([&](ir::Program& p) { return overlap_collectives(p, test::toy_effects(), {.max_in_flight = max_in_flight}); },
                      /*same_collectives=*/true),
        250);
}

TEST(RandomPrograms, BucketingKeepsWhatTheyDo) {
  EXPECT_GT(count_changed([](ir::Program& p) { return bucket_collectives(p, test::toy_effects(), {.max_bytes = 100}); },
                          /*same_collectives=*/false),
            100);
}

TEST(RandomPrograms, RemovingGathersKeepsWhatTheyDo) {
  EXPECT_GT(
      count_changed([](ir::Program& p) { return remove_redundant_gathers(p, test::toy_effects()); }, /*same_collectives=*/false),
      100);
}

TEST(RandomPrograms, AllPassesTogetherKeepWhatTheyDo) {
  EXPECT_GT(count_changed(
                [](ir::Program& p) {
                  const OperatorEffects effects = test::toy_effects();
                  const bool removed = remove_redundant_gathers(p, effects), bucketed = bucket_collectives(p, effects);
                  return overlap_collectives(p, effects) || removed || bucketed;
                },
                /*same_collectives=*/false),
            250);
}

}  // namespace
}  // namespace precast::passes
