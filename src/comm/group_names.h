#pragma once

#include "comm/transport.h"

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace precast {

/// The groups that a transport has put into c10d's registry, which holds weak references only, under their logical names.
/// Thread-safe.
class GroupNames {
 public:
  using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

  /// Registers what `make` returns for this rank's list in `partition`. A name that already stands for this partition is left as it
  /// is. @throws PrecompileError environment: the name stands for another one.
  void add(const std::string& name, const Partition& partition, const std::function<Group()>& make);
  /// Takes all names out of the registry and returns the groups: before they end.
  std::vector<Group> unregister();
  /// How many ranks each group has, by name.
  [[nodiscard]] std::map<std::string, int> sizes() const;

 private:
  struct Entry {
    Partition partition;
    Group group;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Entry> groups_;
};

}  // namespace precast
