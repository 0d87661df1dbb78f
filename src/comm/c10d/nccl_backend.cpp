// Compiled where CMake found the headers of NCCL and the CUDA runtime; their code comes with LibTorch.
#ifndef USE_C10D_NCCL
#define USE_C10D_NCCL 1  // NOLINT(readability-identifier-naming): LibTorch's name
#endif
#include "comm/c10d/nccl_backend.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace precast {

bool nccl_is_usable(const JobEnvironment& job) {
  // NCCL refuses two ranks on one GPU.
  return at::detail::getCUDAHooks().getNumGPUs() >= job.local_size;
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    std::chrono::milliseconds longest) {
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = longest;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}

}  // namespace precast
