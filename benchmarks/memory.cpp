// Peak resident memory of a training step: LibTorch eager, capture alone, and the captured step, each in a child process of its
// own, so that one's peak is not another's. Prints MiB beyond what the process held before, and the ratio to eager.
#include <precast/precast.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

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

double peak_mib() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// MiB that `work` adds to the peak of a fresh child.
double measure(const std::function<void(torch::nn::Sequential&, const at::Tensor&)>& work) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    at::set_num_threads(1);  // OpenMP's threads do not survive a fork
    auto model = make_model();
    const auto x = torch::randn({8192, 512});
    const double before = peak_mib();
    work(model, x);
    const double added = peak_mib() - before;
    const bool written = ::write(ends[1], &added, sizeof(added)) == sizeof(added);
    ::_exit(written ? 0 : 1);
  }
  double added = -1;
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0 || ::read(ends[0], &added, sizeof(added)) != sizeof(added)) added = -1;
  ::close(ends[0]);
  ::close(ends[1]);
  return added;
}

}  // namespace

int main() {
  const auto compile = [](torch::nn::Sequential& model, const at::Tensor& x) {
    precast::set_log_sink([](precast::LogLevel, std::string_view) {});
    return precast::load<at::Tensor>(precast::precompile(train_step, {.backend = "eager"}, model, x));
  };
  const double eager = measure([](torch::nn::Sequential& model, const at::Tensor& x) {
    for (int i = 0; i < kSteps; ++i) train_step(model, x);
  });
  const double capture = measure([&](torch::nn::Sequential& model, const at::Tensor& x) { compile(model, x); });
  const double step = measure([&](torch::nn::Sequential& model, const at::Tensor& x) {
    const auto compiled = compile(model, x);
    for (int i = 0; i < kSteps; ++i) compiled(model, x);
  });
  if (eager <= 0 || capture <= 0 || step <= 0) {
    std::fprintf(stderr, "a measurement failed\n");
    return 1;
  }
  std::printf("eager    %7.1f MiB\n", eager);
  std::printf("capture  %7.1f MiB  %.3f x eager\n", capture, capture / eager);
  std::printf("step     %7.1f MiB  %.3f x eager\n", step, step / eager);
}
