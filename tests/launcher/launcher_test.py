"""The launcher's scripts as a user meets them: their exit codes and the one line they print. Nothing here installs or builds."""

import os
import pathlib
import re
import subprocess
import tempfile
import textwrap
import threading
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(script, *arguments, **environment):
    return subprocess.run(
        [ROOT / "launcher" / script, *arguments],
        env={**os.environ, **environment}, cwd=ROOT, text=True, capture_output=True, timeout=60, check=False)


class TrainArguments(unittest.TestCase):
    def expect_refusal(self, text, *arguments):
        result = run("train", *arguments)
        self.assertEqual(result.returncode, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr, f"train: {text}\n")

    def test_help_names_every_option(self):
        result = run("train", "--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for option in ("--ranks", "--with", "--set", "--report", "--check eager", "--save-artifact"):
            self.assertIn(option, result.stdout)

    def test_no_config_is_refused(self):
        self.expect_refusal("no config given: launcher/train configs/gpt.toml")

    def test_missing_config_is_named(self):
        self.expect_refusal("config 'configs/none.toml': expected a readable file", "configs/none.toml")

    def test_second_config_is_refused(self):
        self.expect_refusal("one config expected, found 'a.toml' and 'b.toml'", "a.toml", "b.toml")

    def test_unknown_option_is_named(self):
        self.expect_refusal("unknown option '--rank': see launcher/train --help", "configs/gpt.toml", "--rank", "2")

    def test_ranks_must_be_a_positive_number(self):
        for value in ("0", "-1", "two", "1.5", "2x"):
            with self.subTest(value):
                self.expect_refusal(f"--ranks: expected a number from 1, found '{value}'", "configs/gpt.toml", "--ranks", value)

    def test_option_without_value_is_refused(self):
        for option in ("--ranks", "--with", "--set", "--report", "--check", "--save-artifact"):
            with self.subTest(option):
                self.expect_refusal(f"{option} needs a value: see launcher/train --help", "configs/gpt.toml", option)

    def test_unknown_launcher_is_named(self):
        self.expect_refusal("--with: expected torchrun, mpirun or none, found 'srun'", "configs/gpt.toml", "--with", "srun")

    def test_unknown_check_is_named(self):
        self.expect_refusal("--check: expected eager, found 'inductor'", "configs/gpt.toml", "--check", "inductor")

    def test_set_without_equals_sign_is_refused(self):
        self.expect_refusal("--set: expected key=value, found 'train.steps'", "configs/gpt.toml", "--set", "train.steps")

    def test_one_process_cannot_be_two_ranks(self):
        self.expect_refusal("--with none runs one process, found --ranks 2: use torchrun or mpirun",
                            "configs/gpt.toml", "--with", "none", "--ranks", "2")


class Setup(unittest.TestCase):
    """System programs are replaced on PATH; what is asked is what our script does with their answers."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        self.environment = {
            "PATH": f"{self.programs}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(self.folder / "cache"), "LOG": str(self.folder / "log")}

    def program(self, name, text):
        path = self.programs / name
        path.write_text("#!/bin/bash\n" + textwrap.dedent(text))
        path.chmod(0o755)

    def log(self):
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def all_packages_installed(self):
        self.program("dpkg-query", 'shift 3; printf "%s installed\\n" "$@"')

    def fake_python(self):
        """`python3 -m venv` makes an environment whose pip fails as long as the file `offline` exists."""
        self.program("python3", r"""
            mkdir -p "$3/bin"
            echo venv >> "$LOG"
            cat > "$3/bin/python" <<'END'
            #!/bin/bash
            echo pip >> "$LOG"
            [[ ! -e ${LOG%/*}/offline ]]
            END
            chmod +x "$3/bin/python"
            """)

    def test_user_without_root_is_told_what_is_missing(self):
        self.program("dpkg-query", 'shift 3; printf "%s installed\\n" "$@" | grep -v -e ^ninja-build -e ^ccache; exit 1')
        self.program("id", "echo 1000")
        self.program("apt-get", 'echo apt-get "$@" >> "$LOG"')
        result = run("setup", **self.environment)
        self.assertEqual(result.returncode, 2, result)
        self.assertEqual(result.stderr.splitlines(), [
            "setup: missing system packages: ccache ninja-build",
            "setup: ask root to run: apt-get update && apt-get install -y --no-install-recommends ccache ninja-build"])
        self.assertEqual(self.log(), [])

    def test_root_installs_what_is_missing_with_fresh_lists_where_the_first_try_fails(self):
        self.program("dpkg-query", 'shift 3; printf "%s installed\\n" "$@" | grep -v ^ccache; exit 1')
        self.program("id", "echo 0")
        self.program("apt-get", 'echo "$1" >> "$LOG"; [[ $1 == update || $(grep -c install "$LOG") == 2 ]]')
        self.fake_python()
        result = run("setup", **self.environment)
        self.assertEqual(result.returncode, 0, result)
        self.assertEqual(self.log(), ["install", "update", "install", "venv", "pip"])

    def test_second_call_makes_nothing(self):
        self.all_packages_installed()
        self.fake_python()
        first, second = (run("setup", **self.environment) for _ in range(2))
        self.assertEqual(first.returncode, 0, first)
        self.assertEqual(second.stderr, "")
        self.assertEqual(first.stdout, second.stdout)
        self.assertEqual(self.log(), ["venv", "pip"])

    def test_interrupted_download_is_done_again(self):
        self.all_packages_installed()
        self.fake_python()
        (self.folder / "offline").touch()
        self.assertEqual(run("setup", **self.environment).returncode, 2)
        (self.folder / "offline").unlink()
        self.assertEqual(run("setup", **self.environment).returncode, 0)
        self.assertEqual(self.log(), ["venv", "pip", "venv", "pip"])

    def test_two_calls_at_once_make_one_environment(self):
        self.all_packages_installed()
        self.fake_python()
        results = []
        calls = [threading.Thread(target=lambda: results.append(run("setup", **self.environment))) for _ in range(2)]
        for call in calls:
            call.start()
        for call in calls:
            call.join()
        self.assertEqual([result.returncode for result in results], [0, 0], results)
        self.assertEqual(self.log(), ["venv", "pip"])

    def test_no_home_is_refused_in_one_line(self):
        result = run("setup", XDG_CACHE_HOME="", HOME="")
        self.assertEqual(result.returncode, 2, result)
        self.assertEqual(result.stderr,
                         "setup: neither XDG_CACHE_HOME nor HOME is set: set one to a folder with 6 GB of space\n")


class DefaultConfig(unittest.TestCase):
    def test_it_holds_every_key_of_the_job_and_no_other(self):
        with open(ROOT / "configs/gpt.toml", "rb") as file:
            config = tomllib.load(file)
        written = set()
        for name, value in config.items():
            written |= {f"{name}.{key}" for key in value} if isinstance(value, dict) else {name}
        known = set(re.findall(r'^ *\{"([a-z0-9_.]+)", ', (ROOT / "examples/gpt/config.cpp").read_text(), re.MULTILINE))
        self.assertEqual(written, known)


if __name__ == "__main__":
    unittest.main()
