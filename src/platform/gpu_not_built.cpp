// Stands for gpu_cuda.cpp where the headers of the CUDA runtime are missing.
#include "platform/gpu.h"

#include "precast/error.h"

namespace precast::platform {

Gpu gpu(int) {
  throw PrecompileError(ErrorCode::not_built, "this build of Precast has no CUDA: configure it where cuda_runtime_api.h is found");
}

}  // namespace precast::platform
