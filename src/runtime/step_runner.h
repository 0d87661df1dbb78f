#pragma once

#include "backends/engine.h"
#include "ir/program.h"
#include "precast/step.h"

#include <memory>
#include <vector>

namespace precast::runtime {

/// Checks a call against the capture, runs the program by its engine, and accumulates its trailing outputs on `.grad`. Thread-safe.
class ProgramRunner final : public detail::StepRunner {
 public:
  /// @throws PrecompileError invalid_artifact  the program does not fit its own metadata, or torch's operators.
  ProgramRunner(Artifact artifact, const ir::Program& program, std::unique_ptr<const Engine> engine);
  /// With the eager backend's executor.
  ProgramRunner(Artifact artifact, const ir::Program& program);

  std::vector<Leaf> run(const detail::CallArguments& arguments) override;
  [[nodiscard]] const TreeSpec& result_spec() const override { return metadata_.out_spec; }
  [[nodiscard]] const Artifact& artifact() const override { return artifact_; }

 private:
  Artifact artifact_;
  ir::Metadata metadata_;
  std::unique_ptr<const Engine> engine_;
};

}  // namespace precast::runtime
