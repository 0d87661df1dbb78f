#include "runtime/scatter_dtensors.h"

#include "dtensor/redistribute_plan.h"
#include "dtensor/shards.h"
#include "dtensor/tensor/collectives.h"
#include "dtensor/tensor/dtensor_data.h"
#include "dtensor/tensor/redistribute.h"
#include "dtensor/tensor/shard_offset.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace precast::runtime {
namespace {

using dtensor::as_dtensor;
using dtensor::DTensorData;
using dtensor::RedistributeStep;
using Kind = RedistributeStep::Kind;

/// A gradient that one reduction brings to where its parameter lies.
struct Pending {
  at::Tensor parameter;
  RedistributeStep step;
};

const DTensorData& gradient_of(const Pending& pending) {
  return *as_dtensor(pending.parameter.grad());
}

void put(const at::Tensor& parameter, const at::Tensor& local) {
  const DTensorData& as = *as_dtensor(parameter);
  parameter.mutable_grad() = dtensor::wrap(local, as.shared_layout(), parameter.sizes());
}

/// The local gradient with one row for each rank: what that rank gets of it; for an all-reduce one row for all.
at::Tensor rows_of(const Pending& pending, std::int64_t n) {
  const at::Tensor& local = gradient_of(pending).local();
  if (pending.step.kind == Kind::all_reduce) return local.reshape({1, -1});
  return at::stack(local.chunk(n, pending.step.to_dim), 0).reshape({n, -1});
}

void reduce_bucket(const std::vector<Pending>& bucket) {
  const RedistributeStep& step = bucket.front().step;
  const DeviceMesh& mesh = gradient_of(bucket.front()).layout().mesh;
  const std::int64_t n = mesh.size(step.mesh_dim);
  std::vector<at::Tensor> rows;
  rows.reserve(bucket.size());
  for (const Pending& pending : bucket) rows.push_back(rows_of(pending, n));
  const at::Tensor all = at::cat(rows, 1);
  const at::Tensor mine = (step.kind == Kind::all_reduce ? dtensor::all_reduce(all, step.reduction, mesh, step.mesh_dim)
                                                         : dtensor::reduce_scatter(all, step.reduction, mesh, step.mesh_dim))
                              .reshape({-1});
  std::int64_t offset = 0;
  for (const Pending& pending : bucket) {
    const at::Tensor& like = as_dtensor(pending.parameter)->local();
    put(pending.parameter, mine.narrow(0, offset, like.numel()).view(like.sizes()).clone());
    offset += like.numel();
  }
}

/// Some backwards give a plain tensor, whole on every rank.
void make_distributed(const at::Tensor& parameter) {
  at::Tensor& gradient = parameter.mutable_grad();
  if (!gradient.defined() || as_dtensor(gradient) != nullptr) return;
  const dtensor::Layout& layout = as_dtensor(parameter)->layout();
  gradient = dtensor::wrap(gradient, dtensor::layout_of(layout.mesh, Placements(layout.placements.size())), gradient.sizes());
}

/// One reduction, which leaves equally much to every rank.
bool fits_a_bucket(const std::vector<RedistributeStep>& steps, const at::Tensor& parameter) {
  if (steps.size() != 1 || (steps[0].kind != Kind::all_reduce && steps[0].kind != Kind::reduce_scatter)) return false;
  const dtensor::Layout& layout = as_dtensor(parameter)->layout();
  return dtensor::is_even(parameter.sizes(), layout.placements, dtensor::mesh_sizes(layout.mesh));
}

}  // namespace

void scatter_dtensor_gradients(const std::vector<at::Tensor>& parameters, std::size_t bucket_bytes) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  using BucketKey = std::tuple<std::string, Kind, Reduction, at::ScalarType>;
  std::map<BucketKey, std::vector<Pending>> buckets;
  std::map<BucketKey, std::size_t> bytes;
  for (const at::Tensor& parameter : parameters) {
    const DTensorData& wanted = *as_dtensor(parameter);
    make_distributed(parameter);
    const DTensorData* gradient = as_dtensor(parameter.grad());
    if (gradient == nullptr || gradient->layout().placements == wanted.layout().placements) continue;
    const DeviceMesh& mesh = gradient->layout().mesh;
    const Placements& from = gradient->layout().placements;
    auto steps = dtensor::plan_redistribution(from, wanted.layout().placements);
    if (!fits_a_bucket(steps, parameter)) {
      put(parameter, dtensor::redistribute_local(gradient->local(), parameter.sizes(), mesh, from, wanted.layout().placements));
      continue;
    }
    const BucketKey key = {mesh.group_name(steps[0].mesh_dim), steps[0].kind, steps[0].reduction, parameter.scalar_type()};
    auto& bucket = buckets[key];
    bytes[key] += gradient->local().nbytes();
    bucket.push_back({parameter, std::move(steps[0])});
    if (bytes[key] < bucket_bytes) continue;
    reduce_bucket(bucket);
    bucket.clear();
    bytes[key] = 0;
  }
  for (const auto& [key, bucket] : buckets)
    if (!bucket.empty()) reduce_bucket(bucket);
}

}  // namespace precast::runtime
