#include "store/descriptor.h"

#include <unistd.h>

#include <cerrno>

namespace precast::store {

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace precast::store
