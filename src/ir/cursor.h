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

  [[nodiscard]] bool at_end() const { return next() == tokens_.size(); }
  [[nodiscard]] bool at(std::string_view text) const {
    return !at_end() && tokens_[next()].text == text && !at_kind(Token::Kind::string);
  }
  [[nodiscard]] bool at_kind(Token::Kind kind) const { return !at_end() && tokens_[next()].kind == kind; }

  /// Steps over `text` if it is next.
  bool take(std::string_view text) {
    if (!at(text)) return false;
    position_ = next() + 1;
    return true;
  }
  void expect(std::string_view text) {
    if (!take(text)) fail("expected '" + std::string(text) + "'");
  }
  std::string_view take_kind(Token::Kind kind, std::string_view what) {
    if (!at_kind(kind)) fail("expected " + std::string(what));
    position_ = next() + 1;
    return tokens_[position_ - 1].text;
  }
  std::string_view take_name() { return take_kind(Token::Kind::name, "a name"); }

  /// The comment right here, if there is one.
  std::string_view take_comment() {
    if (position_ < tokens_.size() && tokens_[position_].kind == Token::Kind::comment) return tokens_[position_++].text;
    return {};
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw SyntaxError(
        what + (at_end() ? ", found the end of the line" : ", found '" + std::string(tokens_[next()].text.substr(0, 60)) + "'"));
  }

 private:
  /// The next token that is no comment. Looking does not step over a comment, so that take_comment still finds it.
  [[nodiscard]] std::size_t next() const {
    std::size_t i = position_;
    while (i < tokens_.size() && tokens_[i].kind == Token::Kind::comment) ++i;
    return i;
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
