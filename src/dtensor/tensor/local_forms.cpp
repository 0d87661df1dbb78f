#include "dtensor/tensor/local_call.h"

#include "dtensor/tensor/collectives.h"
#include "dtensor/tensor/shard_offset.h"

#include <ATen/Functions.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

namespace precast::dtensor {
namespace {

using torch::jit::Stack;

/// The mesh dimensions on which operand `i` is sharded along `dim`, outermost split first.
std::vector<int> sharding_dims(const LocalCall& call, std::size_t operand, std::int64_t dim) {
  return split_order(call.strategy.inputs[operand], dim);
}

at::Tensor all_reduce_over(at::Tensor tensor, Reduction reduction, const LocalCall& call, const std::vector<int>& mesh_dims) {
  for (const int m : mesh_dims) tensor = all_reduce(tensor, reduction, call.mesh, m);
  return tensor;
}

/// Indices into this rank's rows, and which of them belong to other ranks (those point at row 0).
struct LocalRows {
  at::Tensor indices, elsewhere;
};

LocalRows local_rows(const at::Tensor& indices, const at::Tensor& offset, std::int64_t n_rows) {
  const at::Tensor shifted = indices.sub(offset);
  const at::Tensor elsewhere = shifted.lt(0).logical_or(shifted.ge(n_rows));
  return {shifted.masked_fill(elsewhere, 0), elsewhere};
}

/// A look-up in a vocabulary of which each rank has some rows: the others contribute zeros to the sum.
Stack embedding(LocalCall call) {
  const at::Tensor weight = call.arguments[0].toTensor(), indices = call.arguments[1].toTensor();
  if (weight.size(0) == 0) {
    auto sizes = indices.sizes().vec();
    sizes.push_back(weight.size(1));
    return {weight.new_zeros(sizes)};
  }
  const LocalRows rows = local_rows(indices, shard_offset(call.mesh, call.strategy.inputs[0], call.shapes[0], 0), weight.size(0));
  return {at::embedding(weight, rows.indices).masked_fill(rows.elsewhere.unsqueeze(-1), 0)};
}

/// Each rank sums the gradients of its own rows. Arguments: gradient, indices, number of rows, padding index, scale by frequency.
Stack embedding_backward(LocalCall call) {
  const at::Tensor indices = call.arguments[1].toTensor();
  const std::int64_t all_rows = call.arguments[2].toInt(), padding = call.arguments[3].toInt();
  const Sizes global = {all_rows, call.shapes[0].back()};
  const Placements& out = call.strategy.outputs[0];
  const std::int64_t n_rows = local_shape(global, out, mesh_sizes(call.mesh), mesh_coordinates(call.mesh))[0];
  const at::Tensor gradient = call.arguments[0].toTensor();
  if (n_rows == 0) return {gradient.new_zeros({0, gradient.size(-1)})};
  LocalRows rows = local_rows(indices, shard_offset(call.mesh, out, global, 0), n_rows);
  if (padding >= 0) rows.elsewhere = rows.elsewhere.logical_or(indices.eq(padding));
  return {at::embedding_dense_backward(gradient.masked_fill(rows.elsewhere.unsqueeze(-1), 0), rows.indices, n_rows,
                                       /*padding_idx=*/-1, /*scale_grad_by_freq=*/false)};
}

bool is_reduced_precision(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16;
}

/// amax along `dim`, which on a rank without elements is below all.
at::Tensor largest_along(const at::Tensor& x, std::int64_t dim) {
  if (x.size(dim) > 0) return x.amax({dim}, true);
  auto sizes = x.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] = 1;
  return at::full(sizes, -std::numeric_limits<double>::infinity(), x.options());
}

/// softmax and log_softmax along a sharded dimension: the largest value and the sum of exponentials are those of all ranks.
/// Arguments: self, dim, half_to_float.
Stack softmax(LocalCall call, bool logarithm) {
  const at::Tensor self = call.arguments[0].toTensor();
  const std::int64_t dim = at::maybe_wrap_dim(call.arguments[1].toInt(), self.dim());
  const std::vector<int> over = sharding_dims(call, 0, dim);
  const bool reduced = is_reduced_precision(self.scalar_type());
  const at::Tensor x = reduced ? self.to(at::kFloat) : self;
  const at::Tensor largest = all_reduce_over(largest_along(x, dim), Reduction::max, call, over);
  const at::Tensor shifted = x.sub(largest), exponentials = shifted.exp();
  const at::Tensor sum = all_reduce_over(exponentials.sum({dim}, true), Reduction::sum, call, over);
  const at::Tensor result = logarithm ? shifted.sub(sum.log()) : exponentials.div(sum);
  return {reduced && !call.arguments[2].toBool() ? result.to(self.scalar_type()) : result};
}

/// Arguments: gradient, output, dim, dtype of the input.
Stack softmax_backward(LocalCall call, bool logarithm) {
  const at::Tensor gradient = call.arguments[0].toTensor(), output = call.arguments[1].toTensor();
  const std::int64_t dim = at::maybe_wrap_dim(call.arguments[2].toInt(), output.dim());
  const std::vector<int> over = sharding_dims(call, 1, dim);
  const bool reduced = is_reduced_precision(gradient.scalar_type());
  const at::Tensor g = reduced ? gradient.to(at::kFloat) : gradient, y = reduced ? output.to(at::kFloat) : output;
  at::Tensor result;
  if (logarithm)
    result = g.sub(y.exp().mul(all_reduce_over(g.sum({dim}, true), Reduction::sum, call, over)));
  else
    result = y.mul(g.sub(all_reduce_over(g.mul(y).sum({dim}, true), Reduction::sum, call, over)));
  return {result.to(call.arguments[3].toScalarType())};
}

/// What the loss of class-sharded logits and of a sharded batch needs beyond local tensors.
class NllLoss {
 public:
  /// Operand `self` has classes at dimension 1, or 0 where it is one sample.
  NllLoss(const LocalCall& call, std::size_t self, const at::Tensor& logits, const at::Tensor& target, const c10::IValue& weight,
          std::int64_t ignored)
      : class_dim_(logits.dim() > 1 ? 1 : 0),
        class_dims_(sharding_dims(call, self, class_dim_)),
        rows_(local_rows(target, shard_offset(call.mesh, call.strategy.inputs[self], call.shapes[self], class_dim_),
                         logits.size(class_dim_))),
        counted_(target.ne(ignored)) {
    // A weight is whole, so that it is looked up by the global class.
    const at::Tensor safe = target.masked_fill(counted_.logical_not(), 0);
    weights_ = weight.isTensor() && weight.toTensor().defined()
                   ? weight.toTensor().index_select(0, safe.reshape({-1})).view_as(target)
                   : at::ones_like(target, logits.options());
    weights_ = weights_.masked_fill(counted_.logical_not(), 0);
    if (class_dims_.empty()) rows_.indices = safe;
  }

