"""Backend inductor on the GPT: what compiling costs a job, and what the compiled step gains, as ratios of one run.

    $(launcher/setup) benchmarks/inductor.py [--ranks 1,2,4] [--repeat 3] [--steps 60] [--set key=value ...]

For each number of ranks under mpirun, with an empty store: processor seconds that the job spends beyond the same job with backend
eager, the time to its first step, and how long a rank takes to verify and open the package. Beside it torch.compile of the same model in
Python on as many processes, each of which compiles for itself. Then, on one rank, the compiled step beside LibTorch eager and
torch.compile.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MPIRUN = ["mpirun", *(["--allow-run-as-root"] if os.getuid() == 0 else []), "--oversubscribe", "--bind-to", "none"]


def job(ranks, backend, steps, settings, store):
    """Report and processor seconds of one run of the training job."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        command = [os.path.join(ROOT, "launcher", "train"), os.path.join(ROOT, "configs", "gpt.toml"), "--report", report]
        command += ["--ranks", str(ranks), "--with", "mpirun"]
        for setting in [f"backend={backend}", f"train.steps={steps}", f"eval.every={steps}", "eval.batches=1", "threads=1", *settings]:
            command += ["--set", setting]
        before = cpu_seconds()
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PRECAST_STORE": store})
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        with open(report) as file:
            return json.load(file), cpu_seconds() - before


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compile_cost(ranks, repeat, settings):
    """Medians over `repeat` runs, each with an empty store, of a job of one step. The held-out program is compiled too."""
    cpu, first, prime, lowerings = [], [], [], []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as store:
            report, used = job(ranks, "inductor", 1, settings, store)
            _, without = job(ranks, "eager", 1, settings, store)
        cpu.append(used - without)
        first.append(report["phases"]["first_step"])
        prime.append(report["phases"]["verify"] + report["phases"]["prime"])
        lowerings.append(report["lowerings"])
    return statistics.median(cpu), statistics.median(first), statistics.median(prime), max(lowerings)


def python_gpt(steps):
    """Run in a process of its own: the same model and sizes by torch.compile; prints first call and median step in seconds."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(1)
    width, heads, layers, batch, length = 128, 4, 4, 8, 128

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = self.c_attn(self.ln_1(x)).view(batch, length, heads, 3, width // heads).permute(3, 0, 2, 1, 4).unbind(0)
            attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.c_proj(attention.transpose(1, 2).reshape(x.shape))
            return x + self.proj(F.gelu(self.fc(self.ln_2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(256, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
            self.norm = nn.LayerNorm(width)

        def forward(self, x, y):
            x = self.blocks(self.tokens(x) + self.positions.weight)
            return F.cross_entropy(F.linear(self.norm(x), self.tokens.weight).view(-1, 256), y.view(-1))

    model = Gpt()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    times = []
    for _ in range(steps):
        x, y = torch.randint(256, (2, batch, length))
        start = time.perf_counter()
        compiled(x, y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - start)
    print(json.dumps({"first": times[0], "median": statistics.median(times[1:])}))


def torch_compile(ranks, steps):
    """Processor seconds that `ranks` processes spend on compiling, and the median step, each with a cache of its own."""
    before = cpu_seconds()
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(ranks):
            environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, str(rank)), "OMP_NUM_THREADS": "1"}
            processes.append(subprocess.Popen([sys.executable, __file__, "--python-gpt", str(steps)], env=environment, text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        results = [json.loads(process.communicate()[0]) for process in processes]
    return cpu_seconds() - before, results[0]["first"], results[0]["median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--set", action="append", default=[], metavar="key=value")
    parser.add_argument("--python-gpt", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.python_gpt:
        return python_gpt(arguments.python_gpt)

    base = None
    for ranks in map(int, arguments.ranks.split(",")):
        cpu, first, prime, lowerings = compile_cost(ranks, arguments.repeat, arguments.set)
        base = base or (cpu, first)
        print(f"{ranks} ranks: compiling {cpu:6.1f} processor s, {cpu / base[0]:5.3f} x (at most 1.02); first step after {first:5.1f} s, "
              f"{first / base[1]:5.3f} x (at most 1.05); verify and open {1000 * prime:4.0f} ms (at most 100); lowerings {lowerings}")
        used, first_call, _ = torch_compile(ranks, 2)
        print(f"         torch.compile in Python, {ranks} processes: {used:6.1f} processor s in all, first step {first_call:5.1f} s")

    with tempfile.TemporaryDirectory() as store:
        compiled = job(1, "inductor", arguments.steps, arguments.set, store)[0]["step_ms"]["median"]
        eager = job(1, "eager", arguments.steps, arguments.set, store)[0]["step_ms"]["median"]
    python = 1000 * torch_compile(1, arguments.steps)[2]
    print(f"step: compiled {compiled:.1f} ms, eager {eager:.1f} ms, torch.compile in Python {python:.1f} ms: "
          f"{compiled / min(eager, python):.2f} x the better of them (at most 0.95)")


if __name__ == "__main__":
    main()
