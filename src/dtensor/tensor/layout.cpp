#include "dtensor/tensor/layout.h"

#include <fmt/format.h>

#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

namespace precast::dtensor {

namespace {

std::int64_t id_of(const DeviceMesh& mesh, const Placements& placements) {
  std::string content = fmt::format("{} {}", to_string(mesh.layout()), to_string(placements));
  for (int m = 0; m < mesh.ndim(); ++m) content += fmt::format(" {}", mesh.coordinate(m));
  static std::mutex mutex;
  static std::unordered_map<std::string, std::int64_t> ids;  // a job has a handful
  const std::lock_guard lock(mutex);
  return ids.try_emplace(std::move(content), static_cast<std::int64_t>(ids.size())).first->second;
}

}  // namespace

SharedLayout layout_of(const DeviceMesh& mesh, const Placements& placements) {
  if (static_cast<int>(placements.size()) != mesh.ndim())
    throw std::invalid_argument(fmt::format("expected {} placements, one for each dimension of {}, found {}: {}", mesh.ndim(),
                                            to_string(mesh.layout()), placements.size(), to_string(placements)));
  return std::make_shared<const Layout>(Layout{mesh, placements, id_of(mesh, placements)});
}

}  // namespace precast::dtensor
