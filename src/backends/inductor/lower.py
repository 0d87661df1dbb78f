"""Compiles one program text to an AOTInductor package: python -u lower.py REQUEST.json

The text is the `python_code` of a pair, whose `call` takes flat tensors and returns flat tensors. No weights are read: shapes, strides
and dtypes come from the text's literals, and tracing runs on fake tensors. The package takes the tensors among `call`'s arguments, in
their order, and writes mutations back into them. Exit code 0 and `"ok": true` in the result, or 1 and an error with its kind:
"request", "unsupported", "environment", "compiler", "internal".
"""

import ast
import contextlib
import ctypes
import difflib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

BASE_KEYS = {
    "program": str,
    "package": str,
    "result": str,
    "torch": (dict, type(None)),  # version and git revision that the package is for; null: any
    "groups": dict,
    "march": str,
    "simdlen": (int, type(None)),
    "threads": (int, type(None)),
    "wrapper_opt_level": str,
    "options": dict,
    "cpus": (list, type(None)),
}


class Refusal(Exception):
    """What the caller can act on. `kind` is one of those in the module's docstring."""

    def __init__(self, kind, error):
        super().__init__(error)
        self.kind = kind


def progress(text):
    print(text, file=sys.stderr, flush=True)


# ---------------------------------------------------------------- request and result


def check_request(request):
    for key, kind in BASE_KEYS.items():
        if key not in request:
            raise Refusal("request", f"request: '{key}' is missing")
        if not isinstance(request[key], kind) or isinstance(request[key], bool):
            raise Refusal("request", f"request: '{key}' is {request[key]!r}, a {type(request[key]).__name__}")
    unknown = sorted(request.keys() - BASE_KEYS.keys())
    if unknown:
        raise Refusal("request", f"request: unknown key '{unknown[0]}'; known are {', '.join(BASE_KEYS)}")
    for group, size in request["groups"].items():
        if not isinstance(size, int) or size < 1:
            raise Refusal("request", f"request: group '{group}' has size {size!r}; expected an integer of at least 1")


def write_whole(path, write):
    """`write(temporary)` makes the file beside `path`; it is renamed only when it is complete and on disk."""
    stem, suffix = os.path.splitext(path)
    temporary = f"{stem}.{os.getpid()}.tmp{suffix}"
    try:
        write(temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def write_result(path, result):
    def write(temporary):
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)

    write_whole(path, write)


# ---------------------------------------------------------------- process


def own_group(clean_up):
    """The compilers run in this process's group, so that a SIGTERM ends them too; `clean_up` is called before the process ends."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)

    def end(number, frame):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
        clean_up()
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    end_with_parent()


def end_with_parent():
    """A rank that is killed has nobody left to read the package: the kernel then sends SIGTERM (Linux; elsewhere the compiler goes on)."""
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        parent = os.getppid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it was too late
            os.kill(os.getpid(), signal.SIGTERM)


def take_cpus(cpus):
    if cpus is not None:
        try:
            os.sched_setaffinity(0, cpus)
        except (OSError, ValueError, TypeError) as error:
            raise Refusal("environment", f"cpus {cpus}: {error}; name cores of this machine that the job may use") from error


def writable(folder):
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def set_environment(scratch):
    """Before torch is imported. Inductor's cache stays where it is where that can be written: headers precompiled there save seconds."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # one kernel file: a pool of workers would only be started and stopped
    os.environ["TRITON_CACHE_DIR"] = os.path.join(scratch, "triton")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # fake tensors compute nothing
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        from getpass import getuser

        try:
            user = getuser()
        except (KeyError, OSError):
            user = f"uid_{os.getuid()}"
        if not writable(os.path.join(tempfile.gettempdir(), f"torchinductor_{user}")):
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(scratch, "cache")


# ---------------------------------------------------------------- the text


