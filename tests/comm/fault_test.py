"""Ranks that are killed, hang or come late: the ranks left name them in time.

Arguments: the fault_rank binary, mpirun, then unittest's. Signals go to process ids that the ranks printed themselves.
"""
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

BINARY, MPIRUN = "", ""
DEADLINE = 4.0  # seconds for the collective that fails
GRACE = 2.0  # after the deadline, by which every rank left has said what it knows
# Starting and ending three processes on a loaded machine is no part of what is measured.
LIMIT = 100.0


def mpirun(n, *flags):
    return [MPIRUN, "--oversubscribe", "--bind-to", "none", *flags, "-n", str(n), BINARY]


def torchrun(n):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n), "--no-python", BINARY]


class Job:
    """A running job whose output lines are kept with the time of their arrival."""

    def __init__(self, command, **variables):
        environment = dict(os.environ, **variables, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        self.lines = []
        self.arrived = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self.arrived:
                self.lines.append((time.monotonic(), line.rstrip()))
                self.arrived.notify_all()
        with self.arrived:
            self.arrived.notify_all()

    def text(self):
        return "\n".join(line for _, line in self.lines)

    def find(self, pattern):
        return [(when, match) for when, line in self.lines if (match := re.search(pattern, line))]

    def wait_for(self, pattern, count=1):
        """The first `count` lines that match, with their times."""
        end = time.monotonic() + LIMIT
        with self.arrived:
            while len(found := self.find(pattern)) < count:
                if time.monotonic() > end or not (self.reader.is_alive() or len(self.find(pattern)) >= count):
                    raise AssertionError(f"expected {count} lines like {pattern!r}, found {len(found)}, in:\n{self.text()}")
                self.arrived.wait(0.2)
        return found

    def pids(self, size):
        """Process ids by rank, once every rank has come to the fault."""
        return {int(m[1]): int(m[2]) for _, m in self.wait_for(r"\[rank (\d+)\] (?:waiting )?pid (\d+)", size)}

    def finish(self):
        code = self.process.wait(LIMIT)
        self.reader.join(LIMIT)
        return code

    def close(self, pids=()):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class FaultCase(unittest.TestCase):
    def start(self, command, case, victim, size, deadline=DEADLINE):
        job = Job([*command, case, str(victim), str(int(deadline * 1000))])
        self.pids = {}
        self.addCleanup(lambda: job.close(self.pids.values()))
        if case != "error":
            self.pids = job.pids(size)
        return job

    def assert_names(self, job, victim, size, phase, since):
        """Every rank but the victim names it and its own phase, in time."""
        found = job.wait_for(r"\[rank (\d+)\] lost rank: (.*)", size - 1)
        self.assertEqual({int(m[1]) for _, m in found}, set(range(size)) - {victim}, job.text())
        for when, match in found:
            self.assertRegex(match[2], rf"rank {match[1]} of {size}, {phase}: .*lost rank {victim}: ", job.text())
            self.assertLess(when - since, DEADLINE + GRACE, job.text())

    def stop_or_kill(self, command, case, victim, signal_number, phase, size=3):
        job = self.start(command, case, victim, size)
        os.kill(self.pids[victim], signal_number)
        self.assert_names(job, victim, size, phase, time.monotonic())
        if signal_number == signal.SIGSTOP:
            os.kill(self.pids[victim], signal.SIGKILL)
        code = job.finish()
        if "--enable-recovery" not in command:  # With it, Open MPI's mpirun ends with 0 whatever its ranks end with.
            self.assertNotEqual(code, 0, job.text())


class MpiFaults(FaultCase):
    def recovery(self):
        return mpirun(3, "--enable-recovery")

    def test_a_rank_killed_before_the_broadcast_is_named(self):  # C195
        self.stop_or_kill(self.recovery(), "outside", 1, signal.SIGKILL, "broadcast")

    def test_a_rank_killed_within_a_collective_is_named(self):  # C195
        self.stop_or_kill(self.recovery(), "inside", 2, signal.SIGKILL, "run")

    def test_a_rank_that_hangs_is_named(self):  # C195
        self.stop_or_kill(self.recovery(), "inside", 1, signal.SIGSTOP, "run")

    def test_the_leader_killed_is_named(self):  # C196
        self.stop_or_kill(self.recovery(), "outside", 0, signal.SIGKILL, "broadcast")

    def test_the_leader_hanging_in_capture_is_named(self):  # C196
        self.stop_or_kill(self.recovery(), "outside", 0, signal.SIGSTOP, "broadcast")

    def test_a_rank_killed_within_a_collective_of_its_group_is_named(self):  # C195
        self.stop_or_kill(mpirun(4, "--enable-recovery"), "group", 1, signal.SIGKILL, "run", size=4)

    def test_a_rank_that_hangs_within_its_group_is_named(self):  # C195
        self.stop_or_kill(mpirun(4, "--enable-recovery"), "group", 2, signal.SIGSTOP, "run", size=4)

    def test_without_recovery_the_ranks_left_say_their_phase_once(self):  # C195
        job = self.start(mpirun(3), "inside", 1, 3)
        os.kill(self.pids[1], signal.SIGKILL)
        self.assertNotEqual(job.finish(), 0, job.text())
        for rank in (0, 2):
            self.assertEqual(len(job.find(rf"precast: rank {rank} of 3: SIGTERM during run")), 1, job.text())

    def test_a_late_rank_inside_the_deadline_is_waited_for(self):  # C202
        self.late(mpirun(3))

    def test_an_error_of_one_rank_ends_the_others_by_deadline(self):  # C206
        job = self.start(self.recovery(), "error", 1, 3)
        job.finish()
        self.assertEqual(len(job.find(r"lost rank: rank . of 3, run: .*lost rank 1: ")), 2, job.text())

    def late(self, command):
        job = self.start(command, "outside", 0, 3, deadline=60.0)
        os.kill(self.pids[0], signal.SIGUSR1)
        self.assertEqual(job.finish(), 0, job.text())
        self.assertEqual(len(job.find(r"\[rank .\] received 1000")), 3, job.text())


class GlooFaults(FaultCase):
    def test_a_rank_that_hangs_is_named(self):  # C195
        self.stop_or_kill(torchrun(3), "inside", 1, signal.SIGSTOP, "run")

    def test_the_leader_hanging_in_capture_is_named(self):  # C196
        self.stop_or_kill(torchrun(3), "outside", 0, signal.SIGSTOP, "broadcast")

    def test_a_rank_that_hangs_within_its_group_is_named(self):  # C195
        self.stop_or_kill(torchrun(4), "group", 2, signal.SIGSTOP, "run", size=4)

    def test_a_rank_killed_within_a_collective_of_its_group_ends_the_others(self):  # C195
        self.each_rank_left_speaks_once("group", victim=1, size=4)

    def test_when_a_rank_is_killed_each_rank_left_speaks_once(self):  # C195
        # torchrun ends the ranks left soon after: each has found the loss by itself, or says where SIGTERM met it.
        self.each_rank_left_speaks_once("inside", victim=2, size=3)

    def each_rank_left_speaks_once(self, case, victim, size):
        job = self.start(torchrun(size), case, victim, size)
        os.kill(self.pids[victim], signal.SIGKILL)
        self.assertNotEqual(job.finish(), 0, job.text())
        for rank in set(range(size)) - {victim}:
            said = job.find(rf"precast: rank {rank} of {size}: SIGTERM during run|lost rank: rank {rank} of {size}, run: .*lost rank")
            self.assertEqual(len(said), 1, job.text())

    def test_a_late_rank_inside_the_deadline_is_waited_for(self):  # C202
        MpiFaults.late(self, torchrun(3))


class ByHand(FaultCase):
    """Ranks started without a launcher, by torchrun's variables."""

    def start_rank(self, rank, size, port, case="outside", victim=1, deadline=60.0, connect=60.0):
        variables = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        job = Job([BINARY, case, str(victim), str(int(deadline * 1000)), str(int(connect * 1000))], **{name: str(value) for name, value in variables.items()})
        self.addCleanup(job.close)
        return job

    def free_port(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            return listener.getsockname()[1]

    def test_a_second_job_on_the_same_port_is_refused_and_the_first_goes_on(self):  # C209
        port = self.free_port()
        first = [self.start_rank(rank, 2, port) for rank in range(2)]
        victim = first[1].wait_for(r"\[rank 1\] pid (\d+)")[0][1]
        second = self.start_rank(0, 2, port)
        self.assertNotEqual(second.finish(), 0, second.text())
        self.assertIn(f"rank 0 of 2, connect: MASTER_PORT={port} is used by another program", second.text())
        os.kill(int(victim[1]), signal.SIGUSR1)
        for job in first:
            self.assertEqual(job.finish(), 0, job.text())

    def test_a_rank_killed_within_a_collective_of_its_group_is_named_by_those_of_other_groups_too(self):  # C195
        port = self.free_port()
        ranks = [self.start_rank(rank, 4, port, "group", victim=1, deadline=20.0) for rank in range(4)]
        pids = [int(job.wait_for(r"pid (\d+)")[0][1][1]) for job in ranks]
        os.kill(pids[1], signal.SIGKILL)
        for rank in (0, 2, 3):
            self.assertEqual(ranks[rank].finish(), 3, ranks[rank].text())
            self.assertRegex(ranks[rank].text(), rf"lost rank: rank {rank} of 4, run: all_reduce.*; lost rank 1: ")
        # Its neighbours in a row and in a column wait for it themselves.
        self.assertIn("all_reduce among ranks 0, 1", ranks[0].text())
        self.assertIn("all_reduce among ranks 1, 3", ranks[3].text())

    def test_a_rank_that_never_starts_is_named(self):  # C195
        port = self.free_port()
        ranks = [self.start_rank(rank, 3, port, connect=DEADLINE) for rank in (0, 2)]
        for job in ranks:
            self.assertNotEqual(job.finish(), 0, job.text())
            self.assertRegex(job.text(), r"rank [02] of 3, connect: .*lost rank 1: did not come")


if __name__ == "__main__":
    BINARY, MPIRUN = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
