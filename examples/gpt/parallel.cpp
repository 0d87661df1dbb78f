#include "parallel.h"

#include "model.h"

#include <string_view>

namespace gpt {
namespace {

using precast::Placement;
using precast::Placements;
using precast::Replicate;
using precast::Shard;

/// Which dimension of a parameter tensor parallelism shards: columns of what a block reads with, rows of what it writes with, the
/// vocabulary. None: the parameter is whole.
std::optional<std::int64_t> tensor_parallel_dim(std::string_view name) {
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  if (ends("c_attn.weight") || ends("c_attn.bias") || ends("c_fc.weight") || ends("c_fc.bias") || ends("wte.weight") ||
      ends("lm_head.weight"))
    return 0;
  if (ends("c_proj.weight")) return 1;
  return std::nullopt;
}

Shard stored_shard() {
  Shard shard(0);
  shard.stored = true;
  return shard;
}

Placements placements_for(const std::string& name, const torch::Tensor& parameter, const Config& config) {
  const bool fsdp = config.plan == "fsdp" || config.plan == "fsdp+tp", tp = config.mesh.tp > 0 && config.plan.ends_with("tp");
  const std::int64_t dp = config.plan == "hsdp" ? config.mesh.shard : config.mesh.dp;
  const auto tp_dim = tp ? tensor_parallel_dim(name) : std::nullopt;
  Placement data = Replicate(), tensor = Replicate();
  if (tp_dim) tensor = Shard(*tp_dim);
  if (fsdp || config.plan == "hsdp") {
    Shard shard = stored_shard();
    shard.strided = tp_dim == 0;  // tensor parallelism splits first: a gather gives back its part
    const std::int64_t parts = dp * (tp_dim == 0 ? config.mesh.tp : 1);
    if (parameter.size(0) % parts == 0) data = shard;  // the few that do not divide stay whole
  }
  if (config.plan == "hsdp") return {Replicate(), data};
  Placements placements;
  if (config.mesh.dp > 0) placements.push_back(data);
  if (config.mesh.tp > 0) placements.push_back(tensor);
  return placements;
}

}  // namespace

torch::Tensor Parallel::place(const torch::Tensor& local) const {
  return mesh ? precast::from_local(local, *mesh, batch) : local;
}

void Parallel::distribute(torch::nn::Module& model) const {
  if (mesh) precast::distribute_module(model, *mesh, plan);
}

Parallel make_parallel(const precast::Communicator& comm, const Config& config) {
  Parallel out;
  if (config.plan.empty()) {
    out.n_data_ranks = comm.size();
    out.data_rank = comm.rank();
    return out;
  }
  std::vector<std::int64_t> shape;
  std::vector<std::string> names;
  const auto add = [&](const char* name, std::int64_t size, bool splits_data) {
    if (size == 0) return;
    shape.push_back(size);
    names.emplace_back(name);
    out.batch.push_back(splits_data ? Placement(Shard(0)) : Placement(Replicate()));
  };
  add("replicate", config.mesh.replicate, true);
  add("shard", config.mesh.shard, true);
  add("dp", config.mesh.dp, true);
  add("tp", config.mesh.tp, false);
  out.mesh.emplace(comm, shape, names);
  for (int m = 0; m < out.mesh->ndim(); ++m) {
    if (!std::holds_alternative<Shard>(out.batch[static_cast<std::size_t>(m)])) continue;
    out.n_data_ranks *= static_cast<int>(out.mesh->size(m));
    out.data_rank = out.data_rank * static_cast<int>(out.mesh->size(m)) + static_cast<int>(out.mesh->coordinate(m));
  }
  const Gpt shapes(config.model, config.train.sequence);
  for (const auto& parameter : shapes->named_parameters())
    out.plan.parameters.push_back({parameter.key(), placements_for(parameter.key(), parameter.value(), config)});
  return out;
}

torch::Tensor whole(const torch::Tensor& tensor) {
  return precast::is_dtensor(tensor) ? precast::full_tensor(tensor.detach()) : tensor;
}

void assign(const torch::Tensor& tensor, const torch::Tensor& values) {
  const torch::NoGradGuard no_grad;
  tensor.copy_(precast::is_dtensor(tensor)
                   ? precast::distribute_tensor(values, precast::mesh_of(tensor), precast::placements_of(tensor))
                   : values);
}

}  // namespace gpt
