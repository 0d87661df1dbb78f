#include "checkpoint.h"

#include "error.h"
#include "parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/sha.h>
#include <nlohmann/json.hpp>

#include <array>
#include <bit>
#include <cstring>

namespace gpt {
namespace {

using nlohmann::json;
using torch::Tensor;

constexpr std::string_view kFormat = "precast_gpt checkpoint 1\n";
using Digest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

static_assert(std::endian::native == std::endian::little, "tensors and lengths are written in the machine's own order");

Digest sha256(std::span<const std::byte> bytes) {
  Digest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return digest;
}

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

torch::optim::AdamWParamState& state_of(torch::optim::AdamW& optimizer, const Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!state) {
    auto fresh = std::make_unique<torch::optim::AdamWParamState>();
    fresh->exp_avg(torch::zeros_like(parameter, torch::MemoryFormat::Preserve));
    fresh->exp_avg_sq(torch::zeros_like(parameter, torch::MemoryFormat::Preserve));
    state = std::move(fresh);
  }
  return static_cast<torch::optim::AdamWParamState&>(*state);
}

Tensor tensor_of(const std::vector<double>& values) {
  return torch::tensor(at::ArrayRef<double>(values), torch::kFloat64);
}

std::vector<double> values_of(const Tensor& tensor) {
  return {tensor.data_ptr<double>(), tensor.data_ptr<double>() + tensor.numel()};
}

void append(std::vector<std::byte>& out, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  out.insert(out.end(), bytes, bytes + size);
}

std::string describe(const json& entry) {
  return entry.at("dtype").get<std::string>() + entry.at("shape").dump();
}

json describe(const std::string& name, const Tensor& tensor) {
  return {{"name", name}, {"dtype", c10::toString(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}};
}

[[noreturn]] void damaged(std::string_view expected, std::string_view found) {
  throw JobError(fmt::format("checkpoint: expected {}, found {}; it is damaged or no checkpoint of this program", expected, found));
}

struct Parts {
  json header;
  std::span<const std::byte> data;
};

Parts take_apart(std::span<const std::byte> bytes) {
  constexpr std::size_t kPrefix = kFormat.size() + sizeof(Digest) + sizeof(std::uint64_t);
  if (bytes.size() < kFormat.size() || std::memcmp(bytes.data(), kFormat.data(), kFormat.size()) != 0)
    damaged(fmt::format("a file that starts with '{}'", kFormat.substr(0, kFormat.size() - 1)),
            fmt::format("{} other bytes", bytes.size()));
  if (bytes.size() < kPrefix) damaged(fmt::format("at least {} bytes", kPrefix), fmt::format("{}", bytes.size()));
  Digest recorded;
  std::memcpy(recorded.data(), bytes.data() + kFormat.size(), recorded.size());
  const auto rest = bytes.subspan(kFormat.size() + recorded.size());
  const Digest computed = sha256(rest);
  if (recorded != computed)
    damaged(fmt::format("sha256 {:02x}", fmt::join(recorded, "")), fmt::format("{:02x}", fmt::join(computed, "")));
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, rest.data(), sizeof header_size);
  const auto body = rest.subspan(sizeof header_size);
  if (header_size > body.size()) damaged(fmt::format("a header of {} bytes", header_size), fmt::format("{}", body.size()));
  const auto* text = reinterpret_cast<const char*>(body.data());
  json header = json::parse(text, text + header_size, nullptr, /*allow_exceptions=*/false);
  if (header.is_discarded()) damaged("a JSON header", "none");
  return {std::move(header), body.subspan(header_size)};
}

void check_identity(const json& recorded, const Identity& identity) {
  for (const auto& [setting, value] : identity) {
    const std::string found = recorded.contains(setting) ? recorded.at(setting).get<std::string>() : "nothing";
    if (found != value)
      throw JobError(fmt::format("checkpoint: expected {} = {} (this run), found {}; set it back, or train from the start", setting,
                                 value, found));
  }
}

/// Copies of the stored tensors, each of the shape and dtype that `expected` has under its name and in its order.
std::vector<Tensor> read_tensors(const Parts& parts, const NamedTensors& expected) {
  const json& entries = parts.header.at("tensors");
  if (entries.size() != expected.size()) damaged(fmt::format("{} tensors", expected.size()), fmt::format("{}", entries.size()));
  std::vector<Tensor> out;
  std::size_t at = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [name, like] = expected[i];
    const json wanted = describe(name, like);
    if (entries[i] != wanted)
      throw JobError(fmt::format("checkpoint: expected tensor '{}' of {}, found '{}' of {}; the model is another", name,
                                 describe(wanted), entries[i].at("name").get<std::string>(), describe(entries[i])));
    if (like.nbytes() > parts.data.size() - at)
      damaged(fmt::format("{} bytes for '{}'", like.nbytes(), name), fmt::format("{}", parts.data.size() - at));
    Tensor copy = torch::empty(like.sizes(), like.options().device(torch::kCPU).requires_grad(false));
    std::memcpy(copy.data_ptr(), parts.data.data() + at, like.nbytes());
    at += like.nbytes();
    out.push_back(copy);
  }
  if (at != parts.data.size()) damaged(fmt::format("{} bytes of tensors", at), fmt::format("{}", parts.data.size()));
  return out;
}

