#pragma once

#include <chrono>

namespace precast {

/// A point of the steady clock by which an operation has ended, whatever happened to the other ranks.
using Deadline = std::chrono::steady_clock::time_point;

inline Deadline after(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

}  // namespace precast
