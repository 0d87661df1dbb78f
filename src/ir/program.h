#pragma once

#include "precast/treespec.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace precast::ir {

/// A captured step as plain values: what python_code says. No LibTorch here.

/// Index into Program::values.
struct ValueId {
  int index = -1;
  bool operator==(const ValueId&) const = default;
};

struct None {
  bool operator==(const None&) const = default;
};
/// torch.<name>: a dtype ("float32"), layout ("strided") or memory format ("contiguous_format").
struct Dtype {
  std::string name;
  bool operator==(const Dtype&) const = default;
};
struct Layout {
  std::string name;
  bool operator==(const Layout&) const = default;
};
struct MemoryFormat {
  std::string name;
  bool operator==(const MemoryFormat&) const = default;
};
/// device(type='cpu'): never an index.
struct Device {
  std::string type;
  bool operator==(const Device&) const = default;
};

/// What stands in an argument's place.
struct Operand {
  using List = std::vector<Operand>;
  std::variant<None, ValueId, bool, std::int64_t, double, std::string, Dtype, Layout, MemoryFormat, Device, List> is;
  bool operator==(const Operand&) const = default;
};

/// result = torch.ops.<ns>.<op>.<overload>(arguments, keyword=...). An op with several results gives one value, taken apart by
/// GetItem.
struct Call {
  std::string name;      ///< "aten::addmm"
  std::string overload;  ///< Empty is written "default".
  std::vector<Operand> arguments;
  std::vector<std::pair<std::string, Operand>> keywords;
  bool operator==(const Call&) const = default;
};

/// result = source[index]: one result of an op with several, or one tensor of a Tensor[] result.
struct GetItem {
  ValueId source;
  std::int64_t index;
  bool operator==(const GetItem&) const = default;
};

struct Statement {
  ValueId result;
  std::variant<Call, GetItem> is;
  int line = 0;  ///< In the text it was read from, for messages; 0 if it was not read. No part of equality.
  bool operator==(const Statement& other) const { return result == other.result && is == other.is; }
};

struct Value {
  std::string name;  ///< A Python identifier, unique in the program, no keyword and none of the text's own names.
  std::string note;  ///< dtype and shape as the text's comment has them ("f32[16, 8]"), or empty.
  bool operator==(const Value&) const = default;
};

/// A Python literal of the metadata: what ast.literal_eval takes.
struct Literal {
  using Sequence = std::vector<Literal>;
  struct Tuple {
    Sequence items;
    bool operator==(const Tuple&) const = default;
  };
  struct Entry;
  using Dict = std::vector<Entry>;
  std::variant<None, bool, std::int64_t, double, std::string, Sequence, Tuple, Dict> is;
  bool operator==(const Literal&) const;
};
struct Literal::Entry {  // std::pair<Literal, Literal> would need a complete Literal too early for Clang
  Literal first, second;
  bool operator==(const Entry&) const = default;
};
inline bool Literal::operator==(const Literal& other) const {
  return is == other.is;
}

struct TensorMeta {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string dtype;                                                ///< "float32", without "torch."
  std::string device;                                               ///< "cpu", "cuda": no index.
  std::optional<std::vector<std::int64_t>> strides = std::nullopt;  ///< In elements; unset where not recorded.
  bool operator==(const TensorMeta&) const = default;
};

/// One leaf of the user's inputs. A tensor has shape, dtype and device. A plain leaf has none of them, and its value belongs to the
/// program.
struct InputMeta {
  std::string path;                                               ///< "argument 1.tokens"; empty in artifacts captured in Python.
  std::optional<std::vector<std::optional<std::int64_t>>> shape;  ///< A dimension without a number is dynamic.
  std::optional<std::string> dtype;
  std::optional<std::string> device;
  std::optional<Literal>
      value;  ///< Of a plain leaf (None, bool, int, float, str); unset for tensors and generators, and where not recorded.
  bool is_generator = false;
  std::optional<std::vector<std::int64_t>> strides = std::nullopt;  ///< In elements; unset where not recorded.
  bool operator==(const InputMeta&) const = default;
};

struct ModuleMode {
  std::string name;  ///< "" is the module argument itself; with several module arguments names start with "m<i>".
  bool training;
  bool operator==(const ModuleMode&) const = default;
};

/// A device mesh that a program's collectives and DTensors refer to: its dimensions are the groups "<name>.<dimension>".
struct MeshMeta {
  std::string name;
  std::vector<std::string> dim_names;
  std::vector<std::int64_t> shape;
  bool operator==(const MeshMeta&) const = default;
};

/// A flat input or output that is a DTensor outside: inside, the program works on its local tensor.
struct DTensorMeta {
  int index;  ///< Into Program::inputs or Program::outputs.
  std::string mesh;
  std::vector<std::string> placements;  ///< "Shard(0)", one for each dimension of the mesh.
  std::vector<std::int64_t> global_shape;
  bool operator==(const DTensorMeta&) const = default;
};

/// The calling convention. In the text: the literals named beside each member (those of the reference, then Precast's own).
struct Metadata {
  std::string backend = "eager";            // BACKEND
  std::vector<int> module_positions;        // MODULE_POSITIONS
  int num_positional_args = 0;              // NUM_POSITIONAL_ARGS
  std::vector<TensorMeta> params;           // PARAM_NAMES, PARAM_SHAPES, PARAM_DTYPES, PARAM_DEVICES
  std::vector<TensorMeta> buffers;          // BUFFER_*
  std::vector<int> grad_param_indices;      // GRAD_PARAM_INDICES, into params + buffers
  std::optional<TreeSpec> in_spec;          // IN_SPEC; None: the structure could not be written
  TreeSpec out_spec;                        // OUT_SPEC
  std::vector<InputMeta> inputs;            // USER_INPUT_SHAPES, _DTYPES, _DEVICES (and USER_INPUT_BOUNDS, all None)
                                            // Precast's: USER_INPUT_NAMES, USER_INPUT_VALUES, USER_INPUT_GENERATORS,
                                            // and PARAM_STRIDES, BUFFER_STRIDES, USER_INPUT_STRIDES
  std::vector<ModuleMode> module_training;  // MODULE_TRAINING (dict); absent in artifacts captured in Python
  std::vector<int> grad_input_indices;      // GRAD_INPUT_INDICES, into inputs; [] unless input gradients were asked for
  std::vector<std::pair<int, int>>
      input_aliases;  // INPUT_ALIASES: flat inputs (params, buffers, leaves) i < j that were one tensor
  // The rest is absent from the text of a program without DTensors.
  std::vector<MeshMeta> meshes;              // MESHES
  std::vector<std::string> mesh_inputs;      // MESH_INPUTS: groups whose rank is a trailing input, a 0-dim int64 tensor
  std::vector<DTensorMeta> input_dtensors;   // INPUT_DTENSORS; shapes elsewhere in the metadata are those of local tensors
  std::vector<DTensorMeta> output_dtensors;  // OUTPUT_DTENSORS, gradients included
  bool operator==(const Metadata&) const = default;
};

struct Program {
  Metadata metadata;
  std::vector<Value> values;
  std::vector<ValueId> inputs;  ///< Params, buffers, one for each leaf of the user's inputs (plain leaves too), then MESH_INPUTS.
  std::vector<Statement> statements;  ///< In order; a value is defined before its use.
  std::vector<Operand> outputs;       ///< Leaves of fn's result, then gradients of params, then gradients of inputs.
  bool operator==(const Program&) const = default;
};

}  // namespace precast::ir
