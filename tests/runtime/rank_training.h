#pragma once

#include "capture/modules.h"
#include "precast/error.h"
#include "rank_test.h"

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>

namespace precast::test {

inline const auto kTrain = [](Mlp& model, const at::Tensor& x, const at::Tensor& y) {
  auto loss = torch::nn::functional::cross_entropy(model->forward(x), y);
  loss.backward();
  return loss;
};

struct Batch {
  explicit Batch(int seed) {
    torch::manual_seed(seed);
    x = torch::randn({5, 8});
    y = torch::randint(0, 4, {5});
  }
  at::Tensor x, y;
};

inline Mlp equal_model() {
  torch::manual_seed(17);
  return Mlp();
}

/// The error of a call that every rank makes, and that must fail on every rank.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const PrecompileError& error) {
    return error.what();
  }
  return "no error";
}

/// Whether all ranks have this text: what the ranks throw together must be one text.
inline bool is_one_text(const std::string& text) {
  const auto all = rank_test::communicator().all_gather(std::as_bytes(std::span(text)), after(rank_test::kTime));
  return std::ranges::all_of(all, [&](const auto& other) { return other == all.front(); });
}

}  // namespace precast::test
