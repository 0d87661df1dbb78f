"""The captured GPT step beside LibTorch eager, in one process and one run, as ratios.

    $(launcher/setup) benchmarks/step.py [CONFIG] [--steps N] [--set key=value ...]

Runs the training job on one rank with `--check eager`: both models take the same batches, turn by turn, and their losses and gradients
are compared to the last bit. Prints medians in milliseconds and what the project asks of them; exits 1 where the results differ.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(config, settings):
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        command = [os.path.join(ROOT, "launcher", "train"), config, "--with", "none", "--check", "eager", "--report", report]
        for setting in settings:
            command += ["--set", setting]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        with open(report) as file:
            return json.load(file)


def main():
    parser = argparse.ArgumentParser(description="The captured GPT step beside LibTorch eager, as ratios of one run.")
    parser.add_argument("config", nargs="?", default=os.path.join(ROOT, "configs", "gpt.toml"))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--set", action="append", default=[], metavar="key=value")
    arguments = parser.parse_args()
    report = run(arguments.config, [f"train.steps={arguments.steps}", f"eval.every={arguments.steps}", *arguments.set])

    step, eager = report["step_ms"]["median"], report["eager_step_ms"]["median"]
    capture = 1000 * report["phases"]["capture"]
    print(f"step     {step:8.1f} ms  {step / eager:5.2f} x eager (at most 1.00)")
    print(f"eager    {eager:8.1f} ms")
    print(f"capture  {capture:8.1f} ms  {(capture - 50) / eager:5.2f} x eager after 50 ms (at most 2.00)")
    same = report["losses"] == report["eager_losses"] and report["max_abs_grad_diff"] == 0
    print(f"{arguments.steps} losses and all gradients equal eager to the last bit: {same}")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
