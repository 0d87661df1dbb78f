// Every row of the element-wise, reduction and product tables: the operator on DTensors of every placement against LibTorch on the
// whole tensors, also in place where LibTorch has that form. Arguments come from the operator's schema; a row whose operator wants
// others has them in `special_arguments`. A dimension of 5 leaves the last of 4 ranks empty, and 6 lies unevenly there.
#include "dtensor/placed.h"
#include "dtensor/rules/tables.h"
#include "precast/error.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace precast::test {
namespace {

using Stack = torch::jit::Stack;
using c10::IValue;

at::Tensor numbers(at::IntArrayRef sizes = {5, 6}) {
  return torch::rand(sizes) * 0.8 + 0.1;  // where logarithms, inverse sines and powers are defined
}

at::Tensor whole_numbers() {
  return torch::randint(1, 7, {5, 6}, at::kLong);
}

at::Tensor flags() {
  return torch::rand({5, 6}) > 0.5;
}

/// Calls of operators that cannot take what the schema alone suggests.
std::map<std::string, std::vector<Stack>, std::less<>> special_arguments() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const IValue none;
  const auto sizes = [](std::vector<std::int64_t> values) { return IValue(std::move(values)); };
  std::map<std::string, std::vector<Stack>, std::less<>> calls = {
      {"aten::mm", {{numbers({5, 6}), numbers({6, 3})}}},
      {"aten::bmm", {{numbers({4, 5, 6}), numbers({4, 6, 3})}}},
      {"aten::mv", {{numbers({5, 6}), numbers({6})}}},
      {"aten::dot", {{numbers({6}), numbers({6})}}},
      {"aten::vdot", {{numbers({6}), numbers({6})}}},
      {"aten::addmv", {{numbers({5}), numbers({5, 6}), numbers({6}), 0.5, 2}, {numbers({1}), numbers({5, 6}), numbers({6}), 1, 1}}},
      {"aten::addr", {{numbers({5, 6}), numbers({5}), numbers({6}), 0.5, 2}, {numbers({6}), numbers({5}), numbers({6}), 1, 1}}},
      {"aten::clamp", {{numbers(), 0.3, 0.6}, {numbers(), 0.3, none}}},
      {"aten::clamp.Tensor", {{numbers(), numbers(), none}, {numbers(), none, numbers({6})}}},
      {"aten::where.self", {{flags(), numbers(), numbers({6})}}},
      {"aten::masked_fill.Scalar", {{numbers(), flags(), 0}, {numbers(), flags(), 2.5}}},
      {"aten::masked_fill.Tensor", {{numbers(), flags(), torch::tensor(2.5)}}},
      {"aten::fill_.Tensor", {{numbers(), torch::tensor(2.5)}}},
      {"aten::fill_.Scalar", {{numbers(), 0}, {numbers(), 2.5}}},
      {"aten::native_dropout_backward", {{numbers(), flags(), 2.0}}},
      {"aten::glu_backward", {{numbers({5, 3}), numbers(), -1}, {numbers({2, 6}), numbers({4, 6}), 0}}},
      {"aten::glu", {{numbers(), 1}, {numbers({4, 6}), 0}}},
      {"aten::mvlgamma", {{numbers() + 2, 2}}},
      {"aten::_to_copy",
       {{numbers(), at::kDouble, none, none, none, false, none},
        {numbers() * 10, at::kLong, none, none, none, false, none},
        {numbers(), none, none, none, none, false, none}}},
      {"aten::kthvalue", {{numbers(), 2, 0, false}, {numbers(), 3, -1, true}}},
      {"aten::all.dims", {{flags(), none, false}, {flags(), sizes({0}), true}, {flags(), sizes({}), false}}},
      {"aten::any.dims", {{flags(), none, false}, {flags(), sizes({0, 1}), false}, {flags(), sizes({}), true}}},
  };
  for (const char* op : {"aten::addmm", "aten::addbmm"}) {
    const bool batched = std::string_view(op) == "aten::addbmm";
    const at::Tensor a = batched ? numbers({4, 5, 6}) : numbers({5, 6}), b = batched ? numbers({4, 6, 3}) : numbers({6, 3});
    calls[op] = {{numbers({5, 3}), a, b, 0.5, 2}, {numbers({3}), a, b, 1, 1}, {numbers({5, 1}), a, b, 1, 1}};
  }
  calls["aten::baddbmm"] = {{numbers({4, 5, 3}), numbers({4, 5, 6}), numbers({4, 6, 3}), 0.5, 2},
                            {numbers({5, 1}), numbers({4, 5, 6}), numbers({4, 6, 3}), 1, 1}};
  for (const double p : {0.0, 1.0, 2.0, 3.0, kInfinity, -kInfinity}) {
    calls["aten::norm.Scalar"].push_back({numbers(), p});
    calls["aten::norm.ScalarOpt_dim"].push_back({numbers(), p, sizes({0}), false});
    calls["aten::linalg_vector_norm"].push_back({numbers(), p, sizes({1}), true, none});
    calls["aten::linalg_vector_norm"].push_back({numbers(), p, none, false, at::kDouble});
  }
  for (const char* op : {"aten::sum.dim_IntList", "aten::mean.dim"})
    calls[op] = {{numbers(), none, false, none}, {numbers(), sizes({0}), true, none}, {numbers({}), sizes({0}), false, none}};
  for (const char* op : {"aten::amax", "aten::amin"})
    calls[op] = {{numbers(), sizes({}), false}, {numbers(), sizes({-1}), true}, {numbers({}), sizes({0}), false}};
  for (const char* op : {"aten::var.correction", "aten::std.correction", "aten::var_mean.correction", "aten::std_mean.correction"})
    calls[op] = {{numbers(), none, none, false}, {numbers(), sizes({0}), 0, true}};
  return calls;
}

