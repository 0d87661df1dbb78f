#include "aten/names.h"

#include <c10/core/DeviceType.h>

namespace precast::aten {

std::string dtype_name(at::ScalarType dtype) {
  return std::string(c10::getDtypeNames(dtype).first);
}

std::string device_name(const at::Device& device) {
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true);
}

}  // namespace precast::aten
