"""The README's program, the same binary without flags, under every launcher."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ["PRECAST_MLP"]
ROOT = pathlib.Path(__file__).resolve().parents[2]


def mpirun():
    root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    return ["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-n", "2"]


def torchrun():
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]


class ReadmeProgram(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        store = tempfile.TemporaryDirectory()
        cls.addClassCleanup(store.cleanup)
        os.environ["PRECAST_STORE"] = store.name

    def expect_one_rank_prints_a_falling_loss(self, *launcher):
        result = subprocess.run([*launcher, PROGRAM], text=True, capture_output=True, timeout=100, check=False)
        self.assertEqual(result.returncode, 0, result)
        losses = [(int(step), float(loss)) for step, loss in re.findall(r"^step (\d+) loss (\S+)$", result.stdout, re.MULTILINE)]
        self.assertEqual([step for step, _ in losses], [0, 50, 100, 150], result)
        self.assertLess(losses[-1][1], losses[0][1] / 4)

    def test_alone(self):  # C207
        self.expect_one_rank_prints_a_falling_loss()

    def test_under_torchrun(self):  # C207
        self.expect_one_rank_prints_a_falling_loss(*torchrun())

    def test_under_mpirun(self):  # C207
        self.expect_one_rank_prints_a_falling_loss(*mpirun())

    def test_the_readme_shows_this_program(self):
        self.assertIn((ROOT / "examples/mlp/mlp.cpp").read_text(), (ROOT / "README.md").read_text())


if __name__ == "__main__":
    unittest.main()
