#include "dtensor/tensor/special_operators.h"

#include "dtensor/tensor/dtensor_data.h"
#include "dtensor/tensor/random.h"
#include "dtensor/tensor/redistribute.h"

#include <ATen/Functions.h>

#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace precast::dtensor {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

at::Tensor whole(const at::Tensor& tensor) {
  const DTensorData* dtensor = as_dtensor(tensor);
  if (dtensor == nullptr) return tensor;
  const Layout& layout = dtensor->layout();
  return redistribute_local(dtensor->local(), tensor.sizes(), layout.mesh, layout.placements, Placements(layout.placements.size()));
}

std::vector<c10::IValue> take_arguments(const OperatorHandle& op, Stack& stack) {
  return torch::jit::pop(stack, op.schema().arguments().size());
}

void local_scalar(const OperatorHandle& op, Stack& stack) {
  const auto arguments = take_arguments(op, stack);
  stack.emplace_back(at::_local_scalar_dense(whole(arguments[0].toTensor())));
}

void equal(const OperatorHandle& op, Stack& stack) {
  const auto arguments = take_arguments(op, stack);
  stack.emplace_back(at::equal(whole(arguments[0].toTensor()), whole(arguments[1].toTensor())));
}

void is_same_size(const OperatorHandle& op, Stack& stack) {
  const auto arguments = take_arguments(op, stack);
  stack.emplace_back(arguments[0].toTensor().sizes() == arguments[1].toTensor().sizes());
}

const std::unordered_map<std::string_view, SpecialOperator> kSpecial = {
    {"aten::_local_scalar_dense", &local_scalar}, {"aten::equal", &equal},
    {"aten::is_same_size", &is_same_size},        {"aten::bernoulli_.float", &draw_bernoulli_in_place},
    {"aten::bernoulli.p", &draw_bernoulli},       {"aten::uniform_", &draw_uniform_in_place},
    {"aten::normal_", &draw_normal_in_place},     {"aten::rand_like", &draw_uniform_like},
    {"aten::randn_like", &draw_normal_like},      {"aten::native_dropout", &draw_dropout},
};

}  // namespace

SpecialOperator special_operator(const c10::FunctionSchema& schema) {
  thread_local std::unordered_map<const c10::FunctionSchema*, SpecialOperator> known;  // a name is put together once
  const auto [entry, is_new] = known.try_emplace(&schema, nullptr);
  if (is_new) {
    const std::string name = schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
    if (const auto special = kSpecial.find(name); special != kSpecial.end()) entry->second = special->second;
  }
  return entry->second;
}

}  // namespace precast::dtensor