  /// Minus the weighted logits of this rank's targets, per sample; zero where another rank has the class.
  [[nodiscard]] at::Tensor losses(const at::Tensor& logits) const {
    if (logits.size(class_dim_) == 0) return at::zeros_like(weights_);
    const at::Tensor picked = logits.gather(class_dim_, rows_.indices.unsqueeze(class_dim_)).squeeze(class_dim_);
    const at::Tensor losses = picked.mul(weights_).neg();
    return class_dims_.empty() ? losses : losses.masked_fill(rows_.elsewhere, 0);
  }
  [[nodiscard]] const at::Tensor& weights() const { return weights_; }
  [[nodiscard]] std::int64_t class_dim() const { return class_dim_; }
  [[nodiscard]] const LocalRows& rows() const { return rows_; }
  [[nodiscard]] bool is_class_sharded() const { return !class_dims_.empty(); }

 private:
  std::int64_t class_dim_;
  std::vector<int> class_dims_;
  LocalRows rows_;
  at::Tensor counted_, weights_;
};

/// Arguments: self, target, weight, reduction, ignored class. Results: loss, and total weight over the whole batch. A mean divides
/// by the total of all ranks, so that the ranks' results add up to it, however many samples each has.
Stack nll_loss_forward(LocalCall call) {
  const at::Tensor self = call.arguments[0].toTensor(), target = call.arguments[1].toTensor();
  const NllLoss loss(call, 0, self, target, call.arguments[2], call.arguments[4].toInt());
  const at::Tensor losses = loss.losses(self);
  const std::int64_t reduction = call.arguments[3].toInt();
  if (reduction == at::Reduction::None) return {losses, at::zeros({}, self.options())};
  const std::vector<int> batch = self.dim() > 1 ? sharding_dims(call, 0, 0) : std::vector<int>();
  const at::Tensor total = all_reduce_over(loss.weights().sum(), Reduction::sum, call, batch);
  return {reduction == at::Reduction::Mean ? losses.sum().div(total) : losses.sum(), total};
}

/// Arguments: gradient, self, target, weight, reduction, ignored class, total weight (of the whole batch).
Stack nll_loss_backward(LocalCall call) {
  const at::Tensor gradient = call.arguments[0].toTensor(), self = call.arguments[1].toTensor(),
                   target = call.arguments[2].toTensor();
  const NllLoss loss(call, 1, self, target, call.arguments[3], call.arguments[5].toInt());
  if (self.size(loss.class_dim()) == 0) return {at::zeros_like(self)};
  const std::int64_t reduction = call.arguments[4].toInt();
  at::Tensor values = loss.weights().neg().mul(gradient);
  if (reduction == at::Reduction::Mean) values = values.div(call.arguments[6].toTensor());
  if (loss.is_class_sharded()) values = values.masked_fill(loss.rows().elsewhere, 0);
  return {at::zeros_like(self).scatter(loss.class_dim(), loss.rows().indices.unsqueeze(loss.class_dim()),
                                       values.unsqueeze(loss.class_dim()))};
}

/// Local tensors have strides of their own, in which a view need not exist where it does in the global ones: then the values are
/// copied.
Stack reshape(LocalCall call) {
  return {call.arguments[0].toTensor().reshape(call.arguments[1].toIntVector())};
}

/// The p-norm over sharded dimensions: the p-th root of the sum of all ranks' p-th powers; for infinities the largest or smallest.
/// Arguments: self, p, and for some dims, keepdim, dtype.
Stack vector_norm(LocalCall call) {
  const at::Tensor self = call.arguments[0].toTensor();
  const double p = call.arguments[1].isNone() ? 2.0 : call.arguments[1].toScalar().toDouble();
  const bool has_dims = call.arguments.size() > 2;
  std::vector<std::int64_t> dims =
      has_dims && !call.arguments[2].isNone() ? call.arguments[2].toIntVector() : std::vector<std::int64_t>();
  if (dims.empty())
    for (std::int64_t dim = 0; dim < self.dim(); ++dim) dims.push_back(dim);
  const bool keep = has_dims && call.arguments[3].toBool();
  std::vector<int> over;
  for (const std::int64_t dim : dims)
    for (const int m : sharding_dims(call, 0, at::maybe_wrap_dim(dim, self.dim()))) over.push_back(m);
  const at::Tensor magnitudes = self.abs();
  const auto dtype = at::toRealValueType(self.scalar_type());
  if (std::isinf(p)) {
    // A rank without elements stands back.
    const at::Tensor mine =
        self.numel() == 0 ? at::zeros({1}, magnitudes.options()).expand(std::vector<std::int64_t>(self.dim(), 1)) : magnitudes;
    return {all_reduce_over(p > 0 ? mine.amax(dims, keep) : mine.amin(dims, keep), p > 0 ? Reduction::max : Reduction::min, call,
                            over)};
  }
  if (p == 0) return {all_reduce_over(magnitudes.ne(0).sum(dims, keep).to(dtype), Reduction::sum, call, over)};
  return {all_reduce_over(magnitudes.pow(p).sum(dims, keep), Reduction::sum, call, over).pow(1.0 / p)};
}

/// A mean's gradient is the sum's divided by the number of all elements. Arguments: gradient, self, target, reduction.
Stack mean_loss_backward(LocalCall call) {
  double n_elements = 1;
  for (const std::int64_t size : call.shapes[1]) n_elements *= static_cast<double>(size);
  const auto reduction = static_cast<std::size_t>(*call.op.schema().argumentIndexWithName("reduction"));
  call.arguments[reduction] = static_cast<std::int64_t>(at::Reduction::Sum);
  call.op.callBoxed(call.arguments);
  call.arguments.back() = call.arguments.back().toTensor().div(n_elements);
  return std::move(call.arguments);
}

const std::unordered_map<std::string_view, LocalForm> kLocalForms = {
    {"aten::view", &reshape},
    {"aten::_unsafe_view", &reshape},
    {"aten::_reshape_alias", &reshape},
    {"aten::linalg_vector_norm", &vector_norm},
    {"aten::norm.Scalar", &vector_norm},
    {"aten::norm.ScalarOpt_dim", &vector_norm},
    {"aten::mse_loss_backward", &mean_loss_backward},
    {"aten::embedding", &embedding},
    {"aten::embedding_dense_backward", &embedding_backward},
    {"aten::_softmax", [](LocalCall call) { return softmax(std::move(call), false); }},
    {"aten::_log_softmax", [](LocalCall call) { return softmax(std::move(call), true); }},
    {"aten::_softmax_backward_data", [](LocalCall call) { return softmax_backward(std::move(call), false); }},
    {"aten::_log_softmax_backward_data", [](LocalCall call) { return softmax_backward(std::move(call), true); }},
    {"aten::nll_loss_forward", &nll_loss_forward},
    {"aten::nll_loss_backward", &nll_loss_backward},
};

}  // namespace

LocalForm local_form_of(std::string_view op) {
  const auto form = kLocalForms.find(op);
  if (form == kLocalForms.end()) throw std::out_of_range("no local form of " + std::string(op));
  return form->second;
}

}  // namespace precast::dtensor
