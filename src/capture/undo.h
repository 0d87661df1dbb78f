#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <vector>

namespace precast::capture {

/// Puts back what a run of fn changes: gradients, values of inputs that fn writes into, and random state. Everything is restored
/// when it ends, however fn ended.
class Undo {
 public:
  Undo() = default;
  ~Undo();
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;

  /// Takes `.grad` away and gives back the very same tensor at the end.
  void set_gradient_aside(const at::Tensor& tensor);
  /// Gives the tensor its memory back at the end, should fn give it another.
  void set_memory_aside(const at::Tensor& tensor);
  /// The first tensor that has other memory than when it was set aside; undefined: none.
  [[nodiscard]] at::Tensor replaced_memory() const;
  /// Gives the generator a seed of ours until the end, so that seeding inside fn is seen.
  void save_random_state(at::Generator generator);
  /// Whether one of these generators was seeded since.
  [[nodiscard]] bool is_reseeded() const;
  /// Copies the tensor's whole storage, the first time it is told: only what fn really writes costs memory.
  void save_storage(const at::Tensor& tensor);

 private:
  struct Gradient {
    at::Tensor owner, gradient;
  };
  struct Memory {
    at::Tensor owner, alias;
  };
  struct Random {
    at::Generator generator;
    at::Tensor state;
  };
  struct Bytes {
    at::Tensor live, copy;
  };

  std::vector<Gradient> gradients_;
  std::vector<Memory> memory_;
  std::vector<Random> random_;
  std::unordered_map<const c10::StorageImpl*, Bytes> storages_;
};

}  // namespace precast::capture
