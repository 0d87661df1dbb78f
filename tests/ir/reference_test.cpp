#include "ir/text.h"
#include "precast/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>

namespace precast::ir {
namespace {

using ::testing::HasSubstr;

/// A small step as Python's torch.compiler.precompile writes one: metadata without Precast's own names, `_graph_forward`, spaces
/// around '=', numbers in Tensor slots, None and numbers among the results, deletion of inputs, code that is nobody's business.
constexpr std::string_view kReference = R"py(# a comment
from math import inf
from math import nan
NoneType = type(None)
import torch
from torch import device
import torch.fx._pytree as fx_pytree
import torch.utils._pytree as pytree



def _graph_forward(self, flat):
    flat_1, flat_2, flat_3, flat_4, flat_5, = fx_pytree.tree_flatten_spec([flat], self._in_spec)
    t = torch.ops.aten.t.default(flat_1);  flat_1 = None
    add_ = torch.ops.aten.add_.Tensor(flat_3, 1);  flat_3 = add_ = None
    addmm = torch.ops.aten.addmm.default(flat_2, flat_4, t);  flat_2 = t = None
    mul = torch.ops.aten.mul.Tensor(addmm, -inf);  addmm = None
    empty = torch.ops.aten.empty.memory_format([0], dtype = torch.uint8, layout = torch.strided, device = device(type='cpu'));  empty = None
    split = torch.ops.aten.split.Tensor(mul, 2);  mul = None
    getitem = split[0];  split = None
    ones_like = torch.ops.aten.ones_like.default(getitem, pin_memory = False, memory_format = torch.preserve_format)
    alias = torch.ops.aten.alias.default(ones_like);  ones_like = None
    return pytree.tree_unflatten([getitem, None, 2.5, "a'b", nan, alias], self._out_spec)
    

class _GraphSelf:
    _in_spec = pytree.treespec_loads('[1, {"type": null}]')


def call(args):
    return pytree.tree_leaves(_graph_forward(_GraphSelf(), args))


if BACKEND_CHECK := False:
    BACKEND = """not
this one"""

BACKEND = 'eager'
MODULE_POSITIONS = [0]
NUM_POSITIONAL_ARGS = 3
PARAM_NAMES = ['weight', 'bias']
BUFFER_NAMES = ['steps']
PARAM_SHAPES = [(2, 3), (2,)]
BUFFER_SHAPES = [()]
PARAM_DTYPES = ['torch.float32', 'torch.float32']
BUFFER_DTYPES = ['torch.int64']
PARAM_DEVICES = ['cpu', 'cuda:1']
BUFFER_DEVICES = ['cpu']
GRAD_PARAM_INDICES = [0]
IN_SPEC = '[1, {"type": "builtins.tuple", "context": "null", "children_spec": [{"type": null, "context": null, "children_spec": []}, {"type": null, "context": null, "children_spec": []}]}]'
OUT_SPEC = '[1, {"type": "builtins.dict", "context": "[\\"a\\", \\"b\\", \\"c\\", \\"d\\", \\"e\\"]", "children_spec": [{"type": null, "context": null, "children_spec": []}, {"type": null, "context": null, "children_spec": []}, {"type": null, "context": null, "children_spec": []}, {"type": null, "context": null, "children_spec": []}, {"type": null, "context": null, "children_spec": []}]}]'
USER_INPUT_SHAPES = [(4, 3), None]
USER_INPUT_DTYPES = ['torch.float32', None]
USER_INPUT_DEVICES = ['cpu', None]
USER_INPUT_BOUNDS = [None, None]


class Helper:
    text = '''
BACKEND = 'no assignment, but text'
'''

