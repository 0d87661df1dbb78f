#pragma once

#include "ir/program.h"
#include "precast/deadline.h"
#include "precast/options.h"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace precast::inductor {

using Fingerprint = std::map<std::string, std::string>;

/// A compiled program, for the envelope.
struct Lowered {
  std::vector<std::byte> package;  ///< A .pt2: takes the tensor inputs of the program, gives what Split::compiled returns.
  Fingerprint fingerprint;         ///< What the package needs of a process, and what it was made with, field by field.
};

/// What a lowering of this program would be made for and with: equal fingerprints mean equal packages. The CPU is that of
/// `options.target`, else of this machine.
Fingerprint fingerprint_for(const ir::Program& program, const InductorOptions& options);

/// The cores that this process may run on.
std::vector<int> own_cpus();

/// Why this process cannot run a package with this fingerprint, or nothing.
std::string why_unusable(const Fingerprint& fingerprint);

/// Compiles the program by TorchInductor in a process of its own: the environment's Python, which sees shapes and no weights.
/// Collectives are compiled for the logical names of their groups. Its progress goes to the log.
/// @param cpus  cores that the compiler may use; empty: those of this process.
/// @throws PrecompileError  refused_capture: the program is none for Inductor, names the operator; environment: no Python or no
/// compiler, a crash, the deadline, another version of torch than this process has.
Lowered lower(const ir::Program& program, const InductorOptions& options, const std::vector<int>& cpus, Deadline deadline);

}  // namespace precast::inductor
