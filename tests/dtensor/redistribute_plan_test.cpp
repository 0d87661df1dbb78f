#include "dtensor/redistribute_plan.h"

#include "dtensor/shards.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <set>

namespace precast::dtensor {
namespace {

using Kind = RedistributeStep::Kind;

/// A matrix as every rank of a mesh holds it, by global index: an oracle that knows placements by their definition and collectives
/// by theirs, and nothing of plans.
class Simulation {
 public:
  using Local = std::map<std::pair<std::int64_t, std::int64_t>, double>;  // global index to value

  Simulation(Sizes shape, Sizes mesh) : shape_(std::move(shape)), mesh_(std::move(mesh)) {
    n_ranks_ = std::accumulate(mesh_.begin(), mesh_.end(), std::int64_t{1}, std::multiplies<>());
  }

  [[nodiscard]] Sizes coordinates(std::int64_t rank) const {
    Sizes c(mesh_.size());
    for (std::size_t m = mesh_.size(); m-- > 0; rank /= mesh_[m]) c[m] = rank % mesh_[m];
    return c;
  }

  /// What a rank holds of indices under `placements`, whatever the values.
  [[nodiscard]] std::vector<IndexRange> ranges(const Placements& placements, std::int64_t rank) const {
    std::vector<IndexRange> out;
    for (std::size_t d = 0; d < shape_.size(); ++d)
      out.push_back(local_range(shape_[d], split_order(placements, static_cast<std::int64_t>(d)), mesh_, coordinates(rank)));
    return out;
  }

  /// The tensor i * 100 + j under `placements`; a partial sum or average is spread over the ranks unevenly.
  [[nodiscard]] std::vector<Local> place(const Placements& placements) const {
    std::vector<Local> locals;
    for (std::int64_t rank = 0; rank < n_ranks_; ++rank) {
      const auto r = ranges(placements, rank);
      Local local;
      for (std::int64_t i = r[0].begin; i < r[0].end; ++i)
        for (std::int64_t j = r[1].begin; j < r[1].end; ++j) local[{i, j}] = share(i * 100 + j, placements, coordinates(rank));
      locals.push_back(std::move(local));
    }
    return locals;
  }

  [[nodiscard]] double share(double value, const Placements& placements, const Sizes& c) const {
    for (std::size_t m = 0; m < placements.size(); ++m)
      if (const auto* partial = std::get_if<Partial>(&placements[m])) {
        const auto n = static_cast<double>(mesh_[m]), k = static_cast<double>(c[m]);
        if (partial->reduction == Reduction::sum) value *= (k + 1) / (n * (n + 1) / 2);
        if (partial->reduction == Reduction::avg) value *= n * (k + 1) / (n * (n + 1) / 2);
        if (partial->reduction == Reduction::max) value -= n - 1 - k;
        if (partial->reduction == Reduction::min) value += n - 1 - k;
      }
    return value;
  }

  void run(const RedistributeStep& step, std::vector<Local>& locals) const {
    const std::vector<Local> before = locals;
    const auto m = static_cast<std::size_t>(step.mesh_dim);
    for (std::int64_t rank = 0; rank < n_ranks_; ++rank) {
      std::vector<std::int64_t> group;
      for (std::int64_t other = 0; other < n_ranks_; ++other) {
        Sizes a = coordinates(rank), b = coordinates(other);
        a[m] = b[m] = 0;
        if (a == b) group.push_back(other);
      }
      Local pool;  // all that the group's collective makes available
      const bool reduces = step.kind == Kind::all_reduce || step.kind == Kind::reduce_scatter;
      if (step.kind == Kind::slice || step.kind == Kind::make_partial) {
        pool = before[static_cast<std::size_t>(rank)];
        if (step.kind == Kind::make_partial && step.reduction == Reduction::sum && coordinates(rank)[m] != 0)
          for (auto& [index, value] : pool) value = 0;
      } else {
        std::map<std::pair<std::int64_t, std::int64_t>, std::vector<double>> heard;
        for (const std::int64_t other : group)
          for (const auto& [index, value] : before[static_cast<std::size_t>(other)]) heard[index].push_back(value);
        for (const auto& [index, values] : heard) {
          ASSERT_EQ(values.size(), reduces ? group.size() : 1U)
              << "a gather that hears an index twice, or a reduction that lacks one";
          double result = values[0];
          for (std::size_t i = 1; i < values.size(); ++i)
            result = step.reduction == Reduction::max   ? std::max(result, values[i])
                     : step.reduction == Reduction::min ? std::min(result, values[i])
                                                        : result + values[i];
          pool[index] = step.reduction == Reduction::avg && reduces ? result / static_cast<double>(values.size()) : result;
        }
      }
      Local mine;
      const auto r = ranges(step.after, rank);
      for (std::int64_t i = r[0].begin; i < r[0].end; ++i)
        for (std::int64_t j = r[1].begin; j < r[1].end; ++j) {
          ASSERT_TRUE(pool.contains({i, j})) << "rank " << rank << " is to hold an element that its group does not have";
          mine[{i, j}] = pool[{i, j}];
        }
      locals[static_cast<std::size_t>(rank)] = std::move(mine);
    }
  }

