#include "platform/platform.h"

#include "precast/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace precast::platform {
namespace {

using Member = std::string Platform::*;

constexpr struct {
  const char* name;
  Member member;
} kFields[] = {{"torch_version", &Platform::torch_version},
               {"torch_git", &Platform::torch_git},
               {"cpu", &Platform::cpu},
               {"gpu", &Platform::gpu},
               {"cuda", &Platform::cuda}};

std::string or_none(const std::string& value) {
  return value.empty() ? "none" : value;
}

}  // namespace

std::map<std::string, std::string> Platform::fields() const {
  std::map<std::string, std::string> fields;
  for (const auto& field : kFields) fields.emplace(field.name, this->*field.member);
  return fields;
}

Platform from_fields(const std::map<std::string, std::string>& fields) {
  Platform platform;
  for (const auto& field : kFields) {
    const auto found = fields.find(field.name);
    if (found == fields.end())
      throw PrecompileError(ErrorCode::invalid_artifact,
                            fmt::format("fingerprint: the field '{}' is missing; compile again", field.name));
    platform.*field.member = found->second;
  }
  return platform;
}

std::vector<std::string> why_not(const Platform& target, const Platform& here, const std::vector<std::string>& lacking) {
  std::vector<std::string> reasons;
  for (const auto& field : kFields) {
    const std::string &wanted = target.*field.member, &found = here.*field.member;
    if (field.member != &Platform::cpu && wanted != found)
      reasons.push_back(fmt::format("{}: made for {}, this process has {}", field.name, or_none(wanted), or_none(found)));
    if (field.member == &Platform::cpu && !lacking.empty())
      reasons.push_back(fmt::format("cpu: made for {}, this CPU ({}) lacks {}", wanted, found, fmt::join(lacking, ", ")));
  }
  return reasons;
}

TorchBuild torch_build(std::string_view config) {
  const auto setting = [&](std::string_view name) {
    const std::size_t start = config.find(name);
    if (start == std::string_view::npos)
      throw PrecompileError(
          ErrorCode::environment,
          fmt::format("LibTorch does not say what it was built from: expected '{}' in its build settings, found\n{}", name,
                      config));
    const std::string_view rest = config.substr(start + name.size());
    return std::string(rest.substr(0, rest.find_first_of(", \n")));
  };
  return {setting(" TORCH_VERSION="), setting(" COMMIT_SHA=")};
}

}  // namespace precast::platform
