#include "runtime/lowering.h"

#include "artifact/archive.h"
#include "artifact/envelope.h"
#include "artifact/sha256.h"
#include "backends/inductor/lower.h"
#include "base/log.h"
#include "ir/text.h"
#include "runtime/pair_broadcast.h"
#include "runtime/phase.h"
#include "store/store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>

namespace precast::runtime {
namespace {

constexpr const char* kPackageFile = "package.pt2";

std::string text_of(const inductor::Fingerprint& fingerprint) {
  std::string text;
  for (const auto& [field, value] : fingerprint) text += fmt::format("{}: {}\n", field, value);
  return text;
}

/// A package is found again by everything that it depends on.
std::string store_key(const std::string& python_code, const inductor::Fingerprint& fingerprint) {
  return artifact::sha256(artifact::sha256(python_code) + "\n" + text_of(fingerprint));
}

/// Where a rank runs, and what a package for it must be made for.
struct Place {
  std::string fingerprint;
  std::string host;
  std::vector<int> cpus;
  Finding finding;  ///< Why there is no fingerprint.
};

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

Place own_place(const std::string& python_code, const Options& options) {
  Place place{.fingerprint = "", .host = host_name(), .cpus = inductor::own_cpus(), .finding = {}};
  try {
    place.fingerprint = text_of(inductor::fingerprint_for(ir::read_python_code(python_code), options.inductor));
  } catch (const PrecompileError& error) {
    place.finding = {error.code(), fmt::format("lower: {}", error.what())};
  }
  return place;
}

std::string pack(const Place& place) {
  artifact::ArchiveWriter writer;
  writer.text(place.fingerprint);
  writer.text(place.host);
  writer.number<std::uint64_t>(place.cpus.size());
  for (const int cpu : place.cpus) writer.number<std::int32_t>(cpu);
  return writer.bytes();
}

Place unpack(std::span<const std::byte> bytes) {
  artifact::ArchiveReader reader({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  Place place;
  place.fingerprint = reader.text();
  place.host = reader.text();
  for (auto n = reader.number<std::uint64_t>(); n > 0; --n) place.cpus.push_back(reader.number<std::int32_t>());
  return place;
}

/// Launchers bind ranks to cores, and with a rank its compiler: it may use those of all ranks of its node, who wait for it.
std::vector<int> cpus_of_node(const std::vector<Place>& places, const std::string& host) {
  std::set<int> cpus;
  for (const Place& place : places)
    if (place.host == host) cpus.insert(place.cpus.begin(), place.cpus.end());
  return {cpus.begin(), cpus.end()};
}

/// The first rank of each kind of machine.
std::vector<int> leaders(const std::vector<Place>& places) {
  std::vector<int> leaders;
  std::set<std::string> seen;
  for (std::size_t rank = 0; rank < places.size(); ++rank)
    if (seen.insert(places[rank].fingerprint).second) leaders.push_back(static_cast<int>(rank));
  return leaders;
}

}  // namespace

std::vector<std::byte> empty_cache(const std::string& python_code, const std::string& backend) {
  return artifact::write_envelope(
      {.backend = backend, .code_hash = artifact::sha256(python_code), .fingerprint = {}, .artifact = {}});
}

LoweredCache lower_to_cache(const std::string& python_code, const Options& options, const std::vector<int>& cpus,
                            Deadline deadline) {
  LoweredCache result;
  const auto fail = [&](ErrorCode code, const std::string& text) { result.failure = {code, text}; };
  // Whatever goes wrong, other ranks may wait for word of it.
  try {
    const ir::Program program = ir::read_python_code(python_code);
    artifact::Envelope envelope{.backend = program.metadata.backend,
                                .code_hash = artifact::sha256(python_code),
                                .fingerprint = inductor::fingerprint_for(program, options.inductor),
                                .artifact = {}};
    store::Cache store;
    const std::string key = store_key(python_code, envelope.fingerprint);
    if (std::optional<store::Files> files = store.get(key); files && files->contains(kPackageFile)) {
      envelope.artifact = std::move(files->at(kPackageFile));
    } else {
      ++result.lowerings;
      envelope.artifact = inductor::lower(program, options.inductor, cpus, deadline).package;
      store.put(key, {{kPackageFile, envelope.artifact}});
    }
    result.cache = artifact::write_envelope(envelope);
  } catch (const PrecompileError& error) {
    fail(error.code(), error.what());
  } catch (const std::exception& error) {  // out of memory, no space
    fail(ErrorCode::environment, fmt::format("lower: {}", error.what()));
  }
  return result;
}

std::vector<std::byte> lower_once_per_platform(const Communicator& comm, const std::string& python_code, const Options& options,
                                               CompileReport& report) {
  std::vector<Place> places;
  {
    const auto phase = comm.enter("lower");
    const Place mine = own_place(python_code, options);
    comm.agree(mine.finding, after(options.collective_deadline)).throw_if_failed();
    const std::string packed = pack(mine);
    for (const auto& bytes : comm.all_gather(std::as_bytes(std::span(packed)), after(options.collective_deadline)))
      places.push_back(unpack(bytes));
  }
  const auto rank = static_cast<std::size_t>(comm.rank());
  const std::vector<int> leading = leaders(places);
  // A leader answers by the compile deadline, whatever happened; the others give it time to say so.
  const Deadline compiled_by = after(options.compile_deadline), told_by = compiled_by + options.collective_deadline;

  LoweredCache mine;
  PairHeader header;
  if (std::ranges::find(leading, comm.rank()) != leading.end()) {
    const Phase phase(comm, report, "lower");
    mine = lower_to_cache(python_code, options, cpus_of_node(places, places[rank].host), compiled_by);
    report.lowerings += mine.lowerings;
    header = header_of({.python_code = python_code, .cache = mine.cache});
    header.failure = mine.failure;
    if (!header.failure.ok()) header.failure.text = fmt::format("rank {} of {}, {}", rank, comm.size(), header.failure.text);
  }
  std::vector<std::byte> cache;
  Finding failure;
  for (const int leader : leading) {
    PairHeader theirs;
    {
      const auto phase = comm.enter("lower");
      theirs = exchange_header(comm, header, leader, told_by);
    }
    if (!theirs.failure.ok()) {
      if (failure.ok()) failure = theirs.failure;
      continue;
    }
    std::vector<std::byte> received = mine.cache;
    {
      const Phase phase(comm, report, "broadcast");
      comm.broadcast(received, leader, after(options.collective_deadline));
    }
    const Phase phase(comm, report, "verify");
    comm.agree(check_cache(received, theirs), after(options.collective_deadline)).throw_if_failed();
    if (places[rank].fingerprint == places[static_cast<std::size_t>(leader)].fingerprint) cache = std::move(received);
  }
  if (failure.ok()) return cache;
  if (options.fallback != "eager") throw PrecompileError(failure.code, failure.text);
  if (comm.rank() == 0) warn("{}; all ranks run the program op by op instead, with the same results", failure.text);
  return empty_cache(python_code, options.backend);
}

}  // namespace precast::runtime
