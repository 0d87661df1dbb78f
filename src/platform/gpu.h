#pragma once

#include <string>

namespace precast::platform {

struct Gpu {
  std::string architecture;  ///< "sm_90"
  std::string cuda;          ///< "13.2"
};

/// @throws PrecompileError  environment: LibTorch sees no device `index`; not_built: this build is without CUDA.
Gpu gpu(int index);

}  // namespace precast::platform
