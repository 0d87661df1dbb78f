#pragma once

#include "capture/capture.h"
#include "capture/dead_code.h"
#include "capture/identity.h"
#include "capture/undo.h"
#include "dispatch/interposer.h"
#include "ir/program.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <exception>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace precast::capture {

enum class InputKind { parameter, buffer, user };

/// Starts the text of the error that LibTorch throws when fn reaches for the memory of a computed tensor.
inline constexpr std::string_view kHostReadMark = "precast refused the capture: ";

/// Turns the ATen calls of one run of fn into statements, and refuses those that a program cannot hold.
class Recorder final : public dispatch::OpHandler {
 public:
  Recorder(Groups groups, Undo& undo) : groups_(std::move(groups)), undo_(undo) {}
  ~Recorder() override;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// The next flat input. `wanted_name` is what the text calls it, `path` what messages call it.
  ir::ValueId add_tensor_input(const at::Tensor& tensor, std::string wanted_name, std::string path, InputKind kind);
  ir::ValueId add_generator_input(const at::Generator& generator, std::string wanted_name);
  ir::ValueId add_plain_input(std::string wanted_name);
  /// A group whose collectives may be recorded, beside those that the recorder was made with.
  void add_group(const std::string& name, std::int64_t size) { groups_[name] = static_cast<int>(size); }
  /// Outside of backward, `.grad` of this tensor is not for fn to read or write. `what` names the tensor in messages.
  void protect_gradient(const at::Tensor& tensor, std::string what) { gradient_owners_.push_back({tensor, std::move(what)}); }
  /// @throws PrecompileError refused_capture  `tensor` is such a gradient; `user` says what does something with it.
  void check_no_gradient(const at::Tensor& tensor, const std::string& user) const;

  void handle(const c10::OperatorHandle& op, torch::jit::Stack& stack, const std::function<void()>& run) override;

  /// The value a tensor is: one of fn's results, or a gradient. @throws PrecompileError refused_capture  `what` is no value of the
  /// step.
  [[nodiscard]] ir::ValueId value_of(const at::Tensor& tensor, const std::string& what) const;
  [[nodiscard]] ir::Operand output_operand(const at::Tensor& tensor, const std::string& what) const;

  /// Throws the refusal that was met inside fn, even if fn or autograd swallowed or wrapped it.
  void rethrow_refusal() const;

  /// The statements and values so far, with what dead code removal needs to know.
  [[nodiscard]] Trace take_trace() { return std::move(trace_); }

 private:
  struct GradientOwner {
    at::Tensor tensor;
    std::string what;
  };
  struct Storage {
    int id;  ///< Values of one storage share it.
    InputKind kind = InputKind::user;
    std::string input_path;  ///< Of an input's storage, else empty.
    bool written = true;     ///< False: an empty(...) that nothing wrote yet.
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  };

  ir::ValueId add_value(std::string wanted_name, std::string note, int storage);
  Storage& storage_of(const at::Tensor& tensor);
  ir::Operand tensor_operand(const at::Tensor& tensor, const std::string& op) const;
  ir::Operand generator_operand(const at::Generator& generator, const std::string& op) const;
  void check_reads(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments, const std::string& name);
  std::vector<int> note_writes(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments, const std::string& name);
  void check_reshaped_in_place(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, const std::string& name);
  bool answer_equal(const c10::FunctionSchema& schema, torch::jit::Stack& stack) const;
  void record(const c10::OperatorHandle& op, torch::jit::Stack& stack, const std::function<void()>& run);
  static void allow_host_reads(const at::Tensor& tensor);
  void forbid_host_reads(const std::vector<at::Tensor>& tensors, const std::string& name);
  ir::ValueId bind_result(const at::Tensor& result, const std::string& wanted_name);

  Groups groups_;
  Undo& undo_;
  Trace trace_;
  Identity identity_;
  std::unordered_map<const c10::GeneratorImpl*, ir::ValueId> generators_;
  std::unordered_map<const c10::StorageImpl*, Storage> storages_;
  std::vector<GradientOwner> gradient_owners_;
  std::exception_ptr refusal_;
};

}  // namespace precast::capture
