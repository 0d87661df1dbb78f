#pragma once

namespace precast::inductor {

/// lower.py: what the compiling rank's Python runs.
extern const char* const kLowerScript;

}  // namespace precast::inductor
