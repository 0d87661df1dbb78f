#pragma once

#include "precast/device_mesh.h"
#include "precast/placement.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace precast {

/// DTensors: tensors of which each rank of a mesh holds a part. A DTensor is an at::Tensor with global sizes, and goes where a
/// tensor goes: parameters of modules, autograd, optimizers. Each operator on DTensors gives what it would give on the whole
/// tensors; where its operands do not lie as it needs them they are redistributed first, by the fewest bytes. All ranks of the mesh
/// call the same operators in one order. docs/dtensor.md has the rules.
///
/// Unless said otherwise these functions throw std::invalid_argument for placements that do not fit mesh or tensor, and
/// PrecompileError argument_mismatch where a DTensor is expected and a plain tensor given, or the other way round.

[[nodiscard]] bool is_dtensor(const at::Tensor& tensor);
[[nodiscard]] const DeviceMesh& mesh_of(const at::Tensor& dtensor);
[[nodiscard]] const Placements& placements_of(const at::Tensor& dtensor);
/// This rank's part, without autograd history. Shares memory with the DTensor.
[[nodiscard]] const at::Tensor& local_part(const at::Tensor& dtensor);

/// The DTensor of which every rank passes the whole as `tensor`: each keeps its part, nothing is sent. That all ranks pass equal
/// values is the caller's promise (broadcast_module keeps it). A leaf with the requires_grad of `tensor`.
[[nodiscard]] at::Tensor distribute_tensor(const at::Tensor& tensor, const DeviceMesh& mesh, const Placements& placements);

/// The DTensor whose part on this rank is `local`. Differentiable: the gradient of `local` is the part of the DTensor's gradient,
/// laid out as `placements` (whole where they are partial).
/// @param global_shape  needed where a sharded dimension is uneven; else it is the local shape times the ranks that shard it.
[[nodiscard]] at::Tensor from_local(const at::Tensor& local, const DeviceMesh& mesh, const Placements& placements,
                                    const std::optional<std::vector<std::int64_t>>& global_shape = std::nullopt);

/// This rank's part as a plain tensor. Differentiable: the gradient that arrives is taken for this rank's part of the DTensor's
/// gradient, laid out as `grad_placements`; by default as the DTensor itself, and whole where that is partial.
[[nodiscard]] at::Tensor to_local(const at::Tensor& dtensor, const std::optional<Placements>& grad_placements = std::nullopt);

/// The same tensor laid out in another way. Differentiable: its gradient is laid out as `dtensor` is (whole where that is partial).
/// Collective over the mesh dimensions that change.
[[nodiscard]] at::Tensor redistribute(const at::Tensor& dtensor, const Placements& placements);

/// The whole as a plain tensor on every rank. Differentiable, as redistribute and to_local are. Collective.
[[nodiscard]] at::Tensor full_tensor(const at::Tensor& dtensor);

/// While one exists on this thread, plain tensors among the operands of an operator on DTensors count as replicated: the caller
/// promises that every rank has the same. Without it they are an error, unless they have no dimension.
class ImplicitReplication {
 public:
  ImplicitReplication();
  ~ImplicitReplication();
  ImplicitReplication(const ImplicitReplication&) = delete;
  ImplicitReplication& operator=(const ImplicitReplication&) = delete;

 private:
  bool before_;
};

}  // namespace precast
