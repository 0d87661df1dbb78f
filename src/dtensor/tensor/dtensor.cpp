#include "precast/dtensor.h"

#include "dtensor/shards.h"
#include "dtensor/tensor/dtensor_data.h"
#include "dtensor/tensor/operators.h"
#include "dtensor/tensor/redistribute.h"
#include "precast/error.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

namespace precast {
namespace {

using dtensor::as_dtensor;
using dtensor::DTensorData;
using dtensor::layout_of;
using dtensor::redistribute_local;
using dtensor::SharedLayout;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const DTensorData& expect_dtensor(const at::Tensor& tensor, const char* function) {
  if (const DTensorData* dtensor = as_dtensor(tensor)) return *dtensor;
  throw PrecompileError(ErrorCode::argument_mismatch,
                        fmt::format("{}: expected a DTensor, found {}; make it one by distribute_tensor or from_local", function,
                                    tensor.defined() ? fmt::format("a plain tensor of shape [{}]", fmt::join(tensor.sizes(), ", "))
                                                     : "an undefined tensor"));
}

void expect_plain(const at::Tensor& tensor, const char* function) {
  if (!tensor.defined())
    throw PrecompileError(ErrorCode::argument_mismatch, fmt::format("{}: expected a tensor, found an undefined one", function));
  if (const DTensorData* dtensor = as_dtensor(tensor))
    throw PrecompileError(ErrorCode::argument_mismatch,
                          fmt::format("{}: expected a plain tensor, found a DTensor laid out as {}; redistribute it instead",
                                      function, to_string(dtensor->layout().placements)));
}

void check_placements(const Placements& placements, at::IntArrayRef sizes, const char* function) {
  for (const Placement& placement : placements)
    if (const auto* shard = std::get_if<Shard>(&placement))
      if (shard->dim < 0 || shard->dim >= static_cast<std::int64_t>(sizes.size()))
        throw std::invalid_argument(fmt::format("{}: {} needs a tensor dimension {}, and the tensor has shape [{}]", function,
                                                to_string(placement), shard->dim, fmt::join(sizes, ", ")));
}

/// How a gradient lies: as the value, and whole where the value is a sum still to be made.
Placements gradient_placements(Placements placements) {
  for (Placement& placement : placements)
    if (std::holds_alternative<Partial>(placement)) placement = Replicate();
  return placements;
}

/// A layout in an autograd context, which keeps IValues.
struct LayoutHolder final : torch::CustomClassHolder {
  explicit LayoutHolder(SharedLayout layout) : layout(std::move(layout)) {}
  SharedLayout layout;
};

void save(AutogradContext& context, SharedLayout layout) {
  context.saved_data["layout"] = c10::IValue::make_capsule(c10::make_intrusive<LayoutHolder>(std::move(layout)));
}

const SharedLayout& saved_layout(AutogradContext& context) {
  return static_cast<const LayoutHolder&>(*context.saved_data["layout"].toCapsule()).layout;
}

at::Tensor change(const at::Tensor& tensor, const SharedLayout& to) {
  const DTensorData& dtensor = expect_dtensor(tensor, "redistribute");
  const at::Tensor local =
      redistribute_local(dtensor.local(), tensor.sizes(), to->mesh, dtensor.layout().placements, to->placements);
  return dtensor::wrap(local, to, tensor.sizes());
}

struct RedistributeFunction : torch::autograd::Function<RedistributeFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const SharedLayout& to) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const dtensor::Layout& from = expect_dtensor(tensor, "redistribute").layout();
    save(*context, layout_of(from.mesh, gradient_placements(from.placements)));
    return change(tensor, to);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {RedistributeFunction::apply(gradients[0], saved_layout(*context)), {}};
  }
};

struct ToLocalFunction : torch::autograd::Function<ToLocalFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const SharedLayout& gradient) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    save(*context, gradient);
    context->saved_data["sizes"] = tensor.sizes();
    return expect_dtensor(tensor, "to_local").local().detach();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const SharedLayout& layout = saved_layout(*context);
    return {from_local(gradients[0], layout->mesh, layout->placements, context->saved_data["sizes"].toIntVector()), {}};
  }
};

