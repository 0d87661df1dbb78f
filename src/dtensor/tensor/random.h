#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace precast::dtensor {

/// Random operators on DTensors. Every element's number depends on a seed and on the element's index in the global tensor alone: a
/// tensor gets the same numbers however it is sharded, and on one rank. Its seed (normal numbers need two) is drawn from the
/// generator of the call (the default one where it names none), which therefore has to be in the same state on all ranks of the
/// mesh.
///
/// All of it is made of ATen integer operators, so that it can stand in a captured program and run in Python.

void draw_bernoulli_in_place(const c10::OperatorHandle& op, torch::jit::Stack& stack);
void draw_bernoulli(const c10::OperatorHandle& op, torch::jit::Stack& stack);
void draw_uniform_in_place(const c10::OperatorHandle& op, torch::jit::Stack& stack);
void draw_normal_in_place(const c10::OperatorHandle& op, torch::jit::Stack& stack);
void draw_uniform_like(const c10::OperatorHandle& op, torch::jit::Stack& stack);
void draw_normal_like(const c10::OperatorHandle& op, torch::jit::Stack& stack);
void draw_dropout(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace precast::dtensor
