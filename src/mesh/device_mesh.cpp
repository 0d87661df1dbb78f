#include "precast/device_mesh.h"

#include "comm/same_on_all_ranks.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

namespace precast {
namespace {

constexpr auto kTime = std::chrono::minutes(1);  // for each exchange

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_identifier(const std::string& name) {
  const auto fits = [](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && is_letter(name[0]) && std::ranges::all_of(name, fits);
}

std::int64_t product(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

/// How many ranks a shape of sizes of at least 1 takes, in words: a foreign shape may have more than an int64 holds.
std::string number_of_ranks(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (const std::int64_t size : shape)
    if (__builtin_mul_overflow(n, size, &n)) return "more than 2^63";
  return std::to_string(n);
}

/// What is wrong with a layout for any job, or nothing.
std::string fault_of(const MeshLayout& layout) {
  const auto& [name, dim_names, shape] = layout;
  if (!is_identifier(name)) return fmt::format("expected a name of letters, digits and '_', found {:?}", name);
  if (shape.empty() || shape.size() != dim_names.size())
    return fmt::format("expected at least one size, and one name for each dimension, found the sizes {} and the names {}", shape,
                       dim_names);
  std::set<std::string> seen;
  for (const std::string& dim_name : dim_names) {
    if (!is_identifier(dim_name))
      return fmt::format("expected dimensions named by letters, digits and '_', found {:?} in {}", dim_name, dim_names);
    if (!seen.insert(dim_name).second) return fmt::format("expected distinct names, found {:?} twice in {}", dim_name, dim_names);
  }
  if (std::ranges::any_of(shape, [](std::int64_t size) { return size < 1; }))
    return fmt::format("expected sizes of at least 1, found {}", shape);
  return "";
}

/// The same for this job.
std::string fault_of(const MeshLayout& layout, int n_ranks) {
  if (std::string fault = fault_of(layout); !fault.empty()) return fault;
  const std::string n = number_of_ranks(layout.shape);
  if (n == std::to_string(n_ranks)) return "";
  return fmt::format(
      "expected a shape that covers the {} {} of the job, found {}, which takes {}; change the mesh or the number of "
      "ranks",
      n_ranks, n_ranks == 1 ? "rank" : "ranks", layout.shape, n);
}

/// Everything that decides what a rank does next: different arguments never look alike, however wrong they are.
std::string exact_text(const MeshLayout& layout) {
  if (fault_of(layout).empty()) return to_string(layout);
  return fmt::format("{:?} of sizes {} named {}", layout.name, layout.shape, layout.dim_names);
}

/// The dimensions of which a mesh of this name has registered groups.
std::set<std::string> registered_dims(const Communicator& comm, const std::string& name) {
  std::set<std::string> dims;
  for (const auto& [group, size] : comm.groups())
    if (group.starts_with(name + ".")) dims.insert(group.substr(name.size() + 1));
  return dims;
}

/// Throws on all ranks or on none.
void check(const Communicator& comm, const MeshLayout& layout) {
  same_on_all_ranks(comm, "device mesh", exact_text(layout), "give all ranks the same mesh", after(kTime)).throw_if_failed();
  if (const std::string fault = fault_of(layout, comm.size()); !fault.empty())
    throw PrecompileError(ErrorCode::environment, fmt::format("device mesh {:?}: {}", layout.name, fault));
  const std::set<std::string> dims(layout.dim_names.begin(), layout.dim_names.end()), known = registered_dims(comm, layout.name);
  if (!known.empty() && known != dims)
    throw PrecompileError(ErrorCode::environment,
                          fmt::format("device mesh {:?}: there is one of this name with the dimensions {}, found {}; choose "
                                      "another name",
                                      layout.name, known, layout.dim_names));
}

/// Ranks from one place to the next on each dimension.
std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t dim = shape.size() - 1; dim > 0; --dim) strides[dim - 1] = strides[dim] * shape[dim];
  return strides;
}

/// One tensor for each group and coordinate in the process: a captured program knows it again, also where a mesh is made twice.
at::Tensor shared_coordinate(const std::string& group, std::int64_t coordinate) {
  static auto* const tensors = new std::map<std::pair<std::string, std::int64_t>, at::Tensor>();  // outlives all static meshes
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  at::Tensor& tensor = (*tensors)[{group, coordinate}];
  if (!tensor.defined()) tensor = at::full({}, coordinate, at::kLong);
  return tensor;
}

/// The groups of one dimension, each in the order of the coordinate.
std::vector<std::vector<int>> groups_along(std::int64_t size, std::int64_t stride, int n_ranks) {
  std::vector<std::vector<int>> groups;
  for (int first = 0; first < n_ranks; ++first) {
    if (first / stride % size != 0) continue;
    std::vector<int>& ranks = groups.emplace_back();
    for (std::int64_t i = 0; i < size; ++i) ranks.push_back(first + static_cast<int>(i * stride));
  }
  return groups;
}

}  // namespace

struct DeviceMesh::State {
  Communicator comm;
  MeshLayout layout;
  std::vector<std::int64_t> strides;
  std::vector<std::int64_t> coordinates;
  std::vector<at::Tensor> coordinate_tensors;
};

std::string to_string(const MeshLayout& layout) {
  std::vector<std::string> dims;
  for (std::size_t i = 0; i < layout.shape.size(); ++i)
    dims.push_back(fmt::format("{}={}", i < layout.dim_names.size() ? layout.dim_names[i] : "?", layout.shape[i]));
  return fmt::format("{}({})", layout.name, fmt::join(dims, ", "));
}

DeviceMesh::DeviceMesh(const Communicator& comm, std::vector<std::int64_t> shape, std::vector<std::string> dim_names,
                       std::string name) {
  const auto phase = comm.enter("device mesh");
  auto state = std::make_shared<State>(
      State{.comm = comm,
            .layout = {.name = std::move(name), .dim_names = std::move(dim_names), .shape = std::move(shape)},
            .strides = {},
            .coordinates = {},
            .coordinate_tensors = {}});
  check(comm, state->layout);
  const auto& sizes = state->layout.shape;
  state->strides = strides_of(sizes);
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    state->coordinates.push_back(comm.rank() / state->strides[d] % sizes[d]);
    state->coordinate_tensors.push_back(
        shared_coordinate(state->layout.name + "." + state->layout.dim_names[d], state->coordinates[d]));
  }
  state_ = state;
  for (int d = 0; d < ndim(); ++d)
    comm.register_group(group_name(d), groups_along(size(d), state->strides[static_cast<std::size_t>(d)], comm.size()),
                        after(kTime));
}

