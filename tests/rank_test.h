#pragma once

#include "precast/communicator.h"

#include <chrono>

namespace precast::rank_test {

/// The ranks that run this binary together. Made once by main, from the environment.
const Communicator& communicator();

/// What that communicator stands on, for tests that put something between.
Transport& transport();

/// Long enough for a loaded machine, short enough to end before ctest does.
inline constexpr std::chrono::seconds kTime{60};

}  // namespace precast::rank_test
