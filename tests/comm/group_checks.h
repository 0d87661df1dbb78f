#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <vector>

namespace precast::rank_test {

/// Runs `_c10d_functional::op` by the dispatcher, as a program does, and waits for its result.
at::Tensor call_functional(const std::string& op, std::vector<c10::IValue> arguments);

/// Runs each functional collective over the group that stands under `name` on this rank, and expects what MPI defines for the ranks
/// of the communicator in `ranks`, in this order. Every rank of the list calls it.
void expect_collectives_among(const std::vector<int>& ranks, const std::string& name);

/// What `call` throws on this rank, as "code: text", or "nothing". Collective: expects the same of every rank.
std::string error_on_every_rank(const std::function<void()>& call);

}  // namespace precast::rank_test
