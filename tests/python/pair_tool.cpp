#include "capture/modules.h"
#include "ir/text.h"
#include "precast/precast.h"

#include <torch/torch.h>

#include <cmath>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

// The C++ half of the tests whose oracle is Python: captures steps for Python to run, and runs steps that Python captured.
namespace precast::test {
namespace {

namespace fs = std::filesystem;
using Tensors = c10::Dict<std::string, at::Tensor>;

std::vector<char> read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_tensors(const fs::path& path, const Tensors& tensors) {
  const std::vector<char> bytes = torch::pickle_save(tensors);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// A block with tied embeddings, as GPT has them.
struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(11, 8));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
    qkv = register_module("qkv", torch::nn::Linear(8, 24));
    head = register_module("head", std::make_shared<torch::nn::Module>());
    head->register_parameter("weight", embedding->weight);
  }
  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor x = embedding(tokens);
    const auto parts = qkv(norm(x)).view({x.size(0), x.size(1), 3, 2, 4}).permute({2, 0, 3, 1, 4}).unbind(0);
    const at::Tensor attention = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    return torch::linear(x + attention.transpose(1, 2).reshape(x.sizes()), embedding->weight);
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear qkv{nullptr};
  std::shared_ptr<torch::nn::Module> head;
};
TORCH_MODULE(Block);

/// Names that Python, or the text, has for itself.
struct OddNamesImpl : torch::nn::Module {
  OddNamesImpl() {
    for (const char* name : {"class", "call", "forward", "BACKEND", "torch"}) register_parameter(name, torch::randn({3}));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = x;
    for (const at::Tensor& parameter : parameters()) y = torch::sin(y * parameter);
    return y.sum();
  }
};
TORCH_MODULE(OddNames);

struct Empty : torch::nn::Module {};

/// Captures fn on the arguments, then runs it eagerly on them, and writes what Python needs to do the same.
template <class Fn, class Model, class... Args>
void capture(const fs::path& folder, Fn fn, Model model, const Args&... args) {
  const Artifact artifact = precompile(fn, Options{.backend = "eager"}, model, args...);
  save_artifact(artifact, folder / "step.py", folder / "step.cache");
  torch::nn::Module& module = *detail::as_module(model);
  Tensors tensors;
  const auto add = [&](const std::string& prefix, const std::string& name, const at::Tensor& tensor) {
    tensors.insert(prefix + name, tensor.detach().clone());
  };
  for (const auto& item : module.named_parameters()) add("param.", item.key(), item.value());
  for (const auto& item : module.named_buffers()) add("buffer.", item.key(), item.value());
  std::size_t n = 0;
  for (const Leaf& leaf : detail::bind_arguments(model, args...).inputs.leaves) {
    if (const auto* tensor = std::get_if<at::Tensor>(&leaf)) add("input.", std::to_string(n), *tensor);
    ++n;
  }
  const Flat result = precast::flatten(fn(model, args...));  // LibTorch eager: the oracle
  for (std::size_t i = 0; i < result.leaves.size(); ++i)
    if (const auto* tensor = std::get_if<at::Tensor>(&result.leaves[i])) add("output.", std::to_string(i), *tensor);
  for (const auto& item : module.named_parameters())
    if (item.value().grad().defined()) add("grad.", item.key(), item.value().grad());
  for (const auto& item : module.named_buffers()) add("after.", item.key(), item.value());
  write_tensors(folder / "tensors.pt", tensors);
}

template <class Model>
at::Tensor classify(Model& model, const at::Tensor& x, const at::Tensor& y) {
  at::Tensor logits = model->forward(x);
  at::Tensor loss = torch::cross_entropy_loss(logits.view({-1, logits.size(-1)}), y.view({-1}));
  loss.backward();
  return loss.detach();
}

using Batch = std::map<std::string, at::Tensor>;

std::pair<at::Tensor, Batch> views(const std::shared_ptr<Empty>&, const Batch& batch,
                                   const std::pair<at::Tensor, std::int64_t>& pair) {
  return {batch.at("x").view({-1}), {{"sum", batch.at("y") + pair.first * pair.second}}};
}

std::vector<at::Tensor> literals(const std::shared_ptr<Empty>&, const at::Tensor& x) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto whole = at::TensorOptions(torch::kLong);
  return {x + inf,
          x * -inf,
          torch::full({2}, std::nan("")),
          torch::full({2}, -0.0),
          torch::full({2}, 0.1 + 0.2, torch::kDouble),
          torch::full({2}, std::numeric_limits<std::int64_t>::max(), whole),
          torch::full({2}, std::numeric_limits<std::int64_t>::min(), whole)};
}

