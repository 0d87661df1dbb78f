#include "artifact/envelope.h"

#include "artifact/sha256.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace precast::artifact {
namespace {

using ::testing::HasSubstr;

Envelope example() {
  return {.backend = "eager",
          .code_hash = sha256("text"),
          .fingerprint = {{"torch", "2.15.0"}, {"cpu", "AVX2"}},
          .artifact = {std::byte{1}, std::byte{0}, std::byte{255}}};
}

std::string reason(std::span<const std::byte> bytes) {
  const auto read = read_envelope(bytes);
  const auto* unusable = std::get_if<Unusable>(&read);
  return unusable == nullptr ? "usable" : unusable->reason;
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

TEST(Sha256, EqualsThePublishedVectors) {  // FIPS 180-4 examples
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Envelope, RoundTrips) {  // C49
  for (Envelope envelope : {example(), Envelope{.backend = "eager", .code_hash = {}, .fingerprint = {}, .artifact = {}}}) {
    const auto read = read_envelope(write_envelope(envelope));
    ASSERT_TRUE(std::holds_alternative<Envelope>(read));
    EXPECT_EQ(std::get<Envelope>(read), envelope);
  }
}

TEST(Envelope, CutAtAnyLengthIsUnusable) {  // C52
  const auto whole = write_envelope(example());
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_NE(reason(std::span(whole).first(n)), "usable") << n << " bytes";
}

TEST(Envelope, AnyFlippedBitIsFound) {  // C51, C53, C54
  const auto whole = write_envelope(example());
  for (std::size_t i = 0; i < 8 * whole.size(); ++i) {
    auto damaged = whole;
    damaged[i / 8] ^= std::byte{1} << (i % 8);
    EXPECT_NE(reason(damaged), "usable") << "bit " << i;
  }
}

TEST(Envelope, BytesAfterItsEndAreFound) {  // C52
  auto longer = write_envelope(example());
  longer.push_back(std::byte{0});
  EXPECT_THAT(reason(longer), HasSubstr("follow"));
}

TEST(Envelope, AnAbsurdLengthIsRefusedBeforeItIsAllocated) {  // C52
  auto damaged = write_envelope(example());
  const std::size_t length_of_digest = 8 + 1 + 4;  // magic, cereal's byte order, version
  for (std::size_t i = 0; i < 8; ++i) damaged[length_of_digest + i] = std::byte{0xFF};
  EXPECT_THAT(reason(damaged), HasSubstr("announces"));
}

TEST(Envelope, AnotherFormatOrVersionIsNamed) {  // C53, C54
  EXPECT_THAT(reason(bytes_of("something else entirely")), HasSubstr("format tag"));
  Envelope later = example();
  later.version = kCacheVersion + 1;
  EXPECT_THAT(reason(write_envelope(later)), HasSubstr("version is 2, this library reads version 1"));
}

TEST(Envelope, ACacheOfPythonIsRecognised) {  // C48
  EXPECT_THAT(reason(bytes_of("PK\x03\x04rest of a zip")), HasSubstr("torch.compiler.precompile"));
}

}  // namespace
}  // namespace precast::artifact
