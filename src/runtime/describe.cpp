#include "runtime/describe.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <sstream>

namespace precast::runtime {
namespace {

struct DescribePlain {
  std::string operator()(bool flag) const { return flag ? "True" : "False"; }
  std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
  std::string operator()(double number) const {
    const std::string text = fmt::format("{}", number);
    return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
  }
  std::string operator()(const std::string& text) const { return fmt::format("'{}'", text); }
};

struct SameAs {
  const ir::Literal& literal;

  template <class T>
  bool equals(const T& value) const {
    const T* expected = std::get_if<T>(&literal.is);
    return expected != nullptr && *expected == value;
  }
  bool is_none() const { return std::holds_alternative<ir::None>(literal.is); }

  bool operator()(std::monostate) const { return is_none(); }
  bool operator()(const at::Tensor& tensor) const { return !tensor.defined() && is_none(); }
  bool operator()(const at::Generator&) const { return false; }
  bool operator()(bool value) const { return equals(value); }
  bool operator()(std::int64_t value) const { return equals(value); }
  bool operator()(const std::string& value) const { return equals(value); }
  bool operator()(double value) const {
    const double* expected = std::get_if<double>(&literal.is);
    return expected != nullptr && std::bit_cast<std::uint64_t>(*expected) == std::bit_cast<std::uint64_t>(value);
  }
};

}  // namespace

std::string describe(const std::vector<int>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

std::string describe(at::IntArrayRef shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

std::string describe(const std::vector<std::optional<std::int64_t>>& shape) {
  std::vector<std::string> sizes;
  sizes.reserve(shape.size());
  for (const auto& size : shape) sizes.push_back(size ? fmt::format("{}", *size) : "?");
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

std::string describe(c10::Layout layout) {
  std::ostringstream text;
  text << layout;
  return text.str();
}

std::string describe(const TreeSpec& spec) {
  if (spec.is_leaf()) return "*";
  std::vector<std::string> children;
  for (std::size_t i = 0; i < spec.children.size(); ++i)
    children.push_back(i < spec.keys.size() ? fmt::format("'{}': {}", spec.keys[i], describe(spec.children[i]))
                                            : describe(spec.children[i]));
  const std::string items = fmt::format("{}", fmt::join(children, ", "));
  if (spec.type == "builtins.tuple") return "(" + items + ")";
  if (spec.type == "builtins.list") return "[" + items + "]";
  return "{" + items + "}";
}

std::string describe(const Leaf& leaf) {
  struct Describe : DescribePlain {
    using DescribePlain::operator();
    std::string operator()(std::monostate) const { return "None"; }
    std::string operator()(const at::Generator&) const { return "a generator"; }
    std::string operator()(const at::Tensor& tensor) const {
      if (!tensor.defined()) return "an undefined tensor";
      return tensor.layout() == c10::Layout::Strided ? "a tensor of shape " + runtime::describe(tensor.sizes()) : "a tensor";
    }
  };
  return std::visit(Describe(), leaf);
}

std::string describe(const ir::Literal& literal) {
  struct Describe : DescribePlain {
    using DescribePlain::operator();
    std::string operator()(const ir::None&) const { return "None"; }
    std::string operator()(const ir::Literal::Sequence&) const { return "a list"; }
    std::string operator()(const ir::Literal::Tuple&) const { return "a tuple"; }
    std::string operator()(const ir::Literal::Dict&) const { return "a dict"; }
  };
  return std::visit(Describe(), literal.is);
}

bool is_same_value(const Leaf& leaf, const ir::Literal& literal) {
  return std::visit(SameAs{literal}, leaf);
}

}  // namespace precast::runtime
