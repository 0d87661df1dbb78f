"""Packages that lower.py makes do what `call` does eagerly: values, writes into inputs, and the stream of random numbers."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
import zipfile
from pathlib import Path

import torch
import torch.jit._pickle

TOOL = os.environ["PRECAST_PAIR_TOOL"]
LOWER = Path(__file__).parents[2] / "src" / "backends" / "inductor" / "lower.py"
TOLERANCES = {torch.float32: (1e-4, 1e-5), torch.bfloat16: (2e-2, 2e-2), torch.float64: (1e-9, 1e-12)}  # relative, absolute

torch.serialization.add_safe_globals([torch.jit._pickle.restore_type_tag])  # LibTorch's dictionaries of tensors
torch.set_num_threads(2)  # one thread would hide a statement that each thread runs


def program_text(arguments, body, outputs, **literals):
    """A text of docs/format.md whose inputs are laid out as these tensors (by name; anything else is a plain leaf)."""
    tensors = [value if isinstance(value, torch.Tensor) else None for value in arguments.values()]
    table = {
        "SHAPES": [None if t is None else tuple(t.shape) for t in tensors],
        "STRIDES": [None if t is None else tuple(t.stride()) for t in tensors],
        "DTYPES": [None if t is None else str(t.dtype) for t in tensors],
        "DEVICES": [None if t is None else str(t.device) for t in tensors],
        "NAMES": list(arguments),
        "GENERATORS": [isinstance(value, torch.Generator) for value in arguments.values()],
    }
    lines = ["from math import inf, nan", "import torch", "from torch import device", "", "def call(args):"]
    if arguments:
        lines.append(f"    ({', '.join(arguments)},) = args")
    lines += textwrap.indent(textwrap.dedent(body).strip(), "    ").splitlines()
    lines += [f"    return [{outputs}]", "", "BACKEND = 'inductor'"]
    lines += [f"{kind}_{what} = []" for kind in ("PARAM", "BUFFER") for what in ("NAMES", "SHAPES", "STRIDES", "DTYPES", "DEVICES")]
    lines += [f"USER_INPUT_{what} = {values!r}" for what, values in table.items()]
    lines += [f"{name} = {value!r}" for name, value in {"MESH_INPUTS": [], "INPUT_ALIASES": [], **literals}.items()]
    return "\n".join(lines) + "\n"


def literals_of(path):
    """What the program's text defines: `call` and the literals."""
    namespace = {"__name__": "program"}
    exec(path.read_text(), namespace)
    return namespace


