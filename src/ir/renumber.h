#pragma once

#include "ir/program.h"

#include <cstdint>

namespace precast::ir {

/// What the names of values are before they are made unique.
enum class Names : std::uint8_t {
  identifiers,  ///< They stay, except that the later one of two equal names gets a number.
  wishes,       ///< They may be any text.
};

/// Puts values in the order in which inputs and statements define them, as a reader of the text would number them, drops those that
/// nothing defines, and makes names unique in that order. For whoever added, moved or removed statements.
void renumber(Program& program, Names names = Names::identifiers);

}  // namespace precast::ir
