#pragma once

#include "precast/device_mesh.h"
#include "precast/placement.h"

#include <memory>

namespace precast::dtensor {

/// Where a tensor lies. There is one object for each layout in use: equal layouts have one address.
struct Layout {
  DeviceMesh mesh;
  Placements placements;
};
using SharedLayout = std::shared_ptr<const Layout>;

/// @throws std::invalid_argument  not one placement for each mesh dimension.
SharedLayout layout_of(const DeviceMesh& mesh, const Placements& placements);

}  // namespace precast::dtensor
