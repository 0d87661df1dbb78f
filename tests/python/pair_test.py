"""Pairs cross the language border both ways; Python's eager mode and torch.compiler.precompile are the oracle."""

import ast
import os
import re
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

import torch
import torch.jit._pickle
from torch.compiler import PrecompileError

TOOL = os.environ["PRECAST_PAIR_TOOL"]
KINDS = ("mlp", "conv", "gpt", "names", "views", "literals")

torch.set_num_threads(1)
# LibTorch writes a dict together with its type; this takes the type off again.
torch.serialization.add_safe_globals([torch.jit._pickle.restore_type_tag])


def tool(*args):
    return subprocess.run([TOOL, *map(str, args)], capture_output=True, text=True)


def expect_ok(result):
    if result.returncode != 0:
        raise AssertionError(f"{result.args}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return result


class Folder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def capture(self, kind, name="pair"):
        folder = self.folder / name
        folder.mkdir()
        expect_ok(tool("capture", kind, folder))
        return folder


def with_prefix(tensors, prefix):
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def rebuild(tensors, kind):
    """A Python model with the parameters and buffers of the C++ one, in its order."""
    root = torch.nn.Module()
    for prefix, table in (("param.", "_parameters"), ("buffer.", "_buffers")):
        for name, tensor in with_prefix(tensors, prefix).items():
            *path, last = name.split(".")
            module = root
            for part in path:
                if part not in module._modules:
                    module._modules[part] = torch.nn.Module()
                module = module._modules[part]
            value = tensor.clone()
            getattr(module, table)[last] = torch.nn.Parameter(value) if prefix == "param." else value
    if kind == "gpt":
        root._modules["head"]._parameters["weight"] = root._modules["embedding"]._parameters["weight"]
    return root


def arguments(tensors, kind):
    inputs = with_prefix(tensors, "input.")
    if kind == "views":
        return {"x": inputs["0"], "y": inputs["1"]}, (inputs["2"], 3)
    return tuple(inputs.values())


def run_and_compare(forward, folder, kind):
    tensors = torch.load(folder / "tensors.pt", weights_only=True)
    model, inputs = rebuild(tensors, kind), arguments(tensors, kind)
    result = forward(model, *inputs)
    leaves = torch.utils._pytree.tree_leaves(result)
    outputs = list(with_prefix(tensors, "output.").values())
    assert len(leaves) == len(outputs), f"{len(leaves)} results, eager has {len(outputs)}"
    for i, (got, expected) in enumerate(zip(leaves, outputs)):
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True, msg=lambda m: f"result {i}: {m}")
        assert torch.equal(torch.signbit(got), torch.signbit(expected)) or got.isnan().any(), f"result {i}: signs of zeros"
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    expected = with_prefix(tensors, "grad.")
    assert found.keys() <= expected.keys() and len(found) >= len(expected) - (kind == "gpt"), (found.keys(), expected.keys())
    for name, grad in found.items():
        torch.testing.assert_close(grad, expected[name], rtol=0, atol=0, msg=lambda m: f"gradient of {name}: {m}")
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(buffer, with_prefix(tensors, "after.")[name], rtol=0, atol=0)
    if kind == "views":
        assert result[0].untyped_storage().data_ptr() == inputs[0]["x"].untyped_storage().data_ptr(), "a copy, not a view"


IN_FRESH_PROCESS = """
import torch
namespace = {"__name__": "artifact"}
exec(open(r"{code}").read(), namespace)
forward = namespace["forward"]
import os, sys
sys.path.insert(0, r"{here}")
import pair_test
from pathlib import Path
pair_test.run_and_compare(forward, Path(r"{folder}"), "{kind}")
"""


