#include "comm/connect.h"

#include "base/log.h"
#include "comm/c10d/gloo_transport.h"
#include "comm/environment.h"
#include "comm/mpi/mpi_transport.h"
#include "comm/single/single_transport.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <thread>

namespace precast {
namespace {

void set_threads(const JobEnvironment& job, const CommunicatorOptions& options) {
  const ThreadChoice choice =
      choose_threads(process_variables(), job, options.threads, static_cast<int>(std::thread::hardware_concurrency()));
  at::set_num_threads(choice.count);
  const bool is_default_of_torchrun = options.threads == 0 && job.launcher == "torchrun" && choice.count == 1;
  if (is_default_of_torchrun && job.rank == 0) log(LogLevel::info, fmt::format("1 thread a rank: {}", choice.reason));
}

}  // namespace

std::shared_ptr<Transport> connect(const CommunicatorOptions& options) {
  const JobEnvironment job = job_environment(process_variables());
  set_threads(job, options);
  if (job.launcher == "none" || (job.launcher == "torchrun" && job.size == 1)) return std::make_shared<SingleTransport>(job);
  if (job.launcher == "openmpi" || job.launcher == "pmi") return connect_mpi(job, options);
  if (job.master_addr.empty())
    throw PrecompileError(
        ErrorCode::environment,
        fmt::format("rank {} of {} was started by {}, and MASTER_ADDR and MASTER_PORT are not set: set them to a host and "
                    "port of rank 0, or start the ranks with mpirun",
                    job.rank, job.size, job.launcher));
  return connect_gloo(job, options);
}

}  // namespace precast
