#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <mutex>

namespace precast {
namespace {

void log_to_stderr(LogLevel level, std::string_view text) {
  static const auto logger = std::make_shared<spdlog::logger>("precast", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->log(level == LogLevel::warning ? spdlog::level::warn : spdlog::level::info, "{}", text);
}

struct Sink {
  std::mutex mutex;
  LogSink function = log_to_stderr;
};

Sink& sink() {
  static Sink instance;
  return instance;
}

}  // namespace

LogSink set_log_sink(LogSink function) {
  const std::lock_guard lock(sink().mutex);
  return std::exchange(sink().function, function ? std::move(function) : LogSink(log_to_stderr));
}

void log(LogLevel level, std::string_view text) {
  const std::lock_guard lock(sink().mutex);
  sink().function(level, text);
}

}  // namespace precast