def same_layout_copies(values):
    """Copies with the strides of the originals, expanded ones included; one copy for one tensor."""
    copies = {}
    for value in values:
        if isinstance(value, torch.Tensor) and id(value) not in copies:
            whole = torch.as_strided(value, (max(value.untyped_storage().nbytes() // value.element_size(), 0),), (1,), 0).clone()
            copies[id(value)] = whole.as_strided(value.shape, value.stride(), value.storage_offset())
    return [copies.get(id(value), value) for value in values]


def assert_close(found, expected, what):
    rtol, atol = TOLERANCES.get(expected.dtype, (0, 0))
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True, check_stride=False, msg=lambda m: f"{what}: {m}")


class Lowering(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.package, self.program = self.folder / "package.pt2", self.folder / "program.py"

    def request(self, **changes):
        request = {
            "program": str(self.program), "package": str(self.package), "result": str(self.folder / "result.json"), "groups": {}, "torch": None,
            "march": "native", "simdlen": None, "threads": None, "wrapper_opt_level": "O0", "options": {}, "cpus": None, **changes}
        path = self.folder / "request.json"
        path.write_text(json.dumps({key: value for key, value in request.items() if value != "absent"}))
        return [sys.executable, "-u", LOWER, path]

    def lower(self, environment=(), **changes):
        done = subprocess.run(self.request(**changes), capture_output=True, text=True, env={**os.environ, **dict(environment)})
        self.assertEqual(done.stdout, "")
        path = self.folder / "result.json"
        return done, json.loads(path.read_text()) if path.exists() else None

    def compile(self, environment=(), **changes):
        done, result = self.lower(environment, **changes)
        self.assertEqual((done.returncode, result and result["ok"]), (0, True), f"{result}\n{done.stderr}")
        return result, torch._C._aoti.AOTIModelPackageLoader(str(self.package), "model", False, 1, -1)

    def compare(self, arguments, body, outputs, literals=(), exact=False, runs=2, **changes):
        """Compiles and compares with eager, from one seed; returns the result and what the last run of the package took and gave."""
        self.program.write_text(program_text(arguments, body, outputs, **dict(literals)))
        result, package = self.compile(**changes)
        return result, self.compare_runs(package, list(arguments.values()), exact, runs)

    def compare_runs(self, package, values, exact=False, runs=2):
        call = literals_of(self.program)["call"]
        for run in range(runs):
            eager, compiled = same_layout_copies(values), same_layout_copies(values)
            torch.manual_seed(run)
            with torch.no_grad():
                expected = call(list(eager))
            stream = torch.get_rng_state()
            torch.manual_seed(run)
            taken = [value for value in compiled if isinstance(value, torch.Tensor)]
            found = package.run(taken)
            self.assertTrue(torch.equal(torch.get_rng_state(), stream), "another number of random numbers was drawn")
            self.assertEqual(len(found), len(expected))
            pairs = [(f"output {i}", f, e) for i, (f, e) in enumerate(zip(found, expected))]
            pairs += [(f"input {i}", f, e) for i, (f, e) in enumerate(zip(taken, (v for v in eager if isinstance(v, torch.Tensor))))]
            for what, f, e in pairs:
                if exact:
                    torch.testing.assert_close(f, e, rtol=0, atol=0, equal_nan=True, check_stride=False, msg=lambda m: f"{what}: {m}")
                else:
                    assert_close(f, e, what)
        return taken, found


class Inputs(Lowering):
    def test_layouts_dtypes_and_sizes_are_those_of_the_text(self):
        arguments = {
            "transposed": torch.randn(5, 3).t(),
            "expanded": torch.randn(3, 1).expand(3, 4),
            "image": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
            "scalar": torch.tensor(2.5),
            "empty": torch.randn(0, 4),
            "mask": torch.rand(3, 5) > 0.5,
            "index": torch.randint(0, 3, (4,)),
            "half": torch.randn(3, 5).bfloat16(),
            "number": 3,
            "unused": torch.randn(7),
        }
        body = """
            mul = torch.ops.aten.mul.Tensor(transposed, scalar)
            where = torch.ops.aten.where.self(mask, mul, transposed)
            mm = torch.ops.aten.mm.default(half, torch.ops.aten.t.default(half))
            add = torch.ops.aten.add.Tensor(where, half)
            picked = torch.ops.aten.index_select.default(expanded, 0, index)
            conv = torch.ops.aten.convolution.default(image, torch.ops.aten.ones.default([2, 3, 3, 3]), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
            cat = torch.ops.aten.cat.default([empty, expanded])
            total = torch.ops.aten.sum.default(empty)
            flipped = torch.ops.aten.logical_not.default(mask)
            counted = torch.ops.aten.add.Tensor(index, 3)
        """
        outputs = "mul, where, mm, add, picked, conv, cat, total, flipped, counted"
        result, _ = self.compare(arguments, body, outputs)
        self.assertEqual([tuple(i["strides"]) for i in result["inputs"]], [v.stride() for v in arguments.values() if isinstance(v, torch.Tensor)])
        self.assertEqual([i["dtype"] for i in result["inputs"]][-4:], ["bool", "int64", "bfloat16", "float32"])
        self.assertEqual((result["mutated_inputs"], result["outputs"]), ([], 10))

    def test_parameters_are_never_allocated(self):
        size = 1 << 37  # half a terabyte of float32
        text = program_text({"x": torch.randn(3)}, "y = torch.ops.aten.mul.Tensor(x, torch.ops.aten.select.int(w, 0, 0))", "y")
        for what, value in (("SHAPES", (size,)), ("STRIDES", (1,)), ("DTYPES", "torch.float32"), ("DEVICES", "cpu"), ("NAMES", "w")):
            text = text.replace(f"PARAM_{what} = []", f"PARAM_{what} = [{value!r}]")
        self.program.write_text(text.replace("(x,) = args", "(w, x,) = args"))
        result, _ = self.compile()
        self.assertEqual([i["shape"] for i in result["inputs"]], [[size], [3]])

    def test_two_inputs_that_were_one_tensor_stay_one(self):
        x = torch.randn(4, 5)
        body = """
            add_ = torch.ops.aten.add_.Tensor(b, 1)
            mul = torch.ops.aten.mul.Tensor(a, 2)
            copy_ = torch.ops.aten.mul_.Tensor(a, 3)
            sum_1 = torch.ops.aten.add.Tensor(b, c)
        """
        _, (taken, _) = self.compare({"a": x, "c": torch.randn(5), "b": x}, body, "mul, sum_1", {"INPUT_ALIASES": [(0, 2)]})
        self.assertIs(taken[0], taken[2])

    def test_ranks_in_groups_are_trailing_inputs(self):
        arguments = {"x": torch.randn(3)}
        text = program_text(arguments, "y = torch.ops.aten.add.Tensor(x, rank)", "y", MESH_INPUTS=["mesh.dp"])
        self.program.write_text(text.replace("(x,) = args", "(x, rank,) = args"))
        result, package = self.compile()
        self.assertEqual((result["inputs"][-1]["shape"], result["inputs"][-1]["dtype"]), ([], "int64"))
        self.compare_runs(package, [arguments["x"], torch.tensor(3)])


class Outputs(Lowering):
    def test_inputs_repetitions_and_views_come_back(self):
        arguments = {"x": torch.randn(3, 4), "y": torch.randn(3, 4), "z": torch.randn(4)}
        body = """
            add = torch.ops.aten.add.Tensor(x, y)
            add_ = torch.ops.aten.add_.Tensor(y, 1)
            view = torch.ops.aten.view.default(add, [-1])
            row = torch.ops.aten.select.int(add, 0, 1)
            view_1 = torch.ops.aten.view.default(x, [12])
            mul_ = torch.ops.aten.mul_.Tensor(row, 2)
        """
        result, _ = self.compare(arguments, body, "x, add, add, view, row, view_1, y, z, z")
        self.assertEqual(result["mutated_inputs"], [1])

    def test_constants_are_made_in_the_program(self):
        body = """
            full = torch.ops.aten.full.default([2, 3], 0.5)
            full_1 = torch.ops.aten.full.default([], 3, dtype=torch.int64, device=device(type='cpu'), pin_memory=False)
            arange = torch.ops.aten.arange.start_step(1, 9, 2)
            scalar_tensor = torch.ops.aten.scalar_tensor.default(nan)
            large = torch.ops.aten.full.default([2], -9223372036854775808, dtype=torch.int64)
            infinite = torch.ops.aten.full.default([2], -inf)
            empty = torch.ops.aten.full.default([0, 3], 1.0)
            eye = torch.ops.aten.eye.default(3)
            add_ = torch.ops.aten.add_.Tensor(full, 1)
            add = torch.ops.aten.add.Tensor(x, scalar_tensor)
        """
        self.compare({"x": torch.randn(2)}, body, "full, full_1, arange, scalar_tensor, large, infinite, empty, eye, add", exact=True)

    def test_no_outputs_and_no_inputs(self):
        for arguments, body, outputs in (
            ({"x": torch.randn(3)}, "add_ = torch.ops.aten.add_.Tensor(x, 1)", ""),
            ({}, "ones = torch.ops.aten.ones.default([3])", "ones"),
        ):
            with self.subTest(outputs):
                self.compare(arguments, body, outputs)


class Writes(Lowering):
    def test_writes_into_inputs_reach_the_callers_tensors(self):
        arguments = {
            "p": torch.randn(4, 6), "m": torch.rand(4, 6), "v": torch.rand(4, 6), "step": torch.tensor(3.0),
            "transposed": torch.randn(5, 3).t(), "rows": torch.randn(6, 4), "flags": torch.zeros(5, dtype=torch.bool), "g": torch.randn(4, 6)}
        body = """
            add_ = torch.ops.aten.add_.Tensor(step, 1)
            lerp_ = torch.ops.aten.lerp_.Scalar(m, g, 0.1)
            mul_ = torch.ops.aten.mul_.Tensor(v, 0.999)
            addcmul_ = torch.ops.aten.addcmul_.default(v, g, g, value=0.001)
            sqrt = torch.ops.aten.sqrt.default(v)
            add__1 = torch.ops.aten.add_.Tensor(sqrt, 1e-08)
            div = torch.ops.aten.div.Tensor(m, sqrt)
            sub_ = torch.ops.aten.sub_.Tensor(p, div, alpha=0.01)
            zero_ = torch.ops.aten.zero_.default(torch.ops.aten.select.int(rows, 0, 2))
            copy_ = torch.ops.aten.copy_.default(torch.ops.aten.slice.Tensor(rows, 0, 3, 5), torch.ops.aten.slice.Tensor(p, 1, 2, 6)[1:3])
            mul__1 = torch.ops.aten.mul_.Tensor(transposed, 2)
            fill_ = torch.ops.aten.fill_.Scalar(flags, True)
            sum_1 = torch.ops.aten.sum.default(p)
        """
        result, _ = self.compare(arguments, body, "sum_1, p")
        self.assertEqual(result["mutated_inputs"], [0, 1, 2, 3, 4, 5, 6])

    def test_batch_norm_writes_its_statistics(self):
        arguments = {"x": torch.randn(5, 4, 6, 6), "w": torch.randn(4), "b": torch.randn(4), "mean": torch.randn(4), "var": torch.rand(4)}
        body = """
            norm = torch.ops.aten.native_batch_norm.default(x, w, b, mean, var, True, 0.1, 1e-05)
            getitem = norm[0]
            getitem_1 = norm[1]
            getitem_2 = norm[2]
            back = torch.ops.aten.native_batch_norm_backward.default(getitem, x, w, mean, var, getitem_1, getitem_2, True, 1e-05, [True, True, True])
            getitem_3 = back[0]
            getitem_4 = back[1]
        """
        result, _ = self.compare(arguments, body, "getitem, getitem_1, getitem_2, getitem_3, getitem_4")
        self.assertEqual(result["mutated_inputs"], [3, 4])

    def test_a_scalar_is_written_once_whatever_the_number_of_threads(self):
        """A scalar statement between loops of one kernel is one thread's, also where the compiling process has one core."""
        arguments = {"x": torch.randn(1024, 256), "y": torch.randint(0, 256, (1024,))}
        body = """
            soft = torch.ops.aten._log_softmax.default(x, 1, False)
            nll = torch.ops.aten.nll_loss_forward.default(soft, y, None, 1, -100)
            loss = nll[0]
            total = nll[1]
            ones = torch.ops.aten.ones_like.default(loss, memory_format=torch.contiguous_format)
            back = torch.ops.aten.nll_loss_backward.default(ones, soft, y, None, 1, -100, total)
            grad = torch.ops.aten._log_softmax_backward_data.default(back, soft, 1, torch.float32)
            div = torch.ops.aten.div.Scalar(loss, 1)
        """
        self.compare(arguments, body, "div, grad", cpus=[min(os.sched_getaffinity(0))], runs=5)


class RandomStream(Lowering):
    def test_it_is_eagers_in_program_order(self):  # EXACT
        """Values that nobody reads are drawn too, and fusion must not move a draw over another."""
        arguments = {"x": torch.randn(8, 32), "y": torch.randn(8, 32), "buffer": torch.randn(16), "bfloat": torch.randn(4, 4).bfloat16()}
        body = """
            a = torch.ops.aten.add.Tensor(x, 1)
            empty_like = torch.ops.aten.empty_like.default(x)
            bernoulli_ = torch.ops.aten.bernoulli_.float(empty_like, 0.75)
            div_ = torch.ops.aten.div_.Scalar(empty_like, 0.75)
            dropped = torch.ops.aten.mul.Tensor(x, empty_like)
            unread = torch.ops.aten.rand.default([5], dtype=torch.float32, device=device(type='cpu'), pin_memory=False)
            dropout = torch.ops.aten.native_dropout.default(y, 0.1, True)
            getitem = dropout[0]
            getitem_1 = dropout[1]
            b = torch.ops.aten.mul.Tensor(a, getitem)
            randint = torch.ops.aten.randint.low(0, 100, [7])
            normal_ = torch.ops.aten.normal_.default(buffer, 1.0, 2.0)
            randn_like = torch.ops.aten.randn_like.default(bfloat)
            randperm = torch.ops.aten.randperm.default(9)
            uniform_ = torch.ops.aten.uniform_.default(torch.ops.aten.select.int(y, 0, 3), 0.0, 1.0)
            multinomial = torch.ops.aten.multinomial.default(torch.ops.aten.abs.default(x), 3)
            c = torch.ops.aten.add.Tensor(b, dropped)
            rrelu = torch.ops.aten.exponential_.default(torch.ops.aten.empty.memory_format([6]))
        """
        outputs = "a, dropped, getitem, getitem_1, b, randint, randn_like, randperm, multinomial, c, rrelu"
        result, _ = self.compare(arguments, body, outputs, exact=True, runs=3)
        self.assertEqual(result["mutated_inputs"], [1, 2])


class Backward(Lowering):
    def test_attention_norm_and_embedding(self):
        arguments = {
            "q": torch.randn(2, 4, 16, 8), "k": torch.randn(2, 4, 16, 8), "v": torch.randn(2, 4, 16, 8), "w": torch.randn(32), "b": torch.randn(32),
            "tokens": torch.randint(0, 11, (2, 16))}
        body = """
            attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(q, k, v, 0.0, True)
            out = attention[0]
            logsumexp = attention[1]
            clone = torch.ops.aten.clone.default(torch.ops.aten.transpose.int(out, 1, 2), memory_format=torch.contiguous_format)
            view = torch.ops.aten.view.default(clone, [2, 16, 32])
            norm = torch.ops.aten.native_layer_norm.default(view, [32], w, b, 1e-05)
            y = norm[0]
            mean = norm[1]
            rstd = norm[2]
            back = torch.ops.aten.native_layer_norm_backward.default(y, view, [32], mean, rstd, w, b, [True, True, True])
            gx = back[0]
            gw = back[1]
            gb = back[2]
            embedding = torch.ops.aten.embedding_dense_backward.default(gx, tokens, 11, -1, False)
            go = torch.ops.aten.transpose.int(torch.ops.aten.view.default(gx, [2, 16, 4, 8]), 1, 2)
            sdpa = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default(go, q, k, v, out, logsumexp, 0.0, True)
            gq = sdpa[0]
            gk = sdpa[1]
            gv = sdpa[2]
        """
        self.compare(arguments, body, "y, mean, rstd, gx, gw, gb, embedding, gq, gk, gv")

    def test_captured_steps(self):
        for kind in ("conv", "gpt"):
            with self.subTest(kind):
                subprocess.run([TOOL, "capture", kind, self.folder], check=True, capture_output=True)
                self.program = self.folder / "step.py"
                _, package = self.compile()
                tensors = torch.load(self.folder / "tensors.pt", weights_only=True)
                literals = literals_of(self.program)
                names = [f"param.{name}" for name in literals["PARAM_NAMES"]] + [f"buffer.{name}" for name in literals["BUFFER_NAMES"]]
                names += [f"input.{i}" for i in range(len(literals["USER_INPUT_SHAPES"]))]
                self.compare_runs(package, [tensors[name] for name in names])


class Collectives(Lowering):
    BODY = """
        mm = torch.ops.aten.mm.default(x, w)
        all_reduce = torch.ops._c10d_functional.all_reduce.default(mm, 'sum', 'world')
        wait = torch.ops._c10d_functional.wait_tensor.default(all_reduce)
        view = torch.ops.aten.view.default(wait, [-1])
        relu = torch.ops.aten.relu.default(wait)
        gather = torch.ops._c10d_functional.all_gather_into_tensor.default(relu, {dp}, 'mesh.dp')
        wait_1 = torch.ops._c10d_functional.wait_tensor.default(gather)
        scatter = torch.ops._c10d_functional.reduce_scatter_tensor.default(wait_1, 'avg', {tp}, 'mesh.tp')
        wait_2 = torch.ops._c10d_functional.wait_tensor.default(scatter)
        add_ = torch.ops.aten.add_.Tensor(wait_2, 1)
        exchange = torch.ops._c10d_functional.all_to_all_single.default(wait_2, [{rows}], [{rows}], 'world')
        wait_3 = torch.ops._c10d_functional.wait_tensor.default(exchange)
        reduced = torch.ops._c10d_functional.all_reduce.default(w, 'max', 'world')
        wait_4 = torch.ops._c10d_functional.wait_tensor.default(reduced)
        copy_ = torch.ops.aten.copy_.default(w, wait_4)
    """
    OUTPUTS = "view, relu, wait_1, wait_2, wait_3, wait_4"

    def test_several_groups_compile_in_one_process(self):
        arguments = {"x": torch.randn(4, 8), "w": torch.randn(8, 8)}
        rows = ", ".join(["1"] * 6)
        self.program.write_text(program_text(arguments, self.BODY.format(dp=3, tp=2, rows=rows), self.OUTPUTS))
        result, _ = self.compile(groups={"world": 6, "mesh.dp": 3, "mesh.tp": 2})
        self.assertEqual((result["outputs"], result["mutated_inputs"]), (6, [1]))


class Results(Lowering):
    def test_it_says_what_the_package_was_made_for(self):
        self.program.write_text(program_text({"x": torch.randn(3)}, "y = torch.ops.aten.add.Tensor(x, 1)", "y"))
        result, _ = self.compile(options={"cpp.min_chunk_size": 4096}, threads=3, environment={"HOME": "/nonexistent"})
        self.assertEqual((result["torch_version"], result["torch_git"]), (torch.__version__, torch.version.git_version))
        self.assertEqual((result["march"], result["threads"], result["outputs"]), ("native", 3, 1))
        self.assertEqual((result["config"]["cpp.min_chunk_size"], result["config"]["cpp.threads"]), (4096, 3))
        self.assertFalse(result["config"]["cpp.dynamic_threads"])
        self.assertEqual(result["package_bytes"], self.package.stat().st_size)
        with zipfile.ZipFile(self.package) as package:  # ranks load the library only
            self.assertEqual([name for name in package.namelist() if name.endswith(".cpp")], [])
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["package.pt2", "program.py", "request.json", "result.json"])


class VectorWidth(Lowering):
    """The instruction sets in a package are those of its target, whatever the compiling machine has besides."""

    def instructions(self, march, simdlen):
        """The disassembled libraries of a captured step's package for this target, and the result."""
        subprocess.run([TOOL, "capture", "mlp", self.folder], check=True, capture_output=True)
        done, result = self.lower(program=str(self.folder / "step.py"), march=march, simdlen=simdlen)
        self.assertEqual((done.returncode, result and result["ok"]), (0, True), f"{result}\n{done.stderr}")
        with zipfile.ZipFile(self.package) as package:
            libraries = [name for name in package.namelist() if name.endswith(".so")]
            self.assertTrue(libraries, package.namelist())
            package.extractall(self.folder, libraries)
        disassemble = ["objdump", "-d", *(self.folder / name for name in libraries)]
        return subprocess.run(disassemble, check=True, capture_output=True, text=True).stdout, result

    def test_a_package_for_x86_64_v3_holds_no_zmm_register(self):  # C69
        code, result = self.instructions("x86-64-v3", 256)
        self.assertIsNone(re.search(r"%zmm\d", code))
        self.assertIsNone(re.search(r"%k[1-7]", code))  # nor masks
        self.assertIsNotNone(re.search(r"%ymm\d", code))
        self.assertEqual((result["march"], result["simdlen"]), ("x86-64-v3", 256))

    def test_a_package_for_x86_64_v4_uses_them(self):  # so that the search above finds what is there
        code, _ = self.instructions("x86-64-v4", 512)
        self.assertIsNotNone(re.search(r"%zmm\d", code))


class Refusals(Lowering):
    X = {"x": torch.randn(3)}

    def refused(self, kind, *words, text=None, environment=(), **changes):
        self.program.write_text(text or program_text(self.X, "y = torch.ops.aten.add.Tensor(x, 1)", "y"))
        self.package.write_text("what stood there")
        done, result = self.lower(environment, **changes)
        self.assertEqual((done.returncode, result["ok"], result["kind"]), (1, False, kind), f"{result}\n{done.stderr}")
        for word in words:
            self.assertIn(word, result["error"])
        self.assertEqual(self.package.read_text(), "what stood there")
        names = {path.name for path in self.folder.iterdir()}
        self.assertEqual(names, {"program.py", "package.pt2", "request.json", "result.json"})

    def test_a_generator_in_the_program(self):
        text = program_text({**self.X, "generator": torch.Generator()}, "y = torch.ops.aten.bernoulli.default(x, generator=generator)", "y")
        self.refused("unsupported", "'generator'", "eager", text=text)

    def test_an_output_that_is_no_tensor(self):
        self.refused("unsupported", "output 1", "3", text=program_text(self.X, "y = torch.ops.aten.add.Tensor(x, 1)", "y, 3"))

    def test_a_size_that_depends_on_values(self):
        self.refused("unsupported", "line 7", "nonzero", text=program_text(self.X, "\ny = torch.ops.aten.nonzero.default(x)", "y"))

    def test_an_operator_that_torch_does_not_have(self):
        self.refused("unsupported", "line 7", "no_such_op", text=program_text(self.X, "y = torch.ops.aten.no_such_op.default(x)", "y"))

    def test_text_that_is_no_program(self):
        self.refused("request", "SyntaxError", text="def (")
        lines = [" = ".join(f"{kind}_{what}" for what in ("SHAPES", "DTYPES", "DEVICES")) + " = []" for kind in ("PARAM", "BUFFER")]
        self.refused("request", "USER_INPUT_SHAPES", text="\n".join(["def call(args): return args", *lines, ""]))

    def test_options_that_inductor_does_not_have(self):
        self.refused("request", "cpp.min_chunk_sizes", "cpp.min_chunk_size", options={"cpp.min_chunk_sizes": 1})
        self.refused("request", "cpp.min_chunk_size", "str", options={"cpp.min_chunk_size": "large"})

    def test_a_request_that_is_incomplete(self):
        self.refused("request", "march", march="absent")
        self.refused("request", "mesh.dp", groups={"mesh.dp": 0})

    def test_another_torch(self):
        self.refused("environment", "1.0.0", torch.__version__, sys.executable, torch={"version": "1.0.0", "git": "0" * 40})

    def test_a_request_that_cannot_be_read(self):
        for text in ("{", "[]", "{}"):
            path = self.folder / "request.json"
            path.write_text(text)
            done = subprocess.run([sys.executable, LOWER, path], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (2, "", 1), done.stderr)

    def test_vectors_that_the_target_does_not_have(self):
        self.refused("request", "x86-64-v3", "512", march="x86-64-v3", simdlen=512)

    def test_cores_that_do_not_exist(self):
        self.refused("environment", "100000", cpus=[100000])

    def test_a_target_or_a_compiler_that_does_not_exist(self):
        self.refused("environment", "no-such-cpu", march="no-such-cpu")
        self.refused("environment", "no-such-compiler", environment={"CXX": "no-such-compiler"})

    def test_what_the_compiler_says(self):
        compiler = self.folder.parent / f"{self.folder.name}-compiler"
        compiler.write_text('#!/bin/sh\ncase "$*" in *" -c "*) echo "error: disk is full" >&2; exit 1;; *) exec g++ "$@";; esac\n')
        compiler.chmod(0o755)
        self.addCleanup(compiler.unlink)
        self.refused("compiler", "disk is full", environment={"CXX": str(compiler)}, options={"aot_inductor.precompile_headers": False})


class Ending(Lowering):
    def test_a_sigterm_ends_the_compilers_and_leaves_nothing(self):
        self.program.write_text(program_text({"x": torch.randn(3)}, "y = torch.ops.aten.add.Tensor(x, 1)", "y"))
        compiler, fifo = self.folder / "compiler", self.folder / "fifo"
        os.mkfifo(fifo)
        # Where it is to compile it says so, and goes on for as long as it is let, with the fifo open.
        compiler.write_text(f'#!/bin/sh\ncase "$*" in *" -c "*) exec 9>{fifo}; echo $$ >&9; exec sleep 600;; *) exec g++ "$@";; esac\n')
        compiler.chmod(0o755)
        command = self.request(options={"aot_inductor.precompile_headers": False})
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, "CXX": str(compiler)})
        with open(fifo) as pipe:
            child = int(pipe.readline())
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(60), 128 + signal.SIGTERM)
            self.assertEqual(pipe.read(), "")  # every writer has ended, the compiler too
        self.assertNotIn("sleep", command_line(child))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["compiler", "fifo", "program.py", "request.json"])


def command_line(process):
    """Of a process, or nothing where it is gone or waits to be reaped."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


if __name__ == "__main__":
    unittest.main()
