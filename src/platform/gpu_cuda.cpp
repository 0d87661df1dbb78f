// Compiled where CMake found the headers of the CUDA runtime; its code comes with LibTorch.
#include "platform/gpu.h"

#include "precast/error.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

// As ATen/cuda/CUDAContextLight.h has it, which needs the headers of cuBLAS and cuSPARSE too.
namespace at::cuda {
TORCH_CUDA_CPP_API cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device);  // NOLINT(readability-identifier-naming)
}

namespace precast::platform {

Gpu gpu(int index) {
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  const int n_devices = hooks.getNumGPUs();
  if (index < 0 || index >= n_devices)
    throw PrecompileError(
        ErrorCode::environment,
        fmt::format("CUDA device {}: LibTorch sees {} devices; check the driver and CUDA_VISIBLE_DEVICES", index, n_devices));
  const cudaDeviceProp& properties = *at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index));
  const long version = hooks.versionCUDART();  // 1000 * major + 10 * minor
  return {fmt::format("sm_{}{}", properties.major, properties.minor), fmt::format("{}.{}", version / 1000, version % 1000 / 10)};
}

}  // namespace precast::platform
