#pragma once

#include "ir/program.h"

#include <vector>

namespace precast::capture {

/// What one recorded statement does besides giving its result.
struct Effects {
  std::vector<int> written_storages;
  bool keep = false;  ///< It draws random numbers or asserts: it stays, whoever reads its result.
};

/// A recording, in order. `statements` and `effects` are parallel, `values` and `storage_of_value` too.
struct Trace {
  std::vector<ir::Value> values;      ///< Names are wishes; make_program gives the final ones.
  std::vector<int> storage_of_value;  ///< -1: none.
  std::vector<ir::ValueId> inputs;
  std::vector<ir::Statement> statements;
  std::vector<Effects> effects;
};

/// The statements that the outputs, the inputs' values after the run, or the random state depend on, values renumbered and named in
/// order. A write is alive if a later living statement, an output, or the caller looks at the written storage.
ir::Program make_program(Trace trace, std::vector<ir::Operand> outputs, ir::Metadata metadata);

}  // namespace precast::capture
