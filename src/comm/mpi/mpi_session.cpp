#include "comm/mpi/mpi_session.h"

#include "precast/error.h"

#include <chrono>
#include <thread>

namespace precast {
namespace {

constexpr auto kGoodbyeTime = std::chrono::seconds(5);

/// MPI_Finalize waits for all ranks, for ever. Only where they all come to a barrier in time is it called.
bool all_ranks_are_leaving() {
  MPI_Request request = MPI_REQUEST_NULL;
  int done = 0;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) return false;
  const auto end = std::chrono::steady_clock::now() + kGoodbyeTime;
  while (done == 0 && std::chrono::steady_clock::now() < end) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return done != 0;
}

}  // namespace

// A function-local static: it ends after what was made later, so after every communicator that the program keeps.
MpiSession& MpiSession::get() {
  static MpiSession session;
  return session;
}

MpiSession::MpiSession() {
  int initialized = 0, finalized = 0, granted = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0)
    throw PrecompileError(ErrorCode::environment, "MPI has already ended in this process; connect before MPI_Finalize");
  MPI_Initialized(&initialized);
  if (initialized != 0) return;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &granted) != MPI_SUCCESS || granted < MPI_THREAD_SERIALIZED)
    throw PrecompileError(ErrorCode::environment, "MPI does not start with support for threads; use an MPI library built with it");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  started_here_ = true;
}

MpiSession::~MpiSession() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (started_here_ && !broken_ && finalized == 0 && all_ranks_are_leaving()) MPI_Finalize();
}

}  // namespace precast
