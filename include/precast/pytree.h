#pragma once

#include "precast/error.h"
#include "precast/treespec.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace precast {

/// One value of an argument or a result once its structure is taken away. monostate stands for None: an empty optional, or void.
using Leaf = std::variant<std::monostate, at::Tensor, at::Generator, bool, std::int64_t, double, std::string>;

/// Describes a user struct, so that it can be an argument or a result of a step:
///
///     template <> struct precast::StructTraits<Batch> {
///       static constexpr std::string_view name = "Batch";
///       static constexpr auto fields = std::tuple{precast::field("tokens", &Batch::tokens), precast::field("mask", &Batch::mask)};
///     };
///
/// The fields are all there is to the struct. One that holds more (and is rebuilt from more than its fields) says
/// `static constexpr bool writable = false`: it may be an argument, whose structure then goes unchecked, and is refused as a
/// result.
template <class T>
struct StructTraits;

template <class Owner, class Member>
struct Field {
  std::string_view name;
  Member Owner::*member;
};

template <class Owner, class Member>
constexpr Field<Owner, Member> field(std::string_view name, Member Owner::*member) {
  return {name, member};
}

/// A flattened value.
struct Flat {
  TreeSpec spec;
  std::vector<Leaf> leaves;
  std::vector<std::string> paths;  ///< One a leaf, as a C++ user would write it: "[1]", ".tokens", "[\"x\"]".
  std::string unwritable_type;     ///< Name of the first struct whose structure cannot be written as text, if any.
};

namespace detail {

template <class T>
concept RegisteredStruct = requires {
  StructTraits<T>::name;
  StructTraits<T>::fields;
};

template <class T, template <class...> class Template>
inline constexpr bool is_specialization = false;
template <template <class...> class Template, class... Args>
inline constexpr bool is_specialization<Template<Args...>, Template> = true;

template <class T>
inline constexpr bool is_array = false;
template <class T, std::size_t N>
inline constexpr bool is_array<std::array<T, N>> = true;

template <class T>
concept ListNode = is_specialization<T, std::vector>;
template <class T>
concept TupleNode = is_specialization<T, std::tuple> || is_specialization<T, std::pair> || is_array<T>;
template <class T>
concept DictNode = is_specialization<T, std::map> && std::same_as<typename T::key_type, std::string>;
template <class T>
concept OptionalNode = is_specialization<T, std::optional>;
template <class T>
concept LeafNode = std::same_as<T, at::Tensor> || std::derived_from<T, at::Tensor> || std::same_as<T, at::Generator> ||
    std::is_arithmetic_v<T> || std::same_as<T, std::string>;

/// Whether a value of type T can be an argument or a result of a step.
template <class T>
concept PytreeNode = LeafNode<T> || ListNode<T> || TupleNode<T> || DictNode<T> || OptionalNode<T> || RegisteredStruct<T>;

template <class T>
Leaf to_leaf(const T& value) {
  if constexpr (std::same_as<T, bool>)
    return value;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<std::int64_t>(value);
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<double>(value);
  else if constexpr (std::derived_from<T, at::Tensor>)
    return static_cast<const at::Tensor&>(value);
  else
    return value;
}

template <class T>
void flatten_into(const T& value, const std::string& path, Flat& flat, TreeSpec& spec) {
  static_assert(PytreeNode<T>, "not a pytree node: describe the struct by a specialisation of precast::StructTraits");
  const auto child = [&](const auto& item, const std::string& item_path) {
    flatten_into(item, item_path, flat, spec.children.emplace_back());
  };
  if constexpr (LeafNode<T>) {
    flat.leaves.push_back(to_leaf(value));
    flat.paths.push_back(path);
  } else if constexpr (OptionalNode<T>) {
    if (value) return flatten_into(*value, path, flat, spec);
    flat.leaves.emplace_back();
    flat.paths.push_back(path);
  } else if constexpr (ListNode<T>) {
    spec.type = "builtins.list";
    for (std::size_t i = 0; i < value.size(); ++i) {
      const typename T::value_type item = value[i];  // by value: vector<bool> has no references
      child(item, path + "[" + std::to_string(i) + "]");
    }
  } else if constexpr (TupleNode<T>) {
    spec.type = "builtins.tuple";
    std::apply(
        [&](const auto&... items) {
          std::size_t i = 0;
          (child(items, path + "[" + std::to_string(i++) + "]"), ...);
        },
        value);
  } else if constexpr (DictNode<T>) {
    spec.type = "builtins.dict";
    for (const auto& [key, item] : value) {
      spec.keys.push_back(key);
      child(item, path + "[\"" + key + "\"]");
    }
  } else {
    if constexpr (requires { StructTraits<T>::writable; })
      if (!StructTraits<T>::writable && flat.unwritable_type.empty()) flat.unwritable_type = std::string(StructTraits<T>::name);
    spec.type = "builtins.dict";
    std::apply(
        [&](const auto&... fields) {
          ((spec.keys.emplace_back(fields.name), child(value.*(fields.member), path + "." + std::string(fields.name))), ...);
        },
        StructTraits<T>::fields);
  }
}

/// Rebuilds values from leaves. The artifact decides the structure, T the types: where they do not fit, an error names the leaf.
class Unflattener {
 public:
  explicit Unflattener(const std::vector<Leaf>& leaves) : leaves_(leaves) {}

