#include "ir/lexer.h"

#include "precast/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <stdexcept>

namespace precast::ir {
namespace {

constexpr std::size_t kMaxOpenBrackets = 256;

bool is_name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_part(char c) {
  return is_name_start(c) || is_digit(c);
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<LogicalLine> run() {
    while (position_ < text_.size()) step();
    if (!open_.empty()) fail(fmt::format("'{}' is never closed", open_.back()));
    finish_line();
    return std::move(lines_);
  }

 private:
  void step() {
    const char c = text_[position_];
    if (c == '\n') return new_line();
    if (c == ' ' || c == '\t' || c == '\r' || c == '\f') return skip_blank(c);
    if (c == '#') return comment();
    if (c == '\\' && rest().starts_with("\\\n")) {
      position_ += 2;
      ++line_;
      return;
    }
    if (const std::size_t prefix = string_prefix(); prefix != std::string_view::npos) return string(prefix);
    if (is_name_start(c)) return run_of(Token::Kind::name, is_name_part);
    if (is_digit(c) || (c == '.' && position_ + 1 < text_.size() && is_digit(text_[position_ + 1]))) return number();
    punctuation(c);
  }

  void skip_blank(char c) {
    if (current_.tokens.empty()) indent_ += c == '\t' ? 8 : 1;
    ++position_;
  }

  void new_line() {
    ++position_;
    ++line_;
    if (open_.empty()) finish_line();
  }

  void finish_line() {
    const bool only_comments =
        std::ranges::all_of(current_.tokens, [](const Token& token) { return token.kind == Token::Kind::comment; });
    if (!only_comments) lines_.push_back(std::move(current_));
    current_ = {};
    indent_ = 0;
  }

  void add(Token::Kind kind, std::string_view token) {
    if (current_.tokens.empty()) {
      current_.number = line_;
      current_.indent = indent_;
    }
    current_.tokens.push_back({kind, token, line_});
  }

  void comment() {
    const std::size_t end = std::min(text_.find('\n', position_), text_.size());
    std::string_view body = text_.substr(position_ + 1, end - position_ - 1);
    if (body.starts_with(' ')) body.remove_prefix(1);
    add(Token::Kind::comment, body);
    position_ = end;
  }

  void run_of(Token::Kind kind, bool (*part)(char)) {
    const std::size_t start = position_;
    while (position_ < text_.size() && part(text_[position_])) ++position_;
    add(kind, text_.substr(start, position_ - start));
  }

  void number() {
    const std::size_t start = position_;
    while (position_ < text_.size()) {
      const char c = text_[position_];
      const char before = position_ > start ? text_[position_ - 1] : ' ';
      const bool sign = (c == '+' || c == '-') && (before == 'e' || before == 'E') && !text_.substr(start).starts_with("0x");
      if (!is_name_part(c) && c != '.' && !sign) break;
      ++position_;
    }
    add(Token::Kind::number, text_.substr(start, position_ - start));
  }

  /// The length of a string's prefix here (r, b, f, u, or two of them), or npos if no string starts here.
  [[nodiscard]] std::size_t string_prefix() const {
    for (std::size_t n = 0; n <= 2 && position_ + n < text_.size(); ++n) {
      const char c = text_[position_ + n];
      if (c == '\'' || c == '"') return n;
      if (std::string_view("rRbBfFuU").find(c) == std::string_view::npos) break;
    }
    return std::string_view::npos;
  }

  void string(std::size_t prefix) {
    const std::size_t start = position_;
    const int start_line = line_;
    const std::size_t quote = position_ + prefix;
    const char mark = text_[quote];
    const bool triple = text_.substr(quote).starts_with(std::string(3, mark));
    const std::string closing(triple ? 3 : 1, mark);
    position_ = quote + closing.size();
    while (true) {
      if (position_ >= text_.size() || (!triple && text_[position_] == '\n')) {
        line_ = start_line;
        fail("a string is not terminated");
      }
      if (rest().starts_with(closing)) break;
      const std::size_t n = text_[position_] == '\\' ? 2 : 1;
      for (std::size_t i = 0; i < n && position_ < text_.size(); ++i)
        if (text_[position_++] == '\n') ++line_;
    }
    position_ += closing.size();
    add(Token::Kind::string, text_.substr(start, position_ - start));
  }

  void punctuation(char c) {
    constexpr std::string_view kKnown = "()[]{},:;.=+-*/%@<>!&|^~";
    if (kKnown.find(c) == std::string_view::npos) fail(fmt::format("unexpected character 0x{:02x}", static_cast<unsigned char>(c)));
    if (c == '(' || c == '[' || c == '{') {
      if (open_.size() >= kMaxOpenBrackets) fail("brackets are nested too deeply");
      open_.push_back(c);
    }
    if (c == ')' || c == ']' || c == '}') {
      const char opening = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open_.empty() || open_.back() != opening) fail(fmt::format("'{}' closes nothing", c));
      open_.pop_back();
    }
    add(Token::Kind::punctuation, text_.substr(position_, 1));
    ++position_;
  }

