#pragma once

#include <fmt/format.h>
#include <cereal/archives/portable_binary.hpp>

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace precast::artifact {

/// The bytes ended where more were expected.
struct ArchiveEnd : std::runtime_error {
  ArchiveEnd() : std::runtime_error("it ends too early") {}
};

/// Reads numbers and texts that ArchiveWriter wrote, from bytes that may come from anywhere. A length from outside is a claim: it
/// is compared with what is left before anything is allocated. @throws std::runtime_error  what does not fit.
class ArchiveReader {
 public:
  explicit ArchiveReader(std::string_view bytes) : size_(bytes.size()), stream_(std::string(bytes)), archive_(open(stream_)) {}

  template <class T>
  T number() {
    T value{};
    if (left() < sizeof(T)) throw ArchiveEnd();
    archive_(value);
    return value;
  }

  std::string text() {
    const auto length = number<std::uint64_t>();
    if (length > left()) throw std::runtime_error(fmt::format("a section announces {} bytes, {} are left", length, left()));
    std::string out(length, '\0');
    archive_(cereal::binary_data(out.data(), out.size()));
    return out;
  }

  [[nodiscard]] std::uint64_t left() { return size_ - static_cast<std::uint64_t>(stream_.tellg()); }

 private:
  static cereal::PortableBinaryInputArchive open(std::istringstream& stream) {
    if (stream.peek() == std::istringstream::traits_type::eof()) throw ArchiveEnd();  // not even cereal's byte-order mark
    return cereal::PortableBinaryInputArchive(stream);
  }

  std::uint64_t size_;
  std::istringstream stream_;
  cereal::PortableBinaryInputArchive archive_;
};

class ArchiveWriter {
 public:
  ArchiveWriter() : archive_(stream_) {}

  template <class T>
  void number(T value) {
    archive_(value);
  }
  void text(std::string_view value) {
    number<std::uint64_t>(value.size());
    archive_(cereal::binary_data(const_cast<char*>(value.data()), value.size()));
  }
  [[nodiscard]] std::string bytes() const { return stream_.str(); }

 private:
  std::ostringstream stream_;
  cereal::PortableBinaryOutputArchive archive_;
};

}  // namespace precast::artifact
