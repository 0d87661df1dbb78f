#include "artifact/envelope.h"

#include "artifact/sha256.h"

#include <fmt/format.h>
#include <cereal/archives/portable_binary.hpp>

#include <algorithm>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace precast::artifact {
namespace {

// The bytes: magic, version, then by cereal's portable archive the digest of the body and the body. The first two stand outside of
// the archive, so that a foreign file and another version are recognised before a decoder of this version touches them.
constexpr std::string_view kMagic = "PRECAST\n";
constexpr std::string_view kZipMagic = "PK\x03\x04";

/// A length from outside is a claim: compared with what is left before anything is allocated.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : size_(bytes.size()), stream_(std::string(bytes)), archive_(stream_) {}

  template <class T>
  T number() {
    T value{};
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
  std::uint64_t size_;
  std::istringstream stream_;
  cereal::PortableBinaryInputArchive archive_;
};

class Writer {
 public:
  Writer() : archive_(stream_) {}
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

std::string_view view(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string write_body(const Envelope& envelope) {
  Writer writer;
  writer.text(envelope.backend);
  writer.text(envelope.code_hash);
  writer.number<std::uint64_t>(envelope.fingerprint.size());
  for (const auto& [field, value] : envelope.fingerprint) {
    writer.text(field);
    writer.text(value);
  }
  writer.text(view(envelope.artifact));
  return writer.bytes();
}

Envelope read_body(std::string_view body) {
  Reader reader(body);
  Envelope envelope;
  envelope.backend = reader.text();
  envelope.code_hash = reader.text();
  for (auto n = reader.number<std::uint64_t>(); n > 0; --n) {
    std::string field = reader.text();
    envelope.fingerprint.emplace(std::move(field), reader.text());
  }
  const std::string artifact = reader.text();
  const auto bytes = std::as_bytes(std::span(artifact));
  envelope.artifact.assign(bytes.begin(), bytes.end());
  if (reader.left() != 0) throw std::runtime_error(fmt::format("{} bytes follow the last section", reader.left()));
  return envelope;
}

std::optional<Unusable> check_format(std::string_view bytes) {
  if (bytes.starts_with(kZipMagic))
    return Unusable{"it is a zip archive, as Python's torch.compiler.precompile writes its cache; such a cache is not read here"};
  if (!bytes.starts_with(kMagic))
    return Unusable{fmt::format("its format tag is not '{}': it is no Precast cache, or damaged", kCacheFormat)};
  if (bytes.size() < kMagic.size() + sizeof(std::uint32_t)) return Unusable{"it ends before its version"};
  return std::nullopt;
}

}  // namespace

std::vector<std::byte> write_envelope(const Envelope& envelope) {
  const std::string body = write_body(envelope);
  Writer writer;
  writer.number(envelope.version);
  writer.text(sha256(body));
  writer.text(body);
  const std::string all = std::string(kMagic) + writer.bytes();
  const auto bytes = std::as_bytes(std::span(all));
  return {bytes.begin(), bytes.end()};
}

std::variant<Envelope, Unusable> read_envelope(std::span<const std::byte> bytes) {
  const std::string_view all = view(bytes);
  if (auto unusable = check_format(all)) return *unusable;
  try {
    Reader reader(all.substr(kMagic.size()));
    const auto version = reader.number<std::uint32_t>();
    if (version != kCacheVersion)
      return Unusable{fmt::format("its version is {}, this library reads version {}", version, kCacheVersion)};
    const std::string digest = reader.text();
    const std::string body = reader.text();
    if (reader.left() != 0) return Unusable{fmt::format("{} bytes follow its end", reader.left())};
    if (const std::string found = sha256(body); found != digest)
      return Unusable{fmt::format("it is damaged: expected sha256 {}, found {}", digest, found)};
    return read_body(body);
  } catch (const cereal::Exception&) {
    return Unusable{"it ends too early"};
  } catch (const std::runtime_error& error) {
    return Unusable{fmt::format("it is damaged: {}", error.what())};
  }
}

}  // namespace precast::artifact
