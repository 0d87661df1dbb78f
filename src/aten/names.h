#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

namespace precast::aten {

/// "float32", as Python writes torch.float32.
std::string dtype_name(at::ScalarType dtype);

/// "cuda", without index: which of its devices a rank uses is its own affair.
std::string device_name(const at::Device& device);

/// "nested", "quantized", "Sparse" ...: what keeps a tensor out of a program, or nothing if it is dense and strided.
std::string unusual_layout(const at::Tensor& tensor);

}  // namespace precast::aten
