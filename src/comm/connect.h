#pragma once

#include "comm/transport.h"

#include <memory>

namespace precast {

/// What Communicator::from_environment stands on: finds the launcher, sets ATen's threads, connects.
std::shared_ptr<Transport> connect(const CommunicatorOptions& options);

}  // namespace precast
