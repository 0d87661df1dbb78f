#include "runtime/precompile.h"

#include "artifact/envelope.h"
#include "artifact/sha256.h"
#include "ir/text.h"
#include "precast/error.h"
#include "precast/precompile.h"
#include "runtime/load.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

namespace precast {
namespace {

void check_name(std::string_view what, std::string_view given, std::string_view built, std::string_view known) {
  if (given == built) return;
  if (given == known)
    throw PrecompileError(ErrorCode::not_built, fmt::format("{} '{}' is not part of this build; use '{}'", what, given, built));
  throw std::invalid_argument(fmt::format("precast: unknown {} '{}'; expected '{}' or '{}'", what, given, built, known));
}

}  // namespace

void check_names(const Options& options) {
  check_name("backend", options.backend, "eager", "inductor");
  check_name("tracer", options.tracer, "dispatcher", "make_fx");
}

Artifact capture_to_artifact(const detail::CallArguments& arguments, const std::function<Flat()>& fn, const Options& options,
                             const capture::Groups& groups) {
  check_names(options);
  Artifact artifact{.python_code = ir::write_python_code(capture::capture(arguments, fn, options, groups)), .cache = {}};
  artifact.cache = artifact::write_envelope(
      {.backend = options.backend, .code_hash = artifact::sha256(artifact.python_code), .fingerprint = {}, .artifact = {}});
  load_trusted(artifact);
  return artifact;
}

Artifact detail::precompile(const CallArguments& arguments, const std::function<Flat()>& fn, const Options& options) {
  return capture_to_artifact(arguments, fn, options, {});
}

}  // namespace precast
