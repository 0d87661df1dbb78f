#include "optimizer.h"

#include <gtest/gtest.h>

namespace gpt {
namespace {

Config::Optimizer schedule() {
  Config::Optimizer config;
  config.lr = 1.0;
  config.min_lr = 0.0;
  config.warmup = 2;
  config.decay_steps = 6;
  return config;
}

TEST(LearningRate, WarmsUpInALineAndFallsAsAHalfCosine) {
  const std::vector<double> expected = {0.5, 1.0, 1.0, 0.853553390593, 0.5, 0.146446609407, 0.0, 0.0};
  for (std::size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(learning_rate(schedule(), static_cast<std::int64_t>(step)), expected[step], 1e-12) << "step " << step;
}

TEST(LearningRate, StaysAtItsLowestValueAfterTheDecay) {
  Config::Optimizer config = schedule();
  config.min_lr = 0.1;
  EXPECT_EQ(learning_rate(config, 6), 0.1);
  EXPECT_EQ(learning_rate(config, 1'000'000), 0.1);
}

TEST(LearningRate, WithoutWarmUpStartsAtItsPeak) {
  Config::Optimizer config = schedule();
  config.warmup = 0;
  EXPECT_EQ(learning_rate(config, 0), 1.0);
}

TEST(Update, ClipsTheNormOfAllGradientsAndClearsThem) {  // C138
  torch::nn::Linear model(3, 2), eager(3, 2);
  {
    const torch::NoGradGuard no_grad;
    eager->weight.copy_(model->weight);
    eager->bias.copy_(model->bias);
  }
  Config::Optimizer config = schedule();
  config.clip = 0.5;
  torch::optim::AdamW optimizer = make_optimizer(*model, config);
  torch::optim::AdamW weight_optimizer({eager->weight}, torch::optim::AdamWOptions(0.5).betas({0.9, 0.95}).weight_decay(0.1));
  torch::optim::AdamW bias_optimizer({eager->bias}, torch::optim::AdamWOptions(0.5).betas({0.9, 0.95}).weight_decay(0.0));
  const torch::Tensor x = torch::ones({4, 3});
  (model->forward(x) * 10).sum().backward();
  (eager->forward(x) * 10).sum().backward();

  update(*model, optimizer, config, 0);
  torch::nn::utils::clip_grad_norm_(eager->parameters(), 0.5);
  weight_optimizer.step();
  bias_optimizer.step();

  EXPECT_TRUE(torch::equal(model->weight, eager->weight));
  EXPECT_TRUE(torch::equal(model->bias, eager->bias));
  EXPECT_FALSE(model->weight.grad().defined());
}

}  // namespace
}  // namespace gpt
