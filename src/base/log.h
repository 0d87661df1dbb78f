#pragma once

#include "precast/log.h"

#include <fmt/format.h>

#include <utility>

namespace precast {

/// Sends one message to the library's sink.
void log(LogLevel level, std::string_view text);

template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace precast
