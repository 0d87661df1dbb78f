#pragma once

#include "ir/lexer.h"

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace precast::ir {

/// Thrown while a line is read; whoever knows what the line stands for turns it into a PrecompileError.
struct SyntaxError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Walks over the tokens of one line. Comments are skipped unless asked for.
class Cursor {
 public:
  explicit Cursor(std::span<const Token> tokens) : tokens_(tokens) {}

  [[nodiscard]] bool at_end() { return skip_comments(), position_ == tokens_.size(); }
  [[nodiscard]] bool at(std::string_view text) {
    return !at_end() && tokens_[position_].text == text && !at_kind(Token::Kind::string);
  }
  [[nodiscard]] bool at_kind(Token::Kind kind) { return !at_end() && tokens_[position_].kind == kind; }

  /// Steps over `text` if it is next.
  bool take(std::string_view text) {
    if (!at(text)) return false;
    ++position_;
    return true;
  }
  void expect(std::string_view text) {
    if (!take(text)) fail("expected '" + std::string(text) + "'");
  }
  std::string_view take_kind(Token::Kind kind, std::string_view what) {
    if (!at_kind(kind)) fail("expected " + std::string(what));
    return tokens_[position_++].text;
  }
  std::string_view take_name() { return take_kind(Token::Kind::name, "a name"); }

  /// The comment right here, if there is one.
  std::string_view take_comment() {
    if (position_ < tokens_.size() && tokens_[position_].kind == Token::Kind::comment) return tokens_[position_++].text;
    return {};
  }

  [[noreturn]] void fail(const std::string& what) {
    throw SyntaxError(
        what + (at_end() ? ", found the end of the line" : ", found '" + std::string(tokens_[position_].text.substr(0, 60)) + "'"));
  }

 private:
  void skip_comments() {
    while (position_ < tokens_.size() && tokens_[position_].kind == Token::Kind::comment) ++position_;
  }
  std::span<const Token> tokens_;
  std::size_t position_ = 0;
};

/// An int or float token, with the sign that stood before it. @throws SyntaxError  no number, or an int outside of 64 bits.
struct Number {
  bool is_float;
  std::int64_t integer;
  double real;
};
Number take_number(Cursor& cursor);

}  // namespace precast::ir
