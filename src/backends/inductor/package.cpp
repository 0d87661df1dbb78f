#include "backends/inductor/package.h"

#include "artifact/sha256.h"
#include "backends/inductor/load_folder.h"
#include "backends/inductor/unpack.h"
#include "precast/error.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <pthread.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cfenv>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

namespace precast::inductor {
namespace {

using Loader = torch::inductor::AOTIModelPackageLoader;

/// Restores this thread's floating-point environment. A library that was linked for fast math switches flushing to zero on while it
/// is loaded, for the rest of the thread.
class KeepFloatingPoint {
 public:
  KeepFloatingPoint() { std::fegetenv(&before_); }
  ~KeepFloatingPoint() { std::fesetenv(&before_); }
  KeepFloatingPoint(const KeepFloatingPoint&) = delete;
  KeepFloatingPoint& operator=(const KeepFloatingPoint&) = delete;

 private:
  std::fenv_t before_{};
};

Loader load(const std::filesystem::path& folder) {
  const KeepFloatingPoint keep;
  return Loader(folder.string(), "model", /*run_single_threaded=*/false, Package::kRunners);
}

bool is_for_cpu(const std::map<std::string, std::string>& metadata) {
  const auto device = metadata.find("AOTI_DEVICE_KEY");
  return device != metadata.end() && device->second == "cpu";
}

}  // namespace

class OpenPackage {
 public:
  OpenPackage(const Contents& contents, const std::string& name)
      : folder_(std::in_place, contents, name), metadata_(contents.metadata), loader_(load(folder_->path())) {
    if (is_for_cpu(metadata_)) folder_.reset();
  }
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) { return loader_.run(inputs); }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::optional<LoadFolder> folder_;  // outlives the loader
  std::map<std::string, std::string> metadata_;
  Loader loader_;
};

namespace {

/// What this process has open, by digest. LibTorch's loader is not thread-safe while it is constructed, so that is done under the
/// mutex; and a child forked meanwhile would find it locked for ever, so a fork waits for it.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<OpenPackage>> packages;
};

Registry& registry() {
  // Never destroyed: a static Package may outlive it. A leak checker finds it through this pointer.
  static Registry* const instance = [] {
    ::pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); }, [] { registry().mutex.unlock(); });
    return new Registry;
  }();
  return *instance;
}

[[noreturn]] void refuse(const std::string& reason) {
  throw PrecompileError(ErrorCode::invalid_artifact,
                        fmt::format("kernel package: LibTorch cannot load it: {}; compile again", reason));
}

std::shared_ptr<OpenPackage> open_new(const Contents& contents, const std::string& digest) {
  try {
    return std::make_shared<OpenPackage>(contents, digest.substr(0, 16));
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  } catch (const PrecompileError&) {
    throw;
  } catch (const std::runtime_error& error) {
    refuse(error.what());
  }
}

std::shared_ptr<OpenPackage> open(std::span<const std::byte> bytes) {
  const std::string digest = artifact::sha256(bytes);
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  std::erase_if(known.packages, [](const auto& item) { return item.second.expired(); });
  if (const auto found = known.packages.find(digest); found != known.packages.end())
    if (auto package = found->second.lock()) return package;
  auto package = open_new(unpack(bytes), digest);
  known.packages.insert_or_assign(digest, package);
  return package;
}

}  // namespace

Package::Package(std::span<const std::byte> bytes) : open_(open(bytes)) {}

std::vector<at::Tensor> Package::run(const std::vector<at::Tensor>& inputs) const {
  return open_->run(inputs);
}

const std::map<std::string, std::string>& Package::metadata() const {
  return open_->metadata();
}

std::map<std::string, std::string> read_metadata(std::span<const std::byte> bytes) {
  return unpack(bytes).metadata;
}

}  // namespace precast::inductor
