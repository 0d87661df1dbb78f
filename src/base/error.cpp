#include "precast/error.h"

namespace precast {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::refused_capture: return "refused capture";
    case ErrorCode::argument_mismatch: return "argument mismatch";
    case ErrorCode::invalid_artifact: return "invalid artifact";
    case ErrorCode::artifact_mismatch: return "artifact mismatch";
    case ErrorCode::rank_mismatch: return "rank mismatch";
    case ErrorCode::lost_rank: return "lost rank";
    case ErrorCode::environment: return "environment";
    case ErrorCode::not_built: return "not built";
    case ErrorCode::internal: break;
  }
  return "internal";
}

}  // namespace precast
