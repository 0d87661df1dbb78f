// Peak memory of a training step: LibTorch eager, capture alone, and the captured step. Prints MiB of tensors beyond what was held
// before, and the ratio to eager.
#include "peak_memory.h"

#include <precast/precast.h>
#include <torch/torch.h>

#include <cstdio>
#include <optional>

namespace {

constexpr int kSteps = 5;

torch::nn::Sequential make_model() {
  torch::nn::Sequential model;
  for (int i = 0; i < 8; ++i) {
    model->push_back(torch::nn::Linear(512, 512));
    model->push_back(torch::nn::GELU());
  }
  return model;
}

at::Tensor train_step(torch::nn::Sequential& model, const at::Tensor& x) {
  const auto loss = model->forward(x).pow(2).mean();
  loss.backward();
  return loss.detach();
}

template <class Work>
double peak_mib(Work&& work) {
  return static_cast<double>(precast::test::peak_tensor_bytes(work)) / (1 << 20);
}

}  // namespace

int main() {
  precast::set_log_sink([](precast::LogLevel, std::string_view) {});
  auto model = make_model();
  const auto x = torch::randn({8192, 512});
  using Step = precast::Step<at::Tensor>;
  std::optional<Step> step;
  const auto five = [](const auto& step_once) {
    for (int i = 0; i < kSteps; ++i) step_once();
  };

  const double capture =
      peak_mib([&] { step = precast::load<at::Tensor>(precast::precompile(train_step, {.backend = "eager"}, model, x)); });
  const double captured = peak_mib([&] { five([&] { (*step)(model, x); }); });
  model->zero_grad();
  const double eager = peak_mib([&] { five([&] { train_step(model, x); }); });

  std::printf("eager    %7.1f MiB\n", eager);
  std::printf("capture  %7.1f MiB  %.3f x eager\n", capture, capture / eager);
  std::printf("step     %7.1f MiB  %.3f x eager\n", captured, captured / eager);
}