class FreshProcess(Folder):
    def test_the_text_alone_equals_eager(self):  # C46, C76, C77
        for kind in KINDS:
            with self.subTest(kind):
                folder = self.capture(kind, kind)
                script = IN_FRESH_PROCESS.replace("{code}", str(folder / "step.py")).replace("{folder}", str(folder))
                script = script.replace("{kind}", kind).replace("{here}", str(Path(__file__).parent))
                expect_ok(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True))

    def test_the_text_runs_as_a_file(self):  # C46
        for kind in KINDS:
            with self.subTest(kind):
                code = self.capture(kind, kind) / "step.py"
                expect_ok(subprocess.run([sys.executable, str(code)], capture_output=True, text=True))

    def test_the_text_imports_only_torch_and_the_standard_library(self):  # C46
        for node in ast.walk(ast.parse((self.capture("mlp") / "step.py").read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                self.assertIn(name.split(".")[0], {"torch", *sys.stdlib_module_names})


def forward_of(code):
    namespace = {"__name__": "artifact"}
    exec(code, namespace)
    return namespace["forward"]


class TextInPython(Folder):
    def test_for_inductor_it_compiles_itself_and_equals_eager(self):  # C46
        folder = self.capture("conv")
        code = (folder / "step.py").read_text().replace("BACKEND = 'eager'", "BACKEND = 'inductor'")
        forward = forward_of(code)
        tensors = torch.load(folder / "tensors.pt", weights_only=True)
        model = rebuild(tensors, "conv")
        loss = forward(model, *arguments(tensors, "conv"))
        torch.testing.assert_close(loss, tensors["output.0"])
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.grad, tensors["grad." + name], rtol=1e-4, atol=1e-6)
        for name, buffer in model.named_buffers():
            torch.testing.assert_close(buffer, tensors["after." + name])

    def test_inputs_and_weights_laid_out_otherwise_equal_eager(self):  # C89, C94
        folder = self.capture("conv")
        tensors = torch.load(folder / "tensors.pt", weights_only=True)
        model = rebuild(tensors, "conv")
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.data = parameter.data.t().contiguous().t()
        mean = model._modules["bn"]._buffers["running_mean"]
        model._modules["bn"]._buffers["running_mean"] = torch.stack([mean, mean], 1)[:, 0]
        x, y = arguments(tensors, "conv")
        loss = forward_of((folder / "step.py").read_text())(model, x.contiguous(memory_format=torch.channels_last), y)
        torch.testing.assert_close(loss, tensors["output.0"], rtol=0, atol=0)
        torch.testing.assert_close(model._modules["bn"]._buffers["running_mean"], tensors["after.bn.running_mean"], rtol=0, atol=0)

    def test_a_result_that_is_a_view_of_such_an_input_is_refused(self):  # C132
        folder = self.capture("views")
        tensors = torch.load(folder / "tensors.pt", weights_only=True)
        batch, pair = arguments(tensors, "views")
        batch["x"] = batch["x"].t().contiguous().t()
        with self.assertRaisesRegex(PrecompileError, r"view of it.*\(3, 1\)"):
            forward_of((folder / "step.py").read_text())(torch.nn.Module(), batch, pair)


class ReferenceLoader(Folder):
    def test_it_runs_our_pair_without_our_cache(self):  # C48
        for kind in KINDS:
            with self.subTest(kind):
                folder = self.capture(kind, kind)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    step = torch.compiler.precompile.load(folder / "step.py", folder / "step.cache")
                run_and_compare(step, folder, kind)


class SmallGpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.qkv = torch.nn.Linear(8, 24)
        self.head = torch.nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        attention = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(x + attention.transpose(1, 2).reshape(x.shape))


def train_step(model, x, y):
    loss = torch.nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten())
    loss.backward()
    return loss.detach()


def python_pair(folder, kind):
    torch.manual_seed(3)
    if kind == "gpt":
        model, x, y = SmallGpt(), torch.randint(11, (2, 5)), torch.randint(11, (2, 5))
    else:
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
        x, y = torch.randn(5, 8), torch.randint(4, (5,))
    paths = {"artifact_path": folder / "step.py", "cache_path": folder / "step.cache"}
    with torch.compiler.precompile.capture(train_step, **paths, backend="eager") as captured:
        captured(model, x, y)
    model.zero_grad()
    tensors = {f"param.{name}": p.detach().clone() for name, p in model.named_parameters()}
    torch.save({**tensors, "input.0": x, "input.1": y}, folder / "tensors.pt")
    return model, x, y


class CapturedInPython(Folder):
    def test_three_steps_of_sgd_equal_eager(self):
        for kind in ("mlp", "gpt"):
            with self.subTest(kind):
                folder = self.folder / kind
                folder.mkdir()
                model, x, y = python_pair(folder, kind)
                result = expect_ok(tool("run", folder / "step.py", folder / "step.cache", folder / "tensors.pt", folder / "out.pt"))
                found = torch.load(folder / "out.pt", weights_only=True)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                for i in range(3):
                    optimizer.zero_grad()
                    torch.testing.assert_close(found[f"loss.{i}"], train_step(model, x, y), rtol=0, atol=0, msg=lambda m: f"step {i}: {m}")
                    optimizer.step()
                for name, parameter in model.named_parameters():
                    torch.testing.assert_close(found[f"grad.{name}"], parameter.grad, rtol=0, atol=0, msg=lambda m: f"{name}: {m}")
                self.assertEqual(len([line for line in result.stderr.splitlines() if "cache" in line and "trusted" not in line]), 1, result.stderr)

    def test_its_cache_is_never_unpickled(self):
        python_pair(self.folder, "mlp")
        mark = self.folder / "unpickled"

        class Bomb:
            def __reduce__(self):
                return open, (str(mark), "w")

        torch.save({"format": "torch.precompile", "payload": Bomb()}, self.folder / "step.cache")
        expect_ok(tool("load", self.folder / "step.py", self.folder / "step.cache"))
        self.assertFalse(mark.exists())
        with open(self.folder / "step.cache", "rb") as file:
            self.assertEqual(file.read(2), b"PK")


