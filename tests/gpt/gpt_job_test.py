"""The job as its users start it, on a tiny model and a small text: what it prints, its exit codes, its report, its checkpoints."""

import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ["PRECAST_GPT"]

CONFIG = """
threads = 1
[data]
path = "{text}"
glob = "*.txt"
[model]
layers = 1
width = 32
heads = 2
dropout = 0.1
[train]
steps = 6
batch = 2
sequence = 32
[optimizer]
warmup = 2
decay_steps = 12
[eval]
every = 3
batches = 2
[deadline]
collective = 60
"""

REPORT_KEYS = {
    "world_size", "launcher", "transport", "backend", "code_hash", "code_bytes", "cache_bytes", "captures", "lowerings", "digests",
    "losses", "eval_losses", "eval_captures", "phases", "step_ms", "tokens_per_s", "peak_rss_mb"}
CHECK_KEYS = {"eager_losses", "max_abs_grad_diff", "eager_step_ms"}


def mpirun(ranks):
    root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    return ["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]


def torchrun(ranks):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "--no-python"]


class JobTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        text = self.folder / "text"
        text.mkdir()
        words = random.Random(1)
        for name in "abc":
            (text / f"{name}.txt").write_text(" ".join(words.choice(["alpha", "beta", "gamma", "delta"]) for _ in range(2000)))
        self.text = text
        self.config = self.folder / "tiny.toml"
        self.config.write_text(CONFIG.format(text=text))

    def start(self, *options, launcher=()):
        environment = {name: value for name, value in os.environ.items() if name != "PRECAST_TORCH"}
        return subprocess.run([*launcher, PROGRAM, str(self.config), *options], env=environment, text=True, capture_output=True,
                              timeout=300, check=False)

    def train(self, *settings, options=(), launcher=()):
        """A run that must succeed; returns its report."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        sets = [part for setting in settings for part in ("--set", setting)]
        result = self.start("--report", str(report), *sets, *options, launcher=launcher)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return json.loads(report.read_text())

    def expect_refusal(self, text, *options, launcher=()):
        """One line of ours on stderr, an exit code that is not 0, no report."""
        report = self.folder / "refused.json"
        result = self.start("--report", str(report), *options, launcher=launcher)
        self.assertNotEqual(result.returncode, 0, result.stdout)
        ours = [line for line in result.stderr.splitlines() if line.startswith("precast_gpt: ")]
        self.assertEqual(len(ours), 1, result.stderr)
        self.assertIn(text, ours[0])
        self.assertFalse(report.exists())
        if not launcher:
            self.assertEqual(result.stderr.splitlines(), ours)


class Settings(JobTest):
    def test_wrong_settings_are_named_with_what_was_expected_and_found(self):
        for setting, text in [
            ("model.widht=3", "config key 'model.widht': expected one of model.layers, model.width, model.heads, model.dropout, "
                              "model.tied, found an unknown key"),
            ("model=3", "config key 'model': expected a table of keys, found the integer 3"),
            ("model.width=33", "config key 'model.width': expected a multiple of model.heads = 2, found 33"),
            ("model.width=wide", "config key 'model.width': expected an integer from 1 to 65536, found the string \"wide\""),
            ("model.width=32.0", "config key 'model.width': expected an integer from 1 to 65536, found the number 32"),
            ("model.layers=0", "config key 'model.layers': expected an integer from 1 to 1000, found the integer 0"),
            ("model.dropout=1", "config key 'model.dropout': expected a number from 0 to 0.99, found the integer 1"),
            ("model.tied=1", "config key 'model.tied': expected true or false, found the integer 1"),
            ("train.steps=-1", "config key 'train.steps': expected an integer from 1 to 1000000000, found the integer -1"),
            ("train.batch=[1]", "config key 'train.batch': expected an integer from 1 to 65536, found an array"),
            ("train.dtype=float16", "config key 'train.dtype': expected one of \"float32\", \"bfloat16\", found the string \"float16\""),
            ("backend=triton", "config key 'backend': expected one of \"eager\", \"inductor\", found the string \"triton\""),
            ("optimizer.lr=nan", "config key 'optimizer.lr': expected a number from 0 to 100, found the number nan"),
            ("data.path=${NOT_SET_ANYWHERE}", "config key 'data.path': expected environment variable NOT_SET_ANYWHERE to be set"),
            ("checkpoint.resume=true", "config key 'checkpoint.path': expected a folder, as checkpoint.resume is true"),
            ("train.steps", "--set: expected key=value, found 'train.steps'"),
            ("train.seed=1\nthreads = 2", "config key 'train.seed': expected an integer"),
        ]:
            with self.subTest(setting):
                self.expect_refusal(text, "--set", setting)

    def test_unreadable_config_is_named(self):
        self.config.unlink()
        self.expect_refusal(f"config '{self.config}': expected a readable file, found none")

    def test_text_that_is_no_toml_is_named_with_its_line(self):
        self.config.write_text("threads = 1\n[model\n")
        self.expect_refusal(f"config '{self.config}', line 2: expected TOML")

    def test_default_text_needs_its_environment_variable(self):
        self.config.write_text("threads = 1\n")
        self.expect_refusal("config key 'data.path': expected environment variable PRECAST_TORCH to be set")

    def test_value_is_toml_else_a_string(self):
        report = self.train("train.steps=1", f"data.path={self.text}", 'train.dtype="float32"', "backend=eager")
        self.assertEqual((len(report["losses"]), report["backend"]), (1, "eager"))

    def test_report_without_a_folder_is_refused_before_training(self):
        result = self.start("--report", str(self.folder / "none" / "report.json"))
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("--report: expected a folder that can be written", result.stderr)


    def test_models_larger_than_the_machine_are_refused_before_they_are_made(self):
        self.expect_refusal("expected a model that 1 rank(s) of this machine can hold", "--set", "model.layers=1000", "--set", "model.width=65536")

    def test_control_characters_of_a_value_do_not_break_the_line(self):
        self.expect_refusal("no\\x0asuch\\x1bfolder", "--set", 'data.path="no\\nsuch\\u001bfolder"')


class Text(JobTest):
    def test_unusable_text_is_named(self):
        empty = self.folder / "empty"
        empty.mkdir()
        (empty / "a.txt").touch()
        for settings, text in [
            (["data.path=/nonexistent/text"], "data.path: expected a folder, found none at '/nonexistent/text'"),
            (["data.glob=*.none"], "data.glob: expected files that match '*.none'"),
            ([f"data.path={empty}"], "data: expected text, found 1 empty file(s)"),
            (["train.sequence=100000"], "data: expected at least 100001 bytes of training text for one sequence"),
            (["train.batch=1000"], "data: expected at least 1000 sequences of training text for one step of all ranks"),
        ]:
            with self.subTest(text):
                self.expect_refusal(text, *[part for setting in settings for part in ("--set", setting)])


class Checkpoints(JobTest):
    def setUp(self):
        super().setUp()
        self.checkpoints = self.folder / "checkpoints"
        self.path = f"checkpoint.path={self.checkpoints}"

    def files(self):
        return sorted(path.name for path in self.checkpoints.iterdir())

    def expect_exact_resume(self, launcher):
        whole = self.train(launcher=launcher)
        self.train(self.path, "train.steps=3", launcher=launcher)
        resumed = self.train(self.path, "checkpoint.resume=true", launcher=launcher)
        self.assertEqual(resumed["losses"], whole["losses"])
        self.assertEqual(resumed["eval_losses"], whole["eval_losses"])

    def test_resumed_losses_equal_those_of_the_uninterrupted_run(self):
        self.expect_exact_resume(())

    def test_resumed_losses_are_equal_on_two_ranks(self):
        self.expect_exact_resume(mpirun(2))

    def test_resumed_run_equals_eager(self):
        self.train(self.path, "train.steps=3")
        report = self.train(self.path, "checkpoint.resume=true", options=["--check", "eager"])
        self.assertEqual(report["losses"], report["eager_losses"])

    def test_only_the_last_checkpoint_remains_and_no_temporary_file(self):
        self.train(self.path, "checkpoint.every=2")
        self.assertEqual(self.files(), ["checkpoint"])

    def expect_refused_resume(self, text, *settings, launcher=()):
        sets = [part for setting in settings for part in ("--set", setting)]
        before = [(name, (self.checkpoints / name).read_bytes()) for name in self.files()]
        self.expect_refusal(text, "--set", self.path, "--set", "checkpoint.resume=true", *sets, launcher=launcher)
        self.assertEqual([(name, (self.checkpoints / name).read_bytes()) for name in self.files()], before)

    def test_unusable_checkpoints_are_refused(self):
        self.train(self.path, "train.steps=3")
        file = self.checkpoints / "checkpoint"
        good = file.read_bytes()
        flipped = bytearray(good)
        flipped[len(good) // 2] ^= 1
        for name, damaged, text in [
            ("empty", b"", "expected a file that starts with 'precast_gpt checkpoint 1', found 0 other bytes"),
            ("foreign", b"PK\3\4" + good, "expected a file that starts with 'precast_gpt checkpoint 1'"),
            ("short", good[:30], "expected at least"),
            ("cut", good[:-1], "expected sha256"),
            ("flipped", bytes(flipped), "expected sha256"),
        ]:
            with self.subTest(name):
                file.write_bytes(damaged)
                self.expect_refused_resume(text)
        file.write_bytes(good)
        for setting, text in [
            ("model.width=64", "checkpoint: expected model.width = 64 (this run), found 32"),
            ("model.layers=2", "checkpoint: expected model.layers = 2 (this run), found 1"),
            ("train.seed=9", "checkpoint: expected train.seed = 9 (this run), found 1"),
            ("data.glob=[ab].txt", "checkpoint: expected bytes of training text"),
            ("train.steps=3", "config key 'train.steps': expected more than the checkpoint's 3, found 3"),
        ]:
            with self.subTest(setting):
                self.expect_refused_resume(text, setting)
        with self.subTest("another number of ranks"):
            self.expect_refused_resume("checkpoint: expected number of ranks = 2 (this run), found 1", launcher=mpirun(2))

    def test_text_edited_since_the_checkpoint_is_noticed(self):
        self.train(self.path, "train.steps=3")
        file = self.text / "a.txt"
        file.write_text(file.read_text().replace("alpha", "omega"))
        self.expect_refused_resume("checkpoint: expected fingerprint of training text")

    def test_missing_checkpoint_is_named(self):
        self.checkpoints.mkdir()
        self.expect_refused_resume(f"cannot read '{self.checkpoints}/checkpoint': No such file or directory")


class EagerCheck(JobTest):
    def expect_exact(self, *settings):
        report = self.train("train.steps=10", *settings, options=["--check", "eager"])
        self.assertEqual(len(report["losses"]), 10)
        self.assertEqual(report["losses"], report["eager_losses"])
        self.assertEqual(report["max_abs_grad_diff"], 0.0)

    def test_losses_and_gradients_equal_eager_with_dropout(self):  # C126 C136 C138
        self.expect_exact("model.dropout=0.2")

    def test_losses_and_gradients_equal_eager_without_dropout(self):  # C126
        self.expect_exact("model.dropout=0.0", "model.layers=2")

    def test_losses_and_gradients_equal_eager_with_an_untied_head(self):
        self.expect_exact("model.tied=false")

    def test_losses_and_gradients_equal_eager_over_micro_batches(self):  # C125 C130
        self.expect_exact("train.accumulate=3")

    def test_bfloat16_autocast_equals_eager_under_autocast(self):  # C100
        report = self.train("train.dtype=bfloat16", options=["--check", "eager"])
        self.assertEqual(report["losses"], report["eager_losses"])

    def test_verdict_is_the_last_line(self):
        result = self.start("--check", "eager")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1],
                         "check eager: passed; losses equal to the last bit over 6 steps, largest difference of a gradient 0")


class Report(JobTest):
    def test_outputs_with_no_place_are_named_before_anything_runs(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for options, text in [
            (["--report", str(pipe)], f"cannot write '{pipe}': expected a file, or a name that is free"),
            (["--report", str(self.folder)], f"cannot write '{self.folder}'"),
            (["--save-artifact", str(self.config / "x")], "--save-artifact: expected a folder that can be written"),
            (["--set", f"checkpoint.path={self.config}"], "config key 'checkpoint.path': expected a folder that can be written"),
        ]:
            with self.subTest(options[-1]):
                result = self.start(*options)
                self.assertEqual(result.returncode, 1)
                self.assertIn(text, result.stderr)
                self.assertEqual(len(result.stderr.splitlines()), 1)
        self.assertTrue(pipe.is_fifo())

    def test_leftovers_of_killed_writers_are_removed(self):
        leftover, other = self.folder / "report.json.123.partial", self.folder / "report.json.123.mine.partial"
        for file in (leftover, other):
            file.write_text("{")
        self.train()
        self.assertEqual((leftover.exists(), other.exists()), (False, True))

    def test_has_exactly_the_documented_keys(self):
        self.assertEqual(set(self.train()), REPORT_KEYS)
        self.assertEqual(set(self.train(options=["--check", "eager"])), REPORT_KEYS | CHECK_KEYS)

    def test_tells_of_one_process(self):
        report = self.train(options=["--save-artifact", str(self.folder / "artifact")])
        code = (self.folder / "artifact" / "step.py").read_bytes()
        cache = (self.folder / "artifact" / "step.cache").read_bytes()
        self.assertEqual((report["world_size"], report["launcher"], report["backend"]), (1, "none", "eager"))
        self.assertEqual(report["digests"], [hashlib.sha256(code).hexdigest()])
        self.assertEqual(report["code_hash"], report["digests"][0])
        self.assertEqual((report["code_bytes"], report["cache_bytes"]), (len(code), len(cache)))
        self.assertEqual((report["captures"], report["eval_captures"]), (1, 1))
        self.assertEqual((len(report["losses"]), len(report["eval_losses"]), len(report["peak_rss_mb"])), (6, 2, 1))
        self.assertEqual(set(report["phases"]), {"init", "capture", "lower", "broadcast", "verify", "prime", "first_step"})
        self.assertEqual(set(report["step_ms"]), {"median", "min", "p95"})
        self.assertLess(report["phases"]["init"], report["phases"]["first_step"])

    def test_plain_lines_where_the_output_is_no_terminal(self):
        self.expect_plain_lines(())

    def test_plain_lines_where_the_output_of_mpirun_is_no_terminal(self):
        self.expect_plain_lines(mpirun(1))

    def expect_plain_lines(self, launcher):
        result = self.start(launcher=launcher)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual([line for line in lines if not re.fullmatch(
            r"step \d/6  (loss \d+\.\d{4}  \d+ tokens/s  \d+:\d\d left|held-out loss \d+\.\d{4} nats/byte)", line)], [])
        self.assertEqual(len(lines), 8)


class TwoRanks(JobTest):
    def expect_two_ranks(self, launcher, name):
        report = self.train("train.accumulate=2", options=["--check", "eager"], launcher=launcher)
        self.assertEqual((report["world_size"], report["launcher"]), (2, name))
        self.assertEqual((report["captures"], report["eval_captures"]), (1, 1))
        self.assertEqual(report["digests"], [report["code_hash"]] * 2)
        self.assertEqual(len(report["peak_rss_mb"]), 2)
        self.assertEqual(report["losses"], report["eager_losses"])

    def test_mpirun_captures_once(self):  # C207
        self.expect_two_ranks(mpirun(2), "openmpi")

    def test_torchrun_captures_once(self):  # C207
        self.expect_two_ranks(torchrun(2), "torchrun")

    def test_equal_global_batches_give_close_losses(self):  # C142
        """Without dropout, two ranks, two micro-batches and one large batch are the same step up to the order of additions."""
        one = self.train("model.dropout=0.0", "train.batch=4")["losses"]
        micro = self.train("model.dropout=0.0", "train.accumulate=2")["losses"]
        ranks = self.train("model.dropout=0.0", launcher=mpirun(2))["losses"]
        for expected, a, b in zip(one, micro, ranks, strict=True):
            self.assertAlmostEqual(a, expected, delta=1e-4)
            self.assertAlmostEqual(b, expected, delta=1e-4)

    def expect_disagreement(self, text, first, second):
        """Rank 0 started with the options `first`, rank 1 with `second`."""
        report = ["--report", str(self.folder / "refused.json")]
        self.expect_refusal(text, *first, ":", "-n", "1", PROGRAM, str(self.config), *report, *second, launcher=mpirun(1))

    def test_ranks_that_were_told_otherwise_are_named_before_they_train(self):
        for text, first, second in [
            ("config key 'optimizer.lr': expected '0.1' as on rank 0, found '0.2'", ["optimizer.lr=0.1"], ["optimizer.lr=0.2"]),
            ("config key 'train.steps': expected '6' as on rank 0, found '7'", [], ["train.steps=7"]),
            ("config key 'inductor.settings': expected '{}' as on rank 0, found '{x = 1}'", [], ["inductor.settings.x=1"]),
        ]:
            with self.subTest(text):
                sets = [[part for setting in settings for part in ("--set", setting)] for settings in (first, second)]
                self.expect_disagreement(text, *sets)
        with self.subTest("--report"):
            result = self.start("--report", str(self.folder / "r.json"), ":", "-n", "1", PROGRAM, str(self.config), launcher=mpirun(1))
            self.assertIn("--report: expected 'given' as on rank 0, found 'not given'", result.stderr)
            self.assertNotEqual(result.returncode, 0)

    def test_text_that_differs_between_ranks_is_noticed(self):
        other = self.folder / "other"
        other.mkdir()
        for file in self.text.iterdir():
            (other / file.name).write_text(file.read_text().replace("alpha", "omega"))
        self.expect_disagreement("fingerprint of held-out text: expected", [], ["--set", f"data.path={other}"])

    def test_wrong_setting_is_printed_by_one_rank(self):
        for launcher in (mpirun(2), torchrun(2)):
            with self.subTest(launcher[0]):
                self.expect_refusal("config key 'model.width': expected a multiple of model.heads = 2, found 33", "--set", "model.width=33",
                                    launcher=launcher)

    def test_unusable_text_is_printed_by_one_rank(self):
        self.expect_refusal("data.path: expected a folder, found none", "--set", "data.path=/nonexistent/text", launcher=mpirun(2))


class Inductor(JobTest):
    """Compiled by one rank for all, against the eager backend. Each program is compiled once and then found in the store."""

    @classmethod
    def setUpClass(cls):
        store = tempfile.TemporaryDirectory()
        cls.addClassCleanup(store.cleanup)
        os.environ["PRECAST_STORE"] = store.name

    @classmethod
    def tearDownClass(cls):
        del os.environ["PRECAST_STORE"]

    def expect_like_eager(self, launcher, *settings):
        ours = self.train("backend=inductor", *settings, launcher=launcher)
        eager = self.train("backend=eager", *settings, launcher=launcher)
        self.assertEqual(ours["backend"], "inductor")
        self.assertEqual((ours["captures"], len(set(ours["digests"]))), (1, 1))
        for loss, other in zip(ours["losses"] + ours["eval_losses"], eager["losses"] + eager["eval_losses"], strict=True):
            self.assertLess(abs(loss - other), 1e-3 * other)
        return ours

    def test_one_rank_lowers_and_the_next_job_finds_its_package(self):  # C126 C164 C189
        settings = ["train.steps=20", "optimizer.decay_steps=20"]
        first = self.expect_like_eager(torchrun(2), *settings)
        self.assertEqual(first["lowerings"], 1)
        self.assertGreater(first["phases"]["lower"], 1)
        self.assertGreater(first["cache_bytes"], 100_000)
        self.assertEqual(self.expect_like_eager(mpirun(2), *settings)["lowerings"], 0)

    def test_a_plan_on_four_ranks(self):  # C145
        report = self.expect_like_eager(mpirun(4), "plan=fsdp+tp", "mesh={dp=2,tp=2}", "eval.every=0", "eval.batches=1")
        self.assertEqual(report["lowerings"], 1)

    def test_settings_that_are_wrong(self):
        self.expect_refusal("'cpp.thread'", "--set", "backend=inductor", "--set", "inductor.settings.cpp.thread=1")
        self.expect_refusal("config key 'inductor.settings.x': expected a boolean, a number or a string, found an array", "--set",
                            "inductor.settings={x=[1]}")
        self.expect_refusal("config key 'inductor.target': expected one of", "--set", "inductor.target=pentium")

    def test_without_a_python_the_job_ends_or_runs_op_by_op_as_asked(self):  # C194
        sets = ["--set", "backend=inductor", "--set", "inductor.python=/nowhere/python", "--set", "model.width=48"]
        self.expect_refusal("/nowhere/python", *sets, launcher=mpirun(2))
        report = self.train("backend=inductor", "inductor.python=/nowhere/python", "model.width=48", "fallback=eager", launcher=mpirun(2))
        eager = self.train("model.width=48", launcher=mpirun(2))
        self.assertEqual(report["losses"], eager["losses"])


class Plans(JobTest):
    """Parameters on a mesh: every plan trains the same model, and is what its own eager DTensors are."""

    PLANS = [
        (2, ["plan=ddp", "mesh.dp=2", "train.batch=4"]),
        (2, ["plan=fsdp", "mesh.dp=2", "train.batch=4"]),
        (2, ["plan=tp", "mesh.tp=2", "train.batch=8"]),
        (4, ["plan=fsdp+tp", "mesh={dp=2,tp=2}", "train.batch=4"]),
        (4, ["plan=hsdp", "mesh={replicate=2,shard=2}", "train.batch=2"]),
    ]
    COMMON = ["train.steps=50", "optimizer.decay_steps=50", "eval.every=0", "optimizer.lr=1e-3"]

    def expect_close(self, losses, expected):
        self.assertEqual(len(losses), len(expected))
        for loss, other in zip(losses, expected):
            self.assertLess(abs(loss - other), 1e-5 * abs(other))

    def test_losses_equal_those_of_one_rank_under_every_plan(self):  # C142 C143 C144 C145 C160
        one = self.train("plan=ddp", "mesh.dp=1", "train.batch=8", *self.COMMON)
        for ranks, settings in self.PLANS:
            with self.subTest(settings=settings):
                report = self.train(*settings, *self.COMMON, launcher=mpirun(ranks))
                self.assertEqual(report["captures"], 1)
                self.assertEqual(len(set(report["digests"])), 1)
                self.expect_close(report["losses"], one["losses"])

    def test_captured_plans_equal_eager_dtensors_under_torchrun(self):  # C141 C145
        for ranks, settings in self.PLANS[1:4]:
            with self.subTest(settings=settings):
                report = self.train(*settings, options=("--check", "eager"), launcher=torchrun(ranks))
                self.assertEqual(report["losses"], report["eager_losses"])
                self.assertEqual(report["max_abs_grad_diff"], 0)

    def test_checkpoints_do_not_depend_on_the_mesh(self):
        folder = self.folder / "checkpoints"
        keep = [f"checkpoint.path={folder}", "model.dropout=0.0"]
        settings = ["optimizer.decay_steps=12"]
        whole = self.train("plan=ddp", "mesh.dp=1", "train.batch=8", "train.steps=12", "model.dropout=0.0", *settings)
        self.train("plan=fsdp+tp", "mesh={dp=2,tp=2}", "train.batch=4", "train.steps=6", *keep, *settings, launcher=mpirun(4))
        saved = (folder / "checkpoint").read_bytes()
        for ranks, resumed in [(1, ["plan=ddp", "mesh.dp=1", "train.batch=8"]), (4, ["plan=ddp", "mesh.dp=4", "train.batch=2"])]:
            with self.subTest(ranks=ranks):
                (folder / "checkpoint").write_bytes(saved)
                report = self.train(*resumed, "train.steps=12", "checkpoint.resume=true", *keep, *settings, launcher=mpirun(ranks))
                self.expect_close(report["losses"], whole["losses"])

    def test_wrong_plans_are_named(self):
        for settings, text in [
            (["mesh.dp=2"], "config key 'plan': expected a plan, as mesh is set, found none"),
            (["plan=fsdp"], "config key 'mesh': expected the dimension dp, for plan 'fsdp', found {}"),
            (["plan=hsdp", "mesh.dp=2"], "config key 'mesh': expected the dimensions replicate and shard"),
            (["plan=tp", "mesh.tp=3"], "config key 'mesh.tp': expected a divisor of model.heads = 2"),
            (["plan=ddp", "mesh.dp=3"], "mesh"),
        ]:
            with self.subTest(settings=settings):
                self.expect_refusal(text, *[part for setting in settings for part in ("--set", setting)])


if __name__ == "__main__":
    unittest.main()
