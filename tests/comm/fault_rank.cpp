// A rank that fault_test.py signals. Arguments: CASE VICTIM DEADLINE_MS [CONNECT_MS]. Cases:
//   outside  the victim stays in phase 'capture' until SIGUSR1, the others wait for it in phase 'broadcast'
//   inside   all ranks reduce without end in phase 'run', the victim prints its process id after the first time
//   group    four ranks as 2x2 sum by functional collectives, first within their row, then within their column, without end
//   error    the victim throws before a collective that the others enter (its communicator ends in the ordinary way)
// What a rank prints starts with its rank; a lost rank ends the others with exit code 3.
#include "precast/communicator.h"

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using precast::after;
using precast::Communicator;

void say(const Communicator& comm, const std::string& text) {
  std::printf("[rank %d] %s\n", comm.rank(), text.c_str());
  std::fflush(stdout);
}

std::string process_id() {
  return "pid " + std::to_string(::getpid());
}

void outside(const Communicator& comm, int victim, std::chrono::milliseconds time) {
  const bool is_victim = comm.rank() == victim;
  {
    const auto phase = comm.enter(is_victim ? "capture" : "broadcast");
    if (is_victim) {
      say(comm, process_id());
      sigset_t wake;
      sigemptyset(&wake);
      sigaddset(&wake, SIGUSR1);
      int signal = 0;
      sigwait(&wake, &signal);
    } else {
      say(comm, "waiting " + process_id());
    }
    std::vector<std::byte> bytes(comm.rank() == 0 ? 1000 : 0, std::byte{7});
    comm.broadcast(bytes, 0, after(time));
    say(comm, "received " + std::to_string(bytes.size()));
  }
  comm.barrier(after(time));
}

void inside(const Communicator& comm, int victim, std::chrono::milliseconds time) {
  const auto phase = comm.enter("run");
  const at::Tensor tensor = at::ones({1 << 16});
  for (bool first = true;; first = false) {
    comm.all_reduce(tensor, precast::Reduction::max, after(time));
    if (first) say(comm, (comm.rank() == victim ? "" : "waiting ") + process_id());
  }
}

at::Tensor sum_among(const at::Tensor& tensor, const std::string& group) {
  std::vector<c10::IValue> stack = {tensor, std::string("sum"), group};
  c10::Dispatcher::singleton().findSchemaOrThrow("_c10d_functional::all_reduce", "").callBoxed(stack);
  c10::Dispatcher::singleton().findSchemaOrThrow("_c10d_functional::wait_tensor", "").callBoxed(stack);
  return stack.at(0).toTensor();
}

void group(const Communicator& comm, int victim) {
  comm.register_group("row", {{0, 1}, {2, 3}});
  comm.register_group("column", {{0, 2}, {1, 3}});
  const auto phase = comm.enter("run");
  const at::Tensor tensor = at::ones({1 << 12});
  for (bool first = true;; first = false) {
    sum_among(sum_among(tensor, "row"), "column");
    if (first) say(comm, (comm.rank() == victim ? "" : "waiting ") + process_id());
  }
}

void error(const Communicator& comm, int victim, std::chrono::milliseconds time) {
  const auto phase = comm.enter("run");
  if (comm.rank() == victim) throw std::runtime_error("wrong input on this rank");
  comm.barrier(after(time));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  const std::string which = argv[1];
  const int victim = std::stoi(argv[2]);
  const auto time = std::chrono::milliseconds(std::stoi(argv[3]));
  sigset_t wake;
  sigemptyset(&wake);
  sigaddset(&wake, SIGUSR1);
  sigprocmask(SIG_BLOCK, &wake, nullptr);  // Before any thread starts, so that all have it blocked and sigwait takes it.
  try {
    precast::CommunicatorOptions options;
    options.collective_deadline = time;
    if (argc == 5) options.init_deadline = std::chrono::milliseconds(std::stoi(argv[4]));
    const Communicator comm = Communicator::from_environment(options);
    comm.barrier(after(std::chrono::minutes(1)));
    try {
      if (which == "outside")
        outside(comm, victim, time);
      else if (which == "inside")
        inside(comm, victim, time);
      else if (which == "group")
        group(comm, victim);
      else
        error(comm, victim, time);
    } catch (const precast::PrecompileError& failure) {
      say(comm, std::string(precast::to_string(failure.code())) + ": " + failure.what());
      return 3;
    }
  } catch (const std::exception& failure) {
    std::printf("%s\n", failure.what());
    return 4;
  }
  return 0;
}
