#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>
#include <vector>

namespace precast::aten {

/// What a tensor looks at: storage, offset, sizes, strides, dtype, conjugate and negative bit. Two tensors with equal windows are
/// interchangeable in a program that runs without autograd.
using Window =
    std::tuple<const c10::StorageImpl*, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>, int, bool, bool>;

/// @param tensor  has a storage.
Window window_of(const at::Tensor& tensor);

}  // namespace precast::aten
