#include "aten/names.h"

#include <c10/core/DeviceType.h>
#include <fmt/ostream.h>

namespace precast::aten {

std::string dtype_name(at::ScalarType dtype) {
  return std::string(c10::getDtypeNames(dtype).first);
}

std::string device_name(const at::Device& device) {
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true);
}

std::string unusual_layout(const at::Tensor& tensor) {
  if (tensor.is_nested()) return "nested";
  if (tensor.is_quantized()) return "quantized";
  return tensor.layout() == at::kStrided ? "" : fmt::format("{}", fmt::streamed(tensor.layout()));
}

}  // namespace precast::aten
