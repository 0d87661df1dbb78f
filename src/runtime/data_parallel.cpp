#include "precast/data_parallel.h"

#include "module/lift.h"
#include "precast/dtensor.h"
#include "runtime/describe.h"
#include "runtime/rank_description.h"
#include "runtime/reduced_gradients.h"
#include "runtime/scatter_dtensors.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace precast {
namespace {

using module::LiftedTensor;

/// Parameters, and buffers where asked for.
std::vector<LiftedTensor> tensors_of(torch::nn::Module& module, bool with_buffers) {
  const module::Modules modules = {{.position = 0, .module = &module}};
  std::vector<LiftedTensor> tensors = module::lift_parameters(modules);
  if (with_buffers)
    for (LiftedTensor& buffer : module::lift_buffers(modules, tensors)) tensors.push_back(std::move(buffer));
  return tensors;
}

runtime::Field describe(const std::string& name, const at::Tensor& tensor) {
  return {name, fmt::format("{} {} on {}", runtime::dtype_name(tensor.scalar_type()), runtime::describe(tensor.sizes()),
                            runtime::device_name(tensor.device()))};
}

/// Gradients that one all-reduce carries: of one dtype and device, together about `bucket_bytes`.
using Bucket = std::vector<at::Tensor>;

std::vector<Bucket> make_buckets(const std::vector<at::Tensor>& gradients, std::size_t bucket_bytes) {
  std::map<std::pair<int, std::string>, std::vector<Bucket>> by_kind;
  for (const at::Tensor& gradient : gradients) {
    std::vector<Bucket>& buckets = by_kind[{static_cast<int>(gradient.scalar_type()), gradient.device().str()}];
    const auto bytes_of = [](const Bucket& bucket) {
      std::size_t bytes = 0;
      for (const at::Tensor& tensor : bucket) bytes += tensor.nbytes();
      return bytes;
    };
    if (buckets.empty() || bytes_of(buckets.back()) + gradient.nbytes() > bucket_bytes) buckets.emplace_back();
    buckets.back().push_back(gradient);
  }
  std::vector<Bucket> all;
  for (auto& [kind, buckets] : by_kind) std::ranges::move(buckets, std::back_inserter(all));
  return all;
}

/// A bucket in one piece of memory, and back.
at::Tensor flatten_bucket(const Bucket& bucket) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : bucket) flat.push_back(tensor.reshape({-1}));
  return at::cat(flat);
}

void unflatten_bucket(const at::Tensor& flat, const Bucket& bucket) {
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : bucket) {
    tensor.copy_(flat.narrow(0, offset, tensor.numel()).view_as(tensor));
    offset += tensor.numel();
  }
}

}  // namespace

void broadcast_module(torch::nn::Module& module, const Communicator& comm, std::chrono::milliseconds time) {
  if (comm.size() == 1) return;
  const auto phase = comm.enter("broadcast module");
  const std::vector<LiftedTensor> tensors = tensors_of(module, /*with_buffers=*/true);
  std::vector<runtime::Field> fields;
  fields.reserve(tensors.size());
  for (const LiftedTensor& tensor : tensors) {
    if (is_dtensor(tensor.tensor))
      throw PrecompileError(
          ErrorCode::argument_mismatch,
          fmt::format("broadcast_module: '{}' is a DTensor, of which each rank has its own part; broadcast before "
                      "distribute_module",
                      tensor.name));
    fields.push_back(describe(fmt::format("'{}'", tensor.name), tensor.tensor));
  }
  runtime::compare_ranks(comm, "broadcast module", fields, after(time)).throw_if_failed();
  const at::NoGradGuard no_grad;
  for (const LiftedTensor& tensor : tensors) comm.broadcast(tensor.tensor, 0, after(time));
}

void scatter_gradients(torch::nn::Module& module, const Communicator& comm, const ScatterOptions& options) {
  const auto phase = comm.enter("scatter gradients");
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> pending, distributed;
  std::vector<runtime::Field> fields;
  for (const LiftedTensor& parameter : tensors_of(module, /*with_buffers=*/false)) {
    const at::Tensor& gradient = parameter.tensor.grad();
    if (!gradient.defined()) continue;
    if (is_dtensor(parameter.tensor))
      distributed.push_back(parameter.tensor);
    else if (comm.size() == 1 || runtime::is_reduced(gradient))
      continue;
    else
      pending.push_back(gradient);
    fields.push_back(describe(fmt::format("gradient of '{}'", parameter.name), gradient));
  }
  // Ranks that disagree on what is pending would meet in different collectives.
  runtime::compare_ranks(comm, "scatter gradients", fields, after(options.deadline)).throw_if_failed();
  for (const Bucket& bucket : make_buckets(pending, options.bucket_bytes)) {
    const at::Tensor flat = flatten_bucket(bucket);
    comm.all_reduce(flat, Reduction::sum, after(options.deadline));
    flat.div_(comm.size());
    unflatten_bucket(flat, bucket);
  }
  for (const at::Tensor& gradient : pending) runtime::mark_reduced(gradient);
  runtime::scatter_dtensor_gradients(distributed, options.bucket_bytes);
}

}  // namespace precast
