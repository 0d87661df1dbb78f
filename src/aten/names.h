#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

namespace precast::aten {

/// "float32", as Python writes torch.float32.
std::string dtype_name(at::ScalarType dtype);

/// "cuda", without index: which of its devices a rank uses is its own affair.
std::string device_name(const at::Device& device);

}  // namespace precast::aten
