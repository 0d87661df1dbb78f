#include "dtensor/tensor/dtensor_data.h"

#include "dtensor/shards.h"
#include "dtensor/tensor/operators.h"
#include "dtensor/tensor/shard_offset.h"

#include <c10/util/strides.h>

#include <algorithm>
#include <numeric>

namespace precast::dtensor {
namespace {

std::vector<std::int64_t> contiguous(at::IntArrayRef sizes) {
  const auto strides = c10::contiguous_strides(sizes);
  return {strides.begin(), strides.end()};
}

}  // namespace

std::vector<std::int64_t> strides_like(at::IntArrayRef sizes, at::IntArrayRef like_sizes, at::IntArrayRef like) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Innermost first. Dimensions of size one may have any stride; of equal strides the later dimension is the inner one.
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return like[a] == like[b] ? a > b : like[a] < like[b]; });
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t next = 1;
  for (const std::size_t dim : order) {
    strides[dim] = like[dim] == 0 && like_sizes[dim] > 1 ? 0 : next;
    if (strides[dim] != 0) next *= std::max<std::int64_t>(sizes[dim], 1);
  }
  return strides;
}

at::Tensor wrap(const at::Tensor& local, SharedLayout layout, at::IntArrayRef global_sizes) {
  ensure_operators();
  // Every rank must claim the same strides: what autograd calls may depend on them. Parts of unequal size may lie differently.
  const bool equal_parts = is_even(global_sizes, layout->placements, mesh_sizes(layout->mesh));
  const std::vector<std::int64_t> strides =
      equal_parts ? strides_like(global_sizes, local.sizes(), local.strides()) : contiguous(global_sizes);
  at::Tensor outside = at::detail::make_tensor<c10::TensorImpl>(local.key_set() | c10::DispatchKeySet(c10::DispatchKey::Fake),
                                                                local.dtype(), local.device());
  c10::TensorImpl* impl = outside.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(global_sizes, strides);
  impl->release_storage_and_set_meta_custom_data_ptr_error_msg_(
      "a DTensor has no memory of its own (data_ptr, accessor, printing, saving); take full_tensor() or local_part() of it");
  impl->set_backend_meta(c10::make_intrusive<DTensorData>(local, std::move(layout)));
  return outside;
}

}  // namespace precast::dtensor