/// The model's and the optimizer's tensors, in the order in which a checkpoint holds them.
NamedTensors training_tensors(const torch::nn::Module& model, torch::optim::AdamW& optimizer) {
  NamedTensors out;
  for (const auto& parameter : model.named_parameters()) {
    const auto& state = state_of(optimizer, parameter.value());
    out.emplace_back(parameter.key(), parameter.value());
    out.emplace_back(parameter.key() + ".exp_avg", state.exp_avg());
    out.emplace_back(parameter.key() + ".exp_avg_sq", state.exp_avg_sq());
  }
  for (const auto& buffer : model.named_buffers()) out.emplace_back(buffer.key(), buffer.value());
  return out;
}

}  // namespace

TrainingState whole_state(const torch::nn::Module& model, torch::optim::AdamW& optimizer) {
  TrainingState state{.tensors = training_tensors(model, optimizer),
                      .optimizer_step = state_of(optimizer, model.parameters().front()).step()};
  for (auto& [name, tensor] : state.tensors) tensor = whole(tensor);
  return state;
}

std::vector<std::byte> pack_checkpoint(const Identity& identity, const TrainingState& state, const Curve& curve,
                                       const std::vector<Tensor>& generators) {
  NamedTensors tensors = state.tensors;
  for (std::size_t rank = 0; rank < generators.size(); ++rank)
    tensors.emplace_back(fmt::format("generator of rank {}", rank), generators[rank]);
  tensors.emplace_back("losses", tensor_of(curve.losses));
  tensors.emplace_back("eval_losses", tensor_of(curve.eval_losses));
  json header = {{"identity", identity},
                 {"ranks", generators.size()},
                 {"generator_bytes", generators.front().numel()},
                 {"step", curve.step()},
                 {"optimizer_step", state.optimizer_step},
                 {"n_eval_losses", curve.eval_losses.size()},
                 {"tensors", json::array()}};
  std::vector<std::byte> data;
  for (const auto& [name, tensor] : tensors) {
    header["tensors"].push_back(describe(name, tensor));
    const Tensor plain = tensor.detach().cpu().contiguous();
    append(data, plain.data_ptr(), plain.nbytes());
  }
  const std::string text = header.dump();
  const std::uint64_t header_size = text.size();
  std::vector<std::byte> rest;
  append(rest, &header_size, sizeof header_size);
  append(rest, text.data(), text.size());
  append(rest, data.data(), data.size());
  const Digest digest = sha256(rest);
  std::vector<std::byte> out;
  append(out, kFormat.data(), kFormat.size());
  append(out, digest.data(), digest.size());
  append(out, rest.data(), rest.size());
  return out;
}

Resumed unpack_checkpoint(std::span<const std::byte> bytes, const Identity& identity, torch::nn::Module& model,
                          torch::optim::AdamW& optimizer, int rank) {
  const Parts parts = take_apart(bytes);
  try {
    check_identity(parts.header.at("identity"), identity);
    const auto n_ranks = parts.header.at("ranks").get<std::int64_t>(), step = parts.header.at("step").get<std::int64_t>(),
               n_evals = parts.header.at("n_eval_losses").get<std::int64_t>(),
               generator_bytes = parts.header.at("generator_bytes").get<std::int64_t>(),
               optimizer_step = parts.header.at("optimizer_step").get<std::int64_t>();
    const auto limit = static_cast<std::int64_t>(parts.data.size());  // no count can be larger than the bytes there are
    if (std::min({n_ranks - rank - 1, step, n_evals, generator_bytes, optimizer_step}) < 0 ||
        std::max({n_ranks, step, n_evals, generator_bytes}) > limit)
      damaged("counts that fit the file", fmt::format("{} ranks, step {}", n_ranks, step));
    NamedTensors expected = training_tensors(model, optimizer);
    const std::size_t n_training = expected.size();
    for (std::int64_t r = 0; r < n_ranks; ++r)
      expected.emplace_back(fmt::format("generator of rank {}", r), torch::empty({generator_bytes}, torch::kUInt8));
    expected.emplace_back("losses", torch::empty({step}, torch::kFloat64));
    expected.emplace_back("eval_losses", torch::empty({n_evals}, torch::kFloat64));
    const std::vector<Tensor> stored = read_tensors(parts, expected);
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < n_training; ++i) assign(expected[i].second, stored[i]);
    for (const Tensor& parameter : model.parameters()) state_of(optimizer, parameter).step(optimizer_step);
    return {{values_of(stored[stored.size() - 2]), values_of(stored.back())}, stored[n_training + static_cast<std::size_t>(rank)]};
  } catch (const json::exception& error) {  // a header that is JSON, and not ours
    damaged("the header of this format", error.what());
  }
}

}  // namespace gpt