void capture_kind(const std::string& kind, const fs::path& folder) {
  torch::manual_seed(7);
  if (kind == "mlp") {
    Mlp model;
    capture(
        folder, [](Mlp& m, const at::Tensor& x, const at::Tensor& y) { return classify(m, x, y); }, model, torch::randn({5, 8}),
        torch::randint(4, {5}));
  } else if (kind == "conv") {
    NormNet model;
    capture(
        folder, [](NormNet& m, const at::Tensor& x, const at::Tensor& y) { return classify(m, x, y); }, model,
        torch::randn({5, 3, 6, 6}), torch::randint(3, {5}));
  } else if (kind == "gpt") {
    Block model;
    capture(
        folder, [](Block& m, const at::Tensor& x, const at::Tensor& y) { return classify(m, x, y); }, model,
        torch::randint(11, {2, 5}), torch::randint(11, {2, 5}));
  } else if (kind == "names") {
    OddNames model;
    capture(
        folder,
        [](OddNames& m, const at::Tensor& x) {
          at::Tensor loss = m->forward(x);
          loss.backward();
          return loss.detach();
        },
        model, torch::randn({3}));
  } else if (kind == "views") {
    capture(folder, views, std::make_shared<Empty>(), Batch{{"x", torch::randn({2, 3})}, {"y", torch::randn({4})}},
            std::pair<at::Tensor, std::int64_t>{torch::randn({4}), 3});
  } else if (kind == "literals") {
    capture(folder, literals, std::make_shared<Empty>(), torch::ones({2}));
  } else {
    throw std::runtime_error("unknown kind " + kind);
  }
}

/// A module with parameters of these dotted names, in this order.
void grow(torch::nn::Module& module, const std::string& name, const at::Tensor& value) {
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos) {
    module.register_parameter(name, value.clone());
    return;
  }
  const auto children = module.named_children();
  const std::string child = name.substr(0, dot);
  const auto* found = children.find(child);
  grow(found != nullptr ? **found : *module.register_module(child, std::make_shared<torch::nn::Module>()), name.substr(dot + 1),
       value);
}

/// Three steps of SGD of a pair `fn(model, x, y) -> loss` that was captured elsewhere.
void run(const fs::path& code, const fs::path& cache, const fs::path& tensors, const fs::path& out) {
  const auto model = std::make_shared<torch::nn::Module>();
  at::Tensor x, y;
  for (const auto& item : torch::pickle_load(read_bytes(tensors)).toGenericDict()) {
    const std::string name = item.key().toStringRef();
    const at::Tensor tensor = item.value().toTensor();
    if (name == "input.0") x = tensor;
    if (name == "input.1") y = tensor;
    if (name.starts_with("param.")) grow(*model, name.substr(6), tensor);
  }
  const auto step = load<at::Tensor>(read_artifact(code, cache));
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  Tensors results;
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    results.insert("loss." + std::to_string(i), step(model, x, y));
    optimizer.step();
  }
  for (const auto& item : model->named_parameters()) results.insert("grad." + item.key(), item.value().grad());
  write_tensors(out, results);
}

int main_of(const std::vector<std::string>& args) {
  torch::set_num_threads(1);
  if (args.size() == 3 && args[0] == "capture") return capture_kind(args[1], args[2]), 0;
  if (args.size() == 5 && args[0] == "run") return run(args[1], args[2], args[3], args[4]), 0;
  if (args.size() == 2 && args[0] == "rewrite") {
    const std::vector<char> bytes = read_bytes(args[1]);
    std::cout << ir::write_python_code(ir::read_python_code({bytes.data(), bytes.size()}));
    return 0;
  }
  if (args.size() == 3 && args[0] == "load") return load<at::Tensor>(read_artifact(args[1], args[2])), 0;
  std::cerr << "usage: pair_tool capture KIND FOLDER | run PY CACHE TENSORS OUT | rewrite PY | load PY CACHE\n";
  return 2;
}

}  // namespace
}  // namespace precast::test

int main(int argc, char** argv) {
  try {
    return precast::test::main_of({argv + 1, argv + argc});
  } catch (const precast::PrecompileError& error) {
    std::cerr << "PrecompileError " << precast::to_string(error.code()) << ": " << error.what() << "\n";
    return 3;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
