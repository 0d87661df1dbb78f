#include "runtime/pair_broadcast.h"

#include "artifact/archive.h"
#include "artifact/sha256.h"

#include <fmt/format.h>

#include <stdexcept>

namespace precast::runtime {
namespace {

constexpr std::string_view kMagic = "precast pair";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kDigestLength = 64;

Finding check_half(std::string_view what, std::uint64_t expected_size, std::uint64_t size, const std::string& expected_digest,
                   const std::string& digest) {
  if (size != expected_size)
    return {ErrorCode::artifact_mismatch,
            fmt::format("{}: expected {} bytes, found {}; the transfer was damaged, compile again", what, expected_size, size)};
  if (digest != expected_digest)
    return {ErrorCode::artifact_mismatch, fmt::format("{}: expected sha256 {}, found {}; the transfer was damaged, compile again",
                                                      what, expected_digest, digest)};
  return {};
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

PairHeader header_of(const Artifact& artifact) {
  return {.code_size = artifact.python_code.size(),
          .cache_size = artifact.cache.size(),
          .code_digest = artifact::sha256(artifact.python_code),
          .cache_digest = artifact::sha256(artifact.cache),
          .failure = {}};
}

std::string write_header(const PairHeader& header) {
  artifact::ArchiveWriter writer;
  writer.text(kMagic);
  writer.number(kVersion);
  writer.number(header.code_size);
  writer.number(header.cache_size);
  writer.text(header.code_digest);
  writer.text(header.cache_digest);
  writer.number(static_cast<std::int32_t>(header.failure.code));
  writer.text(header.failure.text);
  return writer.bytes() + artifact::sha256(writer.bytes());
}

PairHeader read_header(std::string_view bytes) {
  if (bytes.size() < kDigestLength) throw artifact::ArchiveEnd();
  const std::string_view content = bytes.substr(0, bytes.size() - kDigestLength);
  artifact::ArchiveReader reader(content);
  if (reader.text() != kMagic) throw std::runtime_error("it is not the header of a pair");
  if (const auto version = reader.number<std::uint32_t>(); version != kVersion)
    throw std::runtime_error(fmt::format("its format version is {}, expected {}", version, kVersion));
  // After the version: another one may end otherwise.
  if (artifact::sha256(content) != bytes.substr(content.size())) throw std::runtime_error("its bytes do not have its sha256");
  PairHeader header;
  header.code_size = reader.number<std::uint64_t>();
  header.cache_size = reader.number<std::uint64_t>();
  header.code_digest = reader.text();
  header.cache_digest = reader.text();
  const auto code = reader.number<std::int32_t>();
  header.failure = {static_cast<ErrorCode>(code), reader.text()};
  if (code < 0 || code > static_cast<std::int32_t>(ErrorCode::internal))
    throw std::runtime_error(fmt::format("it names an unknown error {}", code));
  if (header.code_size > kMaxPairBytes || header.cache_size > kMaxPairBytes)
    throw std::runtime_error(
        fmt::format("it announces {} and {} bytes, more than {}", header.code_size, header.cache_size, kMaxPairBytes));
  if (reader.left() != 0) throw std::runtime_error("bytes follow its end");
  return header;
}

Finding check_cache(std::span<const std::byte> cache, const PairHeader& header) {
  Finding finding = check_half("cache", header.cache_size, cache.size(), header.cache_digest, artifact::sha256(cache));
  if (!finding.ok()) finding.text = "verify: " + finding.text;
  return finding;
}

Finding check_pair(const Artifact& artifact, const PairHeader& header) {
  Finding code = check_half("python_code", header.code_size, artifact.python_code.size(), header.code_digest,
                            artifact::sha256(artifact.python_code));
  if (code.ok()) return check_cache(artifact.cache, header);
  code.text = "verify: " + code.text;
  return code;
}

PairHeader exchange_header(const Communicator& comm, const PairHeader& mine, int root, Deadline deadline) {
  std::vector<std::byte> bytes = comm.rank() == root ? bytes_of(write_header(mine)) : std::vector<std::byte>();
  comm.broadcast(bytes, root, deadline);
  Finding finding;
  PairHeader header;
  try {
    header = read_header(text_of(bytes));
  } catch (const std::runtime_error& error) {
    finding = {ErrorCode::artifact_mismatch,
               fmt::format("broadcast: the header of the pair is damaged: {}; compile again", error.what())};
  }
  comm.agree(finding, deadline).throw_if_failed();
  return header;
}

Artifact exchange_pair(const Communicator& comm, Artifact mine, int root, Deadline deadline) {
  std::vector<std::byte> code = bytes_of(mine.python_code);
  comm.broadcast(code, root, deadline);
  comm.broadcast(mine.cache, root, deadline);
  if (comm.rank() != root) mine.python_code = text_of(code);
  return mine;
}

}  // namespace precast::runtime
