#include "dtensor/tensor/collectives.h"

#include "precast/placement.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <utility>
#include <vector>

namespace precast::dtensor {
namespace {

c10::OperatorHandle find(const char* op) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(op, "");
}

template <class... Arguments>
at::Tensor call(const c10::OperatorHandle& op, Arguments&&... arguments) {
  torch::jit::Stack stack;
  torch::jit::push(stack, std::forward<Arguments>(arguments)...);
  op.callBoxed(stack);
  return std::move(stack.back()).toTensor();
}

at::Tensor wait(const at::Tensor& tensor) {
  static const c10::OperatorHandle op = find("_c10d_functional::wait_tensor");
  return call(op, tensor);
}

/// An average is sent as a sum: not every transport averages.
std::string reduce_op(Reduction reduction) {
  return to_string(reduction == Reduction::avg ? Reduction::sum : reduction);
}

at::Tensor finish(at::Tensor reduced, Reduction reduction, std::int64_t n) {
  reduced = wait(reduced);
  return reduction == Reduction::avg ? reduced.div_(n) : reduced;
}

}  // namespace

at::Tensor all_reduce(const at::Tensor& tensor, Reduction reduction, const DeviceMesh& mesh, int mesh_dim) {
  static const c10::OperatorHandle op = find("_c10d_functional::all_reduce");
  return finish(call(op, tensor.contiguous(), reduce_op(reduction), mesh.group_name(mesh_dim)), reduction, mesh.size(mesh_dim));
}

at::Tensor all_gather(const at::Tensor& tensor, const DeviceMesh& mesh, int mesh_dim) {
  static const c10::OperatorHandle op = find("_c10d_functional::all_gather_into_tensor");
  return wait(call(op, tensor.contiguous(), static_cast<std::int64_t>(mesh.size(mesh_dim)), mesh.group_name(mesh_dim)));
}

at::Tensor reduce_scatter(const at::Tensor& tensor, Reduction reduction, const DeviceMesh& mesh, int mesh_dim) {
  static const c10::OperatorHandle op = find("_c10d_functional::reduce_scatter_tensor");
  const auto n = static_cast<std::int64_t>(mesh.size(mesh_dim));
  return finish(call(op, tensor.contiguous(), reduce_op(reduction), n, mesh.group_name(mesh_dim)), reduction, n);
}

at::Tensor all_to_all(const at::Tensor& tensor, const DeviceMesh& mesh, int mesh_dim) {
  static const c10::OperatorHandle op = find("_c10d_functional::all_to_all_single");
  const auto n = static_cast<std::int64_t>(mesh.size(mesh_dim));
  const std::vector<std::int64_t> splits(static_cast<std::size_t>(n), tensor.size(0) / n);
  return wait(call(op, tensor.contiguous(), splits, splits, mesh.group_name(mesh_dim)));
}

}  // namespace precast::dtensor
