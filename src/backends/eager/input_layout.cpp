#include "backends/eager/input_layout.h"

#include "backends/eager/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace precast::eager {

std::vector<InputUse> input_uses(const ir::Program& program) {
  return make_plan(program).uses;
}

std::vector<RecordedLayout> recorded_layouts(const ir::Metadata& metadata, const std::vector<InputUse>& uses) {
  std::vector<RecordedLayout> layouts;
  std::size_t index = 0;
  const auto add = [&](std::string name, const std::optional<std::vector<std::int64_t>>& strides) {
    const InputUse& use = uses.at(index);
    if (strides && use.read) layouts.push_back({.index = index, .name = std::move(name), .strides = *strides, .use = use});
    ++index;
  };
  for (const ir::TensorMeta& parameter : metadata.params) add(fmt::format("parameter '{}'", parameter.name), parameter.strides);
  for (const ir::TensorMeta& buffer : metadata.buffers) add(fmt::format("buffer '{}'", buffer.name), buffer.strides);
  for (std::size_t i = 0; i < metadata.inputs.size(); ++i)
    add(fmt::format("input leaf {} ({})", i, metadata.inputs[i].path), metadata.inputs[i].strides);
  return layouts;
}

bool is_laid_out(const at::Tensor& tensor, at::IntArrayRef strides) {
  if (tensor.numel() == 0) return true;
  for (std::int64_t d = 0; d < tensor.dim(); ++d)
    if (tensor.size(d) != 1 && tensor.stride(d) != strides[static_cast<std::size_t>(d)]) return false;
  return true;
}

bool has_own_elements(at::IntArrayRef sizes, at::IntArrayRef strides) {
  std::vector<std::size_t> dims(sizes.size());
  std::iota(dims.begin(), dims.end(), std::size_t{0});
  std::ranges::sort(dims, {}, [&](std::size_t d) { return strides[d]; });
  std::int64_t reach = 0;
  for (const std::size_t d : dims) {
    if (sizes[d] == 1) continue;
    if (strides[d] <= reach) return false;
    reach += (sizes[d] - 1) * strides[d];
  }
  return true;
}

std::string layout_difference(const at::Tensor& tensor, at::IntArrayRef strides) {
  return fmt::format("strides [{}] (as captured), found [{}]", fmt::join(strides, ", "), fmt::join(tensor.strides(), ", "));
}

}  // namespace precast::eager
