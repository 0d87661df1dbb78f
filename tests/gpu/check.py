"""What can only be checked where a GPU is: $(launcher/setup) tests/gpu/check.py [--ranks N]

The training job on one rank a GPU (or N ranks), by NCCL: broadcast and gradients, the eager backend against LibTorch eager, a package for
the GPU made by one rank for all, and a text and package without a device index. Prints 'skipped: no GPU' elsewhere.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = ["train.steps=20", "optimizer.decay_steps=20", "optimizer.warmup=2", "eval.every=20", "eval.batches=1", "train.batch=4"]


def train(folder, ranks, *settings, options=(), devices=None):
    """Report of a run that must succeed."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    command = [ROOT / "launcher" / "train", ROOT / "configs" / "gpt.toml", "--ranks", str(ranks), "--report", report, *options]
    for setting in [*SETTINGS, *settings]:
        command += ["--set", setting]
    environment = {**os.environ, "PRECAST_STORE": str(folder / "store")}
    if devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = devices
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return json.loads(report.read_text())


class Checks:
    def __init__(self):
        self.failed = 0

    def __call__(self, what, good, found=""):
        self.failed += not good
        print(f"{'good' if good else 'WRONG'}  {what}{'' if good else f': {found}'}", flush=True)


def close(losses, expected):
    return all(abs(a - b) < 1e-2 * b for a, b in zip(losses, expected, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=max(1, torch.cuda.device_count()))
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return 0
    check, ranks = Checks(), arguments.ranks
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        eager = train(folder, ranks, "backend=eager", options=["--check", "eager", "--save-artifact", folder / "eager"])
        check("the captured step has LibTorch eager's losses", close(eager["losses"], eager["eager_losses"]), eager["losses"])
        check("one rank captures", eager["captures"] == 1, eager["captures"])
        if ranks > 1:
            check("the pair and the gradients travel by NCCL", eager["transport"] == {"broadcast": "nccl", "collectives": "nccl"},
                  eager["transport"])
        compiled = train(folder, ranks, "backend=inductor", options=["--save-artifact", folder / "compiled"])
        check("one rank compiles", compiled["lowerings"] == 1, compiled["lowerings"])
        check("the compiled step has the eager backend's losses", close(compiled["losses"], eager["losses"]), compiled["losses"])
        check("every rank runs the same text", len(set(compiled["digests"])) == 1, compiled["digests"])
        code, cache = (folder / "compiled" / "step.py").read_text(), (folder / "compiled" / "step.cache").read_bytes()
        check("no device index in the text", "cuda:" not in code and "index=" not in code)
        check("no device index in the package's metadata", b"cuda:0" not in cache)
        again = train(folder, ranks, "backend=inductor", devices=",".join(map(str, reversed(range(torch.cuda.device_count())))))
        check("the package runs on devices in another order, and nothing is compiled", again["lowerings"] == 0 and
              close(again["losses"], compiled["losses"]), again["losses"])
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