    def forward(self, *, x: int = 3) -> "Helper":
        return {**{}, f"{x!r:>{10}}": lambda y: y @ ~x}[0x1F] if x != 0 else ...
)py";

const Operand* keyword(const Call& call, std::string_view name) {
  for (const auto& [key, operand] : call.keywords)
    if (key == name) return &operand;
  return nullptr;
}

TEST(Reference, TheCallingConventionIsRead) {
  const Metadata metadata = read_python_code(kReference).metadata;
  EXPECT_EQ(metadata.backend, "eager");
  EXPECT_EQ(metadata.num_positional_args, 3);
  ASSERT_EQ(metadata.params.size(), 2);
  EXPECT_EQ(metadata.params[1], (TensorMeta{.name = "bias", .shape = {2}, .dtype = "float32", .device = "cuda"}));
  ASSERT_EQ(metadata.buffers.size(), 1);
  EXPECT_EQ(metadata.buffers[0], (TensorMeta{.name = "steps", .shape = {}, .dtype = "int64", .device = "cpu"}));
  EXPECT_EQ(metadata.out_spec.keys, (std::vector<std::string>{"a", "b", "c", "d", "e"}));
  ASSERT_EQ(metadata.inputs.size(), 2);
  EXPECT_FALSE(metadata.inputs[1].shape);
  EXPECT_FALSE(metadata.inputs[1].value) << "the reference does not record values";
  EXPECT_TRUE(metadata.module_training.empty());
}

TEST(Reference, TheProgramIsRead) {
  const Program program = read_python_code(kReference);
  ASSERT_EQ(program.inputs.size(), 5);
  EXPECT_EQ(program.values.at(program.inputs[3].index).name, "flat_4");
  ASSERT_EQ(program.statements.size(), 9);
  const auto& add = std::get<Call>(program.statements[1].is);
  EXPECT_EQ(add.name, "aten::add_");
  EXPECT_EQ(add.overload, "Tensor");
  EXPECT_EQ(add.arguments, (std::vector<Operand>{{program.inputs[2]}, {std::int64_t{1}}}));
  EXPECT_EQ(std::get<Call>(program.statements[3].is).arguments.at(1), Operand{-std::numeric_limits<double>::infinity()});
  const auto& empty = std::get<Call>(program.statements[4].is);
  EXPECT_EQ(*keyword(empty, "dtype"), Operand{Dtype{"uint8"}});
  EXPECT_EQ(*keyword(empty, "layout"), Operand{Layout{"strided"}});
  EXPECT_EQ(*keyword(empty, "device"), Operand{Device{"cpu"}});
  EXPECT_EQ(std::get<GetItem>(program.statements[6].is).source, program.statements[5].result);
  EXPECT_EQ(*keyword(std::get<Call>(program.statements[7].is), "memory_format"), Operand{MemoryFormat{"preserve_format"}});
}

TEST(Reference, NoneNumbersAndTextsAreAmongTheResults) {
  const Program program = read_python_code(kReference);
  ASSERT_EQ(program.outputs.size(), 6);
  EXPECT_EQ(program.outputs[1], Operand{None{}});
  EXPECT_EQ(program.outputs[2], Operand{2.5});
  EXPECT_EQ(program.outputs[3], Operand{std::string("a'b")});
  EXPECT_TRUE(std::isnan(std::get<double>(program.outputs[4].is)));
  EXPECT_EQ(program.outputs[5], Operand{program.statements[8].result});
}

TEST(Reference, WrittenAsOurOwnItSaysTheSame) {
  const Program program = read_python_code(kReference);
  const std::string text = write_python_code(program);
  const Program again = read_python_code(text);
  EXPECT_EQ(write_python_code(again), text);
  EXPECT_EQ(again.metadata, program.metadata);
  EXPECT_EQ(again.statements, program.statements);
}

TEST(Reference, ADeletedInputIsUndefined) {  // C62
  std::string text(kReference);
  const std::string_view call = "addmm.default(flat_2, flat_4, t)";
  text.replace(text.find(call), call.size(), "addmm.default(flat_1, flat_4, t)");
  try {
    read_python_code(text);
    FAIL() << "accepted";
  } catch (const PrecompileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("line 16, aten::addmm: 'flat_1' is used, but it is not defined here"));
  }
}

TEST(Reference, AStepWithoutInputsHasNoUnpacking) {
  std::string text(kReference);
  const std::size_t start = text.find("    flat_1, flat_2"), end = text.find("    return pytree.tree_unflatten");
  text.replace(start, end - start,
               "    ones = torch.ops.aten.ones.default([3], device = device(type='cpu'), pin_memory = False)\n");
  const auto set = [&](std::string_view from, std::string_view to) {
    const std::size_t at = text.find(from);
    text.replace(at, text.find('\n', at) - at, to);
  };
  set("    return pytree.tree_unflatten", "    return pytree.tree_unflatten([ones], self._out_spec)");
  for (const std::string name : {"MODULE_POSITIONS", "PARAM_NAMES", "PARAM_SHAPES", "PARAM_DTYPES", "PARAM_DEVICES", "BUFFER_NAMES",
                                 "BUFFER_SHAPES", "BUFFER_DTYPES", "BUFFER_DEVICES", "GRAD_PARAM_INDICES", "USER_INPUT_SHAPES",
                                 "USER_INPUT_DTYPES", "USER_INPUT_DEVICES", "USER_INPUT_BOUNDS"})
    set(name + " = ", name + " = []");
  set("IN_SPEC = ", R"(IN_SPEC = '[1, {"type": "builtins.tuple", "context": "null", "children_spec": []}]')");
  set("OUT_SPEC = ", R"(OUT_SPEC = '[1, {"type": null, "context": null, "children_spec": []}]')");
  const Program program = read_python_code(text);
  EXPECT_TRUE(program.inputs.empty());
  EXPECT_EQ(program.outputs, (Operand::List{{program.statements.at(0).result}}));
  EXPECT_EQ(read_python_code(write_python_code(program)), program);
}

}  // namespace
}  // namespace precast::ir
