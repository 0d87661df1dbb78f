#include "ir/metadata_text.h"

#include "ir/literal_text.h"
#include "precast/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <tuple>

namespace precast::ir {
namespace {

constexpr std::array<std::string_view, 18> kRequired = {
    "BACKEND",       "MODULE_POSITIONS", "NUM_POSITIONAL_ARGS", "PARAM_NAMES",       "BUFFER_NAMES",       "PARAM_SHAPES",
    "BUFFER_SHAPES", "PARAM_DTYPES",     "BUFFER_DTYPES",       "PARAM_DEVICES",     "BUFFER_DEVICES",     "GRAD_PARAM_INDICES",
    "IN_SPEC",       "OUT_SPEC",         "USER_INPUT_SHAPES",   "USER_INPUT_DTYPES", "USER_INPUT_DEVICES", "USER_INPUT_BOUNDS"};
constexpr std::array<std::string_view, 13> kOwn = {
    "USER_INPUT_NAMES", "USER_INPUT_VALUES", "USER_INPUT_GENERATORS", "MODULE_TRAINING",    "GRAD_INPUT_INDICES",
    "INPUT_ALIASES",    "PARAM_STRIDES",     "BUFFER_STRIDES",        "USER_INPUT_STRIDES", "MESHES",
    "MESH_INPUTS",      "INPUT_DTENSORS",    "OUTPUT_DTENSORS"};

const Literal kNone = {None{}};

template <class Range, class Function>
Literal list_of(const Range& range, const Function& function) {
  Literal::Sequence items;
  for (const auto& item : range) items.push_back(function(item));
  return {std::move(items)};
}

Literal integer(std::int64_t value) {
  return {value};
}
Literal shape_literal(const std::vector<std::int64_t>& shape) {
  return {Literal::Tuple{std::get<Literal::Sequence>(list_of(shape, integer).is)}};
}
Literal strides_literal(const std::optional<std::vector<std::int64_t>>& strides) {
  return strides ? shape_literal(*strides) : kNone;
}
Literal torch_dtype(const std::string& dtype) {
  return {"torch." + dtype};
}

[[noreturn]] void malformed(const std::string& name, std::string_view expected) {
  throw PrecompileError(ErrorCode::invalid_artifact,
                        fmt::format("python_code is not a Precast artifact: its {} is malformed, expected {}", name, expected));
}

/// One literal under its name, so that each reading error can say where.
class Named {
 public:
  Named(std::string name, const Literal& literal) : name_(std::move(name)), literal_(literal) {}

