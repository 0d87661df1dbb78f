#include "runtime/precompile.h"

#include "backends/inductor/split.h"
#include "base/log.h"
#include "ir/text.h"
#include "precast/error.h"
#include "precast/precompile.h"
#include "runtime/load.h"
#include "runtime/lowering.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

namespace precast {
namespace {

void check_name(std::string_view what, std::string_view given, std::string_view first, std::string_view second) {
  if (given != first && given != second)
    throw std::invalid_argument(fmt::format("precast: unknown {} '{}'; expected '{}' or '{}'", what, given, first, second));
}

}  // namespace

void check_names(const Options& options) {
  check_name("backend", options.backend, "inductor", "eager");
  check_name("fallback", options.fallback, "error", "eager");
  check_name("tracer", options.tracer, "dispatcher", "make_fx");
  if (options.tracer != "dispatcher")
    throw PrecompileError(ErrorCode::not_built,
                          fmt::format("tracer '{}' is not part of this build; use 'dispatcher'", options.tracer));
}

Artifact capture_to_artifact(const detail::CallArguments& arguments, const std::function<Flat()>& fn, const Options& options,
                             const capture::Groups& groups) {
  check_names(options);
  const ir::Program program = capture::capture(arguments, fn, options, groups);
  if (options.backend == "inductor") static_cast<void>(inductor::split(program));
  Artifact artifact{.python_code = ir::write_python_code(program), .cache = {}};
  artifact.cache = runtime::empty_cache(artifact.python_code, options.backend);
  load_eagerly(artifact);
  return artifact;
}

Artifact detail::precompile(const CallArguments& arguments, const std::function<Flat()>& fn, const Options& options) {
  Artifact artifact = capture_to_artifact(arguments, fn, options, {});
  if (options.backend != "inductor") return artifact;
  runtime::LoweredCache lowered = runtime::lower_to_cache(artifact.python_code, options, {}, after(options.compile_deadline));
  if (lowered.failure.ok()) {
    artifact.cache = std::move(lowered.cache);
    if (const LoadedStep loaded = load_trusted(artifact, WithoutPackage::run_eagerly); !loaded.cache_not_used.empty())
      throw PrecompileError(ErrorCode::internal, "lower: the package just made cannot be run: " + loaded.cache_not_used);
  } else if (options.fallback == "eager") {
    warn("{}; the program will run op by op instead, with the same results", lowered.failure.text);
  } else {
    throw PrecompileError(lowered.failure.code, lowered.failure.text);
  }
  return artifact;
}

}  // namespace precast
