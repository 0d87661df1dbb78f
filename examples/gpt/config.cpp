#include "config.h"

#include "error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <variant>

namespace gpt {
namespace {

struct Integer {
  std::int64_t* value;
  std::int64_t min, max;
};
struct Real {
  double* value;
  double min, max;
};
struct Boolean {
  bool* value;
};
struct Text {
  std::string* value;
  std::vector<std::string> choices;  // empty: any
};

/// A table whose keys are another program's.
struct Settings {
  std::map<std::string, precast::InductorOptions::Setting>* value;
};

/// Where a key must have one value: over all runs that go on from each other, on all ranks of a run, or on one rank only.
enum class Scope { curve, run, rank };

struct Key {
  std::string name;
  std::variant<Integer, Real, Boolean, Text, Settings> target;
  Scope scope = Scope::run;
};

// Ranges refuse what no machine can hold, so that a slip of the finger is not answered by the allocator.
std::vector<Key> keys_of(Config& c) {
  constexpr std::int64_t kMany = 1'000'000'000;
  return {
      {"data.path", Text{&c.data.path, {}}, Scope::rank},
      {"data.glob", Text{&c.data.glob, {}}},
      {"model.layers", Integer{&c.model.layers, 1, 1000}, Scope::curve},
      {"model.width", Integer{&c.model.width, 1, 65536}, Scope::curve},
      {"model.heads", Integer{&c.model.heads, 1, 65536}, Scope::curve},
      {"model.dropout", Real{&c.model.dropout, 0.0, 0.99}, Scope::curve},
      {"model.tied", Boolean{&c.model.tied}, Scope::curve},
      {"train.steps", Integer{&c.train.steps, 1, kMany}},
      {"train.batch", Integer{&c.train.batch, 1, 65536}, Scope::curve},
      {"train.sequence", Integer{&c.train.sequence, 1, 1'000'000}, Scope::curve},
      {"train.accumulate", Integer{&c.train.accumulate, 1, 65536}, Scope::curve},
      {"train.seed", Integer{&c.train.seed, 0, kMany}, Scope::curve},
      {"train.dtype", Text{&c.train.dtype, {"float32", "bfloat16"}}, Scope::curve},
      {"optimizer.lr", Real{&c.optimizer.lr, 0.0, 100.0}, Scope::curve},
      {"optimizer.min_lr", Real{&c.optimizer.min_lr, 0.0, 100.0}, Scope::curve},
      {"optimizer.beta1", Real{&c.optimizer.beta1, 0.0, 0.999999}, Scope::curve},
      {"optimizer.beta2", Real{&c.optimizer.beta2, 0.0, 0.999999}, Scope::curve},
      {"optimizer.eps", Real{&c.optimizer.eps, 1e-30, 1.0}, Scope::curve},
      {"optimizer.weight_decay", Real{&c.optimizer.weight_decay, 0.0, 100.0}, Scope::curve},
      {"optimizer.clip", Real{&c.optimizer.clip, 0.0, 1e30}, Scope::curve},
      {"optimizer.warmup", Integer{&c.optimizer.warmup, 0, kMany}, Scope::curve},
      {"optimizer.decay_steps", Integer{&c.optimizer.decay_steps, 1, kMany}, Scope::curve},
      {"eval.every", Integer{&c.eval.every, 0, kMany}},
      {"eval.batches", Integer{&c.eval.batches, 1, 1'000'000}},
      {"checkpoint.path", Text{&c.checkpoint.path, {}}},
      {"checkpoint.every", Integer{&c.checkpoint.every, 0, kMany}},
      {"checkpoint.resume", Boolean{&c.checkpoint.resume}},
      {"deadline.compile", Integer{&c.deadline.compile, 1, 1'000'000}},
      {"deadline.collective", Integer{&c.deadline.collective, 1, 1'000'000}},
      {"network.interface", Text{&c.network.interface, {}}, Scope::rank},
      {"mesh.dp", Integer{&c.mesh.dp, 0, 65536}},
      {"mesh.tp", Integer{&c.mesh.tp, 0, 65536}},
      {"mesh.replicate", Integer{&c.mesh.replicate, 0, 65536}},
      {"mesh.shard", Integer{&c.mesh.shard, 0, 65536}},
      {"plan", Text{&c.plan, {"", "ddp", "fsdp", "tp", "fsdp+tp", "hsdp"}}},
      {"backend", Text{&c.backend, {"eager", "inductor"}}},
      {"fallback", Text{&c.fallback, {"error", "eager"}}},
      {"inductor.target", Text{&c.inductor.target, {"", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"}}},
      {"inductor.threads", Integer{&c.inductor.threads, 0, 4096}},
      {"inductor.wrapper_opt_level", Text{&c.inductor.wrapper_opt_level, {"O0", "O1", "O2", "O3"}}},
      {"inductor.max_autotune", Boolean{&c.inductor.max_autotune}},
      {"inductor.python", Text{&c.inductor.python, {}}, Scope::rank},
      {"inductor.settings", Settings{&c.inductor.settings}},
      {"threads", Integer{&c.threads, 0, 4096}, Scope::rank},
  };
}

[[noreturn]] void refuse(std::string_view key, std::string_view expected, std::string_view found) {
  throw JobError(fmt::format("config key '{}': expected {}, found {}", key, expected, found));
}

// A value as the user wrote it, with its type.
std::string describe(const toml::node& node) {
  if (const auto* text = node.as_string()) return fmt::format("the string {:?}", text->get());
  if (const auto* number = node.as_integer()) return fmt::format("the integer {}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("the number {}", number->get());
  if (const auto* flag = node.as_boolean()) return fmt::format("the boolean {}", flag->get());
  if (node.is_table()) return "a table";
  if (node.is_array()) return "an array";
  return "a date or time";
}

void assign(const Key& key, const Integer& target, const toml::node& node) {
  const auto value = node.value_exact<std::int64_t>();
  if (!value || *value < target.min || *value > target.max)
    refuse(key.name, fmt::format("an integer from {} to {}", target.min, target.max), describe(node));
  *target.value = *value;
}

void assign(const Key& key, const Real& target, const toml::node& node) {
  const auto value = node.is_number() ? node.value<double>() : std::nullopt;
  if (!value || !(*value >= target.min && *value <= target.max))
    refuse(key.name, fmt::format("a number from {} to {}", target.min, target.max), describe(node));
  *target.value = *value;
}

void assign(const Key& key, const Boolean& target, const toml::node& node) {
  const auto value = node.value_exact<bool>();
  if (!value) refuse(key.name, "true or false", describe(node));
  *target.value = *value;
}

void assign(const Key& key, const Text& target, const toml::node& node) {
  const auto value = node.value_exact<std::string>();
  const bool known =
      target.choices.empty() || (value && std::find(target.choices.begin(), target.choices.end(), *value) != target.choices.end());
  if (!value || !known)
    refuse(key.name, target.choices.empty() ? "a string" : fmt::format("one of \"{}\"", fmt::join(target.choices, "\", \"")),
           describe(node));
  *target.value = *value;
}

/// Adds the values of a table; dotted keys of TOML are tables in tables.
void add_settings(const Key& key, const Settings& target, const std::string& prefix, const toml::table& table) {
  for (const auto& [child, node] : table) {
    const std::string name = prefix.empty() ? std::string(child.str()) : fmt::format("{}.{}", prefix, child.str());
    if (const auto* inner = node.as_table())
      add_settings(key, target, name, *inner);
    else if (const auto flag = node.value_exact<bool>())
      (*target.value)[name] = *flag;
    else if (const auto integer = node.value_exact<std::int64_t>())
      (*target.value)[name] = *integer;
    else if (const auto number = node.value_exact<double>())
      (*target.value)[name] = *number;
    else if (const auto text = node.value_exact<std::string>())
      (*target.value)[name] = *text;
    else
      refuse(fmt::format("{}.{}", key.name, name), "a boolean, a number or a string", describe(node));
  }
}

void assign(const Key& key, const Settings& target, const toml::node& node) {
  const toml::table* table = node.as_table();
  if (table == nullptr) refuse(key.name, "a table of settings", describe(node));
  add_settings(key, target, "", *table);
}

/// Names the keys of the same section, or where there is no such section all.
[[noreturn]] void refuse_unknown(const std::vector<Key>& keys, const std::string& name) {
  const std::string section = name.substr(0, name.find('.')) + ".";
  std::vector<std::string> all, near;
  for (const Key& key : keys) {
    all.push_back(key.name);
    if (key.name.starts_with(section)) near.push_back(key.name);
  }
  refuse(name, fmt::format("one of {}", fmt::join(near.empty() ? all : near, ", ")), "an unknown key");
}

void apply(const std::vector<Key>& keys, const std::string& name, const toml::node& node) {
  for (const Key& key : keys) {
    if (key.name == name) return std::visit([&](const auto& target) { assign(key, target, node); }, key.target);
    if (const auto* settings = std::get_if<Settings>(&key.target); settings != nullptr && name.starts_with(key.name + ".")) {
      toml::table one;
      one.insert(name.substr(key.name.size() + 1), node);
      return add_settings(key, *settings, "", one);
    }
  }
  const bool is_section =
      std::any_of(keys.begin(), keys.end(), [&](const Key& key) { return key.name.compare(0, name.size() + 1, name + ".") == 0; });
  const toml::table* section = node.as_table();
  if (is_section && section == nullptr) refuse(name, "a table of keys", describe(node));
  if (!is_section) refuse_unknown(keys, name);
  for (const auto& [child, value] : *section) apply(keys, fmt::format("{}.{}", name, child.str()), value);
}

toml::table parse_file(const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file))
    throw JobError(fmt::format("config '{}': expected a readable file, found none", file.string()));
  try {
    return toml::parse_file(file.string());
  } catch (const toml::parse_error& error) {
    throw JobError(fmt::format("config '{}', line {}: expected TOML, found: {}", file.string(), error.source().begin.line,
                               error.description()));
  }
}

// The value as TOML, else as a string. A text that smuggles in further keys ("1\nb = 2") is a string too.
toml::table parse_override_value(const std::string& text) {
  try {
    toml::table table = toml::parse("value = " + text);
    if (table.size() == 1) return table;
  } catch (const toml::parse_error&) {  // then it is a string
  }
  return toml::table{{"value", text}};
}

void apply_override(const std::vector<Key>& keys, const std::string& override_text) {
  const std::size_t equals = override_text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw JobError(fmt::format("--set: expected key=value, found '{}'", override_text));
  const toml::table value = parse_override_value(override_text.substr(equals + 1));
  apply(keys, override_text.substr(0, equals), *value.get("value"));
}

std::string expand_environment(const std::string& text) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t open; (open = text.find("${", at)) != std::string::npos;) {
    const std::size_t close = text.find('}', open);
    if (close == std::string::npos) refuse("data.path", "'}' after '${'", fmt::format("\"{}\"", text));
    const std::string name = text.substr(open + 2, close - open - 2);
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0')
      refuse("data.path",
             fmt::format("environment variable {} to be set (launcher/train sets PRECAST_TORCH), or another folder", name),
             fmt::format("{} unset", name));
    out += text.substr(at, open - at) + value;
    at = close + 1;
  }
  return out + text.substr(at);
}

std::string describe(const Config::Mesh& mesh) {
  std::vector<std::string> dims;
  const auto add = [&](const char* name, std::int64_t size) {
    if (size > 0) dims.push_back(fmt::format("{} = {}", name, size));
  };
  add("dp", mesh.dp);
  add("tp", mesh.tp);
  add("replicate", mesh.replicate);
  add("shard", mesh.shard);
  return fmt::format("{{{}}}", fmt::join(dims, ", "));
}

void check_plan(const Config& c) {
  const Config::Mesh& m = c.mesh;
  const bool by_shard = c.plan == "hsdp", any = m.dp + m.tp + m.replicate + m.shard > 0;
  if (c.plan.empty() && any) refuse("plan", "a plan, as mesh is set", "none");
  if (c.plan.empty()) return;
  const bool fits =
      by_shard ? m.replicate > 0 && m.shard > 0 && m.dp + m.tp == 0
               : m.replicate + m.shard == 0 && (m.dp > 0 || c.plan == "tp") && (m.tp > 0 || c.plan == "ddp" || c.plan == "fsdp");
  if (!fits)
    refuse("mesh",
           by_shard              ? "the dimensions replicate and shard, for plan 'hsdp'"
           : c.plan == "tp"      ? "the dimension tp, and dp if there is one, for plan 'tp'"
           : c.plan == "fsdp+tp" ? "the dimensions dp and tp, for plan 'fsdp+tp'"
                                 : fmt::format("the dimension dp, for plan '{}'", c.plan),
           describe(m));
  if (m.tp > 0 && (c.model.heads % m.tp != 0 || c.model.width % m.tp != 0))
    refuse("mesh.tp", fmt::format("a divisor of model.heads = {} and model.width = {}", c.model.heads, c.model.width),
           fmt::format("{}", m.tp));
}

void check_combinations(const Config& c) {
  check_plan(c);
  if (c.model.width % c.model.heads != 0)
    refuse("model.width", fmt::format("a multiple of model.heads = {}", c.model.heads), fmt::format("{}", c.model.width));
  if (c.optimizer.min_lr > c.optimizer.lr)
    refuse("optimizer.min_lr", fmt::format("at most optimizer.lr = {}", c.optimizer.lr), fmt::format("{}", c.optimizer.min_lr));
  if (c.optimizer.decay_steps < c.optimizer.warmup)
    refuse("optimizer.decay_steps", fmt::format("at least optimizer.warmup = {}", c.optimizer.warmup),
           fmt::format("{}", c.optimizer.decay_steps));
  if (c.data.glob.empty()) refuse("data.glob", "a pattern such as \"**/*.py\"", "an empty string");
  if (c.checkpoint.path.empty() && c.checkpoint.every > 0)
    refuse("checkpoint.path", "a folder, as checkpoint.every is set", "an empty string");
  if (c.checkpoint.path.empty() && c.checkpoint.resume)
    refuse("checkpoint.path", "a folder, as checkpoint.resume is true", "an empty string");
}

template <class Target>
std::string as_text(const Target& target) {
  return fmt::format("{}", *target.value);
}

std::string as_text(const Settings& target) {
  std::vector<std::string> settings;
  for (const auto& setting : *target.value)
    settings.push_back(std::visit([&](const auto& value) { return fmt::format("{} = {}", setting.first, value); }, setting.second));
  return fmt::format("{{{}}}", fmt::join(settings, ", "));
}

std::map<std::string, std::string> settings_as_text(const Config& config, Scope last) {
  Config copy = config;
  std::map<std::string, std::string> out;
  for (const Key& key : keys_of(copy))
    if (key.scope <= last) out[key.name] = std::visit([](const auto& target) { return as_text(target); }, key.target);
  return out;
}

}  // namespace

Config read_config(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  Config config;
  const std::vector<Key> keys = keys_of(config);
  for (const auto& [name, value] : parse_file(file)) apply(keys, std::string(name.str()), value);
  for (const std::string& override_text : overrides) apply_override(keys, override_text);
  check_combinations(config);
  config.data.path = expand_environment(config.data.path);
  return config;
}

std::map<std::string, std::string> curve_settings(const Config& config) {
  return settings_as_text(config, Scope::curve);
}

std::map<std::string, std::string> run_settings(const Config& config) {
  return settings_as_text(config, Scope::run);
}

}  // namespace gpt
