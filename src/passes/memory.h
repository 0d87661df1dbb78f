#pragma once

#include "passes/passes.h"

#include <cstddef>
#include <vector>

namespace precast::passes {

/// Numbers of storages, ascending.
using Storages = std::vector<int>;

[[nodiscard]] bool overlap(const Storages& a, const Storages& b);

/// Which storages values may lie in, and which ones statements touch. A value that may be a view of either of two has both.
/// Storages of one tensor with several results (a coalesced collective's) are told apart.
class Memory {
 public:
  Memory(const ir::Program& program, const OperatorEffects& effects);

  [[nodiscard]] const Storages& of(ir::ValueId value) const { return of_value_[value.index]; }

  /// Of a statement, besides defining its result. A wait reads what its collective still reads, and writes its result.
  struct Access {
    Storages reads, writes;
    bool keeps_order = false;
    bool is_wait = false;
    std::vector<std::size_t> waits_for;  ///< Statements of the collectives that a wait ends.
  };
  [[nodiscard]] const Access& access(std::size_t statement) const { return access_[statement]; }

  /// Whether a statement of [begin, end), waits apart, writes into one of the storages.
  [[nodiscard]] bool written(const Storages& storages, std::size_t begin, std::size_t end) const;
  [[nodiscard]] bool written(const Storages& storages) const { return written(storages, 0, access_.size()); }

 private:
  int new_storage() { return n_storages_++; }
  void define_inputs(const ir::Program& program);
  void run(const ir::Program& program, std::size_t statement, const OperatorEffects& effects);

  int n_storages_ = 0;
  std::vector<Storages> of_value_;
  std::vector<bool> fresh_;        ///< Of a value: its call gave new memory.
  std::vector<Storages> items_;    ///< Of a value: the storages that its items would have if it is fresh.
  std::vector<Storages> item_of_;  ///< Of a value defined by a GetItem: its own storage if the source is fresh.
  std::vector<std::vector<std::size_t>> collectives_of_storage_;  ///< Statements whose result lies there.
  std::vector<Access> access_;
};

}  // namespace precast::passes
