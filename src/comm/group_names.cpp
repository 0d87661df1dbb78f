#include "comm/group_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <utility>

namespace precast {

void GroupNames::add(const std::string& name, const Partition& partition, const std::function<Group()>& make) {
  const std::lock_guard lock(mutex_);
  if (const auto known = groups_.find(name); known != groups_.end()) {
    if (known->second.partition == partition) return;
    throw PrecompileError(ErrorCode::environment,
                          fmt::format("register group: '{}' stands for the ranks {}, found {}; choose another name", name,
                                      known->second.partition, partition));
  }
  Group group = make();
  c10d::register_process_group(name, group);
  groups_.emplace(name, Entry{partition, std::move(group)});
}

std::vector<GroupNames::Group> GroupNames::unregister() {
  const std::lock_guard lock(mutex_);
  std::vector<Group> groups;
  for (auto& [name, entry] : groups_) {
    if (c10d::is_process_group_registered(name)) c10d::unregister_process_group(name);
    groups.push_back(std::move(entry.group));
  }
  groups_.clear();
  return groups;
}

std::map<std::string, int> GroupNames::sizes() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, int> sizes;
  for (const auto& [name, entry] : groups_) sizes.emplace(name, entry.group->getSize());
  return sizes;
}

}  // namespace precast
