#include "dtensor/redistribute_plan.h"

#include "dtensor/shards.h"

#include <algorithm>
#include <optional>

namespace precast::dtensor {
namespace {

using Kind = RedistributeStep::Kind;

class Planner {
 public:
  Planner(const Placements& from, const Placements& to) : now_(from), to_(to) {
    for (const Placements* placements : {&from, &to})
      for (const Placement& placement : *placements)
        if (const auto* shard = std::get_if<Shard>(&placement)) n_dims_ = std::max(n_dims_, shard->dim + 1);
    for (std::int64_t dim = 0; dim < n_dims_; ++dim) {
      orders_.push_back(split_order(from, dim));
      wanted_.push_back(split_order(to, dim));
    }
  }

  std::vector<RedistributeStep> plan() {
    while (scatter_one() || move_one() || reduce_one() || gather_one() || slice_one() || make_one_partial()) {
    }
    // Same ranks, same values; what else the placements say is taken over.
    if (!steps_.empty()) steps_.back().after = to_;
    return std::move(steps_);
  }

 private:
  /// Whether the innermost split of `dim` is one that stays.
  [[nodiscard]] bool is_prefix(std::int64_t dim) const {
    const auto &order = orders_[static_cast<std::size_t>(dim)], &wanted = wanted_[static_cast<std::size_t>(dim)];
    return order.size() <= wanted.size() && std::equal(order.begin(), order.end(), wanted.begin());
  }
  /// Whether mesh dimension m can become the next split of `dim`.
  [[nodiscard]] bool can_append(std::int64_t dim, int m) const {
    const auto &order = orders_[static_cast<std::size_t>(dim)], &wanted = wanted_[static_cast<std::size_t>(dim)];
    return is_prefix(dim) && order.size() < wanted.size() && wanted[order.size()] == m;
  }
  /// Whether m is the innermost split of its tensor dimension, and has to go.
  [[nodiscard]] std::optional<std::int64_t> removable(int m) const {
    const auto* shard = std::get_if<Shard>(&now_[static_cast<std::size_t>(m)]);
    if (shard == nullptr || is_prefix(shard->dim) || orders_[static_cast<std::size_t>(shard->dim)].back() != m) return std::nullopt;
    return shard->dim;
  }
  [[nodiscard]] const Placement& now(int m) const { return now_[static_cast<std::size_t>(m)]; }
  [[nodiscard]] const Placement& to(int m) const { return to_[static_cast<std::size_t>(m)]; }

  void add(RedistributeStep step, const Placement& result) {
    const auto m = static_cast<std::size_t>(step.mesh_dim);
    if (step.from_dim >= 0) orders_[static_cast<std::size_t>(step.from_dim)].pop_back();
    if (step.to_dim >= 0) orders_[static_cast<std::size_t>(step.to_dim)].push_back(step.mesh_dim);
    now_[m] = result;
    spell_orders();
    step.after = now_;
    steps_.push_back(std::move(step));
  }

  /// Whether a shard says `strided` follows from which mesh dimensions split the tensor dimension at the moment.
  void spell_orders() {
    for (const std::vector<int>& order : orders_)
      for (auto m = order.begin(); m != order.end(); ++m)
        std::get<Shard>(now_[static_cast<std::size_t>(*m)]).strided = std::any_of(order.begin(), m, [&](int o) { return o > *m; });
  }

  template <class Try>
  bool any_mesh_dim(const Try& attempt) {
    for (int m = static_cast<int>(now_.size()) - 1; m >= 0; --m)
      if (attempt(m)) return true;
    return false;
  }

  bool scatter_one() {
    return any_mesh_dim([this](int m) {
      const auto* partial = std::get_if<Partial>(&now(m));
      const auto* shard = std::get_if<Shard>(&to(m));
      if (partial == nullptr || shard == nullptr || !can_append(shard->dim, m)) return false;
      add({.kind = Kind::reduce_scatter, .mesh_dim = m, .to_dim = shard->dim, .reduction = partial->reduction, .after = {}}, to(m));
      return true;
    });
  }
  bool move_one() {
    return any_mesh_dim([this](int m) {
      const auto from_dim = removable(m);
      const auto* shard = std::get_if<Shard>(&to(m));
      if (!from_dim || shard == nullptr || shard->dim == *from_dim || !can_append(shard->dim, m)) return false;
      add({.kind = Kind::all_to_all, .mesh_dim = m, .from_dim = *from_dim, .to_dim = shard->dim, .after = {}}, to(m));
      return true;
    });
  }
  /// A partial value that does not stay one. One that waits for another shard to go is reduced only when nothing else is left.
  bool reduce_one() {
    return any_mesh_dim([this](int m) {
      const auto* partial = std::get_if<Partial>(&now(m));
      if (partial == nullptr || now(m) == to(m)) return false;
      const auto* shard = std::get_if<Shard>(&to(m));
      if (shard != nullptr && !is_prefix(shard->dim)) return false;
      add({.kind = Kind::all_reduce, .mesh_dim = m, .reduction = partial->reduction, .after = {}}, Replicate());
      return true;
    });
  }
  bool gather_one() {
    return any_mesh_dim([this](int m) {
      const auto from_dim = removable(m);
      if (!from_dim) return false;
      add({.kind = Kind::all_gather, .mesh_dim = m, .from_dim = *from_dim, .after = {}}, Replicate());
      return true;
    });
  }
  bool slice_one() {
    return any_mesh_dim([this](int m) {
      const auto* shard = std::get_if<Shard>(&to(m));
      if (!std::holds_alternative<Replicate>(now(m)) || shard == nullptr || !can_append(shard->dim, m)) return false;
      add({.kind = Kind::slice, .mesh_dim = m, .to_dim = shard->dim, .after = {}}, to(m));
      return true;
    });
  }
  bool make_one_partial() {
    return any_mesh_dim([this](int m) {
      const auto* partial = std::get_if<Partial>(&to(m));
      if (!std::holds_alternative<Replicate>(now(m)) || partial == nullptr) return false;
      add({.kind = Kind::make_partial, .mesh_dim = m, .reduction = partial->reduction, .after = {}}, to(m));
      return true;
    });
  }

  Placements now_;
  const Placements& to_;
  std::int64_t n_dims_ = 0;
  std::vector<std::vector<int>> orders_, wanted_;  // by tensor dimension: the mesh dimensions that split it
  std::vector<RedistributeStep> steps_;
};

}  // namespace

std::vector<RedistributeStep> plan_redistribution(const Placements& from, const Placements& to) {
  return Planner(from, to).plan();
}

double redistribution_bytes(const std::vector<RedistributeStep>& steps, const Placements& from, double bytes,
                            std::span<const std::int64_t> mesh) {
  double total = 0;
  const Placements* before = &from;
  for (const RedistributeStep& step : steps) {
    double held = bytes;  // of a rank before the step
    for (std::size_t m = 0; m < before->size(); ++m)
      if (std::holds_alternative<Shard>((*before)[m])) held /= static_cast<double>(mesh[m]);
    const auto n = static_cast<double>(mesh[static_cast<std::size_t>(step.mesh_dim)]);
    switch (step.kind) {
      case Kind::all_gather: total += held * (n - 1); break;
      case Kind::all_to_all: total += held * (n - 1) / n; break;
      case Kind::all_reduce: total += 2 * held * (n - 1) / n; break;
      case Kind::reduce_scatter: total += held * (n - 1) / n; break;
      case Kind::slice:
      case Kind::make_partial: break;
    }
    before = &step.after;
  }
  return total;
}

}  // namespace precast::dtensor
