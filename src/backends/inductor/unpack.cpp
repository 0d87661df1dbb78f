#include "backends/inductor/unpack.h"

#include "precast/error.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/in_memory_adapter.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace precast::inductor {
namespace {

using caffe2::serialize::PyTorchStreamReader;

[[noreturn]] void refuse(const std::string& reason) {
  throw PrecompileError(ErrorCode::invalid_artifact, fmt::format("kernel package: {}; compile again", reason));
}

std::string in_quotes(std::string_view name) {
  constexpr std::size_t longest = 200;
  return nlohmann::json(name.substr(0, longest)).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  });
}

std::map<std::string, std::vector<std::byte>> read_files(PyTorchStreamReader& zip, std::size_t n_bytes) {
  const std::string folder = std::string(kModelFolder) + "/";
  std::map<std::string, std::vector<std::byte>> files;
  std::size_t left = n_bytes;
  for (const std::string& record : zip.getAllRecords()) {
    if (!record.starts_with(folder)) continue;
    const std::string name = record.substr(folder.size());
    if (!is_file_name(name)) refuse(fmt::format("the record {} is not named like a file of its folder", in_quotes(record)));
    if (name.ends_with(".cpp")) continue;
    const std::size_t size = zip.getRecordSize(record);
    if (size > left)
      refuse(fmt::format("the record '{}' claims {} bytes, {} of the package's {} are left", record, size, left, n_bytes));
    left -= size;
    const auto [file, is_new] = files.emplace(name, std::vector<std::byte>(size));
    if (!is_new) refuse(fmt::format("it has two records '{}'", record));
    zip.getRecord(record, file->second.data(), size);
  }
  return files;
}

std::string library_of(const std::map<std::string, std::vector<std::byte>>& files) {
  std::vector<std::string> libraries;
  for (const auto& [name, bytes] : files)
    if (name.ends_with(".so")) libraries.push_back(name);
  if (libraries.size() != 1)
    refuse(fmt::format("expected one shared library (.so) in '{}', found {}", kModelFolder, libraries.size()));
  return libraries.front();
}

std::map<std::string, std::string> metadata_of(const Contents& contents) {
  const std::string name = contents.library.substr(0, contents.library.size() - 3) + "_metadata.json";
  const auto file = contents.files.find(name);
  if (file == contents.files.end()) refuse(fmt::format("its metadata '{}' is missing", name));
  const auto* text = reinterpret_cast<const char*>(file->second.data());
  const nlohmann::json json = nlohmann::json::parse(text, text + file->second.size(), nullptr, /*allow_exceptions=*/false);
  std::map<std::string, std::string> metadata;
  if (!json.is_object()) refuse(fmt::format("its metadata '{}' is no JSON object", name));
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) refuse(fmt::format("its metadata '{}' has no text for {}", name, in_quotes(key)));
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

}  // namespace

Contents unpack(std::span<const std::byte> bytes) {
  try {
    PyTorchStreamReader zip(std::make_shared<caffe2::serialize::MemoryReadAdapter>(bytes.data(), static_cast<off_t>(bytes.size())));
    Contents contents;
    contents.files = read_files(zip, bytes.size());
    contents.library = library_of(contents.files);
    contents.metadata = metadata_of(contents);
    return contents;
  } catch (const c10::Error& error) {
    refuse(fmt::format("its {} bytes are no whole .pt2: {}", bytes.size(), error.what_without_backtrace()));
  }
}

}  // namespace precast::inductor
