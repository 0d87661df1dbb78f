#pragma once

#include <mpi.h>

namespace precast {

/// MPI of this process: started at first use, ended when the process ends. MPI cannot start twice, communicators come and go.
class MpiSession {
 public:
  /// @throws PrecompileError environment: MPI has ended already, or grants no thread support.
  static MpiSession& get();

  /// After a lost rank MPI_Finalize would wait for it: the process then ends without.
  void leave_unfinalized() noexcept { broken_ = true; }

  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

 private:
  MpiSession();
  ~MpiSession();
  bool started_here_ = false;
  bool broken_ = false;
};

}  // namespace precast
