#include "backends/eager/captured_layout.h"

#include "base/log.h"
#include "precast/error.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <string_view>

namespace precast::eager {
namespace {

[[noreturn]] void refuse(const RecordedLayout& layout, const at::Tensor& tensor, std::string_view why) {
  throw PrecompileError(ErrorCode::argument_mismatch,
                        fmt::format("step: {}: expected {}; {}, so lay it out as at capture or compile again", layout.name,
                                    layout_difference(tensor, layout.strides), why));
}

}  // namespace

std::vector<CapturedLayout::StandIn> CapturedLayout::lay_out(std::vector<c10::IValue>& inputs) const {
  std::vector<StandIn> stand_ins;
  for (const RecordedLayout& layout : layouts_) {
    const at::Tensor tensor = inputs[layout.index].toTensor();
    if (is_laid_out(tensor, layout.strides)) continue;
    if (layout.use.returned) refuse(layout, tensor, "a result is a view of it");
    if (layout.use.written && !has_own_elements(tensor.sizes(), tensor.strides()))
      refuse(layout, tensor, "the step writes into it and its elements share memory");
    // A captured layout whose elements share memory (expand) can hold no other values: contiguous is the nearest to it.
    const bool has_room = has_own_elements(tensor.sizes(), layout.strides);
    if (!has_room && tensor.is_contiguous()) continue;
    if (!warned_.test_and_set())
      warn(
          "step: {}: expected {}; it is copied into that layout at each run: lay it out as at capture, or compile again, to spare "
          "that",
          layout.name, layout_difference(tensor, layout.strides));
    const auto options = tensor.options().requires_grad(false);
    at::Tensor copy = has_room ? at::empty_strided(tensor.sizes(), layout.strides, options) : at::empty(tensor.sizes(), options);
    copy.copy_(tensor);
    inputs[layout.index] = copy;
    stand_ins.push_back({.original = tensor, .copy = std::move(copy), .written = layout.use.written});
  }
  return stand_ins;
}

void CapturedLayout::write_back(const std::vector<StandIn>& stand_ins) {
  for (const StandIn& stand_in : stand_ins)
    if (stand_in.written) stand_in.original.copy_(stand_in.copy);
}

}  // namespace precast::eager
