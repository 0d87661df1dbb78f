#pragma once

#include "ir/program.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace precast::eager {

/// What a program does with one of its inputs.
struct InputUse {
  bool read = false;      ///< Its memory or its layout matters to some operator, or it is an output.
  bool written = false;   ///< Or a tensor that may share its memory.
  bool returned = false;  ///< An output may share its memory.
};

/// One entry an input. @throws PrecompileError invalid_artifact  as make_plan.
std::vector<InputUse> input_uses(const ir::Program& program);

/// An input whose layout at capture is recorded.
struct RecordedLayout {
  std::size_t index;  ///< Into Program::inputs.
  std::string name;   ///< "parameter 'fc.weight'", "buffer 'mean'", "input leaf 0 (argument 1)"
  std::vector<std::int64_t> strides;
  InputUse use;
};

/// Those of the inputs that the program reads.
std::vector<RecordedLayout> recorded_layouts(const ir::Metadata& metadata, const std::vector<InputUse>& uses);

/// Whether the elements lie so. Dimensions of size 1 and empty tensors always do.
bool is_laid_out(const at::Tensor& tensor, at::IntArrayRef strides);

/// Whether each element surely has memory of its own: every dimension steps over all that the smaller ones reach.
bool has_own_elements(at::IntArrayRef sizes, at::IntArrayRef strides);

/// "strides [1, 3] (as captured), found [4, 1]"
std::string layout_difference(const at::Tensor& tensor, at::IntArrayRef strides);

}  // namespace precast::eager
