#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace precast::ir {

struct Token {
  enum class Kind { name, number, string, punctuation, comment };
  Kind kind;
  std::string_view text;  ///< As it stands, quotes and prefix of a string included, '#' and the space after it of a comment not.
  int line;
};

/// One line as Python's grammar sees it: brackets, triple quotes and backslashes continue it.
struct LogicalLine {
  int number = 0;  ///< Of its first physical line, from 1.
  int indent = 0;  ///< Blanks before its first token.
  std::vector<Token> tokens;
};

/// Cuts Python source into tokens. `text` must outlive the result.
/// @throws PrecompileError invalid_artifact  names the line where the text stops being Python: an unterminated string, a bracket
/// that nothing
///         closes or opens, a character that no token starts with.
std::vector<LogicalLine> split_lines(std::string_view text);

/// The value of a string token. @throws std::runtime_error  a bytes or f-string, or an escape that Python does not know.
std::string string_value(std::string_view token);

}  // namespace precast::ir
