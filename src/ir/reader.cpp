#include "ir/cursor.h"
#include "ir/lexer.h"
#include "ir/literal_text.h"
#include "ir/metadata_text.h"
#include "ir/program_text.h"
#include "ir/text.h"
#include "precast/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <span>

namespace precast::ir {
namespace {

constexpr int kMaxDepth = 64;

Literal read_literal(Cursor& cursor, int depth = 0);

/// Items up to the closing bracket; `commas` counts them, since one makes a parenthesis a tuple.
Literal::Sequence read_items(Cursor& cursor, std::string_view closing, int depth, int* commas = nullptr) {
  Literal::Sequence items;
  while (!cursor.take(closing)) {
    items.push_back(read_literal(cursor, depth + 1));
    if (cursor.take(",")) {
      if (commas != nullptr) ++*commas;
    } else if (!cursor.at(closing)) {
      cursor.fail("expected ',' or '" + std::string(closing) + "'");
    }
  }
  return items;
}

Literal read_dict(Cursor& cursor, int depth) {
  Literal::Dict items;
  while (!cursor.take("}")) {
    Literal key = read_literal(cursor, depth + 1);
    cursor.expect(":");
    items.push_back({std::move(key), read_literal(cursor, depth + 1)});
    if (!cursor.take(",") && !cursor.at("}")) cursor.fail("expected ',' or '}'");
  }
  return {std::move(items)};
}

Literal read_literal(Cursor& cursor, int depth) {
  if (depth > kMaxDepth) cursor.fail("it is nested too deeply");
  if (cursor.take("None")) return {None{}};
  if (cursor.take("True")) return {true};
  if (cursor.take("False")) return {false};
  if (cursor.take("[")) return {read_items(cursor, "]", depth)};
  if (cursor.take("{")) return read_dict(cursor, depth);
  if (cursor.take("(")) {
    int commas = 0;
    Literal::Sequence items = read_items(cursor, ")", depth, &commas);
    if (items.size() == 1 && commas == 0) return items.front();
    return {Literal::Tuple{std::move(items)}};
  }
  if (cursor.at_kind(Token::Kind::string)) {
    std::string value;
    while (cursor.at_kind(Token::Kind::string)) {
      try {
        value += string_value(cursor.take_kind(Token::Kind::string, "a string"));
      } catch (const SyntaxError&) {
        throw;
      } catch (const std::runtime_error& error) {
        throw SyntaxError(error.what());
      }
    }
    return {std::move(value)};
  }
  const Number number = take_number(cursor);
  if (number.is_float) return {number.real};
  return {number.integer};
}

/// The value of a module-level assignment `NAME = <literal>`.
std::optional<Literal> try_literal(std::span<const Token> tokens) {
  try {
    Cursor cursor(tokens);
    Literal literal = read_literal(cursor);
    if (cursor.at_end()) return literal;
  } catch (const SyntaxError&) {
    // not a literal: the caller says so under the assignment's name
  }
  return std::nullopt;
}

std::map<std::string, Literal> collect_literals(const std::vector<LogicalLine>& lines) {
  std::map<std::string, Literal> literals;
  std::map<std::string, int> not_literal;
  for (const LogicalLine& line : lines) {
    const auto& tokens = line.tokens;
    if (line.indent != 0 || tokens.size() < 3 || tokens[0].kind != Token::Kind::name || tokens[1].text != "=" ||
        tokens[2].text == "=")
      continue;
    const std::string name(tokens[0].text);
    if (!is_metadata_name(name)) continue;
    not_literal.erase(name);  // as when the text is run, the last assignment counts
    literals.erase(name);
    if (auto literal = try_literal(std::span(tokens).subspan(2)))
      literals.emplace(name, std::move(*literal));
    else
      not_literal.emplace(name, line.number);
  }
  if (!not_literal.empty())
    throw PrecompileError(
        ErrorCode::invalid_artifact,
        fmt::format("python_code is not a Precast artifact: {} (line {}) is not a Python literal; it was not evaluated",
                    not_literal.begin()->first, not_literal.begin()->second));
  return literals;
}

/// The lines of the last module-level function of that name.
std::optional<std::span<const LogicalLine>> find_function(const std::vector<LogicalLine>& lines, std::string_view name) {
  std::optional<std::span<const LogicalLine>> found;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto& tokens = lines[i].tokens;
    if (lines[i].indent != 0 || tokens.size() < 2 || tokens[0].text != "def" || tokens[1].text != name) continue;
    std::size_t end = i + 1;
    while (end < lines.size() && lines[end].indent > 0) ++end;
    found = std::span(lines).subspan(i + 1, end - i - 1);
  }
  return found;
}

void check_counts(const Program& program) {
  const Metadata& metadata = program.metadata;
  const std::size_t n_inputs =
      metadata.params.size() + metadata.buffers.size() + metadata.inputs.size() + metadata.mesh_inputs.size();
  if (program.inputs.size() != n_inputs)
    throw PrecompileError(ErrorCode::invalid_artifact, fmt::format("python_code is not a Precast artifact: its metadata names {} "
                                                                   "inputs (parameters, buffers, leaves and mesh coordinates), "
                                                                   "its program takes {}",
                                                                   n_inputs, program.inputs.size()));
  const std::size_t n_outputs =
      metadata.out_spec.count_leaves() + metadata.grad_param_indices.size() + metadata.grad_input_indices.size();
  for (const DTensorMeta& dtensor : metadata.output_dtensors)
    if (static_cast<std::size_t>(dtensor.index) >= n_outputs)
      throw PrecompileError(
          ErrorCode::invalid_artifact,
          fmt::format("python_code is not a Precast artifact: its OUTPUT_DTENSORS is malformed, expected indices below {}, "
                      "found {}",
                      n_outputs, dtensor.index));
  if (program.outputs.size() != n_outputs)
    throw PrecompileError(
        ErrorCode::invalid_artifact,
        fmt::format("python_code is not a Precast artifact: OUT_SPEC and GRAD_PARAM_INDICES name {} outputs, its program "
                    "returns {}",
                    n_outputs, program.outputs.size()));
}

/// As in Python, 1e999 is inf and 1e-999 is 0.
double out_of_range(std::string_view number) {
  const std::size_t exponent = number.find_first_of("eE");
  const bool small = exponent == std::string_view::npos ? number.starts_with('0') || number.starts_with('.')
                                                        : number.substr(exponent + 1).starts_with('-');
  return small ? 0.0 : std::numeric_limits<double>::infinity();
}

}  // namespace