struct FromLocalFunction : torch::autograd::Function<FromLocalFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& local, const SharedLayout& layout, at::IntArrayRef sizes) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    save(*context, layout_of(layout->mesh, gradient_placements(layout->placements)));
    return dtensor::wrap(local.detach(), layout, sizes);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const SharedLayout& layout = saved_layout(*context);
    return {to_local(redistribute(gradients[0], layout->placements)), {}, {}};
  }
};

thread_local bool implicit_replication = false;

}  // namespace

namespace dtensor {
bool is_implicitly_replicated() {
  return implicit_replication;
}
}  // namespace dtensor

bool is_dtensor(const at::Tensor& tensor) {
  return as_dtensor(tensor) != nullptr;
}

const DeviceMesh& mesh_of(const at::Tensor& dtensor) {
  return expect_dtensor(dtensor, "mesh_of").layout().mesh;
}

const Placements& placements_of(const at::Tensor& dtensor) {
  return expect_dtensor(dtensor, "placements_of").layout().placements;
}

const at::Tensor& local_part(const at::Tensor& dtensor) {
  return expect_dtensor(dtensor, "local_part").local();
}

at::Tensor distribute_tensor(const at::Tensor& tensor, const DeviceMesh& mesh, const Placements& placements) {
  expect_plain(tensor, "distribute_tensor");
  check_placements(placements, tensor.sizes(), "distribute_tensor");
  const SharedLayout layout = layout_of(mesh, placements);
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor local = redistribute_local(tensor.detach(), tensor.sizes(), mesh, Placements(placements.size()), placements);
  return dtensor::wrap(local, layout, tensor.sizes()).requires_grad_(tensor.requires_grad());
}

at::Tensor from_local(const at::Tensor& local, const DeviceMesh& mesh, const Placements& placements,
                      const std::optional<std::vector<std::int64_t>>& global_shape) {
  expect_plain(local, "from_local");
  check_placements(placements, local.sizes(), "from_local");
  const SharedLayout layout = layout_of(mesh, placements);
  dtensor::Sizes sizes = local.sizes().vec(), mesh_sizes, here;
  for (int m = 0; m < mesh.ndim(); ++m) {
    mesh_sizes.push_back(mesh.size(m));
    here.push_back(mesh.coordinate(m));
    if (const auto* shard = std::get_if<Shard>(&placements[static_cast<std::size_t>(m)]))
      sizes[static_cast<std::size_t>(shard->dim)] *= mesh.size(m);
  }
  if (global_shape) sizes = *global_shape;
  if (sizes.size() != static_cast<std::size_t>(local.dim()) ||
      dtensor::local_shape(sizes, placements, mesh_sizes, here) != local.sizes())
    throw std::invalid_argument(
        fmt::format("from_local: a local tensor of shape [{}] is not this rank's part of a tensor of shape [{}] on "
                    "{} with {}",
                    fmt::join(local.sizes(), ", "), fmt::join(sizes, ", "), to_string(mesh.layout()), to_string(placements)));
  return FromLocalFunction::apply(local, layout, at::IntArrayRef(sizes));
}

at::Tensor to_local(const at::Tensor& dtensor, const std::optional<Placements>& grad_placements) {
  const dtensor::Layout& layout = expect_dtensor(dtensor, "to_local").layout();
  return ToLocalFunction::apply(
      dtensor, layout_of(layout.mesh, grad_placements ? *grad_placements : gradient_placements(layout.placements)));
}

at::Tensor redistribute(const at::Tensor& dtensor, const Placements& placements) {
  const dtensor::Layout& layout = expect_dtensor(dtensor, "redistribute").layout();
  check_placements(placements, dtensor.sizes(), "redistribute");
  if (layout.placements == placements) return dtensor;
  return RedistributeFunction::apply(dtensor, layout_of(layout.mesh, placements));
}

at::Tensor full_tensor(const at::Tensor& dtensor) {
  const dtensor::Layout& layout = expect_dtensor(dtensor, "full_tensor").layout();
  return to_local(redistribute(dtensor, Placements(layout.placements.size())));
}

ImplicitReplication::ImplicitReplication() : before_(std::exchange(implicit_replication, true)) {}
ImplicitReplication::~ImplicitReplication() {
  implicit_replication = before_;
}

}  // namespace precast
