"""Compiles the packages that package_test.cpp opens, unless they are there: make_packages.py FOLDER"""

import hashlib
import os
import stat
import sys
from pathlib import Path

# Links as g++ -ffast-math does: the library switches flushing to zero on while it is loaded.
FAST_MATH_LINKER = """#!/bin/sh
for argument; do
  [ "$argument" = -shared ] && exec g++ "$@" -ffast-math
done
exec g++ "$@"
"""


def write(folder):
    compiler = folder / "fast-math-g++"
    compiler.write_text(FAST_MATH_LINKER)
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache")

    import torch

    class Update(torch.nn.Module):
        """relu(x @ w) * 2, a view of x; adds one to p in place."""

        def forward(self, x, w, p):
            p.add_(1.0)
            return torch.relu(x @ w) * 2, x.view(-1)

    class Fallback(torch.nn.Module):
        """Also ops that the package calls by name: LibTorch keeps what it needs for them in a file of its own."""

        def forward(self, x):
            return torch.sin(x) + 1, torch.bincount(x.abs().to(torch.int64).view(-1), minlength=64)[:64]

    def compile(name, module, arguments, options):
        program = torch.export.export(module, arguments)
        options = {"aot_inductor.metadata": {"precast.name": name}, "aot_inductor.compile_wrapper_opt_level": "O0", **options}
        torch._inductor.aoti_compile_and_package(program, package_path=str(folder / f"{name}.pt2"), inductor_configs=options)

    compile("update", Update(), (torch.ones(4, 8), torch.ones(8, 8), torch.ones(3)), {"cpp.cxx": (None, str(compiler))})
    compile("fallback", Fallback(), (torch.ones(4, 8),), {})


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    from torch.version import git_version

    stamp, made_by = folder / "made-by", git_version + hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == made_by:
        return
    stamp.unlink(missing_ok=True)
    write(folder)
    stamp.write_text(made_by)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
