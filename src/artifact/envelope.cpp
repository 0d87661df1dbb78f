#include "artifact/envelope.h"

#include "artifact/archive.h"
#include "artifact/sha256.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace precast::artifact {
namespace {

// The bytes: magic, version, then by cereal's portable archive the digest of the body and the body. The first two stand outside of
// the archive, so that a foreign file and another version are recognised before a decoder of this version touches them.
constexpr std::string_view kMagic = "PRECAST\n";
constexpr std::string_view kZipMagic = "PK\x03\x04";

std::string_view view(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string write_body(const Envelope& envelope) {
  ArchiveWriter writer;
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
  ArchiveReader reader(body);
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
  ArchiveWriter writer;
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
    ArchiveReader reader(all.substr(kMagic.size()));
    const auto version = reader.number<std::uint32_t>();
    if (version != kCacheVersion)
      return Unusable{fmt::format("its version is {}, this library reads version {}", version, kCacheVersion)};
    const std::string digest = reader.text();
    const std::string body = reader.text();
    if (reader.left() != 0) return Unusable{fmt::format("{} bytes follow its end", reader.left())};
    if (const std::string found = sha256(body); found != digest)
      return Unusable{fmt::format("it is damaged: expected sha256 {}, found {}", digest, found)};
    return read_body(body);
  } catch (const ArchiveEnd&) {
    return Unusable{"it ends too early"};
  } catch (const std::runtime_error& error) {
    return Unusable{fmt::format("it is damaged: {}", error.what())};
  }
}

}  // namespace precast::artifact
