#include <precast/precast.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  auto comm = precast::Communicator::from_environment();  // torchrun, mpirun, srun, or one process
  torch::nn::Sequential model(torch::nn::Linear(32, 64), torch::nn::GELU(), torch::nn::Linear(64, 1));
  precast::broadcast_module(*model, comm);  // rank 0's weights, on every rank

  auto train_step = [](torch::nn::Sequential& model, const at::Tensor& x, const at::Tensor& y) {
    auto loss = torch::mse_loss(model->forward(x), y);
    loss.backward();
    return loss.detach();
  };
  torch::manual_seed(comm.rank());  // each rank draws its own data
  auto batch = [] { return torch::randn({16, 32}); };
  at::Tensor x = batch(), y = x.sum(1, true);
  auto step = precast::compile_on_one_rank(comm, train_step, {}, model, x, y);

  torch::optim::AdamW optimizer(model->parameters(), 1e-2);
  for (int i = 0; i < 200; ++i, x = batch(), y = x.sum(1, true)) {
    at::Tensor loss = step(model, x, y);       // runs the program; gradients are on .grad
    precast::scatter_gradients(*model, comm);  // one bucketed average over the ranks
    optimizer.step();
    optimizer.zero_grad();
    if (i % 50 == 0 && comm.rank() == 0) std::cout << "step " << i << " loss " << loss.item<double>() << "\n";
  }
}
