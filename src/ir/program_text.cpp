#include "ir/program_text.h"

#include "ir/cursor.h"
#include "ir/literal_text.h"
#include "precast/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace precast::ir {
namespace {

constexpr int kMaxDepth = 64;
constexpr std::array<std::string_view, 6> kLayouts = {"strided", "sparse_coo", "sparse_csr", "sparse_csc", "jagged", "_mkldnn"};
constexpr std::array<std::string_view, 4> kMemoryFormats = {"preserve_format", "contiguous_format", "channels_last",
                                                            "channels_last_3d"};

// ---- writing

class CallWriter {
 public:
  explicit CallWriter(const Program& program)
      : program_(program), last_use_(program.values.size(), -1), is_input_(program.values.size()) {
    for (const ValueId input : program.inputs) is_input_[input.index] = true;
    for (std::size_t i = 0; i < program.statements.size(); ++i) {
      last_use_[program.statements[i].result.index] = static_cast<int>(i);
      visit_uses(program.statements[i], [&](ValueId value) { last_use_[value.index] = static_cast<int>(i); });
    }
    for (const Operand& output : program.outputs)
      visit_values(output, [&](ValueId value) { last_use_[value.index] = static_cast<int>(program.statements.size()); });
  }

  std::string write() {
    std::string out = "def call(args):\n";
    if (!program_.inputs.empty()) {
      out += "    (\n";
      for (const ValueId input : program_.inputs) out += fmt::format("        {},{}\n", name(input), note(input));
      out += "    ) = args\n";
    }
    for (std::size_t i = 0; i < program_.statements.size(); ++i) out += line(static_cast<int>(i));
    return out + fmt::format("    return [{}]\n", list(program_.outputs));
  }

 private:
  template <class Visit>
  static void visit_values(const Operand& operand, const Visit& visit) {
    if (const auto* value = std::get_if<ValueId>(&operand.is)) visit(*value);
    if (const auto* items = std::get_if<Operand::List>(&operand.is))
      for (const Operand& item : *items) visit_values(item, visit);
  }

  template <class Visit>
  static void visit_uses(const Statement& statement, const Visit& visit) {
    if (const auto* item = std::get_if<GetItem>(&statement.is)) return visit(item->source);
    const auto& call = std::get<Call>(statement.is);
    for (const Operand& argument : call.arguments) visit_values(argument, visit);
    for (const auto& [key, argument] : call.keywords) visit_values(argument, visit);
  }

  [[nodiscard]] const std::string& name(ValueId value) const { return program_.values[value.index].name; }

  [[nodiscard]] std::string note(ValueId value) const {
    const std::string& text = program_.values[value.index].note;
    return text.empty() ? "" : "  # " + text;
  }

  [[nodiscard]] std::string line(int i) const {
    const Statement& statement = program_.statements[i];
    return fmt::format("    {} = {}{}{}\n", name(statement.result), right_side(statement), deletions(i), note(statement.result));
  }

  [[nodiscard]] std::string right_side(const Statement& statement) const {
    if (const auto* item = std::get_if<GetItem>(&statement.is)) return fmt::format("{}[{}]", name(item->source), item->index);
    const auto& call = std::get<Call>(statement.is);
    std::string arguments = list(call.arguments);
    for (const auto& [key, argument] : call.keywords)
      arguments += fmt::format("{}{}={}", arguments.empty() ? "" : ", ", key, operand(argument));
    const std::size_t colons = call.name.find("::");
    return fmt::format("torch.ops.{}.{}.{}({})", call.name.substr(0, colons), call.name.substr(colons + 2),
                       call.overload.empty() ? "default" : call.overload, arguments);
  }

  /// Values whose last use is statement i, in order of definition. Inputs belong to the caller.
  [[nodiscard]] std::string deletions(int i) const {
    std::vector<int> dead;
    const auto collect = [&](ValueId value) {
      if (last_use_[value.index] == i && !is_input_[value.index]) dead.push_back(value.index);
    };
    visit_uses(program_.statements[i], collect);
    collect(program_.statements[i].result);
    std::ranges::sort(dead);
    dead.erase(std::unique(dead.begin(), dead.end()), dead.end());
    if (dead.empty()) return "";
    std::string out = ";  ";
    for (const int value : dead) out += program_.values[value].name + " = ";
    return out + "None";
  }

  [[nodiscard]] std::string list(const Operand::List& items) const {
    std::string out;
    for (const Operand& item : items) out += (out.empty() ? "" : ", ") + operand(item);
    return out;
  }