  [[nodiscard]] std::string_view rest() const { return text_.substr(position_); }

  [[noreturn]] void fail(const std::string& what) const {
    throw PrecompileError(ErrorCode::invalid_artifact,
                          fmt::format("python_code is not a Precast artifact: it is not valid Python, line {}: {}", line_, what));
  }

  std::string_view text_;
  std::size_t position_ = 0;
  int line_ = 1;
  int indent_ = 0;
  std::string open_;
  LogicalLine current_;
  std::vector<LogicalLine> lines_;
};

void append_utf8(std::string& out, std::uint32_t code) {
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) throw std::runtime_error("an escape names no character");
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

/// Reads up to `most` digits of the base and moves `text` past them.
std::uint32_t take_code(std::string_view& text, std::size_t least, std::size_t most, int base) {
  std::uint32_t code = 0;
  std::size_t n = 0;
  for (; n < most && n < text.size(); ++n) {
    const char c = text[n];
    const int digit = is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
    if (digit >= base) break;
    code = code * static_cast<std::uint32_t>(base) + static_cast<std::uint32_t>(digit);
  }
  if (n < least) throw std::runtime_error("an escape is cut short");
  text.remove_prefix(n);
  return code;
}

void append_escape(std::string& out, std::string_view& text) {
  const char c = text.front();
  constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
  if (const std::size_t i = kNames.find(c); i != std::string_view::npos) {
    out += kValues[i];
    text.remove_prefix(1);
  } else if (c == '\n') {
    text.remove_prefix(1);
  } else if (c == 'x' || c == 'u' || c == 'U') {
    text.remove_prefix(1);
    const std::size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    append_utf8(out, take_code(text, n, n, 16));
  } else if (c >= '0' && c < '8') {
    append_utf8(out, take_code(text, 1, 3, 8));
  } else {
    throw std::runtime_error("an escape is unknown");
  }
}

}  // namespace

std::vector<LogicalLine> split_lines(std::string_view text) {
  return Lexer(text).run();
}

std::string string_value(std::string_view token) {
  const std::size_t quote = token.find_first_of("'\"");
  const std::string_view prefix = token.substr(0, quote);
  if (prefix.find_first_of("bBfF") != std::string_view::npos) throw std::runtime_error("a bytes or f-string is no text");
  const bool raw = prefix.find_first_of("rR") != std::string_view::npos;
  const std::size_t width = token.substr(quote).starts_with(std::string(3, token[quote])) && token.size() >= quote + 6 ? 3 : 1;
  std::string_view body = token.substr(quote + width, token.size() - quote - 2 * width);
  std::string out;
  while (!body.empty()) {
    const char c = body.front();
    body.remove_prefix(1);
    if (c == '\\' && !raw && !body.empty())
      append_escape(out, body);
    else
      out += c;
  }
  return out;
}

}  // namespace precast::ir
