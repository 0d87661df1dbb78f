#include "platform/cpu.h"
#include "platform/gpu.h"
#include "platform/platform.h"

#include <ATen/Version.h>

namespace precast::platform {

Platform this_platform(int gpu_index) {
  const TorchBuild torch = torch_build(at::show_config());
  Platform platform{torch.version, torch.git, best_level(), "", ""};
  if (gpu_index >= 0) {
    const Gpu found = gpu(gpu_index);
    platform.gpu = found.architecture;
    platform.cuda = found.cuda;
  }
  return platform;
}

}  // namespace precast::platform
