#pragma once

#include "comm/environment.h"
#include "comm/transport.h"

#include <memory>

namespace precast {

/// Connects by MPI, starting it if the program has not. Collective.
/// @throws PrecompileError environment: MPI sees another number of ranks than the launcher's variables.
std::shared_ptr<Transport> connect_mpi(const JobEnvironment& job, const CommunicatorOptions& options);

}  // namespace precast
