#pragma once

#include "precast/communicator.h"

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>

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

/// One line for a log: LibTorch's errors carry a backtrace, and some a second paragraph.
inline std::string one_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
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