  template <class T>
  T build(const TreeSpec& spec) {
    if constexpr (OptionalNode<T>) {
      if (spec.is_leaf() && std::holds_alternative<std::monostate>(leaves_.at(next_))) return ++next_, std::nullopt;
      return build<typename T::value_type>(spec);
    } else if constexpr (LeafNode<T>) {
      expect(spec.is_leaf(), "a leaf", spec);
      return leaf<T>(leaves_.at(next_++));
    } else if constexpr (ListNode<T>) {
      expect(spec.type == "builtins.list", "a list", spec);
      T out;
      for (const TreeSpec& child : spec.children) out.push_back(build<typename T::value_type>(child));
      return out;
    } else if constexpr (TupleNode<T>) {
      expect(spec.type == "builtins.tuple" && spec.children.size() == std::tuple_size_v<T>, "a tuple", spec);
      return build_tuple<T>(spec, std::make_index_sequence<std::tuple_size_v<T>>());
    } else if constexpr (DictNode<T>) {
      expect(spec.type == "builtins.dict", "a dict", spec);
      T out;
      for (std::size_t i = 0; i < spec.children.size(); ++i)
        out.emplace(spec.keys.at(i), build<typename T::mapped_type>(spec.children[i]));
      return out;
    } else {
      constexpr std::size_t n_fields = std::tuple_size_v<std::remove_cvref_t<decltype(StructTraits<T>::fields)>>;
      expect(spec.type == "builtins.dict" && spec.children.size() == n_fields, StructTraits<T>::name, spec);
      T out{};
      std::size_t i = 0;
      std::apply(
          [&](const auto&... fields) {
            ((expect(spec.keys.at(i) == fields.name, fields.name, spec),
              out.*(fields.member) = build<std::remove_cvref_t<decltype(out.*(fields.member))>>(spec.children[i]), ++i),
             ...);
          },
          StructTraits<T>::fields);
      return out;
    }
  }

 private:
  void expect(bool good, std::string_view what, const TreeSpec& spec) const {
    if (!good)
      throw PrecompileError(ErrorCode::argument_mismatch, "result leaf " + std::to_string(next_) + ": the caller's type expects " +
                                                              std::string(what) + ", the artifact returns " +
                                                              (spec.is_leaf() ? std::string("a leaf") : spec.type));
  }

  template <class T>
  T leaf(const Leaf& value) const {
    using Held = std::conditional_t<
        std::same_as<T, bool>, bool,
        std::conditional_t<std::is_integral_v<T>, std::int64_t,
                           std::conditional_t<std::is_floating_point_v<T>, double,
                                              std::conditional_t<std::derived_from<T, at::Tensor>, at::Tensor, T>>>>;
    if constexpr (std::same_as<Held, at::Tensor>)
      if (std::holds_alternative<std::monostate>(value)) return T();  // an undefined tensor stays undefined
    const Held* held = std::get_if<Held>(&value);
    if (held == nullptr)
      throw PrecompileError(ErrorCode::argument_mismatch,
                            "result leaf " + std::to_string(next_ - 1) + " has another type than the caller's");
    return T(*held);
  }

  template <class T, std::size_t... I>
  T build_tuple(const TreeSpec& spec, std::index_sequence<I...>) {
    return T{build<std::tuple_element_t<I, T>>(spec.children.at(I))...};
  }

  const std::vector<Leaf>& leaves_;
  std::size_t next_ = 0;
};

}  // namespace detail

/// Takes a value apart.
template <class T>
Flat flatten(const T& value) {
  Flat flat;
  detail::flatten_into(value, "", flat, flat.spec);
  return flat;
}

/// Puts a value of type T together. @throws PrecompileError argument_mismatch where `spec` or a leaf does not fit T.
template <class T>
T unflatten(const TreeSpec& spec, const std::vector<Leaf>& leaves) {
  return detail::Unflattener(leaves).build<T>(spec);
}

}  // namespace precast
