#pragma once

#include "precast/log.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace precast::test {

/// Collects warnings while it lives.
class Warnings {
 public:
  Warnings() {
    previous_ = set_log_sink([this](LogLevel level, std::string_view text) {
      if (level == LogLevel::warning) texts.emplace_back(text);
    });
  }
  ~Warnings() { set_log_sink(std::move(previous_)); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;

  [[nodiscard]] std::size_t count(const std::string& word) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(texts, [&](const std::string& text) { return text.find(word) != text.npos; }));
  }

  std::vector<std::string> texts;

 private:
  LogSink previous_;
};

}  // namespace precast::test