  [[nodiscard]] bool is_none() const { return std::holds_alternative<None>(literal_.is); }
  [[nodiscard]] const std::string& string() const { return get<std::string>("a string"); }
  [[nodiscard]] bool boolean() const { return get<bool>("True or False"); }
  [[nodiscard]] std::int64_t integer() const { return get<std::int64_t>("an int"); }
  [[nodiscard]] int index(std::size_t size) const {
    const std::int64_t value = integer();
    if (value < 0 || static_cast<std::uint64_t>(value) >= size)
      malformed(name_, fmt::format("indices below {}, found {}", size, value));
    return static_cast<int>(value);
  }
  [[nodiscard]] std::vector<Named> items() const {
    const auto* tuple = std::get_if<Literal::Tuple>(&literal_.is);
    const auto& items = tuple != nullptr ? tuple->items : get<Literal::Sequence>("a list");
    std::vector<Named> out;
    for (const Literal& item : items) out.emplace_back(name_, item);
    return out;
  }
  [[nodiscard]] std::vector<Named> items(std::size_t n) const {
    auto out = items();
    if (out.size() != n) malformed(name_, fmt::format("{} items, found {}", n, out.size()));
    return out;
  }
  [[nodiscard]] std::vector<std::int64_t> shape() const {
    std::vector<std::int64_t> out;
    for (const Named& item : items()) out.push_back(item.integer());
    return out;
  }
  [[nodiscard]] std::string dtype() const {
    constexpr std::string_view kPrefix = "torch.";
    if (!string().starts_with(kPrefix)) malformed(name_, "dtypes as 'torch.float32'");
    return string().substr(kPrefix.size());
  }
  /// "cuda:0" is "cuda": the index is the rank's own.
  [[nodiscard]] std::string device() const { return string().substr(0, string().find(':')); }
  [[nodiscard]] TreeSpec treespec() const {
    try {
      return read_treespec(string());
    } catch (const std::runtime_error& error) {
      malformed(name_, fmt::format("a tree spec: {}", error.what()));
    }
  }
  [[nodiscard]] const Literal::Dict& dict() const { return get<Literal::Dict>("a dict"); }
  [[nodiscard]] const Literal& literal() const { return literal_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  template <class T>
  const T& get(std::string_view expected) const {
    const T* value = std::get_if<T>(&literal_.is);
    if (value == nullptr) malformed(name_, expected);
    return *value;
  }
  std::string name_;
  const Literal& literal_;
};

class Literals {
 public:
  explicit Literals(const std::map<std::string, Literal>& literals) : literals_(literals) {
    std::vector<std::string_view> missing;
    for (const std::string_view name : kRequired)
      if (!literals.contains(std::string(name))) missing.push_back(name);
    if (!missing.empty())
      throw PrecompileError(
          ErrorCode::invalid_artifact,
          fmt::format("python_code is not a Precast artifact: it lacks the metadata {}", fmt::join(missing, ", ")));
  }
  [[nodiscard]] Named operator[](const std::string& name) const { return {name, literals_.at(name)}; }
  [[nodiscard]] std::optional<Named> find(const std::string& name) const {
    const auto found = literals_.find(name);
    if (found == literals_.end()) return std::nullopt;
    return Named(name, found->second);
  }

