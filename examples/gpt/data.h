#pragma once

#include "config.h"

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace gpt {

inline constexpr std::int64_t kVocabulary = 256;  ///< A token is a byte.

using Bytes = std::vector<std::uint8_t>;

struct Corpus {
  Bytes train, held_out;
};

/// Reads the files below data.path that match data.glob, sorted by name. Every 20th file is held out (of fewer than 20, the last;
/// of one file, its last tenth). In the glob, "**" stands for any number of folders.
/// @throws JobError  no such folder, no matching file, an unreadable one, no text.
Corpus read_corpus(const Config::Data& config);

/// Tokens and what follows each of them, both int64 [batch, sequence].
struct Batch {
  torch::Tensor tokens, targets;
};

/// Cuts a text into windows of one sequence and hands them out in an order drawn for each epoch. Sequence i of step s is a function
/// of (seed, s, i) alone: ranks and micro-batches only decide who reads it. An epoch's last, short step is dropped.
class Loader {
 public:
  struct Shape {
    std::int64_t sequence, batch, accumulate;
    int n_ranks, rank;
  };

  /// @param what  names the text in errors. @throws JobError  the text is too short for one step.
  Loader(Bytes text, const std::string& what, Shape shape, std::uint64_t seed, torch::Device device);

  /// What this rank reads in micro-batch `micro` of step `step`.
  [[nodiscard]] Batch batch(std::int64_t step, std::int64_t micro) const;

  [[nodiscard]] std::int64_t steps_per_epoch() const { return n_windows_ / global_batch_; }
  [[nodiscard]] std::size_t n_bytes() const { return text_.size(); }
  /// 64 bits that differ, short of a rare accident, where the text does.
  [[nodiscard]] std::uint64_t fingerprint() const;

 private:
  Bytes text_;
  Shape shape_;
  std::uint64_t seed_;
  torch::Device device_;
  std::int64_t n_windows_, global_batch_;
};

}  // namespace gpt
