#pragma once

#include <string_view>

namespace precast {

/// While one exists, SIGTERM writes `precast: rank R of N: SIGTERM during PHASE` once to stderr and ends the process with 143. A
/// launcher sends SIGTERM to the ranks it ends because another one failed: the line says what this rank was doing then. Does
/// nothing where SIGTERM has another action than the default, which the user chose. Signals belong to the process, hence the static
/// state; the last one made is the one heard.
class SigtermNotice {
 public:
  SigtermNotice(int rank, int size);
  ~SigtermNotice();
  SigtermNotice(const SigtermNotice&) = delete;
  SigtermNotice& operator=(const SigtermNotice&) = delete;

  void set_phase(std::string_view phase) const;

 private:
  int rank_;
  int size_;
  bool installed_ = false;
};

}  // namespace precast