class Program:
    """A text that was run as a module: `call`, and the flat inputs as (name, shape, strides, dtype, device), shape None for no tensor."""

    def __init__(self, path):
        import linecache

        with open(path, encoding="utf-8") as file:
            self.text = file.read()
        self.file = "<program>"
        self.lines = self.text.splitlines()
        linecache.cache[self.file] = (len(self.text), None, [line + "\n" for line in self.lines], self.file)
        self.literals = {"__name__": "program"}
        try:
            exec(compile(self.text, self.file, "exec"), self.literals)
        except Exception as error:
            raise Refusal("request", f"program '{path}' cannot be read: {type(error).__name__}: {error}") from error
        if not callable(self.literals.get("call")):
            raise Refusal("request", f"program '{path}' defines no call(args)")
        self.call = self.literals["call"]
        self.inputs = self._inputs()

    def _inputs(self):
        inputs = []
        for kind in ("PARAM", "BUFFER", "USER_INPUT"):
            shapes, dtypes, devices = (self._literal(f"{kind}_{what}") for what in ("SHAPES", "DTYPES", "DEVICES"))
            strides = self.literals.get(f"{kind}_STRIDES", [None] * len(shapes))
            names = self.literals.get(f"{kind}_NAMES", [f"{kind.lower()} {i}" for i in range(len(shapes))])
            for what, values in (("DTYPES", dtypes), ("DEVICES", devices), ("STRIDES", strides), ("NAMES", names)):
                if len(values) != len(shapes):
                    raise Refusal("request", f"{kind}_{what}: expected {len(shapes)} entries, as in {kind}_SHAPES, found {len(values)}")
            inputs += zip(names, shapes, strides, dtypes, devices)
        for name, is_generator in zip(names, self.literals.get("USER_INPUT_GENERATORS", [])):  # user inputs are the last
            if is_generator:
                raise Refusal("unsupported", f"input '{name}' is a random generator, which a package cannot take; use backend 'eager'")
        for group in self.literals.get("MESH_INPUTS", []):
            inputs.append((f"rank in {group}", (), None, "torch.int64", "cpu"))
        return inputs

    def _literal(self, name):
        if name not in self.literals:
            raise Refusal("request", f"the program lacks the literal {name}")
        return self.literals[name]

    def current_line(self, frames):
        """Number of the line of the text that the innermost of these (frame, line number) pairs is in; None outside of the text."""
        found = [line for frame, line in frames if frame.f_code.co_filename == self.file]
        return found[-1] if found else None

    def quote(self, line):
        return f"line {line} of the program: {self.lines[line - 1].split('  # ')[0].strip()}" if line else "the program"


def check_torch(expected, torch):
    found = {"version": torch.__version__, "git": torch.version.git_version}
    if expected is not None and found["git"] != expected.get("git"):
        raise Refusal(
            "environment",
            f"'{sys.executable}' has torch {found['version']} ({found['git']}), this process has LibTorch {expected.get('version')} "
            f"({expected.get('git')}); use one environment for both",
        )


def fake_inputs(program, mode):
    import torch

    def make(name, shape, strides, dtype, device):
        if shape is None:
            return None
        if strides is None:
            return torch.empty(shape, dtype=getattr(torch, dtype.removeprefix("torch.")), device=device)
        if len(strides) != len(shape):
            raise Refusal("request", f"input '{name}': expected {len(shape)} strides, as in its shape, found {tuple(strides)}")
        return torch.empty_strided(shape, strides, dtype=getattr(torch, dtype.removeprefix("torch.")), device=device)

    with mode:
        return [make(*entry) for entry in program.inputs]


# ---------------------------------------------------------------- trace


def run_checked(program, values, mode):
    """Runs `call` on fake tensors, for errors that name a line, and for what it returns."""
    import torch

    try:
        with mode, torch.no_grad():
            outputs = program.call(list(values))
    except Exception as error:
        line = program.current_line(traceback.walk_tb(error.__traceback__))
        kind = "unsupported"
        raise Refusal(kind, f"{program.quote(line)}: {type(error).__name__}: {error}") from error
    for i, output in enumerate(outputs):
        if not isinstance(output, torch.Tensor):
            raise Refusal("unsupported", f"output {i} is {output!r}, no tensor; a package returns tensors only")
    return outputs


def symbolic_graph(program):
    """`call` as an FX graph whose nodes know their line. Inputs that were one tensor become one placeholder's value."""
    from torch import fx
    from torch.overrides import TorchFunctionMode

    class Recorder(TorchFunctionMode):
        """Takes factories too, which have no argument that could stand for a value."""

        def __torch_function__(self, func, types, args=(), kwargs=None):
            proxy = tracer.create_proxy("call_function", func, args, kwargs or {})
            proxy.node.meta["line"] = program.current_line(reversed(list(traceback.walk_stack(sys._getframe()))))
            return proxy

    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    values = []
    for i, (name, shape, *_) in enumerate(program.inputs):
        values.append(None if shape is None else fx.Proxy(graph.placeholder(f"arg{i}"), tracer))
    for i, j in program.literals.get("INPUT_ALIASES", []):
        values[max(i, j)] = values[min(i, j)]
    with Recorder():
        outputs = program.call(values)
    graph.output(tuple(output.node for output in outputs))
    return fx.GraphModule({}, graph)


# ---------------------------------------------------------------- groups


def holds_collectives(program):
    return "_c10d_functional" in program.text or "_dtensor" in program.text