  [[nodiscard]] std::string operand(const Operand& operand) const {
    return std::visit([this](const auto& value) { return write_one(value); }, operand.is);
  }
  [[nodiscard]] std::string write_one(None) const { return "None"; }
  [[nodiscard]] std::string write_one(ValueId value) const { return name(value); }
  [[nodiscard]] std::string write_one(bool value) const { return value ? "True" : "False"; }
  [[nodiscard]] std::string write_one(std::int64_t value) const { return std::to_string(value); }
  [[nodiscard]] std::string write_one(double value) const { return write_float(value); }
  [[nodiscard]] std::string write_one(const std::string& value) const { return quote(value); }
  [[nodiscard]] std::string write_one(const Dtype& value) const { return "torch." + value.name; }
  [[nodiscard]] std::string write_one(const Layout& value) const { return "torch." + value.name; }
  [[nodiscard]] std::string write_one(const MemoryFormat& value) const { return "torch." + value.name; }
  [[nodiscard]] std::string write_one(const Device& value) const { return "device(type=" + quote(value.type) + ")"; }
  [[nodiscard]] std::string write_one(const Operand::List& value) const { return "[" + list(value) + "]"; }

  const Program& program_;
  std::vector<int> last_use_;
  std::vector<bool> is_input_;
};

// ---- reading

Operand torch_attribute(std::string_view name) {
  if (std::ranges::find(kLayouts, name) != kLayouts.end()) return {Layout{std::string(name)}};
  if (std::ranges::find(kMemoryFormats, name) != kMemoryFormats.end()) return {MemoryFormat{std::string(name)}};
  return {Dtype{std::string(name)}};
}

class CallReader {
 public:
  explicit CallReader(Program& program) : program_(program) {}

  void read(std::span<const LogicalLine> body) {
    for (std::size_t i = 0; i < body.size(); ++i) {
      operator_.clear();
      try {
        if (returned_) throw SyntaxError("nothing may follow the return");
        Cursor cursor(body[i].tokens);
        line_ = body[i].number;
        if (i == 0 && is_unpack(body[i]))
          read_inputs(cursor);
        else
          read_line(cursor);
      } catch (const SyntaxError& error) {
        throw PrecompileError(ErrorCode::invalid_artifact,
                              fmt::format("python_code is not a Precast artifact: line {}{}: {}", body[i].number,
                                          operator_.empty() ? "" : ", " + operator_, error.what()));
      }
    }
    if (!returned_)
      throw PrecompileError(ErrorCode::invalid_artifact, "python_code is not a Precast artifact: its program returns nothing");
  }

 private:
  /// "(a, b,) = args", or the reference's "flat_1, flat_2, = fx_pytree.tree_flatten_spec(...)".
  static bool is_unpack(const LogicalLine& line) {
    return line.tokens.front().text == "(" || (line.tokens.size() > 1 && line.tokens[1].text == ",");
  }

  void read_inputs(Cursor& cursor) {
    const bool bracketed = cursor.take("(");
    while (!cursor.at(")") && !cursor.at("=")) {
      const ValueId input = define(cursor.take_name());
      program_.inputs.push_back(input);
      if (!cursor.take(",")) break;
      program_.values[input.index].note = cursor.take_comment();
    }
    if (bracketed) cursor.expect(")");
    cursor.expect("=");
    if (bracketed) {
      cursor.expect("args");
    } else {
      for (const char* token : {"fx_pytree", ".", "tree_flatten_spec", "(", "[", "flat", "]", ",", "self", ".", "_in_spec", ")"})
        cursor.expect(token);
    }
    expect_end(cursor);
  }

  static void expect_end(Cursor& cursor) {
    if (!cursor.at_end()) cursor.fail("expected the end of the line");
  }

  void read_line(Cursor& cursor) {
    if (cursor.take("return")) return read_return(cursor);
    const ValueId result = read_statement(cursor);
    while (cursor.take(";")) read_deletion(cursor);
    if (result.index >= 0) program_.values[result.index].note = cursor.take_comment();
    expect_end(cursor);
  }

  ValueId read_statement(Cursor& cursor) {
    const std::string_view target = cursor.take_name();
    cursor.expect("=");
    if (cursor.at("None") || deleted_chain(cursor)) {
      read_deletion_from(target, cursor);
      return {};
    }
    Statement statement{.result = {}, .is = GetItem{}, .line = line_};
    if (cursor.at("torch"))
      statement.is = read_call(cursor);
    else
      statement.is = read_item(cursor);
    statement.result = define(target);
    program_.statements.push_back(std::move(statement));
    return program_.statements.back().result;
  }

  /// Whether "a = b = None" follows: a name, then '='.
  static bool deleted_chain(Cursor cursor) {
    if (!cursor.at_kind(Token::Kind::name)) return false;
    cursor.take_name();
    return cursor.at("=");
  }

  void read_deletion(Cursor& cursor) {
    const std::string_view name = cursor.take_name();
    cursor.expect("=");
    read_deletion_from(name, cursor);
  }

  void read_deletion_from(std::string_view name, Cursor& cursor) {
    while (true) {
      if (scope_.erase(name) == 0) throw SyntaxError(fmt::format("'{}' is deleted, but it is not defined", name));
      if (cursor.take("None")) return;
      name = cursor.take_name();
      cursor.expect("=");
    }
  }

