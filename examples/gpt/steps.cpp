#include "steps.h"

#include "data.h"

#include <ATen/autocast_mode.h>

namespace gpt {
namespace {

/// bfloat16 autocast on one device type until the guard ends; does nothing where it is not `wanted`.
class AutocastGuard {
 public:
  AutocastGuard(bool wanted, at::DeviceType device)
      : wanted_(wanted),
        device_(device),
        enabled_(at::autocast::is_autocast_enabled(device)),
        dtype_(at::autocast::get_autocast_dtype(device)) {
    if (!wanted_) return;
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~AutocastGuard() {
    if (!wanted_) return;
    // The cache keeps bfloat16 copies of weights, which the next optimizer step makes stale.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_dtype(device_, dtype_);
    at::autocast::set_autocast_enabled(device_, enabled_);
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  bool wanted_;
  at::DeviceType device_;
  bool enabled_;
  at::ScalarType dtype_;
};

}  // namespace

torch::Tensor loss_of(Gpt& model, const torch::Tensor& tokens, const torch::Tensor& targets, bool bfloat16) {
  const AutocastGuard autocast(bfloat16, tokens.device().type());
  const torch::Tensor logits = model->forward(tokens);
  return torch::cross_entropy_loss(logits.view({-1, kVocabulary}).to(torch::kFloat32), targets.view({-1}));
}

}  // namespace gpt