  /// The tensor that the locals stand for must be the original one, and lie as `placements` says.
  void expect_whole(const std::vector<Local>& locals, const Placements& placements) const {
    for (std::int64_t rank = 0; rank < n_ranks_; ++rank) {
      const auto r = ranges(placements, rank);
      ASSERT_EQ(static_cast<std::int64_t>(locals[static_cast<std::size_t>(rank)].size()), r[0].size() * r[1].size());
    }
    for (std::int64_t i = 0; i < shape_[0]; ++i)
      for (std::int64_t j = 0; j < shape_[1]; ++j)
        EXPECT_NEAR(value_of(locals, placements, {i, j}), static_cast<double>(i * 100 + j), 1e-9);
  }

  /// Reduces over the partial mesh dimensions, one holder for each combination of their coordinates.
  [[nodiscard]] double value_of(const std::vector<Local>& locals, const Placements& placements,
                                std::pair<std::int64_t, std::int64_t> index) const {
    std::map<Sizes, double> by_partial;  // coordinates on partial dimensions only
    for (std::int64_t rank = 0; rank < n_ranks_; ++rank) {
      const Local& local = locals[static_cast<std::size_t>(rank)];
      const auto found = local.find(index);
      if (found == local.end()) continue;
      Sizes key = coordinates(rank);
      for (std::size_t m = 0; m < key.size(); ++m)
        if (!std::holds_alternative<Partial>(placements[m])) key[m] = 0;
      const auto [entry, is_new] = by_partial.try_emplace(key, found->second);
      EXPECT_DOUBLE_EQ(entry->second, found->second) << "replicas differ";
    }
    for (std::size_t m = 0; m < placements.size(); ++m) {
      const auto* partial = std::get_if<Partial>(&placements[m]);
      if (partial == nullptr) continue;
      std::map<Sizes, std::vector<double>> groups;
      for (const auto& [key, value] : by_partial) {
        Sizes rest = key;
        rest[m] = 0;
        groups[rest].push_back(value);
      }
      by_partial.clear();
      for (const auto& [key, values] : groups) {
        EXPECT_EQ(static_cast<std::int64_t>(values.size()), mesh_[m]);
        double result = std::accumulate(values.begin(), values.end(), 0.0);
        if (partial->reduction == Reduction::avg) result /= static_cast<double>(values.size());
        if (partial->reduction == Reduction::max) result = *std::max_element(values.begin(), values.end());
        if (partial->reduction == Reduction::min) result = *std::min_element(values.begin(), values.end());
        by_partial[key] = result;
      }
    }
    EXPECT_EQ(by_partial.size(), 1U);
    return by_partial.empty() ? 0 : by_partial.begin()->second;
  }

