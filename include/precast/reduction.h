#pragma once

namespace precast {

/// How the values of several ranks become one.
enum class Reduction { sum, avg, max, min };

}  // namespace precast
