#include "capture/stand_ins.h"

#include "precast/error.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

namespace precast::capture {
namespace {

using Arguments = std::vector<c10::IValue>;

at::Tensor repeat_rows(const at::Tensor& tensor, std::int64_t n) {
  return at::cat(std::vector<at::Tensor>(n, tensor), 0);
}

at::Tensor first_rows(const at::Tensor& tensor, std::int64_t group_size) {
  return tensor.narrow(0, 0, tensor.size(0) / group_size).clone();
}

/// The rows that all ranks together would send: this rank's own, over and over.
at::Tensor cycle_rows(const at::Tensor& tensor, std::int64_t n_rows) {
  if (n_rows == 0 || tensor.size(0) == 0)
    return tensor.new_zeros([&] {
      auto sizes = tensor.sizes().vec();
      sizes.at(0) = n_rows;
      return sizes;
    }());
  return repeat_rows(tensor, (n_rows + tensor.size(0) - 1) / tensor.size(0)).narrow(0, 0, n_rows).clone();
}

std::vector<at::Tensor> map(const std::vector<at::Tensor>& tensors, const auto& function) {
  std::vector<at::Tensor> out;
  out.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) out.push_back(function(tensor));
  return out;
}

struct StandIn {
  std::string_view op;
  c10::IValue (*answer)(const Arguments& arguments, std::int64_t group_size);
};

constexpr auto kCopy = [](const at::Tensor& tensor) { return tensor.clone(); };

const std::array kStandIns = {
    StandIn{"_c10d_functional::wait_tensor", [](const Arguments& a, std::int64_t) { return c10::IValue(a[0].toTensor().clone()); }},
    StandIn{"_c10d_functional::all_reduce", [](const Arguments& a, std::int64_t) { return c10::IValue(a[0].toTensor().clone()); }},
    StandIn{"_c10d_functional::broadcast", [](const Arguments& a, std::int64_t) { return c10::IValue(a[0].toTensor().clone()); }},
    StandIn{"_c10d_functional::all_reduce_coalesced",
            [](const Arguments& a, std::int64_t) { return c10::IValue(map(a[0].toTensorVector(), kCopy)); }},
    StandIn{"_c10d_functional::all_gather_into_tensor",
            [](const Arguments& a, std::int64_t n) { return c10::IValue(repeat_rows(a[0].toTensor(), n)); }},
    StandIn{"_c10d_functional::reduce_scatter_tensor",
            [](const Arguments& a, std::int64_t n) { return c10::IValue(first_rows(a[0].toTensor(), n)); }},
    StandIn{"_c10d_functional::all_gather_into_tensor_coalesced",
            [](const Arguments& a, std::int64_t n) {
              return c10::IValue(map(a[0].toTensorVector(), [n](const at::Tensor& t) { return repeat_rows(t, n); }));
            }},
    StandIn{"_c10d_functional::reduce_scatter_tensor_coalesced",
            [](const Arguments& a, std::int64_t n) {
              return c10::IValue(map(a[0].toTensorVector(), [n](const at::Tensor& t) { return first_rows(t, n); }));
            }},
    StandIn{"_c10d_functional::all_to_all_single",
            [](const Arguments& a, std::int64_t) {
              const auto rows = a[1].toIntVector();
              return c10::IValue(cycle_rows(a[0].toTensor(), std::accumulate(rows.begin(), rows.end(), std::int64_t{0})));
            }},
};

std::string qualified(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

std::int64_t group_size(const c10::FunctionSchema& schema, const Arguments& arguments, const Groups& groups) {
  const auto index = schema.argumentIndexWithName("group_name");
  if (!index) return 1;
  const c10::IValue& group = arguments[*index];
  const std::string name = group.isString() ? group.toStringRef() : "a process group object";
  const auto known = groups.find(name);
  if (known == groups.end()) {
    std::vector<std::string> names;
    for (const auto& [known_name, size] : groups) names.push_back(known_name);
    throw PrecompileError(
        ErrorCode::refused_capture,
        fmt::format("{}: its group is {}, which is no mesh dimension of this job (known: [{}]); use the logical name of a "
                    "mesh dimension",
                    qualified(schema), group.isString() ? "'" + name + "'" : name, fmt::join(names, ", ")));
  }
  return known->second;
}

}  // namespace

bool is_collective(const c10::FunctionSchema& schema) {
  const std::string_view name = schema.name();
  return name.starts_with("c10d::") || name.starts_with("_c10d_functional::") || name.starts_with("_dtensor::") ||
         name.starts_with("symm_mem::");
}

void answer_collective(const c10::OperatorHandle& op, torch::jit::Stack& stack, const Groups& groups) {
  const c10::FunctionSchema& schema = op.schema();
  if (schema.name().starts_with("c10d::"))
    throw PrecompileError(
        ErrorCode::refused_capture,
        fmt::format("{} communicates through a process group while the step is captured; use the functional collective "
                    "(_c10d_functional) on the logical name of a mesh dimension",
                    qualified(schema)));
  const Arguments arguments = torch::jit::last(stack, schema.arguments().size()).vec();
  const std::int64_t size = group_size(schema, arguments, groups);
  for (const StandIn& row : kStandIns) {
    if (row.op != schema.name()) continue;
    torch::jit::drop(stack, schema.arguments().size());
    stack.push_back(row.answer(arguments, size));
    return;
  }
  throw PrecompileError(ErrorCode::refused_capture,
                        fmt::format("{} cannot be captured: it has no stand-in; use all_reduce, all_gather_into_tensor, "
                                    "reduce_scatter_tensor, all_to_all_single or broadcast",
                                    qualified(schema)));
}

}  // namespace precast::capture
