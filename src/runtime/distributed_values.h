#pragma once

#include "dtensor/tensor/dtensor_data.h"
#include "ir/program.h"
#include "precast/device_mesh.h"
#include "precast/pytree.h"
#include "runtime/argument_checks.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace precast::runtime {

/// What a program works on: the tensor itself, or the local tensor of a DTensor.
inline const at::Tensor& local_tensor(const at::Tensor& tensor) {
  const dtensor::DTensorData* dtensor = dtensor::as_dtensor(tensor);
  return dtensor != nullptr ? dtensor->local() : tensor;
}

/// The meshes of one call, on which its results lie.
class Meshes {
 public:
  void add(const DeviceMesh& mesh);
  /// This rank's coordinate in each of the groups, as 0-dim int64 tensors. @throws PrecompileError argument_mismatch  a group is
  /// none of the call's mesh dimensions.
  [[nodiscard]] std::vector<at::Tensor> coordinates(const std::vector<std::string>& groups) const;
  /// A DTensor around a result of the program.
  [[nodiscard]] at::Tensor wrap(const ir::DTensorMeta& meta, const at::Tensor& local) const;

 private:
  std::vector<DeviceMesh> meshes_;
};

/// The meshes of the DTensors among checked arguments.
Meshes live_meshes(const ir::Metadata& metadata, const CheckedModules& modules, const std::vector<Leaf>& leaves);

}  // namespace precast::runtime
