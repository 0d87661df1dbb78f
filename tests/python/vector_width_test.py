"""The instruction sets in a package are those of its target, whatever the compiling machine has besides."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

TOOL = os.environ["PRECAST_PAIR_TOOL"]
LOWER = Path(__file__).parents[2] / "src" / "backends" / "inductor" / "lower.py"


class VectorWidth(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        subprocess.run([TOOL, "capture", "mlp", self.folder], check=True, capture_output=True)

    def instructions(self, march, simdlen):
        """The disassembled libraries of the package for this target, and the result that lower.py wrote."""
        request = {
            "program": str(self.folder / "step.py"), "package": str(self.folder / "package.pt2"), "result": str(self.folder / "result.json"),
            "groups": {}, "march": march, "simdlen": simdlen, "threads": None, "wrapper_opt_level": "O0", "options": {}, "cpus": None}
        (self.folder / "request.json").write_text(json.dumps(request))
        done = subprocess.run([sys.executable, "-u", LOWER, self.folder / "request.json"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        with zipfile.ZipFile(self.folder / "package.pt2") as package:
            libraries = [name for name in package.namelist() if name.endswith(".so")]
            self.assertTrue(libraries, package.namelist())
            package.extractall(self.folder, libraries)
        return "".join(subprocess.run(["objdump", "-d", self.folder / name], check=True, capture_output=True, text=True).stdout
                       for name in libraries), json.loads((self.folder / "result.json").read_text())

    def test_a_package_for_x86_64_v3_holds_no_zmm_register(self):  # C69
        code, result = self.instructions("x86-64-v3", 256)
        self.assertIsNone(re.search(r"%zmm\d", code))
        self.assertIsNone(re.search(r"%k[1-7]", code))  # nor masks
        self.assertIsNotNone(re.search(r"%ymm\d", code))
        self.assertEqual((result["march"], result["simdlen"]), ("x86-64-v3", 256))

    def test_a_package_for_x86_64_v4_uses_them(self):  # so that the search above finds what is there
        flags = Path("/proc/cpuinfo").read_text()
        if "avx512bw" not in flags:
            self.skipTest("this CPU has no AVX-512, without which the package cannot be tried here")
        code, _ = self.instructions("x86-64-v4", 512)
        self.assertIsNotNone(re.search(r"%zmm\d", code))


if __name__ == "__main__":
    unittest.main()