/// Whether the operator is for whole numbers only.
bool takes_whole_numbers(std::string_view op) {
  return op.starts_with("aten::bitwise") || op.starts_with("aten::gcd") || op.starts_with("aten::lcm");
}

/// An argument of the schema's type: a matrix, a half, dimension 1, no keepdim. None: the default.
IValue argument_for(const c10::Argument& argument, bool whole) {
  const c10::TypePtr type = argument.type();
  if (type->isSubtypeOf(*c10::TensorType::get())) return whole ? whole_numbers() : numbers();
  if (argument.default_value() && argument.name() != "dim") return *argument.default_value();
  const c10::TypePtr inner =
      type->kind() == c10::TypeKind::OptionalType ? type->expectRef<c10::OptionalType>().getElementType() : type;
  switch (inner->kind()) {
    case c10::TypeKind::NumberType: return whole ? IValue(2) : IValue(0.5);
    case c10::TypeKind::IntType: return 1;
    case c10::TypeKind::FloatType: return 0.5;
    case c10::TypeKind::BoolType: return false;
    case c10::TypeKind::StringType: return "floor";
    case c10::TypeKind::ListType: return std::vector<std::int64_t>{1};
    default: throw std::invalid_argument("no argument for " + argument.name() + " of type " + type->str());
  }
}

std::vector<Stack> calls_of(const c10::OperatorHandle& op, std::string_view name) {
  static const auto special = special_arguments();
  if (const auto found = special.find(name); found != special.end()) return found->second;
  Stack stack;
  for (const c10::Argument& argument : op.schema().arguments()) stack.push_back(argument_for(argument, takes_whole_numbers(name)));
  return {stack};
}

std::optional<c10::OperatorHandle> find_operator(const std::string& name) {
  const std::size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchema({name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
}

std::string in_place_form(const std::string& name) {
  const std::size_t end = std::min(name.find('.'), name.size());
  return fmt::format("{}_{}", name.substr(0, end), name.substr(end));
}

Stack run(const c10::OperatorHandle& op, Stack stack) {
  op.callBoxed(stack);
  return stack;
}

std::vector<Placement> placements_of(const at::Tensor& tensor, std::size_t n_tensors) {
  std::vector<Placement> out = {Replicate()};
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) out.emplace_back(Shard(dim));
  if (!tensor.is_floating_point()) return out;
  out.emplace_back(Partial());
  if (n_tensors > 2) return out;  // some hundred calls are enough
  for (const Reduction reduction : {Reduction::avg, Reduction::max, Reduction::min}) out.emplace_back(Partial(reduction));
  return out;
}

void expect_equal(const Stack& got, const Stack& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(got[i].isTensor() && is_dtensor(got[i].toTensor())) << "result " << i;
    EXPECT_TRUE(close(full_tensor(got[i].toTensor()), expected[i].toTensor())) << "result " << i;
  }
}