 private:
  const std::map<std::string, Literal>& literals_;
};

/// One of the lists of strides, whose entries are None where strides are not recorded. `rank(i)`: the number of dimensions of entry
/// i.
template <class Rank, class Set>
void read_strides(const Literals& literals, const std::string& name, std::size_t n, const Rank& rank, const Set& set) {
  const auto literal = literals.find(name);
  if (!literal) return;
  const auto items = literal->items(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (items[i].is_none()) continue;
    std::vector<std::int64_t> strides = items[i].shape();
    if (strides.size() != rank(i) || std::ranges::any_of(strides, [](std::int64_t stride) { return stride < 0; }))
      malformed(name, fmt::format("{} strides, none negative, for entry {}", rank(i), i));
    set(i, std::move(strides));
  }
}

std::vector<TensorMeta> read_tensors(const Literals& literals, const std::string& kind) {
  const auto names = literals[kind + "_NAMES"].items();
  const auto shapes = literals[kind + "_SHAPES"].items(names.size()), dtypes = literals[kind + "_DTYPES"].items(names.size()),
             devices = literals[kind + "_DEVICES"].items(names.size());
  std::vector<TensorMeta> out;
  for (std::size_t i = 0; i < names.size(); ++i)
    out.push_back(
        {.name = names[i].string(), .shape = shapes[i].shape(), .dtype = dtypes[i].dtype(), .device = devices[i].device()});
  read_strides(
      literals, kind + "_STRIDES", out.size(), [&](std::size_t i) { return out[i].shape.size(); },
      [&](std::size_t i, std::vector<std::int64_t> strides) { out[i].strides = std::move(strides); });
  return out;
}

// A plain leaf whose value is not known, and a NaN as write_literal writes it: no value of a leaf is a tuple.
const Literal kNotRecorded = {Literal::Tuple{}};
const Literal kNan = {Literal::Tuple{{{"nan"}}}};

std::optional<Literal> read_value(const Named& value) {
  if (value.literal() == kNotRecorded) return std::nullopt;
  if (value.literal() == kNan) return Literal{std::numeric_limits<double>::quiet_NaN()};
  if (std::holds_alternative<Literal::Tuple>(value.literal().is)) malformed(value.name(), "values of leaves, which no tuple is");
  return value.literal();
}

Literal value_literal(const InputMeta& input) {
  const bool is_plain = !input.shape && !input.is_generator;
  return input.value.value_or(is_plain ? kNotRecorded : kNone);
}

std::vector<InputMeta> read_inputs(const Literals& literals) {
  const auto shapes = literals["USER_INPUT_SHAPES"].items();
  const std::size_t n = shapes.size();
  const auto dtypes = literals["USER_INPUT_DTYPES"].items(n), devices = literals["USER_INPUT_DEVICES"].items(n);
  std::ignore = literals["USER_INPUT_BOUNDS"].items(n);
  std::vector<InputMeta> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (shapes[i].is_none()) continue;
    out[i].shape.emplace();
    for (const Named& size : shapes[i].items())
      out[i].shape->push_back(size.is_none() ? std::nullopt : std::optional(size.integer()));
    if (!dtypes[i].is_none()) out[i].dtype = dtypes[i].dtype();
    if (!devices[i].is_none()) out[i].device = devices[i].device();
  }
  const auto each = [&](const std::string& name, auto read) {
    const auto literal = literals.find(name);
    if (!literal) return;
    const auto items = literal->items(n);
    for (std::size_t i = 0; i < n; ++i) read(out[i], items[i]);
  };
  each("USER_INPUT_NAMES", [](InputMeta& input, const Named& item) { input.path = item.string(); });
  each("USER_INPUT_GENERATORS", [](InputMeta& input, const Named& item) { input.is_generator = item.boolean(); });
  each("USER_INPUT_VALUES", [](InputMeta& input, const Named& item) {
    if (!input.shape && !input.is_generator) input.value = read_value(item);
  });
  read_strides(
      literals, "USER_INPUT_STRIDES", n, [&](std::size_t i) { return out[i].shape ? out[i].shape->size() : 0; },
      [&](std::size_t i, std::vector<std::int64_t> strides) { out[i].strides = std::move(strides); });
  return out;
}

std::vector<std::string> read_strings(const Named& named) {
  std::vector<std::string> out;
  for (const Named& item : named.items()) out.push_back(item.string());
  return out;
}

Literal strings_literal(const std::vector<std::string>& strings) {
  return {Literal::Tuple{std::get<Literal::Sequence>(list_of(strings, [](const std::string& text) { return Literal{text}; }).is)}};
}

Literal mesh_literal(const MeshMeta& mesh) {
  return {Literal::Tuple{{{mesh.name}, strings_literal(mesh.dim_names), shape_literal(mesh.shape)}}};
}

MeshMeta read_mesh(const Named& named) {
  const auto fields = named.items(3);
  MeshMeta mesh{.name = fields[0].string(), .dim_names = read_strings(fields[1]), .shape = fields[2].shape()};
  if (mesh.dim_names.size() != mesh.shape.size()) malformed(named.name(), "as many dimension names as sizes");
  return mesh;
}

Literal dtensor_literal(const DTensorMeta& dtensor) {
  return {Literal::Tuple{
      {integer(dtensor.index), {dtensor.mesh}, strings_literal(dtensor.placements), shape_literal(dtensor.global_shape)}}};
}

std::vector<DTensorMeta> read_dtensors(const Literals& literals, const std::string& name, const std::vector<MeshMeta>& meshes) {
  std::vector<DTensorMeta> out;
  const auto literal = literals.find(name);
  if (!literal) return out;
  for (const Named& item : literal->items()) {
    const auto fields = item.items(4);
    DTensorMeta dtensor{.index = fields[0].index(std::numeric_limits<int>::max()),
                        .mesh = fields[1].string(),
                        .placements = read_strings(fields[2]),
                        .global_shape = fields[3].shape()};
    const auto mesh = std::ranges::find(meshes, dtensor.mesh, &MeshMeta::name);
    if (mesh == meshes.end() || mesh->shape.size() != dtensor.placements.size())
      malformed(name, fmt::format("a mesh of MESHES with {} dimensions, found '{}'", dtensor.placements.size(), dtensor.mesh));
    out.push_back(std::move(dtensor));
  }
  return out;
}

std::vector<int> read_indices(const Named& named, std::size_t size) {
  std::vector<int> out;
  for (const Named& item : named.items()) out.push_back(item.index(size));
  return out;
}

}  // namespace

bool is_metadata_name(const std::string& name) {
  return std::ranges::find(kRequired, name) != kRequired.end() || std::ranges::find(kOwn, name) != kOwn.end();
}

std::vector<std::pair<std::string, Literal>> metadata_literals(const Metadata& metadata) {
  const auto tensors = [](const std::vector<TensorMeta>& metas, auto member) { return list_of(metas, member); };
  const auto name = [](const TensorMeta& meta) { return Literal{meta.name}; };
  const auto shape = [](const TensorMeta& meta) { return shape_literal(meta.shape); };
  const auto dtype = [](const TensorMeta& meta) { return torch_dtype(meta.dtype); };
  const auto device = [](const TensorMeta& meta) { return Literal{meta.device}; };
  const auto strides = [](const auto& meta) { return strides_literal(meta.strides); };
  const auto input_shape = [](const InputMeta& input) {
    if (!input.shape) return kNone;
    return Literal{Literal::Tuple{std::get<Literal::Sequence>(
        list_of(*input.shape, [](const std::optional<std::int64_t>& size) { return size ? Literal{*size} : kNone; }).is)}};
  };
  Literal::Dict training;
  for (const ModuleMode& mode : metadata.module_training) training.push_back({{mode.name}, {mode.training}});
  const auto index = [](int value) { return Literal{std::int64_t{value}}; };
  std::vector<std::pair<std::string, Literal>> literals = {
      {"BACKEND", {metadata.backend}},
      {"MODULE_POSITIONS", list_of(metadata.module_positions, index)},
      {"NUM_POSITIONAL_ARGS", index(metadata.num_positional_args)},
      {"PARAM_NAMES", tensors(metadata.params, name)},
      {"BUFFER_NAMES", tensors(metadata.buffers, name)},
      {"PARAM_SHAPES", tensors(metadata.params, shape)},
      {"BUFFER_SHAPES", tensors(metadata.buffers, shape)},
      {"PARAM_DTYPES", tensors(metadata.params, dtype)},
      {"BUFFER_DTYPES", tensors(metadata.buffers, dtype)},
      {"PARAM_DEVICES", tensors(metadata.params, device)},
      {"BUFFER_DEVICES", tensors(metadata.buffers, device)},
      {"GRAD_PARAM_INDICES", list_of(metadata.grad_param_indices, index)},
      {"IN_SPEC", metadata.in_spec ? Literal{write_treespec(*metadata.in_spec)} : kNone},
      {"OUT_SPEC", {write_treespec(metadata.out_spec)}},
      {"USER_INPUT_SHAPES", list_of(metadata.inputs, input_shape)},
      {"USER_INPUT_DTYPES",
       list_of(metadata.inputs, [](const InputMeta& in) { return in.dtype ? torch_dtype(*in.dtype) : kNone; })},
      {"USER_INPUT_DEVICES", list_of(metadata.inputs, [](const InputMeta& in) { return in.device ? Literal{*in.device} : kNone; })},
      {"USER_INPUT_BOUNDS", list_of(metadata.inputs, [](const InputMeta&) { return kNone; })},
      {"USER_INPUT_NAMES", list_of(metadata.inputs, [](const InputMeta& in) { return Literal{in.path}; })},
      {"USER_INPUT_VALUES", list_of(metadata.inputs, value_literal)},
      {"USER_INPUT_GENERATORS", list_of(metadata.inputs, [](const InputMeta& in) { return Literal{in.is_generator}; })},
      {"MODULE_TRAINING", {std::move(training)}},
      {"GRAD_INPUT_INDICES", list_of(metadata.grad_input_indices, index)},
      {"INPUT_ALIASES", list_of(metadata.input_aliases,
                                [&](const std::pair<int, int>& pair) {
                                  return Literal{Literal::Tuple{{index(pair.first), index(pair.second)}}};
                                })},
      {"PARAM_STRIDES", list_of(metadata.params, strides)},
      {"BUFFER_STRIDES", list_of(metadata.buffers, strides)},
      {"USER_INPUT_STRIDES", list_of(metadata.inputs, strides)},
  };
  if (!metadata.meshes.empty()) {
    literals.emplace_back("MESHES", list_of(metadata.meshes, mesh_literal));
    literals.emplace_back("MESH_INPUTS", list_of(metadata.mesh_inputs, [](const std::string& group) { return Literal{group}; }));
    literals.emplace_back("INPUT_DTENSORS", list_of(metadata.input_dtensors, dtensor_literal));
    literals.emplace_back("OUTPUT_DTENSORS", list_of(metadata.output_dtensors, dtensor_literal));
  }
  return literals;
}

Metadata read_metadata(const std::map<std::string, Literal>& map) {
  const Literals literals(map);
  Metadata metadata;
  metadata.backend = literals["BACKEND"].string();
  metadata.params = read_tensors(literals, "PARAM");
  metadata.buffers = read_tensors(literals, "BUFFER");
  metadata.inputs = read_inputs(literals);
  metadata.num_positional_args = literals["NUM_POSITIONAL_ARGS"].index(std::numeric_limits<int>::max());
  metadata.module_positions = read_indices(literals["MODULE_POSITIONS"], static_cast<std::size_t>(metadata.num_positional_args));
  if (std::ranges::adjacent_find(metadata.module_positions, std::greater_equal<>()) != metadata.module_positions.end())
    malformed("MODULE_POSITIONS", "positions in rising order");
  metadata.grad_param_indices = read_indices(literals["GRAD_PARAM_INDICES"], metadata.params.size() + metadata.buffers.size());
  if (!literals["IN_SPEC"].is_none()) metadata.in_spec = literals["IN_SPEC"].treespec();
  metadata.out_spec = literals["OUT_SPEC"].treespec();
  if (metadata.in_spec && metadata.in_spec->count_leaves() != metadata.inputs.size())
    malformed("IN_SPEC",
              fmt::format("{} leaves as in USER_INPUT_SHAPES, found {}", metadata.inputs.size(), metadata.in_spec->count_leaves()));
  if (const auto training = literals.find("MODULE_TRAINING"))
    for (const auto& [name, flag] : training->dict())
      metadata.module_training.push_back({Named("MODULE_TRAINING", name).string(), Named("MODULE_TRAINING", flag).boolean()});
  if (const auto indices = literals.find("GRAD_INPUT_INDICES"))
    metadata.grad_input_indices = read_indices(*indices, metadata.inputs.size());
  const std::size_t n_inputs = metadata.params.size() + metadata.buffers.size() + metadata.inputs.size();
  if (const auto aliases = literals.find("INPUT_ALIASES"))
    for (const Named& pair : aliases->items()) {
      const auto both = pair.items(2);
      metadata.input_aliases.emplace_back(both[0].index(n_inputs), both[1].index(n_inputs));
    }
  if (const auto meshes = literals.find("MESHES"))
    for (const Named& mesh : meshes->items()) metadata.meshes.push_back(read_mesh(mesh));
  if (const auto groups = literals.find("MESH_INPUTS")) metadata.mesh_inputs = read_strings(*groups);
  metadata.input_dtensors = read_dtensors(literals, "INPUT_DTENSORS", metadata.meshes);
  for (const DTensorMeta& dtensor : metadata.input_dtensors)
    if (static_cast<std::size_t>(dtensor.index) >= n_inputs)
      malformed("INPUT_DTENSORS", fmt::format("indices below {}, found {}", n_inputs, dtensor.index));
  metadata.output_dtensors = read_dtensors(literals, "OUTPUT_DTENSORS", metadata.meshes);
  return metadata;
}

}  // namespace precast::ir
