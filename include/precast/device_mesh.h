#pragma once

#include "precast/communicator.h"

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace precast {

/// The shape of a mesh and the names of its dimensions: the same on every rank.
struct MeshLayout {
  std::string name;
  std::vector<std::string> dim_names;
  std::vector<std::int64_t> shape;
  bool operator==(const MeshLayout&) const = default;
};

/// "mesh(dp=2, tp=2)".
std::string to_string(const MeshLayout& layout);

/// The ranks of a job in a grid with named dimensions, row-major: the last dimension's ranks are neighbours. A value: copies share
/// the groups behind it, and hold the communicator. Reading it from several threads is safe.
///
/// Each dimension gives each rank a group: the ranks that differ from it in that coordinate alone. It is registered under a logical
/// name that is the same on every rank, and in every job with such a mesh, so a program that names it suits them all. A mesh {2, 2}
/// of {"dp", "tp"} on 4 ranks:
///
///     rank   dp  tp   ranks of "mesh.dp"   ranks of "mesh.tp"
///      0      0   0         0 2                  0 1
///      1      0   1         1 3                  0 1
///      2      1   0         0 2                  2 3
///      3      1   1         1 3                  2 3
///
///     const DeviceMesh mesh(comm, {2, 2}, {"dp", "tp"});
///     mesh.size("tp");        // 2
///     mesh["tp"].size();      // 2: a mesh of one dimension, whose group is "mesh.tp"
///     mesh.rank_at({1, 0});   // 2, on every rank
///     mesh["tp"].rank_at({0});  // on rank 3: 2, its neighbour on tp
class DeviceMesh {
 public:
  /// Collective over `comm`: equal arguments on all ranks. The same mesh again shares its groups; another mesh needs another name.
  /// @param shape  sizes of at least 1, whose product is comm.size().
  /// @param dim_names  one for each size, distinct identifiers: letters, digits and '_', no digit first. `name` likewise.
  /// @throws PrecompileError, the same on every rank and before any of them waits for another: environment: the arguments are not
  /// as said, or `name` stands for another mesh; rank_mismatch: the ranks pass different ones (names the rank and both); lost_rank.
  DeviceMesh(const Communicator& comm, std::vector<std::int64_t> shape, std::vector<std::string> dim_names,
             std::string name = "mesh");

  [[nodiscard]] const MeshLayout& layout() const noexcept;
  [[nodiscard]] const Communicator& communicator() const noexcept;
  [[nodiscard]] const std::vector<std::int64_t>& shape() const noexcept { return layout().shape; }
  [[nodiscard]] const std::vector<std::string>& dim_names() const noexcept { return layout().dim_names; }

  [[nodiscard]] int ndim() const noexcept { return static_cast<int>(shape().size()); }
  [[nodiscard]] std::int64_t size() const noexcept;  ///< Ranks in all: the product of the shape.

  /// A dimension is given by its index in [0, ndim()), or by its name. All that take one
  /// @throws std::invalid_argument where the mesh has none such, and say which it has.
  [[nodiscard]] int dim(std::string_view name) const;
  [[nodiscard]] std::int64_t size(int dim) const;
  [[nodiscard]] std::int64_t size(std::string_view name) const { return size(dim(name)); }
  /// This rank's place on a dimension, in [0, size(dim)): also its number in that dimension's group.
  [[nodiscard]] std::int64_t coordinate(int dim) const;
  [[nodiscard]] std::int64_t coordinate(std::string_view name) const { return coordinate(dim(name)); }
  /// "mesh.dp".
  [[nodiscard]] std::string group_name(int dim) const;
  [[nodiscard]] std::string group_name(std::string_view name) const { return group_name(dim(name)); }
  /// coordinate(dim) as a 0-dim int64 CPU tensor, the same one for all copies and sub-meshes. A captured program takes it as an
  /// input, so that it holds no rank's number. Not to be written.
  [[nodiscard]] const at::Tensor& coordinate_tensor(int dim) const;

  /// The rank of the communicator at these coordinates, one for each dimension. In a sub-mesh the dimensions that it lacks are at
  /// this rank's own coordinates. @throws std::invalid_argument: another number of them, or one outside its dimension.
  [[nodiscard]] int rank_at(const std::vector<std::int64_t>& coordinates) const;

  /// The mesh of some of the dimensions, in the order given: the ranks that share this rank's coordinates on all others. It has the
  /// same name, groups and coordinate tensors; nothing is registered. @throws std::invalid_argument: none, an unknown or a repeated
  /// name.
  [[nodiscard]] DeviceMesh operator[](const std::vector<std::string>& dim_names) const;
  /// A template, so that mesh[{"dp", "tp"}] means the list, not a string of two pointers.
  template <std::convertible_to<std::string_view> Name>
  [[nodiscard]] DeviceMesh operator[](const Name& dim_name) const {
    return (*this)[std::vector<std::string>{std::string(std::string_view(dim_name))}];
  }

  /// Same layout, and the same place of this rank in it.
  bool operator==(const DeviceMesh& other) const noexcept;

 private:
  struct State;
  explicit DeviceMesh(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  [[nodiscard]] std::size_t index(int dim) const;
  std::shared_ptr<const State> state_;
};

}  // namespace precast