class SameText(Folder):
    def test_two_processes_write_the_same_bytes(self):  # C41
        for kind in KINDS:
            with self.subTest(kind):
                one, two = self.capture(kind, kind), self.capture(kind, kind + "2")
                self.assertEqual((one / "step.py").read_bytes(), (two / "step.py").read_bytes())


class Refusals(Folder):
    def ours(self, code, cache):
        (self.folder / "changed.py").write_text(code)
        return tool("load", self.folder / "changed.py", cache)

    def refused_by_both(self, code, folder, word):
        """With an empty cache, so that no hash stands before what is asked of the text."""
        empty = self.folder / "empty.cache"
        empty.write_bytes(b"")
        result = self.ours(code, empty)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn(word, result.stderr)
        with self.assertRaises((PrecompileError, SyntaxError, ValueError)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.compiler.precompile.load(self.folder / "changed.py", empty)

    def test_a_missing_literal(self):  # C59
        folder = self.capture("mlp")
        code = re.sub(r"^PARAM_NAMES = .*\n", "", (folder / "step.py").read_text(), flags=re.M)
        self.refused_by_both(code, folder, "PARAM_NAMES")

    def test_a_call_as_a_value_is_not_run(self):  # C60
        folder = self.capture("mlp")
        mark = self.folder / "run"
        code = re.sub(r"^BACKEND = .*$", f"BACKEND = open({str(mark)!r}, 'w')", (folder / "step.py").read_text(), flags=re.M)
        self.refused_by_both(code, folder, "BACKEND")
        self.assertFalse(mark.exists())

    def test_text_that_is_not_python(self):  # C58
        folder = self.capture("mlp")
        self.refused_by_both("def (", folder, "not a Precast artifact")

    def test_a_changed_comment_under_the_pairs_own_cache(self):  # C57
        python_pair(self.folder, "mlp")
        own = self.capture("mlp")
        self.assertEqual(self.ours((own / "step.py").read_text() + "#\n", own / "step.cache").returncode, 3)
        (self.folder / "changed.py").write_text((self.folder / "step.py").read_text() + "#\n")
        with self.assertRaises(PrecompileError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.compiler.precompile.load(self.folder / "changed.py", self.folder / "step.cache")

    def test_the_last_assignment_counts(self):  # C61
        folder = self.capture("mlp")
        code = "BACKEND = 'nonsense'\n" + (folder / "step.py").read_text() + "\nOTHER = open\n"
        empty = self.folder / "empty.cache"
        empty.write_bytes(b"")
        expect_ok(self.ours(code, empty))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.compiler.precompile.load(self.folder / "changed.py", empty)


class Rewrite(Folder):
    def test_our_texts_come_back_to_the_byte(self):
        for kind in KINDS:
            with self.subTest(kind):
                code = self.capture(kind, kind) / "step.py"
                self.assertEqual(expect_ok(tool("rewrite", code)).stdout, code.read_text())

    def test_a_text_of_the_reference_runs_in_our_layout(self):
        for kind in ("mlp", "gpt"):
            with self.subTest(kind):
                folder = self.folder / kind
                folder.mkdir()
                model, x, y = python_pair(folder, kind)
                namespace = {"__name__": "artifact"}
                exec(expect_ok(tool("rewrite", folder / "step.py")).stdout, namespace)
                found = namespace["forward"](model, x, y)
                gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
                model.zero_grad()
                torch.testing.assert_close(found, train_step(model, x, y), rtol=0, atol=0)
                for name, parameter in model.named_parameters():
                    torch.testing.assert_close(gradients[name], parameter.grad, rtol=0, atol=0, msg=lambda m: f"{name}: {m}")


if __name__ == "__main__":
    unittest.main()
