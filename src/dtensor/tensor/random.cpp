#include "dtensor/tensor/random.h"

#include "dtensor/shards.h"
#include "dtensor/tensor/dtensor_data.h"
#include "dtensor/tensor/shard_offset.h"
#include "precast/error.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <numbers>
#include <optional>
#include <variant>
#include <vector>

namespace precast::dtensor {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

constexpr std::int64_t kMask32 = 0xffffffff;

/// The DTensor that numbers are drawn for.
const at::Tensor& target(const OperatorHandle& op, const at::Tensor& tensor) {
  const DTensorData* dtensor = as_dtensor(tensor);
  if (dtensor == nullptr)
    throw PrecompileError(
        ErrorCode::argument_mismatch,
        fmt::format("{}: its first operand is a plain tensor among DTensors; make it a DTensor", op.schema().name()));
  for (const Placement& placement : dtensor->layout().placements)
    if (std::holds_alternative<Partial>(placement))
      throw PrecompileError(ErrorCode::argument_mismatch,
                            fmt::format("{}: random numbers for a tensor that is {}; redistribute it to Shard or Replicate first",
                                        op.schema().name(), to_string(dtensor->layout().placements)));
  return tensor;
}

/// The index of each local element in the global tensor, counted in row-major order.
at::Tensor element_indices(const at::Tensor& tensor) {
  const at::Tensor& local = as_dtensor(tensor)->local();
  const Layout& layout = as_dtensor(tensor)->layout();
  const auto options = at::TensorOptions(at::kLong).device(local.device());
  at::Tensor indices = at::zeros({}, options);
  std::int64_t stride = 1;
  for (std::int64_t dim = local.dim() - 1; dim >= 0; --dim) {
    at::Tensor along = at::arange(local.size(dim), options);
    if (!split_order(layout.placements, dim).empty())
      along = along.add(shard_offset(layout.mesh, layout.placements, tensor.sizes(), dim));
    std::vector<std::int64_t> shape(static_cast<std::size_t>(local.dim()), 1);
    shape[static_cast<std::size_t>(dim)] = local.size(dim);
    indices = indices.add(along.mul(stride).view(shape));
    stride *= tensor.sizes()[static_cast<std::size_t>(dim)];
  }
  return indices.expand(local.sizes());
}

/// 32 random bits an element: a finalizer of two multiply-xorshift rounds over index and seed. Its constants are those of Wellons'
/// search for 32-bit hash functions of low bias (github.com/skeeto/hash-prospector), taken with multipliers below 2^31 so that no
/// product of int64 overflows.
at::Tensor random_bits(const at::Tensor& indices, const at::Tensor& seed) {
  at::Tensor x = indices.bitwise_and(0x7fffffff).mul(0x9e3779b1).add(indices.bitwise_right_shift(31).mul(0x5bd1e995));
  x = x.bitwise_xor(seed).bitwise_and(kMask32);
  x = x.bitwise_xor(x.bitwise_right_shift(16)).mul(0x21f0aaad).bitwise_and(kMask32);
  x = x.bitwise_xor(x.bitwise_right_shift(15)).mul(0x735a2d97).bitwise_and(kMask32);
  return x.bitwise_xor(x.bitwise_right_shift(15));
}

/// Draws for one tensor.
class Draw {
 public:
  Draw(const at::Tensor& tensor, const std::optional<at::Generator>& generator)
      : indices_(element_indices(tensor)), generator_(generator), device_(tensor.device()) {}

  /// In [0, 1): multiples of 2^-24 in float32, of 2^-32 in float64.
  at::Tensor uniform(at::ScalarType dtype) {
    const at::Tensor bits = random_bits(indices_, seed());
    if (dtype == at::kDouble) return bits.to(at::kDouble).mul(0x1p-32);
    return bits.bitwise_right_shift(8).to(at::kFloat).mul(0x1p-24);
  }

  /// Mean 0, deviation 1, by Box and Muller (1958).
  at::Tensor normal(at::ScalarType dtype) {
    const at::Tensor radius = uniform(dtype).neg().add(1.0).log().mul(-2.0).sqrt();
    return uniform(dtype).mul(2.0 * std::numbers::pi).cos().mul(radius);
  }

 private:
  [[nodiscard]] at::Tensor seed() const {
    constexpr std::int64_t seeds = std::int64_t{1} << 31;
    const auto options = at::TensorOptions(at::kLong).device(device_);
    return generator_ ? at::randint(seeds, {}, generator_, options) : at::randint(seeds, {}, options);
  }

