#include "backends/inductor/compiled_program.h"

#include "backends/inductor/split.h"
#include "precast/error.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <utility>

namespace precast::inductor {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw PrecompileError(ErrorCode::argument_mismatch, "step: " + what);
}

/// The bytes between a tensor's first and last element, or nothing.
std::pair<const std::byte*, const std::byte*> reach(const c10::IValue& input) {
  if (!input.isTensor() || !input.toTensor().defined() || input.toTensor().numel() == 0) return {nullptr, nullptr};
  const at::Tensor& tensor = input.toTensor();
  const auto* begin = static_cast<const std::byte*>(tensor.const_data_ptr());
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return {begin, begin + (last + 1) * static_cast<std::int64_t>(tensor.element_size())};
}

/// Kernels that write into an input leave its version counter where it is.
class WrittenVersions {
 public:
  WrittenVersions(const std::vector<c10::IValue>& inputs, const std::vector<eager::InputUse>& uses) {
    for (std::size_t i = 0; i < uses.size(); ++i)
      if (uses[i].written && !inputs[i].toTensor().is_inference())
        written_.emplace_back(inputs[i].toTensor(), inputs[i].toTensor()._version());
  }
  void move_on() const {
    for (const auto& [tensor, version] : written_)
      if (tensor._version() == version) tensor.unsafeGetTensorImpl()->bump_version();
  }

 private:
  std::vector<std::pair<at::Tensor, std::int64_t>> written_;
};

}  // namespace

CompiledProgram::CompiledProgram(const ir::Program& program, std::span<const std::byte> package)
    : CompiledProgram(program, split(program), package) {}

CompiledProgram::CompiledProgram(const ir::Program& program, Split split, std::span<const std::byte> package)
    : tensor_inputs_(std::move(split.tensor_inputs)),
      n_compiled_(split.compiled.outputs.size()),
      uses_(eager::input_uses(program)),
      package_(package),
      views_(split.views) {
  layouts_ = eager::recorded_layouts(program.metadata, uses_);
}

void CompiledProgram::check_layouts(const std::vector<c10::IValue>& inputs) const {
  for (const eager::RecordedLayout& layout : layouts_) {
    const at::Tensor& tensor = inputs[layout.index].toTensor();
    if (!eager::is_laid_out(tensor, layout.strides))
      refuse(
          fmt::format("{}: expected {}; kernels of backend 'inductor' read it so: lay it out as at capture (contiguous()), compile "
                      "again, or use backend 'eager'",
                      layout.name, eager::layout_difference(tensor, layout.strides)));
  }
}

/// The compiler took inputs for separate memory.
void CompiledProgram::check_overlaps(const std::vector<c10::IValue>& inputs) const {
  for (std::size_t i = 0; i < uses_.size(); ++i) {
    if (!uses_[i].written) continue;
    const auto [begin, end] = reach(inputs[i]);
    for (std::size_t j = 0; j < uses_.size(); ++j) {
      if (j == i || !uses_[j].read) continue;
      const auto [other_begin, other_end] = reach(inputs[j]);
      if (begin < other_end && other_begin < end)
        refuse(
            fmt::format("flat inputs {} and {} share memory and the step writes into it, which backend 'inductor' does not follow; "
                        "pass separate tensors, or use backend 'eager'",
                        std::min(i, j), std::max(i, j)));
    }
  }
}

std::vector<c10::IValue> CompiledProgram::run(std::vector<c10::IValue> inputs) const {
  check_layouts(inputs);
  check_overlaps(inputs);
  std::vector<at::Tensor> tensors;
  tensors.reserve(tensor_inputs_.size());
  for (const std::size_t i : tensor_inputs_) tensors.push_back(inputs[i].toTensor());
  const c10::AutoGradMode no_grad(false);
  const WrittenVersions written(inputs, uses_);
  std::vector<at::Tensor> outputs = package_.run(tensors);
  written.move_on();
  if (outputs.size() != n_compiled_)
    throw PrecompileError(ErrorCode::artifact_mismatch,
                          fmt::format("step: the kernel package returned {} tensors, the program expects {}; compile again",
                                      outputs.size(), n_compiled_));
  for (at::Tensor& output : outputs) inputs.emplace_back(std::move(output));
  return views_.run(std::move(inputs));
}

}  // namespace precast::inductor
