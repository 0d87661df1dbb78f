// Stands for nccl_backend.cpp where the headers of NCCL or the CUDA runtime are missing.
#include "comm/c10d/nccl_backend.h"
#include "precast/error.h"

namespace precast {

bool nccl_is_usable(const JobEnvironment&) {
  return false;
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>&, int, int, std::chrono::milliseconds) {
  throw PrecompileError(ErrorCode::not_built,
                        "this build of Precast has no NCCL: configure it where nccl.h and cuda_runtime_api.h are found");
}

}  // namespace precast
