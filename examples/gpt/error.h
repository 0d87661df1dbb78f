#pragma once

#include "precast/communicator.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace gpt {

/// Bad input to the job: the text names the thing, what was expected and what was found.
class JobError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An error that every rank holds at the same time, so that rank 0 alone prints it.
class AgreedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The text with control characters written as "\x0a": a path or value may hold a line break, or what moves a terminal's cursor.
inline std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out;
}

/// One line for a log. LibTorch's errors carry a backtrace, and some a second paragraph: their first line says it.
inline std::string one_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  if (torch_error == nullptr) return printable(error.what());
  const std::string text = torch_error->what_without_backtrace();
  return printable(text.substr(0, text.find('\n')));
}

/// Runs `work`, which calls no collective, on this rank, and leaves together with the other ranks. Collective.
/// @throws AgreedError  work threw on some rank. Rank 0's text is its own where it has one.
template <class Work>
void together(const precast::Communicator& comm, std::chrono::milliseconds deadline, const Work& work) {
  precast::Finding mine;
  try {
    work();
  } catch (const std::exception& error) {  // whatever it is, the others wait for our answer
    mine = {precast::ErrorCode::environment, one_line(error)};
  }
  const precast::Verdict verdict = comm.agree(mine, precast::after(deadline));
  if (!verdict.ok()) throw AgreedError(mine.ok() ? verdict.text : mine.text);
}

}  // namespace gpt