  at::Tensor indices_;
  std::optional<at::Generator> generator_;
  at::Device device_;
};

std::optional<at::Generator> generator_of(const c10::IValue& value) {
  return value.isGenerator() ? std::optional(value.toGenerator()) : std::nullopt;
}

at::Tensor wrap_like(const at::Tensor& local, const at::Tensor& like) {
  return wrap(local, as_dtensor(like)->shared_layout(), like.sizes());
}

/// Arguments of an op that draws into its first one, and that one left as its result.
struct InPlace {
  InPlace(const OperatorHandle& op, Stack& stack)
      : arguments(torch::jit::pop(stack, op.schema().arguments().size())), self(target(op, arguments[0].toTensor())) {
    stack.push_back(arguments[0]);
  }
  std::vector<c10::IValue> arguments;
  const at::Tensor self;
};

at::ScalarType like_dtype(const c10::IValue& dtype, const at::Tensor& like) {
  return dtype.isNone() ? like.scalar_type() : dtype.toScalarType();
}

}  // namespace

void draw_bernoulli_in_place(const OperatorHandle& op, Stack& stack) {
  const InPlace call(op, stack);
  as_dtensor(call.self)->local().copy_(
      Draw(call.self, generator_of(call.arguments[2])).uniform(at::kFloat).lt(call.arguments[1].toDouble()));
}

void draw_bernoulli(const OperatorHandle& op, Stack& stack) {
  const auto arguments = torch::jit::pop(stack, op.schema().arguments().size());
  const at::Tensor& self = target(op, arguments[0].toTensor());
  const at::Tensor drawn = Draw(self, generator_of(arguments[2])).uniform(at::kFloat).lt(arguments[1].toDouble());
  stack.emplace_back(wrap_like(drawn.to(self.scalar_type()), self));
}

void draw_uniform_in_place(const OperatorHandle& op, Stack& stack) {
  const InPlace call(op, stack);
  const double from = call.arguments[1].toDouble(), to = call.arguments[2].toDouble();
  const at::Tensor& local = as_dtensor(call.self)->local();
  local.copy_(Draw(call.self, generator_of(call.arguments[3])).uniform(local.scalar_type()).mul(to - from).add(from));
}

void draw_normal_in_place(const OperatorHandle& op, Stack& stack) {
  const InPlace call(op, stack);
  const double mean = call.arguments[1].toDouble(), deviation = call.arguments[2].toDouble();
  const at::Tensor& local = as_dtensor(call.self)->local();
  local.copy_(Draw(call.self, generator_of(call.arguments[3])).normal(local.scalar_type()).mul(deviation).add(mean));
}

void draw_uniform_like(const OperatorHandle& op, Stack& stack) {
  const auto arguments = torch::jit::pop(stack, op.schema().arguments().size());
  const at::Tensor& like = target(op, arguments[0].toTensor());
  const at::ScalarType dtype = like_dtype(arguments[1], like);
  stack.emplace_back(wrap_like(Draw(like, std::nullopt).uniform(dtype).to(dtype), like));
}

void draw_normal_like(const OperatorHandle& op, Stack& stack) {
  const auto arguments = torch::jit::pop(stack, op.schema().arguments().size());
  const at::Tensor& like = target(op, arguments[0].toTensor());
  const at::ScalarType dtype = like_dtype(arguments[1], like);
  stack.emplace_back(wrap_like(Draw(like, std::nullopt).normal(dtype).to(dtype), like));
}

void draw_dropout(const OperatorHandle& op, Stack& stack) {
  const auto arguments = torch::jit::pop(stack, op.schema().arguments().size());
  const at::Tensor& input = target(op, arguments[0].toTensor());
  const double p = arguments[1].toDouble();
  const bool training = arguments[2].isNone() || arguments[2].toBool();
  const at::Tensor& local = as_dtensor(input)->local();
  if (!training || p == 0) {
    stack.emplace_back(wrap_like(local.clone(), input));
    stack.emplace_back(wrap_like(at::ones_like(local, at::kBool), input));
    return;
  }
  const at::Tensor mask = Draw(input, std::nullopt).uniform(at::kFloat).lt(1.0 - p);
  const double scale = p == 1 ? 0.0 : 1.0 / (1.0 - p);
  stack.emplace_back(wrap_like(local.mul(mask).mul(scale), input));
  stack.emplace_back(wrap_like(mask, input));
}

}  // namespace precast::dtensor