  Call read_call(Cursor& cursor) {
    for (const char* token : {"torch", ".", "ops", "."}) cursor.expect(token);
    Call call;
    const std::string_view space = cursor.take_name();
    cursor.expect(".");
    call.name = fmt::format("{}::{}", space, cursor.take_name());
    operator_ = call.name;
    cursor.expect(".");
    const std::string_view overload = cursor.take_name();
    if (overload != "default") call.overload = overload;
    cursor.expect("(");
    while (!cursor.take(")")) {
      if (is_keyword(cursor)) {
        std::string key(cursor.take_name());
        cursor.expect("=");
        call.keywords.emplace_back(std::move(key), read_operand(cursor, 0));
      } else if (call.keywords.empty()) {
        call.arguments.push_back(read_operand(cursor, 0));
      } else {
        cursor.fail("a positional argument follows a keyword");
      }
      if (!cursor.take(",") && !cursor.at(")")) cursor.fail("expected ',' or ')'");
    }
    return call;
  }

  static bool is_keyword(Cursor cursor) {
    if (!cursor.at_kind(Token::Kind::name)) return false;
    cursor.take_name();
    return cursor.at("=");
  }

  GetItem read_item(Cursor& cursor) {
    const ValueId source = use(cursor.take_name());
    cursor.expect("[");
    const Number index = take_number(cursor);
    if (index.is_float || index.integer < 0) throw SyntaxError("a result is taken by an index from 0 on");
    cursor.expect("]");
    return {source, index.integer};
  }

  Operand read_operand(Cursor& cursor, int depth) {
    if (depth > kMaxDepth) cursor.fail("lists are nested too deeply");
    if (cursor.take("[")) return {read_list(cursor, "]", depth)};
    if (cursor.at_kind(Token::Kind::string)) return {read_string(cursor)};
    if (cursor.at_kind(Token::Kind::name)) return read_named(cursor);
    if (Cursor ahead = cursor; ahead.take("-") && ahead.take("inf")) {
      cursor = ahead;
      return {-std::numeric_limits<double>::infinity()};
    }
    const Number number = take_number(cursor);
    return number.is_float ? Operand{number.real} : Operand{number.integer};
  }

  Operand::List read_list(Cursor& cursor, std::string_view closing, int depth) {
    Operand::List items;
    while (!cursor.take(closing)) {
      items.push_back(read_operand(cursor, depth + 1));
      if (!cursor.take(",") && !cursor.at(closing)) cursor.fail("expected ',' or '" + std::string(closing) + "'");
    }
    return items;
  }

  static std::string read_string(Cursor& cursor) {
    try {
      return string_value(cursor.take_kind(Token::Kind::string, "a string"));
    } catch (const SyntaxError&) {
      throw;
    } catch (const std::runtime_error& error) {
      throw SyntaxError(error.what());
    }
  }

  Operand read_named(Cursor& cursor) {
    const std::string_view name = cursor.take_name();
    if (name == "None") return {None{}};
    if (name == "True") return {true};
    if (name == "False") return {false};
    if (name == "torch") {
      cursor.expect(".");
      return torch_attribute(cursor.take_name());
    }
    if (!scope_.contains(name)) {
      if (name == "inf") return {std::numeric_limits<double>::infinity()};
      if (name == "nan") return {std::numeric_limits<double>::quiet_NaN()};
      if (name == "device") return read_device(cursor);
    }
    return {use(name)};
  }

  /// device(type='cuda', index=0): the index is the rank's own and is dropped.
  static Operand read_device(Cursor& cursor) {
    for (const char* token : {"(", "type", "="}) cursor.expect(token);
    Device device{read_string(cursor)};
    if (cursor.take(",")) {
      for (const char* token : {"index", "="}) cursor.expect(token);
      take_number(cursor);
    }
    cursor.expect(")");
    return {std::move(device)};
  }

  void read_return(Cursor& cursor) {
    const bool reference = cursor.take("pytree");
    if (reference)
      for (const char* token : {".", "tree_unflatten", "("}) cursor.expect(token);
    cursor.expect("[");
    program_.outputs = read_list(cursor, "]", 0);
    if (reference)
      for (const char* token : {",", "self", ".", "_out_spec", ")"}) cursor.expect(token);
    expect_end(cursor);
    returned_ = true;
  }

  /// Names stay taken after deletion: a program has one value a name, as its writers have it.
  ValueId define(std::string_view name) {
    if (!names_.insert(name).second) throw SyntaxError(fmt::format("'{}' is defined twice", name));
    const ValueId value{static_cast<int>(program_.values.size())};
    program_.values.push_back({std::string(name), ""});
    scope_.emplace(name, value);
    return value;
  }

  ValueId use(std::string_view name) {
    const auto found = scope_.find(name);
    if (found == scope_.end()) throw SyntaxError(fmt::format("'{}' is used, but it is not defined here", name));
    return found->second;
  }

  Program& program_;
  std::map<std::string_view, ValueId> scope_;
  std::set<std::string_view> names_;
  std::string operator_;
  int line_ = 0;
  bool returned_ = false;
};

}  // namespace

std::string write_call(const Program& program) {
  return CallWriter(program).write();
}

void read_call(std::span<const LogicalLine> body, Program& program) {
  CallReader(program).read(body);
}

}  // namespace precast::ir
