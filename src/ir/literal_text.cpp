#include "ir/literal_text.h"

#include "precast/error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>
#include <stdexcept>
#include <variant>

namespace precast::ir {
namespace {

constexpr int kMaxDepth = 64;

/// The length of the UTF-8 sequence at the front, 0 if it is none (RFC 3629: no overlong forms, no surrogates).
std::size_t utf8_length(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  const std::size_t n = first < 0x80                    ? 1
                        : first >= 0xC2 && first < 0xE0 ? 2
                        : (first & 0xF0) == 0xE0        ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 0;
  if (n == 0 || text.size() < n) return 0;
  for (std::size_t i = 1; i < n; ++i)
    if ((at(i) & 0xC0) != 0x80) return 0;
  if (n == 3 && ((first == 0xE0 && at(1) < 0xA0) || (first == 0xED && at(1) > 0x9F))) return 0;
  if (n == 4 && ((first == 0xF0 && at(1) < 0x90) || (first == 0xF4 && at(1) > 0x8F))) return 0;
  return n;
}

std::string join(const Literal::Sequence& items) {
  std::string out;
  for (const Literal& item : items) out += (out.empty() ? "" : ", ") + write_literal(item);
  return out;
}

nlohmann::ordered_json to_json(const TreeSpec& spec) {
  nlohmann::ordered_json json;
  json["type"] = spec.is_leaf() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(spec.type);
  // The context is JSON inside JSON. Python separates with ", " there.
  std::string context = "null";
  if (spec.type == "builtins.dict") {
    context = "[";
    for (const std::string& key : spec.keys) context += (context.size() > 1 ? ", " : "") + nlohmann::json(key).dump(-1, ' ', true);
    context += "]";
  }
  json["context"] =
      spec.is_leaf() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(context);  // Python knows a leaf by both nulls
  json["children_spec"] = nlohmann::ordered_json::array();
  for (const TreeSpec& child : spec.children) json["children_spec"].push_back(to_json(child));
  return json;
}

/// json.dumps of Python puts a space after ',' and ':'; nlohmann's dump does not.
std::string dump(const nlohmann::ordered_json& json) {
  if (json.is_object()) {
    std::string out;
    for (const auto& [key, value] : json.items()) out += (out.empty() ? "" : ", ") + fmt::format("\"{}\": {}", key, dump(value));
    return "{" + out + "}";
  }
  if (json.is_array()) {
    std::string out;
    for (const auto& value : json) out += (out.empty() ? "" : ", ") + dump(value);
    return "[" + out + "]";
  }
  return json.dump(-1, ' ', true);
}

TreeSpec from_json(const nlohmann::json& json, int depth) {
  if (depth > kMaxDepth) throw std::runtime_error("it is nested too deeply");
  if (!json.is_object() || !json.contains("type") || !json.contains("children_spec") || !json["children_spec"].is_array())
    throw std::runtime_error("a node lacks its type or children_spec");
  TreeSpec spec;
  if (json["type"].is_string())
    spec.type = json["type"].get<std::string>();
  else if (!json["type"].is_null())
    throw std::runtime_error("a node's type is no string");
  for (const auto& child : json["children_spec"]) spec.children.push_back(from_json(child, depth + 1));
  if (spec.is_leaf() && !spec.children.empty()) throw std::runtime_error("a leaf has children");
  if (spec.type == "builtins.dict") {
    if (!json.contains("context") || !json["context"].is_string()) throw std::runtime_error("a dict lacks its keys");
    const auto keys = nlohmann::json::parse(json["context"].get<std::string>());
    if (!keys.is_array() || keys.size() != spec.children.size())
      throw std::runtime_error("a dict has another number of keys than of children");
    for (const auto& key : keys) {
      if (key.is_structured())
        throw std::runtime_error("a dict's key is neither text nor a number");  // dump() would recurse into it
      spec.keys.push_back(key.is_string() ? key.get<std::string>() : key.dump());
    }
  }
  return spec;
}

int depth_of(std::string_view json) {
  int depth = 0, most = 0;
  for (const char c : json) {
    if (c == '[' || c == '{') most = std::max(most, ++depth);
    if (c == ']' || c == '}') --depth;
  }
  return most;
}

}  // namespace

bool is_python_text(std::string_view text) {
  while (!text.empty()) {
    const std::size_t n = utf8_length(text);
    if (n == 0 || text.front() == '\0') return false;
    text.remove_prefix(n);
  }
  return true;
}

std::string quote(std::string_view value) {
  std::string out = "'";
  while (!value.empty()) {
    const std::size_t n = utf8_length(value);
    if (n == 0)
      throw PrecompileError(ErrorCode::refused_capture,
                            "a string of the step is not valid UTF-8 and cannot be written into python_code");
    const auto c = static_cast<unsigned char>(value.front());
    if (c == '\'' || c == '\\') {
      out += '\\';
      out += value.front();
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += value.substr(0, n);
    }
    value.remove_prefix(n);
  }
  return out + "'";
}

std::string write_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";  // or Python would read an int
  return text;
}

std::string write_literal(const Literal& literal) {
  struct Write {
    std::string operator()(None) const { return "None"; }
    std::string operator()(bool value) const { return value ? "True" : "False"; }
    std::string operator()(std::int64_t value) const { return std::to_string(value); }
    // literal_eval knows no inf and nan: an overflowing number and a tuple that nothing else is stand for them.
    std::string operator()(double value) const {
      if (std::isnan(value)) return "('nan',)";
      if (std::isinf(value)) return value > 0 ? "1e999" : "-1e999";
      return write_float(value);
    }
    std::string operator()(const std::string& value) const { return quote(value); }
    std::string operator()(const Literal::Sequence& items) const { return "[" + join(items) + "]"; }
    std::string operator()(const Literal::Tuple& tuple) const {
      return "(" + join(tuple.items) + (tuple.items.size() == 1 ? ",)" : ")");
    }
    std::string operator()(const Literal::Dict& items) const {
      std::string out;
      for (const auto& [key, value] : items) out += (out.empty() ? "" : ", ") + write_literal(key) + ": " + write_literal(value);
      return "{" + out + "}";
    }
  };
  return std::visit(Write{}, literal.is);
}

std::string write_treespec(const TreeSpec& spec) {
  return "[1, " + dump(to_json(spec)) + "]";
}

TreeSpec read_treespec(std::string_view json) {
  if (depth_of(json) > 4 * kMaxDepth) throw std::runtime_error("it is nested too deeply");
  try {
    const auto document = nlohmann::json::parse(json);
    if (!document.is_array() || document.size() != 2 || document[0] != 1)
      throw std::runtime_error("it is no tree spec of protocol 1");
    return from_json(document[1], 0);
  } catch (const nlohmann::json::exception&) {
    throw std::runtime_error("it is no JSON");
  }
}

}  // namespace precast::ir