def make_groups(groups):
    """Fake process groups under the logical names. Only the names go into the package."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import _register_process_group
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not groups:
        return
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=max(groups.values()))
    for name, size in groups.items():
        _register_process_group(name, dist.new_group(list(range(size))))


# ---------------------------------------------------------------- configuration


def compiler_version(cxx):
    return subprocess.run([cxx, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def compiler_macros(cxx, march):
    command = [cxx, *([f"-march={march}"] if march else []), "-dM", "-E", "-x", "c++", os.devnull]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise Refusal("environment", f"C++ compiler '{cxx}' is not on PATH; install it or set CXX") from error
    except subprocess.CalledProcessError as error:
        raise Refusal("environment", f"'{' '.join(command)}' failed: {last_lines(error.stderr)}") from error
    return {line.split()[1] for line in done.stdout.splitlines() if line.startswith("#define ")}


def find_compiler():
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        return get_cpp_compiler()
    except InvalidCxxCompiler as error:
        wanted = f"CXX={os.environ['CXX']}" if "CXX" in os.environ else "g++ or clang++"
        raise Refusal("environment", f"no C++ compiler that runs was found ({wanted}); install one or set CXX") from error


def pin_instruction_set(cxx, march, simdlen):
    """Makes Inductor vectorise for what `march` has, and not for what this machine has besides. Returns the vector width in bits.

    Inductor adds flags for every extension that it finds on the compiling machine (VNNI, bfloat16, AMX); a rank on a lesser machine of
    the same `march` would end with an illegal instruction.
    """
    from torch._inductor import cpu_vec_isa

    macros = compiler_macros(cxx, march)
    if march == "native" or not macros & {"__x86_64__"}:
        return cpu_vec_isa.pick_vec_isa().bit_width()

    class PlainAvx512(cpu_vec_isa.VecAVX512):
        __hash__ = cpu_vec_isa.VecISA.__hash__

        def __bool__(self):
            return True

        def is_avx512_bf16_supported(self):
            return False

        def build_arch_flags(self):
            return self._arch_flags

    known = []
    if {"__AVX512F__", "__AVX512DQ__", "__AVX512VL__", "__AVX512BW__"} <= macros:
        known.append(PlainAvx512())
    if {"__AVX2__", "__FMA__", "__F16C__"} <= macros:
        known.append(cpu_vec_isa.VecAVX2())
    cpu_vec_isa.valid_vec_isa_list = lambda: known
    return cpu_vec_isa.pick_vec_isa().bit_width()


def check_option(key, value, config):
    import typing

    if key not in config._config:
        near = difflib.get_close_matches(key, config._config, n=3, cutoff=0.5)
        near += [name for name in config._config if name.split(".")[-1] == key and name not in near]
        hint = f"; near names: {', '.join(near)}" if near else ""
        raise Refusal("request", f"options: torch._inductor.config has no '{key}'{hint}")
    expected = config.get_type(key)
    if typing.get_origin(expected) is None and not isinstance(value, expected):
        raise Refusal("request", f"options: '{key}' = {value!r}: expected {expected}, found {type(value).__name__}")


def settings_of(request, scratch, config):
    settings = {
        "fallback_random": True,  # the default generator's stream, in program order, as eager has it
        "cpp.march": request["march"],
        "cpp.simdlen": request["simdlen"],
        "cpp.dynamic_threads": request["threads"] is None,
        "aot_inductor.compile_wrapper_opt_level": request["wrapper_opt_level"],
        "aot_inductor.package": True,
        "aot_inductor.output_path": os.path.join(scratch, "build", ""),
    }
    # With dynamic threads the number is not baked, but kernels generated for one thread lack the `omp single` around statements outside
    # of loops: run by two threads they would write twice.
    settings["cpp.threads"] = request["threads"] or max(2, len(os.sched_getaffinity(0)))
    if shutil.which("openssl") is None:  # names precompiled headers
        settings["aot_inductor.precompile_headers"] = False
    for key, value in request["options"].items():
        check_option(key, value, config)
        settings[key] = value
    return settings


# ---------------------------------------------------------------- compile


def last_lines(text, count=20):
    return "\n".join(text.strip().splitlines()[-count:])


def mutated_placeholders(graph, found):
    """Records which placeholders the functional graph copies into."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node in graph.nodes:
        if node.op == "call_function" and str(node.target) == "aten.copy_.default" and node.args[0] in placeholders:
            found.add(placeholders.index(node.args[0]))


