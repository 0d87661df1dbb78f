#pragma once

namespace precast::dtensor {

/// Makes operator calls on DTensors come to this room: rule, strategy, redistribution of operands, the operator on local tensors,
/// results wrapped. Called before the first DTensor exists.
/// @throws PrecompileError environment  the way in is taken by another library.
void ensure_operators();

/// Whether plain tensors count as replicated on this thread (ImplicitReplication).
bool is_implicitly_replicated();

}  // namespace precast::dtensor
