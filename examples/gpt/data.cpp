#include "data.h"

#include "error.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <span>

namespace gpt {
namespace {

namespace fs = std::filesystem;

// Path and pattern by their segments: "**" takes any number of them, every other segment is fnmatch's business.
bool matches(std::span<const std::string> path, std::span<const std::string> pattern) {
  if (pattern.empty()) return path.empty();
  if (pattern.front() == "**") return matches(path, pattern.subspan(1)) || (!path.empty() && matches(path.subspan(1), pattern));
  return !path.empty() && fnmatch(pattern.front().c_str(), path.front().c_str(), 0) == 0 &&
         matches(path.subspan(1), pattern.subspan(1));
}

std::vector<std::string> segments_of(const fs::path& path) {
  std::vector<std::string> out;
  for (const fs::path& segment : path.lexically_normal()) out.push_back(segment.string());
  return out;
}

std::vector<fs::path> matching_files(const Config::Data& config) {
  const fs::path folder = config.path;
  if (!fs::is_directory(folder)) throw JobError(fmt::format("data.path: expected a folder, found none at '{}'", config.path));
  const std::vector<std::string> pattern = segments_of(config.glob);
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && matches(segments_of(entry.path().lexically_relative(folder)), pattern))
      files.push_back(entry.path());
  if (files.empty())
    throw JobError(fmt::format("data.glob: expected files that match '{}' below '{}', found none", config.glob, config.path));
  std::sort(files.begin(), files.end());
  return files;
}

void append_file(Bytes& text, const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::size_t before = text.size();
  const std::uintmax_t size = fs::file_size(file);
  try {
    text.resize(before + size);
  } catch (const std::bad_alloc&) {
    throw JobError(fmt::format("data: expected text that fits into memory, found {} bytes in '{}'", size, file.string()));
  }
  stream.read(reinterpret_cast<char*>(text.data() + before), static_cast<std::streamsize>(text.size() - before));
  if (!stream) throw JobError(fmt::format("data: expected a readable file, found '{}', which cannot be read", file.string()));
}

std::uint64_t mix(std::uint64_t x) {  // the finaliser of SplitMix64 (Steele, Lea, Flood 2014)
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// A permutation of [0, n) without a table: a four-round Feistel network over the next even power of two, walked until it is inside.
std::uint64_t permuted(std::uint64_t index, std::uint64_t n, std::uint64_t key) {
  const int half = (std::bit_width(n - 1) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = index >> half, right = index & mask;
    for (std::uint64_t round = 0; round < 4; ++round) left = std::exchange(right, left ^ (mix(key + mix(round) + right) & mask));
    index = left << half | right;
  } while (index >= n);
  return index;
}

}  // namespace

Corpus read_corpus(const Config::Data& config) {
  const std::vector<fs::path> files = matching_files(config);
  const std::size_t stride = std::min<std::size_t>(20, files.size());
  Corpus corpus;
  for (std::size_t i = 0; i < files.size(); ++i)
    append_file(files.size() > 1 && i % stride == stride - 1 ? corpus.held_out : corpus.train, files[i]);
  if (files.size() == 1) {
    const auto cut = corpus.train.end() - static_cast<std::ptrdiff_t>(corpus.train.size() / 10);
    corpus.held_out.assign(cut, corpus.train.end());
    corpus.train.erase(cut, corpus.train.end());
  }
  if (corpus.train.empty() && corpus.held_out.empty())
    throw JobError(fmt::format("data: expected text, found {} empty file(s) that match '{}' below '{}'", files.size(), config.glob,
                               config.path));
  return corpus;
}

Loader::Loader(Bytes text, const std::string& what, Shape shape, std::uint64_t seed, torch::Device device)
    : text_(std::move(text)), shape_(shape), seed_(seed), device_(device) {
  const auto n_bytes = static_cast<std::int64_t>(text_.size());
  if (n_bytes < shape_.sequence + 1)
    throw JobError(
        fmt::format("data: expected at least {} bytes of {} for one sequence, found {}", shape_.sequence + 1, what, n_bytes));
  n_windows_ = (n_bytes - 1) / shape_.sequence;
  global_batch_ = shape_.batch * shape_.accumulate * shape_.n_ranks;
  if (n_windows_ < global_batch_)
    throw JobError(fmt::format("data: expected at least {} sequences of {} for one step of all ranks, found {} ({} bytes)",
                               global_batch_, what, n_windows_, n_bytes));
}

std::uint64_t Loader::fingerprint() const {
  std::uint64_t state = text_.size();
  for (std::size_t at = 0; at < text_.size(); at += sizeof state) {
    std::uint64_t word = 0;
    std::memcpy(&word, text_.data() + at, std::min(sizeof word, text_.size() - at));
    state = mix(state ^ word);
  }
  return state;
}

Batch Loader::batch(std::int64_t step, std::int64_t micro) const {
  const std::int64_t epoch = step / steps_per_epoch();
  const std::int64_t first = step % steps_per_epoch() * global_batch_ + (micro * shape_.n_ranks + shape_.rank) * shape_.batch;
  const std::uint64_t key = mix(seed_ + mix(static_cast<std::uint64_t>(epoch)));
  Batch out{torch::empty({shape_.batch, shape_.sequence}, torch::kInt64),
            torch::empty({shape_.batch, shape_.sequence}, torch::kInt64)};
  auto tokens = out.tokens.accessor<std::int64_t, 2>();
  auto targets = out.targets.accessor<std::int64_t, 2>();
  for (std::int64_t row = 0; row < shape_.batch; ++row) {
    const std::uint64_t window = permuted(static_cast<std::uint64_t>(first + row), static_cast<std::uint64_t>(n_windows_), key);
    const std::uint8_t* text = text_.data() + window * static_cast<std::uint64_t>(shape_.sequence);
    for (std::int64_t column = 0; column < shape_.sequence; ++column) {
      tokens[row][column] = text[column];
      targets[row][column] = text[column + 1];
    }
  }
  return {out.tokens.to(device_), out.targets.to(device_)};
}

}  // namespace gpt