 private:
  Sizes shape_, mesh_;
  std::int64_t n_ranks_;
};

Shard strided(std::int64_t dim) {
  Shard shard(dim);
  shard.strided = true;
  return shard;
}

std::vector<Placement> all_placements() {
  return {Replicate(),
          Shard(0),
          Shard(1),
          strided(0),
          strided(1),
          Partial(),
          Partial(Reduction::avg),
          Partial(Reduction::max),
          Partial(Reduction::min)};
}

/// Orders of reductions matter where two kinds meet (the largest of sums is not the sum of the largest): such a tensor has no
/// meaning.
bool means_something(const Placements& placements) {
  std::set<Reduction> kinds;
  for (const Placement& placement : placements)
    if (const auto* partial = std::get_if<Partial>(&placement))
      kinds.insert(partial->reduction == Reduction::avg ? Reduction::sum : partial->reduction);
  return kinds.size() <= 1;
}

TEST(RedistributePlan, EveryPairOfPlacementsOnTwoMeshDimensionsKeepsTheTensor) {  // C155
  for (const Sizes& mesh : {Sizes{2, 3}, Sizes{3, 2}})
    for (const Sizes& shape : {Sizes{12, 6}, Sizes{7, 5}, Sizes{1, 4}}) {
      const Simulation simulation(shape, mesh);
      for (const Placement& a : all_placements())
        for (const Placement& b : all_placements())
          for (const Placement& c : all_placements())
            for (const Placement& d : all_placements()) {
              const Placements from = {a, b}, to = {c, d};
              if (!means_something(from) || !means_something(to)) continue;
              SCOPED_TRACE(fmt::format("{} to {}", to_string(from), to_string(to)));
              auto locals = simulation.place(from);
              for (const RedistributeStep& step : plan_redistribution(from, to)) {
                simulation.run(step, locals);
                if (testing::Test::HasFatalFailure()) return;
              }
              simulation.expect_whole(locals, to);
              if (testing::Test::HasFailure()) return;
            }
    }
}

TEST(RedistributePlan, ThreeMeshDimensionsKeepTheTensor) {
  std::mt19937 random(7);
  const Simulation simulation({9, 8}, {2, 2, 2});
  const auto choices = all_placements();
  const auto draw = [&] {
    Placements placements;
    for (int m = 0; m < 3; ++m) placements.push_back(choices[random() % choices.size()]);
    return placements;
  };
  for (int i = 0; i < 2000; ++i) {
    const Placements from = draw(), to = draw();
    if (!means_something(from) || !means_something(to)) continue;
    SCOPED_TRACE(fmt::format("{} to {}", to_string(from), to_string(to)));
    auto locals = simulation.place(from);
    for (const RedistributeStep& step : plan_redistribution(from, to)) simulation.run(step, locals);
    simulation.expect_whole(locals, to);
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

std::vector<Kind> kinds(const Placements& from, const Placements& to) {
  std::vector<Kind> out;
  for (const RedistributeStep& step : plan_redistribution(from, to)) out.push_back(step.kind);
  return out;
}

TEST(RedistributePlan, TakesTheCheapestCollective) {
  EXPECT_EQ(kinds({Shard(0)}, {Replicate()}), std::vector{Kind::all_gather});
  EXPECT_EQ(kinds({Shard(0)}, {Shard(1)}), std::vector{Kind::all_to_all});
  EXPECT_EQ(kinds({Partial()}, {Replicate()}), std::vector{Kind::all_reduce});
  EXPECT_EQ(kinds({Partial()}, {Shard(1)}), std::vector{Kind::reduce_scatter});
  EXPECT_EQ(kinds({Replicate()}, {Shard(1)}), std::vector{Kind::slice});
  EXPECT_EQ(kinds({Replicate()}, {Partial()}), std::vector{Kind::make_partial});
  EXPECT_TRUE(kinds({Shard(0), Partial()}, {Shard(0), Partial()}).empty());
}

TEST(RedistributePlan, FsdpOverTensorParallelGathersOneDimension) {
  EXPECT_EQ(kinds({strided(0), Shard(0)}, {Replicate(), Shard(0)}), std::vector{Kind::all_gather});
  EXPECT_EQ(kinds({Partial(), Shard(0)}, {strided(0), Shard(0)}), std::vector{Kind::reduce_scatter});
}

TEST(Shards, AreThoseOfTorchChunk) {
  EXPECT_EQ(chunk(5, 0, 4), (IndexRange{0, 2}));
  EXPECT_EQ(chunk(5, 2, 4), (IndexRange{4, 5}));
  EXPECT_EQ(chunk(5, 3, 4), (IndexRange{5, 5}));
  EXPECT_EQ(chunk(0, 1, 2), (IndexRange{0, 0}));
}

TEST(Placement, TextIsReadBack) {
  for (const Placement& placement : all_placements()) EXPECT_EQ(placement_from_string(to_string(placement)), placement);
  Shard stored(3);
  stored.stored = true;
  EXPECT_EQ(placement_from_string(to_string(Placement(stored))), Placement(stored));
  for (const char* text : {"", "Shard", "Shard(", "Shard()", "Shard(0", "Shard(0))", "Shard(x)", "Partial(mean)", "replicate()"})
    EXPECT_THROW(static_cast<void>(placement_from_string(text)), std::invalid_argument) << text;
}

}  // namespace
}  // namespace precast::dtensor