/// One call with each operand in each of its placements.
void check_call(const c10::OperatorHandle& op, const Stack& whole, const DeviceMesh& mesh, bool in_place) {
  std::vector<std::size_t> operands;
  for (std::size_t i = 0; i < whole.size(); ++i)
    if (whole[i].isTensor()) operands.push_back(i);
  std::vector<std::vector<Placement>> choices;
  std::vector<std::vector<at::Tensor>> placed;
  std::size_t n = 1;
  for (const std::size_t operand : operands) {
    choices.push_back(placements_of(whole[operand].toTensor(), operands.size()));
    placed.emplace_back();
    for (const Placement& placement : choices.back()) placed.back().push_back(place(whole[operand].toTensor(), mesh, {placement}));
    n *= choices.back().size();
  }
  Stack reference = whole;
  if (in_place) reference[operands[0]] = whole[operands[0]].toTensor().clone();
  const Stack expected = run(op, reference);
  for (std::size_t k = 0; k < n; ++k) {
    Stack arguments = whole;
    std::string text = c10::toString(op.operator_name());
    std::size_t rest = k;
    for (std::size_t i = 0; i < operands.size(); rest /= choices[i].size(), ++i) {
      const std::size_t choice = rest % choices[i].size();
      arguments[operands[i]] = in_place && i == 0 ? placed[i][choice].clone() : placed[i][choice];
      text += fmt::format(" {}", to_string(Placements{choices[i][choice]}));
    }
    SCOPED_TRACE(text);
    try {
      const Stack got = run(op, arguments);
      EXPECT_TRUE(!in_place || got[0].toTensor().is_same(arguments[operands[0]].toTensor()));
      expect_equal(got, expected);
    } catch (const PrecompileError& error) {
      // An operand that is written keeps its placement: where the operator cannot write it so, that is said.
      EXPECT_TRUE(in_place) << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

/// Whether LibTorch itself has that call: in place some results do not fit the operand.
bool is_possible(const c10::OperatorHandle& op, Stack arguments) {
  for (IValue& argument : arguments)
    if (argument.isTensor()) argument = argument.toTensor().clone();
  try {
    op.callBoxed(arguments);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

void check_rows(std::span<const dtensor::RuleRow> rows) {
  const DeviceMesh mesh = line();
  const at::NoGradGuard no_grad;
  const std::set<std::string_view> without_values = {"aten::empty_like"};
  for (const dtensor::RuleRow& row : rows) {
    if (without_values.contains(row.op)) continue;
    torch::manual_seed(7);
    const std::string name(row.op);
    const auto op = find_operator(name);
    ASSERT_TRUE(op) << name << " is no operator";
    const bool writes =
        op->schema().arguments().front().alias_info() != nullptr && op->schema().arguments().front().alias_info()->isWrite();
    const auto written = writes ? std::nullopt : find_operator(in_place_form(name));
    for (const Stack& call : calls_of(*op, name)) {
      check_call(*op, call, mesh, writes);
      if (written && is_possible(*written, call)) check_call(*written, call, mesh, /*in_place=*/true);
    }
  }
}

TEST(DTensorRules, ElementwiseOperatorsGiveTheWholeResult) {
  check_rows(dtensor::elementwise_rules());
}

TEST(DTensorRules, LinearOperatorsGiveTheWholeResult) {
  check_rows(dtensor::pointwise_rules());
}

TEST(DTensorRules, ReductionsGiveTheWholeResult) {
  check_rows(dtensor::reduction_rules());
}

TEST(DTensorRules, ProductsGiveTheWholeResult) {
  check_rows(dtensor::contraction_rules());
}

}  // namespace
}  // namespace precast::test
