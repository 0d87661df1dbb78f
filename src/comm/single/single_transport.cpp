// The wheel has Gloo's code inside libtorch_cpu; its headers, which it lacks, serve for declarations only.
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO 1
#endif
#include "comm/single/single_transport.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace precast {

c10::intrusive_ptr<c10d::ProcessGroup> SingleTransport::process_group() {
  if (group_) return group_;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  group_ = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1);
  group_->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group_->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                     c10::make_intrusive<c10d::ProcessGroupGloo>(store, 0, 1, options));
  group_->setGroupName("precast");
  return group_;
}

}  // namespace precast
