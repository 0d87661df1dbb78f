#pragma once

#include "comm/environment.h"
#include "comm/transport.h"

#include <memory>

namespace precast {

/// Connects by c10d's Gloo: through torchrun's own store where it has one, else through a store that rank 0 hosts at
/// MASTER_ADDR:MASTER_PORT. Collective. @throws PrecompileError lost_rank: not all ranks came by options.init_deadline.
std::shared_ptr<Transport> connect_gloo(const JobEnvironment& job, const CommunicatorOptions& options);

}  // namespace precast
