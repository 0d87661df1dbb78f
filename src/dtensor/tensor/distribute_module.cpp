#include "dtensor/tensor/dtensor_data.h"
#include "precast/dtensor.h"
#include "precast/error.h"
#include "precast/parallel_plan.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <unordered_set>
#include <utility>

namespace precast {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw PrecompileError(ErrorCode::argument_mismatch, "distribute_module: " + text);
}

/// Whether `name` is what `pattern` says, '*' being any characters.
bool matches(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  pattern.remove_prefix(star + 1);
  for (std::size_t i = star; i <= name.size(); ++i)
    if (matches(pattern, name.substr(i))) return true;
  return false;
}

const Placements& placements_for(const std::string& name, const ParallelPlan& plan, const Placements& otherwise) {
  for (const ParallelPlan::Parameters& entry : plan.parameters)
    if (matches(entry.pattern, name)) return entry.placements;
  return otherwise;
}

void check_patterns(const ParallelPlan& plan, const std::vector<std::string>& names) {
  for (const ParallelPlan::Parameters& entry : plan.parameters) {
    bool any = false;
    for (const std::string& name : names) any = any || matches(entry.pattern, name);
    if (!any) refuse(fmt::format("pattern '{}' matches no parameter; there are: {}", entry.pattern, fmt::join(names, ", ")));
  }
}

void check_parameter(const std::string& name, const at::Tensor& parameter, const DeviceMesh& mesh, const Placements& placements) {
  if (is_dtensor(parameter)) refuse(fmt::format("parameter '{}' is a DTensor already", name));
  if (static_cast<int>(placements.size()) != mesh.ndim())
    refuse(fmt::format("parameter '{}': expected {} placements, one for each dimension of {}, found {}", name, mesh.ndim(),
                       to_string(mesh.layout()), to_string(placements)));
  for (const Placement& placement : placements) {
    const auto* shard = std::get_if<Shard>(&placement);
    if (shard != nullptr && (shard->dim < 0 || shard->dim >= parameter.dim()))
      refuse(fmt::format("parameter '{}': {} needs a dimension {}, and its shape is [{}]", name, to_string(placement), shard->dim,
                         fmt::join(parameter.sizes(), ", ")));
    if (std::holds_alternative<Partial>(placement))
      refuse(fmt::format("parameter '{}': {} is no way to keep a parameter; shard or replicate it", name, to_string(placement)));
  }
}

}  // namespace

void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan) {
  const Placements replicated(static_cast<std::size_t>(mesh.ndim()));
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  std::vector<std::string> names;
  for (const auto& entry : module.named_parameters()) {
    parameters.emplace_back(entry.key(), entry.value());
    names.push_back(entry.key());
  }
  check_patterns(plan, names);
  for (const auto& [name, parameter] : parameters) check_parameter(name, parameter, mesh, placements_for(name, plan, replicated));

  const at::NoGradGuard no_grad;
  std::unordered_set<const at::TensorImpl*> done;  // a tied parameter has several names
  for (auto& [name, parameter] : parameters) {
    if (!done.insert(parameter.unsafeGetTensorImpl()).second) continue;
    parameter.mutable_grad().reset();
    parameter.set_data(distribute_tensor(parameter.detach(), mesh, placements_for(name, plan, replicated)));
  }
}

}  // namespace precast
