#pragma once

#include "ir/program.h"

#include <cstddef>
#include <optional>
#include <string_view>

namespace precast::passes {

/// The call of a statement, or null for a GetItem.
[[nodiscard]] const ir::Call* call_of(const ir::Statement& statement);

/// Waits for a collective and gives back its argument.
[[nodiscard]] bool is_wait(const ir::Call& call);

/// Something that all ranks of a group must issue in one order.
[[nodiscard]] bool is_collective(const ir::Call& call);

/// The value that an operand is, or nothing.
[[nodiscard]] std::optional<ir::ValueId> value_of(const ir::Operand& operand);

/// Dtype of a note: "f32" of "f32[16, 8]"; empty where the note says none.
[[nodiscard]] std::string_view note_dtype(std::string_view note);

/// Bytes of a contiguous tensor with this note, or nothing where it does not say (no note, a dtype of unknown size, more than
/// 2^63).
[[nodiscard]] std::optional<std::size_t> note_bytes(std::string_view note);

}  // namespace precast::passes
