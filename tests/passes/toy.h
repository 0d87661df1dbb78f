#pragma once

#include "passes/passes.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace precast::passes::test {

/// Builds a program statement by statement. Values are named after their operators, as a capture does.
class Builder {
 public:
  ir::Program program;

  ir::ValueId input(const std::string& name, const std::string& note = "f32[4]");
  ir::ValueId call(const std::string& name, std::vector<ir::Operand> arguments, const std::string& note = "f32[4]",
                   std::vector<std::pair<std::string, ir::Operand>> keywords = {});
  ir::ValueId item(ir::ValueId source, std::int64_t index, const std::string& note = "f32[4]");
  ir::ValueId all_reduce(ir::ValueId value, const std::string& group = "dp", const std::string& op = "sum",
                         const std::string& note = "f32[4]");
  ir::ValueId all_gather(ir::ValueId value, const std::string& group = "dp", const std::string& note = "f32[8]");
  ir::ValueId reduce_scatter(ir::ValueId value, const std::string& group = "dp", const std::string& note = "f32[2]");
  ir::ValueId wait(ir::ValueId value);
  ir::Program returning(std::vector<ir::ValueId> outputs);

 private:
  ir::ValueId define(const std::string& name, const std::string& note, std::variant<ir::Call, ir::GetItem> is);
};

/// What the toy's operators do. `toy::bump(a, t)` writes t, and only `written` says so; `toy::random` draws; `toy::half`, views.
OperatorEffects toy_effects();

/// Names of the operators in order, without namespaces; "[1]" for a GetItem.
std::vector<std::string> operators(const ir::Program& program);

/// Values are defined before their use and numbered in that order, names are unique.
void expect_valid(const ir::Program& program);

/// When a collective reads its operands. A program without races does not care.
enum class Reads : std::uint8_t { when_issued, when_waited };

struct ToyTensor {
  std::shared_ptr<std::vector<std::uint64_t>> memory;
  std::size_t offset = 0;
  std::vector<std::int64_t> shape;
};

/// What can be seen of a run from outside, of all ranks.
struct Outcome {
  std::vector<std::vector<std::uint64_t>> outputs;
  std::vector<std::vector<std::int64_t>> shapes;
  std::vector<bool> shared;  ///< Of each pair among inputs and outputs: whether they lie in one memory.
  std::vector<std::vector<std::uint64_t>> inputs_after;
  std::vector<std::uint64_t> random_state;
  bool operator==(const Outcome&) const = default;
};

struct Run {
  Outcome outcome;
  std::vector<std::string> collectives;  ///< In order of issue, with the operands of all ranks.
};

/// Runs a program on two ranks. Groups: "dp" has them in order, "tp" in reverse. Inputs that are no parameters overlap each other;
/// those named in MESH_INPUTS hold the rank. What a collective gives is garbage until it is waited for.
Run run_toy(const ir::Program& program, Reads reads = Reads::when_issued);

}  // namespace precast::passes::test
