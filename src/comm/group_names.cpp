#include "comm/group_names.h"

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <algorithm>
#include <stdexcept>

namespace precast {

void GroupNames::add(const std::string& name, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  const std::lock_guard lock(mutex_);
  const auto place = std::ranges::lower_bound(names_, name);
  if (place != names_.end() && *place == name) return;
  if (c10d::is_process_group_registered(name))
    throw std::invalid_argument("register_group: '" + name + "' is the name of another group of this process; choose another name");
  c10d::register_process_group(name, group);
  names_.insert(place, name);
}

void GroupNames::unregister() {
  const std::lock_guard lock(mutex_);
  for (const std::string& name : names_)
    if (c10d::is_process_group_registered(name)) c10d::unregister_process_group(name);
  names_.clear();
}

std::vector<std::string> GroupNames::names() const {
  const std::lock_guard lock(mutex_);
  return names_;
}

}  // namespace precast
