"""Tests the kernels of aarch64 on another machine, under qemu-user.

    rustup target add aarch64-unknown-linux-gnu
    apt-get install gcc-aarch64-linux-gnu qemu-user
    python tools/test_aarch64.py                # the kernels, on a processor for each way of byte products
    python tools/test_aarch64.py --graphs       # the graph tests of the runtime as well
    python tools/test_aarch64.py --program      # the program as well: the committed models against OpenVINO's answers

Where the target cannot be fetched, Debian has a compiler and the standard library of the same version for aarch64:

    dpkg --add-architecture arm64 && apt-get update
    apt-get install rustc cargo libstd-rust-dev:arm64 gcc-aarch64-linux-gnu qemu-user
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = "aarch64-unknown-linux-gnu"

# Byte products by widening multiplications, by products of signed bytes, by products of unsigned and signed bytes.
PROCESSORS = ["cortex-a57", "neoverse-n1", "max"]

# A model and its inferences: inputs, and what OpenVINO answers.
MODELS = [
    ("digits", [("inputs.npz", "expected.npz")]),
    ("digits", [("inputs-images.npz", "expected-images.npz")]),
    ("karate", [("inputs.npz", "expected.npz")]),
    ("karate", [("inputs-fewer-edges.npz", "expected-fewer-edges.npz")]),
    ("chardecoder", [(f"inputs-{step}.npz", f"expected-{step}.npz") for step in range(1, 9)]),
]


def program_arguments():
    """What the program is run with: the example of the README, then each of the models."""
    yield ["run", "models/digits/model.xml", "-i", "models/digits/images/seven.png", "--top", "3"]
    for name, inferences in MODELS:
        folder = f"models/{name}"
        expected = [f"{folder}/{answer}" for _, answer in inferences]
        inputs = [part for given, _ in inferences for part in ("--inputs", f"{folder}/{given}")]
        yield ["compare", f"{folder}/model.xml", *expected, *inputs]


def cargo(arguments, processor, words):
    """Runs cargo for the target; returns whether it succeeded."""
    name = TARGET.upper().replace("-", "_")
    environment = dict(os.environ)
    environment.setdefault(f"CARGO_TARGET_{name}_LINKER", "aarch64-linux-gnu-gcc")
    environment[f"CARGO_TARGET_{name}_RUNNER"] = f"{arguments.qemu} -cpu {processor} -L {arguments.libraries}"
    started = time.monotonic()
    code = subprocess.run(["cargo", *words], cwd=ROOT, env=environment, check=False).returncode
    verdict = "passed" if code == 0 else "FAILED"
    print(f"{processor}: cargo {' '.join(words)}: {verdict} in {time.monotonic() - started:.0f} s", flush=True)
    return code == 0


def main():
    """Builds once, and runs on each processor; the exit code is 1 if anything fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--processors", nargs="+", default=PROCESSORS, metavar="NAME", help="as `qemu-aarch64 -cpu` names them"
    )
    parser.add_argument("--graphs", action="store_true", help="run the graph tests of the runtime as well")
    parser.add_argument("--program", action="store_true", help="build the program as well and run the committed models")
    parser.add_argument("--qemu", default="qemu-aarch64", help="the emulator [default: qemu-aarch64]")
    parser.add_argument(
        "--libraries", default="/usr/aarch64-linux-gnu", help="where aarch64's C library is [default: %(default)s]"
    )
    arguments = parser.parse_args()
    runs = [["test", "-p", "ovir-kernels", "--lib"]]
    if arguments.graphs:
        runs.append(["test", "-p", "ovir-runtime", "--test", "graphs"])
    common = ["--target", TARGET, "--locked"]
    passed = True
    for processor in arguments.processors:
        for words in runs:
            passed &= cargo(arguments, processor, [*words, *common])
        for words in program_arguments() if arguments.program else []:
            program = ["run", "--release", "--quiet", "-p", "ovir-cli", *common, "--", *words]
            passed &= cargo(arguments, processor, program)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
