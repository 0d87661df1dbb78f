#include "runtime/distributed_values.h"

#include "precast/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace precast::runtime {

void Meshes::add(const DeviceMesh& mesh) {
  if (std::ranges::find(meshes_, mesh) == meshes_.end()) meshes_.push_back(mesh);
}

std::vector<at::Tensor> Meshes::coordinates(const std::vector<std::string>& groups) const {
  std::vector<at::Tensor> found;
  for (const std::string& group : groups)
    for (const DeviceMesh& mesh : meshes_)
      for (int m = 0; m < mesh.ndim(); ++m)
        if (mesh.group_name(m) == group) found.push_back(mesh.coordinate_tensor(m));
  if (found.size() != groups.size())
    throw PrecompileError(
        ErrorCode::argument_mismatch,
        fmt::format("step: expected DTensors on meshes with {} dimensions in all (as captured), found {}; compile again",
                    groups.size(), found.size()));
  return found;
}

at::Tensor Meshes::wrap(const ir::DTensorMeta& meta, const at::Tensor& local) const {
  const auto mesh = std::ranges::find_if(meshes_, [&](const DeviceMesh& m) { return m.layout().name == meta.mesh; });
  if (mesh == meshes_.end())
    throw PrecompileError(ErrorCode::invalid_artifact,
                          fmt::format("python_code: output {} lies on mesh '{}', on which no input lies", meta.index, meta.mesh));
  Placements placements;
  for (const std::string& text : meta.placements) placements.push_back(placement_from_string(text));
  return dtensor::wrap(local, dtensor::layout_of(*mesh, placements), meta.global_shape);
}

Meshes live_meshes(const ir::Metadata& metadata, const CheckedModules& modules, const std::vector<Leaf>& leaves) {
  Meshes meshes;
  if (metadata.input_dtensors.empty()) return meshes;
  const auto add = [&](const at::Tensor& tensor) {
    if (const dtensor::DTensorData* dtensor = dtensor::as_dtensor(tensor)) meshes.add(dtensor->layout().mesh);
  };
  for (const auto* lifted : {&modules.parameters, &modules.buffers})
    for (const module::LiftedTensor& tensor : *lifted) add(tensor.tensor);
  for (const Leaf& leaf : leaves)
    if (const at::Tensor* tensor = std::get_if<at::Tensor>(&leaf)) add(*tensor);
  return meshes;
}

}  // namespace precast::runtime