const MeshLayout& DeviceMesh::layout() const noexcept {
  return state_->layout;
}

const Communicator& DeviceMesh::communicator() const noexcept {
  return state_->comm;
}

std::int64_t DeviceMesh::size() const noexcept {
  return product(shape());
}

std::size_t DeviceMesh::index(int dim) const {
  if (dim < 0 || dim >= ndim())
    throw std::invalid_argument(fmt::format("{} has no dimension {}: expected 0 to {}", to_string(layout()), dim, ndim() - 1));
  return static_cast<std::size_t>(dim);
}

std::int64_t DeviceMesh::size(int dim) const {
  return shape()[index(dim)];
}

int DeviceMesh::dim(std::string_view name) const {
  const auto found = std::ranges::find(dim_names(), name);
  if (found == dim_names().end()) throw std::invalid_argument(fmt::format("{} has no dimension '{}'", to_string(layout()), name));
  return static_cast<int>(found - dim_names().begin());
}

std::int64_t DeviceMesh::coordinate(int dim) const {
  return state_->coordinates[index(dim)];
}

std::string DeviceMesh::group_name(int dim) const {
  return fmt::format("{}.{}", layout().name, dim_names()[index(dim)]);
}

const at::Tensor& DeviceMesh::coordinate_tensor(int dim) const {
  return state_->coordinate_tensors[index(dim)];
}

int DeviceMesh::rank_at(const std::vector<std::int64_t>& coordinates) const {
  if (coordinates.size() != shape().size())
    throw std::invalid_argument(
        fmt::format("{} has {} dimensions, found the coordinates {}", to_string(layout()), ndim(), coordinates));
  std::int64_t rank = state_->comm.rank();
  for (std::size_t d = 0; d < coordinates.size(); ++d) {
    if (coordinates[d] < 0 || coordinates[d] >= shape()[d])
      throw std::invalid_argument(fmt::format("{} has no place at the coordinates {}", to_string(layout()), coordinates));
    rank += (coordinates[d] - state_->coordinates[d]) * state_->strides[d];
  }
  return static_cast<int>(rank);
}

DeviceMesh DeviceMesh::operator[](const std::vector<std::string>& dim_names) const {
  const std::set<std::string> distinct(dim_names.begin(), dim_names.end());
  if (dim_names.empty() || distinct.size() != dim_names.size())
    throw std::invalid_argument(
        fmt::format("sub-mesh of {}: expected distinct dimensions, found {}", to_string(layout()), dim_names));
  auto state = std::make_shared<State>(State{.comm = state_->comm,
                                             .layout = {.name = layout().name, .dim_names = dim_names, .shape = {}},
                                             .strides = {},
                                             .coordinates = {},
                                             .coordinate_tensors = {}});
  for (const std::string& name : dim_names) {
    const std::size_t d = index(dim(name));
    state->layout.shape.push_back(shape()[d]);
    state->strides.push_back(state_->strides[d]);
    state->coordinates.push_back(state_->coordinates[d]);
    state->coordinate_tensors.push_back(state_->coordinate_tensors[d]);
  }
  return DeviceMesh(std::move(state));
}

bool DeviceMesh::operator==(const DeviceMesh& other) const noexcept {
  return state_ == other.state_ || (layout() == other.layout() && state_->coordinates == other.state_->coordinates);
}

}  // namespace precast
