#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace precast {

/// What the caller can do about a PrecompileError.
enum class ErrorCode {
  refused_capture,    ///< fn cannot be captured as written: change fn or its arguments.
  argument_mismatch,  ///< A call differs from the capture: fix the arguments or the model, or compile again.
  invalid_artifact,   ///< python_code is no Precast artifact, or is damaged: compile again.
  artifact_mismatch,  ///< python_code and cache come from different captures: use the matching pair.
  rank_mismatch,      ///< Ranks disagree about what to compile: start them with equal code and configuration.
  lost_rank,          ///< A rank ended or did not answer in time: make a new communicator.
  environment,        ///< The job's variables, files or libraries are unusable: the text says which.
  not_built,          ///< A known feature that this build lacks.
  internal            ///< A fault of Precast: report it.
};

std::string_view to_string(ErrorCode code) noexcept;

/// The one exception of the library. Its text names the rank, the phase, what was expected and what was found.
class PrecompileError : public std::runtime_error {
 public:
  PrecompileError(ErrorCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace precast
