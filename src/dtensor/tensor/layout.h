#pragma once

#include "precast/device_mesh.h"
#include "precast/placement.h"

#include <cstdint>
#include <memory>

namespace precast::dtensor {

/// Where a tensor lies.
struct Layout {
  DeviceMesh mesh;
  Placements placements;
  std::int64_t id;  ///< Equal for equal layouts (mesh, coordinates, placements) and for no others, for the life of the process.
};
using SharedLayout = std::shared_ptr<const Layout>;

/// @throws std::invalid_argument  not one placement for each mesh dimension.
SharedLayout layout_of(const DeviceMesh& mesh, const Placements& placements);

}  // namespace precast::dtensor
