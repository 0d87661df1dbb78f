#pragma once

#include <c10/util/intrusive_ptr.h>

#include <mutex>
#include <string>
#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace precast {

/// The names under which a transport has put its group into c10d's registry, which holds weak references only. Thread-safe.
class GroupNames {
 public:
  /// @throws std::invalid_argument: another group of this process has the name. Adding a name twice is adding it once.
  void add(const std::string& name, const c10::intrusive_ptr<c10d::ProcessGroup>& group);
  /// Takes all names out of the registry: before the group ends.
  void unregister();
  [[nodiscard]] std::vector<std::string> names() const;  ///< Sorted.

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
};

}  // namespace precast
