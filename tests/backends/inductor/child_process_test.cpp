#include "backends/inductor/child_process.h"

#include "precast/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

namespace precast::inductor {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ChildEnd run(const std::string& script, std::chrono::milliseconds time = seconds(30), std::vector<std::string>* lines = nullptr) {
  return run_child({"/bin/sh", "-c", script}, after(time), [&](std::string_view line) {
    if (lines != nullptr) lines->emplace_back(line);
  });
}

TEST(ChildProcess, GivesLinesOfBothOutputsAndTheExitCode) {
  std::vector<std::string> lines;
  const ChildEnd end = run("echo one; echo two >&2; printf three; exit 4", seconds(30), &lines);
  EXPECT_EQ(end.exit_code, 4);
  EXPECT_EQ(end.signal, 0);
  EXPECT_THAT(lines, ElementsAre("one", "two", "three"));
}

TEST(ChildProcess, KeepsTheEndOfALongOutput) {
  const ChildEnd end = run("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done");
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_LE(end.last_output.size(), 8192U);
  EXPECT_THAT(end.last_output, HasSubstr("line 19999"));
}

TEST(ChildProcess, ASignalIsTold) {
  const ChildEnd end = run("kill -SEGV $$");
  EXPECT_EQ(end.exit_code, -1);
  EXPECT_EQ(end.signal, SIGSEGV);
}

TEST(ChildProcess, IsEndedAtTheDeadlineWithWhatItStarted) {  // C196
  std::vector<std::string> lines;
  const ChildEnd end = run("sleep 1000 & echo $!; wait", std::chrono::milliseconds(300), &lines);
  EXPECT_TRUE(end.timed_out);
  EXPECT_EQ(end.signal, SIGTERM);
  ASSERT_EQ(lines.size(), 1U);
  const pid_t grandchild = std::stoi(lines[0]);
  for (int i = 0; i < 100 && ::kill(grandchild, 0) == 0; ++i) ::usleep(20'000);  // until init has reaped it
  EXPECT_EQ(::kill(grandchild, 0), -1);
}

TEST(ChildProcess, OneThatIgnoresSigtermIsKilled) {
  const ChildEnd end = run("trap '' TERM; while :; do sleep 0.1; done", std::chrono::milliseconds(200));
  EXPECT_TRUE(end.timed_out);
  EXPECT_EQ(end.signal, SIGKILL);
}

TEST(ChildProcess, InheritsNoOpenFilesButItsOutput) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // inheritable
  EXPECT_EQ(run("test ! -e /proc/self/fd/" + std::to_string(ends[0])).exit_code, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(ChildProcess, AProgramThatDoesNotExistIsNamed) {
  try {
    run_child({"/nowhere/python"}, after(seconds(1)), [](std::string_view) {});
    ADD_FAILURE();
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), ErrorCode::environment);
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/python"));
  }
}

}  // namespace
}  // namespace precast::inductor
