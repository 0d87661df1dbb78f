#pragma once

#include "precast/communicator.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace precast {

/// A finding as bytes between ranks: its code as one character, then its text.
std::string write_finding(const Finding& finding);
Finding read_finding(std::span<const std::byte> bytes);

/// One verdict of all findings, by rank: "rank 1 of 4: ..." for each; one that several ranks have, once. Its code is that of the
/// first.
Verdict join_findings(const std::vector<Finding>& findings);

}  // namespace precast
