#pragma once

#include "backends/program_builder.h"
#include "precast/error.h"
#include "precast/step.h"
#include "runtime/step_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <initializer_list>
#include <memory>
#include <tuple>

namespace precast::test {

struct Net : torch::nn::Module {
  torch::nn::Linear fc{nullptr};
  torch::nn::Dropout drop{nullptr};
  at::Tensor scale;

  explicit Net(int width = 2) {
    fc = register_module("fc", torch::nn::Linear(3, width));
    drop = register_module("drop", torch::nn::Dropout(0.5));
    scale = register_buffer("scale", torch::full({width}, 3.0));
  }
  at::Tensor loss(const at::Tensor& x) { return (fc(x) * scale).sum(); }
};

template <class Result = std::tuple<at::Tensor>>
Step<Result> make_step(ProgramBuilder& builder) {
  return Step<Result>(std::make_shared<runtime::ProgramRunner>(Artifact{}, builder.program()));
}

/// What Net::loss and its backward record for an input of this many rows.
inline Step<std::tuple<at::Tensor>> training_step(Net& net, int rows = 4) {
  ProgramBuilder program;
  const auto lifted = program.modules({{0, &net}});
  const ir::ValueId weight = lifted.at(0), bias = lifted.at(1), scale = lifted.at(2);
  const int width = static_cast<int>(net.scale.size(0));
  const ir::ValueId x = program.input(torch::zeros({rows, 3}));
  const ir::ValueId out = program.call("aten::addmm", {bias, x, program.call("aten::t", {weight})});
  program.output(program.call("aten::sum", {program.call("aten::mul.Tensor", {out, scale})}));
  const ir::ValueId grad = program.call("aten::expand", {scale, {rows, width}});
  program.param_gradient(0, program.call("aten::mm", {program.call("aten::t", {grad}), x}));
  program.param_gradient(1, program.call("aten::sum.dim_IntList", {grad, {0}}));
  return make_step(program);
}

template <class Call>
void expect_refused(const Call& call, std::initializer_list<const char*> named) {
  try {
    call();
    ADD_FAILURE() << "the call was accepted";
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), ErrorCode::argument_mismatch) << error.what();
    for (const char* text : named) EXPECT_THAT(error.what(), ::testing::HasSubstr(text));
  }
}

}  // namespace precast::test
