#include "comm/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace precast {

std::string write_finding(const Finding& finding) {
  return finding.ok() ? std::string() : static_cast<char>(finding.code) + finding.text;
}

Finding read_finding(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return {static_cast<ErrorCode>(text.front()), std::string(text.substr(1))};
}

Verdict join_findings(const std::vector<Finding>& findings) {
  Verdict verdict;
  std::vector<std::pair<std::string, std::vector<std::size_t>>> ranks_of;
  for (std::size_t rank = 0; rank < findings.size(); ++rank) {
    const Finding& finding = findings[rank];
    if (finding.ok()) continue;
    if (ranks_of.empty()) verdict.code = finding.code;
    auto same = std::ranges::find(ranks_of, finding.text, [](const auto& entry) { return entry.first; });
    if (same == ranks_of.end()) same = ranks_of.insert(ranks_of.end(), {finding.text, {}});
    same->second.push_back(rank);
  }
  for (const auto& [text, ranks] : ranks_of)
    verdict.text += fmt::format("{}{} {} of {}, {}", verdict.text.empty() ? "" : "; ", ranks.size() == 1 ? "rank" : "ranks",
                                fmt::join(ranks, ", "), findings.size(), text);
  return verdict;
}

}  // namespace precast