Number take_number(Cursor& cursor) {
  const bool negative = cursor.take("-");
  std::string text(cursor.take_kind(Token::Kind::number, "a value"));
  if (text.find_first_not_of("0123456789") == std::string::npos) {
    if (negative) text = fmt::format("-{}", text);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      throw SyntaxError("the number " + text + " does not fit into 64 bits");
    return {.is_float = false, .integer = value, .real = 0};
  }
  if (text.find_first_not_of("0123456789.eE+-") != std::string::npos) throw SyntaxError("'" + text + "' is no number");
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);  // strtod would ask the locale
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) throw SyntaxError("'" + text + "' is no number");
  if (error == std::errc::result_out_of_range) value = out_of_range(text);
  return {.is_float = true, .integer = 0, .real = negative ? -value : value};
}

Program read_python_code(std::string_view text) {
  if (!is_python_text(text))
    throw PrecompileError(
        ErrorCode::invalid_artifact,
        "python_code is not a Precast artifact: it is not valid Python, since it is not UTF-8 or holds a NUL byte");
  const std::vector<LogicalLine> lines = split_lines(text);
  Program program;
  program.metadata = read_metadata(collect_literals(lines));
  auto body = find_function(lines, "_graph_forward");
  if (!body) body = find_function(lines, "call");
  if (!body) throw PrecompileError(ErrorCode::invalid_artifact, "python_code is not a Precast artifact: it has no function 'call'");
  read_call(*body, program);
  check_counts(program);
  return program;
}

}  // namespace precast::ir
