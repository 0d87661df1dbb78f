#include "ir/driver.h"
#include "ir/literal_text.h"
#include "ir/metadata_text.h"
#include "ir/program_text.h"
#include "ir/text.h"

#include <fmt/format.h>

namespace precast::ir {
namespace {

std::string heading(std::string_view title) {
  return fmt::format("\n# {:=<70}\n# {}\n# {:=<70}\n", "", title, "");
}

}  // namespace

std::string write_python_code(const Program& program) {
  std::string out =
      "# Written by Precast. Trusted, executable input: load only what you or your job made.\n"
      "#\n"
      "# One training step as plain ATen calls. It holds no weights: `forward(*args)` takes the arguments of the captured\n"
      "# function, models included, checks them against the metadata below, and runs `call`.\n";
  out += heading("The program");
  out += "from math import inf, nan\n\nimport torch\nimport torch.utils._pytree as pytree\nfrom torch import device\n\n\n";
  out += write_call(program);
  out += heading("The calling convention");
  for (const auto& [name, literal] : metadata_literals(program.metadata))
    out += fmt::format("{} = {}\n", name, write_literal(literal));
  out += heading("The driver");
  out += "\n\n";
  out += kDriver;
  return out;
}

}  // namespace precast::ir
