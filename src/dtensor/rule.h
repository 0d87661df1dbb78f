#pragma once

#include "dtensor/shards.h"
#include "precast/placement.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace precast::dtensor {

/// One operator call as rules see it: shapes and plain values, no tensors.
class OpCall {
 public:
  /// The i-th of `tensors`; -1 is an undefined tensor or None.
  struct TensorIndex {
    int index;
  };
  using Argument =
      std::variant<std::monostate, bool, std::int64_t, double, std::string, Sizes, TensorIndex, std::vector<TensorIndex>>;

  OpCall(std::string op, std::vector<Argument> arguments, std::vector<Sizes> tensors)
      : op(std::move(op)), arguments(std::move(arguments)), tensors(std::move(tensors)) {}

  /// The shape of the tensor at argument `i`. @throws std::bad_variant_access, std::out_of_range  there is none.
  [[nodiscard]] const Sizes& shape(std::size_t i) const;
  [[nodiscard]] bool has_tensor(std::size_t i) const;
  /// The shape of every tensor of the list at argument `i`.
  [[nodiscard]] std::vector<Sizes> shapes(std::size_t i) const;
  [[nodiscard]] std::int64_t integer(std::size_t i) const { return std::get<std::int64_t>(arguments.at(i)); }
  /// A list of integers; None is empty, and one integer a list of one.
  [[nodiscard]] Sizes integers(std::size_t i) const;
  [[nodiscard]] bool flag(std::size_t i) const { return std::get<bool>(arguments.at(i)); }
  [[nodiscard]] bool is_none(std::size_t i) const;

  std::string op;                   ///< "aten::add.Tensor"
  std::vector<Argument> arguments;  ///< In the schema's order, defaults filled in.
  std::vector<Sizes> tensors;       ///< Global shapes of all tensor arguments in order, lists flattened, undefined ones left out.
};

/// What an output becomes on a mesh dimension where a letter is sharded that the output lacks.
enum class Missing {
  none,  ///< The letter cannot be sharded.
  sum,
  avg,
  max,
  min,
  whole,  ///< The output does not depend on it: every rank has the same.
};

/// Placements of all tensors on one mesh dimension for which the operator, run on local tensors, gives the right result.
struct Alternative {
  std::vector<Placement> inputs = {};
  std::vector<Placement> outputs = {};
  /// Local tensors alone do not give the result: the operator's local form (see local_forms.h) is run instead.
  bool local_form = false;
};

/// Letters name dimensions, in the style of einsum: one for each dimension of each tensor, in order. A letter may be sharded, alike
/// in every tensor that has it; an output that has it is then sharded there, and one that lacks it becomes what `over_missing`
/// says. Two signs are no letters:
///   '.'  this dimension has to be whole on every rank;
///   '1'  a dimension of size one that is broadcast.
/// Example, mm: inputs {"mk", "kn"}, outputs {"mn"}, over_missing {sum}. A matrix sharded on rows times a whole one gives rows; k
/// sharded on both gives a partial sum.
struct Rule {
  std::vector<std::string> inputs = {};        ///< One for each of OpCall::tensors.
  std::vector<std::string> outputs = {};       ///< One for each tensor result; a list of tensors counts as several.
  std::vector<Missing> over_missing = {};      ///< One for each output; shorter: `none` for the rest.
  std::vector<Alternative> alternatives = {};  ///< Further possibilities, such as partial operands of a linear op.
  /// Letters that need the local form when they are sharded.
  std::string local_form_letters = {};
  /// The op needs its local form however the operands lie: it speaks of strides, which local tensors have in their own way.
  bool always_local_form = false;
  /// Letters that only an even split serves: the shards together must divide this size. Example: the outermost factor of a merged
  /// dimension.
  std::map<char, std::int64_t> divisible = {};
  /// Letters that may be sharded only so that no rank is left without elements: the kernel needs some.
  std::string never_empty = {};
  /// Whether values are computed from all of each operand (contractions, norms, look-ups). Stored shards are then gathered first.
  bool computes = false;

  /// An argument that holds the shape (or strides) of an output, and must be made local.
  struct ShapeArgument {
    int argument;
    int output;
    bool is_strides = false;
  };
  std::vector<ShapeArgument> shape_arguments = {};
};

/// The rule for a call, or nothing: the op has none. @throws std::invalid_argument  the op has a rule, and this use of it none:
/// says why.
std::optional<Rule> find_rule(const OpCall& call);

/// Names of all ops with a rule, sorted.
std::vector<std::string> ops_with_rules();

}  // namespace precast::dtensor
