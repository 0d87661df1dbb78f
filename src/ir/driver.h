#pragma once

namespace precast::ir {

/// The Python part of every python_code that checks arguments, runs `call` and accumulates gradients.
extern const char* const kDriver;

}  // namespace precast::ir
