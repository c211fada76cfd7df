"""nvcc compiles every kernel for each architecture, and no kernel spills where they are meant to run. Skipped without nvcc."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import registers  # noqa: E402

SKIPPED = 77
# The kernel of Hopper's own instructions only stops with a message elsewhere, but it compiles.
ARCHITECTURES = ("80", "89", "90a", "100a", "120a")
WITHOUT_SPILLS = ("90a",)


def compile_for(architecture, out, fp16=0):
    """[(name, architecture, registers, spilled bytes, stack bytes)] of all kernels, or what nvcc said."""
    command = ["nvcc", "-std=c++20", "-O3", f"-arch=sm_{architecture}", "-fmad=false", "-Xptxas=-v", f"-I{ROOT}",
               f"-DDSV3_FP16={fp16}", "-c", ROOT / "gpu/kernels/kernels.cu", "-o", out]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise AssertionError(f"sm_{architecture}: {result.stderr}")
    return registers.kernels_of((result.stdout + result.stderr).splitlines())


class ArchitecturesTest(unittest.TestCase):
    def test_every_kernel_compiles_for_every_architecture(self):
        with tempfile.TemporaryDirectory() as folder:
            names = set()
            for architecture in ARCHITECTURES:
                with self.subTest(architecture=architecture):
                    kernels = compile_for(architecture, pathlib.Path(folder) / "kernels.o")
                    self.assertEqual({arch for _, arch, _, _, _ in kernels}, {f"sm_{architecture}"})
                    names = names or {kernel[0] for kernel in kernels}
                    self.assertEqual({kernel[0] for kernel in kernels}, names)
                    if architecture in WITHOUT_SPILLS:
                        self.assertEqual([kernel for kernel in kernels if kernel[3] > 0], [])
            for kernel in ("fp8_linear<16>", "latent_attention", "router", "sampler"):
                self.assertTrue(any(name.startswith(kernel) for name in names), f"{kernel} is not among {names}")

    def test_in_fp16_no_kernel_spills_either(self):
        with tempfile.TemporaryDirectory() as folder:
            for architecture in WITHOUT_SPILLS:
                kernels = compile_for(architecture, pathlib.Path(folder) / "kernels.o", fp16=1)
                self.assertTrue(any(kernel[0].startswith("bf16_linear") for kernel in kernels))
                self.assertEqual([kernel for kernel in kernels if kernel[3] > 0], [])


if __name__ == "__main__":
    if shutil.which("nvcc") is None:
        print("skipped: no nvcc on PATH")
        sys.exit(SKIPPED)
    unittest.main()
