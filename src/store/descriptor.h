#pragma once

#include <cstddef>
#include <span>

namespace precast::store {

/// Owns a file descriptor; a negative one is none.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

/// False: the system wrote only a part, errno says why.
[[nodiscard]] bool write_all(int fd, std::span<const std::byte> bytes);

}  // namespace precast::store
