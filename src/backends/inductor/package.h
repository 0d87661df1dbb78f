#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace precast::inductor {

class OpenPackage;

/// A compiled program: what AOTInductor packed into a .pt2, opened in this process. Copies share it, and so do all Packages of
/// equal bytes: each package is opened once per process, however many threads open it, and closed with its last copy.
///
/// The code is run from sealed memory that only this process holds: no file can change under it, and no disk need permit execution.
/// What else the loader reads lies in a private folder (0700) that is gone when the constructor returns; a package for a GPU keeps
/// it as long as it is open, since kernels are read at their first use. Opening changes nothing else in the process: floating-point
/// modes (flush to zero), thread count, locale and signal handlers are as before. A fork during it waits until it is done.
class Package {
 public:
  /// @param bytes  a .pt2 that the caller trusts (its digest is checked): code in it runs at once. Not needed afterwards.
  /// @throws PrecompileError  invalid_artifact: the bytes are no whole package, or the loader refuses it;
  ///                          environment: no memory or folder to load from.
  explicit Package(std::span<const std::byte> bytes);

  /// Runs the program below autograd. Number, shapes, dtypes, strides and devices of `inputs` are the caller's to check: a wrong
  /// shape is read as if it were right. Inputs that the program updates are updated in place; outputs may share storage with
  /// inputs. Any number of threads may call it; more than kRunners at once wait for each other, so a program with collectives must
  /// not be run by more of the process's ranks.
  [[nodiscard]] std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) const;

  /// What the compiling process wrote into the package (`aot_inductor.metadata`), and AOTInductor's own entries (AOTI_CPU_ISA,
  /// ...).
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const;

  static constexpr std::size_t kRunners = 4;

 private:
  std::shared_ptr<OpenPackage> open_;
};

/// The metadata of a package that is not opened: no code of it runs. @throws PrecompileError  invalid_artifact.
std::map<std::string, std::string> read_metadata(std::span<const std::byte> bytes);

}  // namespace precast::inductor
