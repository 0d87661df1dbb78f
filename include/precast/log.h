#pragma once

#include <functional>
#include <string_view>

namespace precast {

enum class LogLevel { info, warning };

using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Sends the library's messages to `sink` (an empty one restores the default: spdlog on stderr) and returns the sink that was
/// set before. Thread-safe; the sink may be called from any thread, one call at a time.
LogSink set_log_sink(LogSink sink);

}  // namespace precast
