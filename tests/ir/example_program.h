#pragma once

#include "ir/program.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace precast::ir::test {

/// A program by hand, with every kind of operand, statement and metadata. It need not make sense to an executor.
inline Program example_program() {
  Program program;
  const auto value = [&](std::string name, std::string note) {
    program.values.push_back({std::move(name), std::move(note)});
    return ValueId{static_cast<int>(program.values.size()) - 1};
  };
  const ValueId weight = value("fc_weight", "f32[3, 4]"), running = value("running", "f32[3]"), x = value("x", "f32[2, 4]"),
                flag = value("flag", "");
  program.inputs = {weight, running, x, flag};
  const auto add = [&](ValueId result, auto is) {
    program.statements.push_back({.result = result, .is = std::move(is), .line = 0});
  };
  const double inf = std::numeric_limits<double>::infinity();
  const ValueId t = value("t", "f32[4, 3]");
  add(t, Call{.name = "aten::t", .overload = "", .arguments = {{weight}}, .keywords = {}});
  const ValueId pair = value("pair", "");
  add(pair, Call{.name = "aten::split",
                 .overload = "Tensor",
                 .arguments = {{x}, {std::int64_t{1}}},
                 .keywords = {{"dim", {std::int64_t{-1}}}}});
  const ValueId first = value("pair_0", "f32[2, 1]");
  add(first, GetItem{pair, 0});
  const ValueId full = value("full", "");
  add(full, Call{.name = "aten::full",
                 .overload = "",
                 .arguments = {{Operand::List{{std::int64_t{2}}, {std::int64_t{1}}}}, {-inf}},
                 .keywords = {{"dtype", {Dtype{"float32"}}},
                              {"layout", {Layout{"strided"}}},
                              {"device", {Device{"cpu"}}},
                              {"pin_memory", {false}},
                              {"memory_format", {MemoryFormat{"contiguous_format"}}},
                              {"names", {None{}}},
                              {"reduction", {std::string("it's a \\ \n\t\"\x01")}}}});
  const ValueId sum = value("sum_1", "f32[2, 1]");
  add(sum, Call{.name = "aten::add", .overload = "Tensor", .arguments = {{first}, {full}}, .keywords = {{"alpha", {0.1}}}});
  program.outputs = {{sum}, {None{}}, {std::int64_t{7}}, {t}};

  Metadata& metadata = program.metadata;
  const TreeSpec leaf;
  metadata.module_positions = {0};
  metadata.num_positional_args = 3;
  metadata.params = {{.name = "fc.weight", .shape = {3, 4}, .dtype = "float32", .device = "cpu"}};
  metadata.buffers = {{.name = "running", .shape = {3}, .dtype = "float32", .device = "cpu"}};
  metadata.grad_param_indices = {0};
  metadata.in_spec = TreeSpec{"builtins.tuple", {}, {{"builtins.dict", {"x", "a \"key\""}, {leaf, leaf}}}};
  metadata.out_spec = TreeSpec{"builtins.tuple", {}, {leaf, {"builtins.list", {}, {leaf, leaf}}}};
  metadata.inputs = {
      {.path = "argument 1.x",
       .shape = std::vector<std::optional<std::int64_t>>{2, std::nullopt},
       .dtype = "float32",
       .device = "cpu",
       .value = {},
       .is_generator = false},
      {.path = "argument 1.a \"key\"", .shape = {}, .dtype = {}, .device = {}, .value = Literal{true}, .is_generator = false}};
  metadata.module_training = {{"", true}, {"fc", false}};
  metadata.input_aliases = {{0, 2}};
  return program;
}

}  // namespace precast::ir::test
