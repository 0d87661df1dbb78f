#include "runtime/rank_description.h"

#include "artifact/archive.h"
#include "artifact/sha256.h"
#include "module/lift.h"
#include "runtime/describe.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <string_view>

namespace precast::runtime {
namespace {

std::string describe_tensor(const at::Tensor& tensor) {
  return fmt::format("{} {} on {}", dtype_name(tensor.scalar_type()), describe(tensor.sizes()), device_name(tensor.device()));
}

std::string describe_leaf(const Leaf& leaf) {
  const auto* tensor = std::get_if<at::Tensor>(&leaf);
  return tensor != nullptr && tensor->defined() ? describe_tensor(*tensor) : describe(leaf);
}

std::string describe_inductor(const InductorOptions& options) {
  std::string text = fmt::format("target '{}', threads {}, wrapper {}, max_autotune {}", options.target, options.threads,
                                 options.wrapper_opt_level, options.max_autotune);
  for (const auto& [key, setting] : options.settings)
    text += std::visit([&, &name = key](const auto& value) { return fmt::format(", {} = {}", name, value); }, setting);
  return text;
}

std::string pack(const std::vector<Field>& fields) {
  artifact::ArchiveWriter writer;
  for (const Field& field : fields) {
    writer.text(field.name);
    writer.text(field.value);
  }
  return writer.bytes();
}

std::vector<Field> unpack(std::span<const std::byte> bytes) {
  artifact::ArchiveReader reader({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  std::vector<Field> fields;
  while (reader.left() > 0) {
    std::string name = reader.text();
    fields.push_back({std::move(name), reader.text()});
  }
  return fields;
}

std::vector<std::vector<std::byte>> gather(const Communicator& comm, const std::string& text, Deadline deadline) {
  return comm.all_gather(std::as_bytes(std::span(text)), deadline);
}

/// The first field of rank 0 that `other` lacks or has with another value, else the first that only `other` has.
Verdict first_difference(const std::vector<Field>& leader, const std::vector<Field>& other, int rank, int size,
                         std::string_view phase) {
  const auto value_in = [](const std::vector<Field>& fields, const std::string& name) {
    const auto found = std::ranges::find(fields, name, &Field::name);
    return found == fields.end() ? std::string("nothing") : found->value;
  };
  for (const auto* side : {&leader, &other}) {
    for (const Field& field : *side) {
      const std::string expected = value_in(leader, field.name), found = value_in(other, field.name);
      if (expected == found) continue;
      return {ErrorCode::rank_mismatch,
              fmt::format(
                  "rank {} of {}, {}: {}: expected {} (as rank 0 has it), found {}; give all ranks the same program, configuration "
                  "and data shapes",
                  rank, size, phase, field.name, expected, found)};
    }
  }
  return {};
}

}  // namespace

std::vector<Field> describe_rank(const detail::CallArguments& arguments, const Options& options) {
  std::vector<Field> fields = {
      {"Precast version", PRECAST_VERSION},
      {"torch version", TORCH_VERSION},
      {"backend", options.backend},
      {"fallback", options.fallback},
      {"inductor options", describe_inductor(options.inductor)},
      {"tracer", options.tracer},
      {"input gradients", options.input_gradients ? "on" : "off"},
      {"number of arguments", std::to_string(arguments.n_positional)},
  };
  for (const detail::ModuleArgument& module : arguments.modules)
    fields.push_back({fmt::format("argument {}", module.position), "a module"});
  const auto parameters = module::lift_parameters(arguments.modules);
  // Rank 0's program accumulates on the gradients of its own choice of parameters.
  for (const auto& [name, tensor] : parameters)
    fields.push_back(
        {fmt::format("parameter '{}'", name), describe_tensor(tensor) + (tensor.requires_grad() ? "" : " without gradient")});
  for (const auto& [name, tensor] : module::lift_buffers(arguments.modules, parameters))
    fields.push_back({fmt::format("buffer '{}'", name), describe_tensor(tensor)});
  for (const module::TrainingMode& mode : module::training_modes(arguments.modules))
    fields.push_back({fmt::format("training mode of module '{}'", mode.name), mode.training ? "train" : "eval"});
  fields.push_back({"structure of the inputs", describe(arguments.inputs.spec)});
  for (std::size_t i = 0; i < arguments.inputs.leaves.size(); ++i)
    fields.push_back({fmt::format("input leaf {} ({})", i, arguments.inputs.paths[i]), describe_leaf(arguments.inputs.leaves[i])});
  return fields;
}

Verdict compare_ranks(const Communicator& comm, std::string_view phase, const std::vector<Field>& mine, Deadline deadline) {
  const std::string text = pack(mine);
  const auto digests = gather(comm, artifact::sha256(text), deadline);
  if (std::ranges::all_of(digests, [&](const auto& digest) { return digest == digests.front(); })) return {};
  const auto texts = gather(comm, text, deadline);
  const std::vector<Field> leader = unpack(texts.front());
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    Verdict verdict = first_difference(leader, unpack(texts[rank]), static_cast<int>(rank), comm.size(), phase);
    if (!verdict.ok()) return verdict;
  }
  return {};
}

}  // namespace precast::runtime