def compile_graph(module, tensors, settings, mutated):
    import torch
    from torch._inductor.exc import CppCompileError, InductorError

    settings = {**settings, "post_grad_custom_pre_pass": lambda graph: mutated_placeholders(graph, mutated)}
    try:
        with torch.no_grad():
            return torch._inductor.aot_compile(module, tuple(tensors), options=settings)
    except (CppCompileError, InductorError) as error:
        cause = getattr(error, "inner_exception", error)
        if not isinstance(cause, CppCompileError):
            raise
        raise Refusal("compiler", f"the C++ compiler failed on Inductor's code: {last_lines(cause.output)}") from error


def lower(request, scratch):
    """Compiles; returns the result. The package stands at its path when this returns."""
    seconds = {}
    started = time.perf_counter()
    program = Program(request["program"])
    import torch
    from torch._subclasses import FakeTensorMode

    check_torch(request["torch"], torch)
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # says where CUDA is not found
    seconds["import"] = time.perf_counter() - started
    from torch._inductor import config

    settings = settings_of(request, scratch, config)
    if request["groups"] or holds_collectives(program):
        make_groups(request["groups"])

    started = time.perf_counter()
    progress(f"tracing {len(program.lines)} lines")
    mode = FakeTensorMode()
    values = fake_inputs(program, mode)
    outputs = run_checked(program, values, mode)
    module = symbolic_graph(program)
    tensors = [value for value in fake_inputs(program, mode) if value is not None]
    import torch.utils._pytree as pytree

    module._in_spec = pytree.tree_flatten((tuple(tensors), {}))[1]
    module._out_spec = pytree.tree_flatten(tuple(outputs))[1]
    seconds["trace"] = time.perf_counter() - started

    started = time.perf_counter()
    progress(f"compiling {len(module.graph.nodes)} nodes")
    mutated = set()
    with config.patch({k: v for k, v in settings.items() if k.startswith("cpp.")}):
        cxx = find_compiler()
        width = pin_instruction_set(cxx, settings["cpp.march"], settings["cpp.simdlen"])
    if settings["cpp.simdlen"] is not None and width != settings["cpp.simdlen"]:
        raise Refusal("request", f"march '{request['march']}' has no vectors of {settings['cpp.simdlen']} bits; choose another simdlen")
    files = compile_graph(module, tensors, settings, mutated)
    seconds["compile"] = time.perf_counter() - started

    progress("packaging")
    from torch._inductor.package import package_aoti

    started = time.perf_counter()
    files = [file for file in files if not file.endswith(".cpp")]
    write_whole(request["package"], lambda temporary: package_aoti(temporary, files))
    seconds["package"] = time.perf_counter() - started
    return {
        "ok": True,
        "torch_version": torch.__version__,
        "torch_git": torch.version.git_version,
        "cuda": torch.version.cuda or "",
        "cxx": compiler_version(cxx),
        "march": settings["cpp.march"],
        "simdlen": settings["cpp.simdlen"],
        "vector_bits": width,
        "threads": request["threads"],
        "inputs": [
            {
                "shape": list(t.shape),
                "strides": list(t.stride()),
                "dtype": str(t.dtype).removeprefix("torch."),
                "device": str(t.device),
            }
            for t in tensors
        ],
        "mutated_inputs": sorted(mutated),
        "outputs": len(outputs),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "package_bytes": os.path.getsize(request["package"]),
        "config": {k: v for k, v in settings.items() if k not in ("aot_inductor.output_path", "aot_inductor.package")},
    }


def main(argv):
    if len(argv) != 2:
        print("usage: lower.py REQUEST.json", file=sys.stderr)
        return 2
    try:
        with open(argv[1], encoding="utf-8") as file:
            request = json.load(file)
        result_path = request["result"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        print(f"lower: request '{argv[1]}' cannot be used: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    scratch = tempfile.mkdtemp(prefix="lower.", dir=os.path.dirname(os.path.abspath(argv[1])))
    folder, parent = os.path.dirname(os.path.abspath(argv[1])), os.getppid()

    def clean_up():
        shutil.rmtree(scratch, ignore_errors=True)
        if os.getppid() != parent and folder == os.path.dirname(os.path.abspath(__file__)):
            shutil.rmtree(folder, ignore_errors=True)  # the rank that made it is gone

    own_group(clean_up)
    try:
        check_request(request)
        take_cpus(request["cpus"])
        set_environment(scratch)
        result = lower(request, scratch)
    except Refusal as refusal:
        result = {"ok": False, "kind": refusal.kind, "error": str(refusal)}
    except Exception as error:
        result = {"ok": False, "kind": "internal", "error": f"{type(error).__name__}: {error}"}
        traceback.print_exc()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    write_result(result_path, result)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
