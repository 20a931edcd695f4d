"""Builds ovir for web pages: a folder with the page and the module, to be served by any HTTP server.

    rustup target add wasm32-unknown-unknown
    python tools/build_wasm.py                     # writes target/page
    python tools/build_wasm.py --validator-only    # without running models: a smaller module
    python -m http.server -d target/page           # then open http://localhost:8000

Where the target cannot be fetched, Debian's packages `rustc-web` and `rust-web-src` hold a compiler and the sources of its
standard library:

    python tools/build_wasm.py --rustc /usr/bin/rustc --build-std
"""

import argparse
import gzip
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = "wasm32-unknown-unknown"


def linker():
    """rust-lld of the installed toolchain, which knows WebAssembly."""
    found = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    names = Path(found).glob("lib/rustlib/*/bin/rust-lld*")
    return next(iter(sorted(names)), None)


def build(arguments, target_folder):
    """Runs cargo; returns the path of the module."""
    command = ["cargo", "build", "-p", "ovir-wasm", "--target", TARGET, "--profile", "wasm", "--locked"]
    if arguments.validator_only:
        command.append("--no-default-features")
    environment = dict(os.environ, CARGO_TARGET_DIR=str(target_folder))
    if arguments.rustc:
        environment["RUSTC"] = arguments.rustc
        environment["CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER"] = str(linker() or "rust-lld")
    if arguments.build_std:
        # cargo takes this flag from nightly compilers only, or if told that the compiler is as good as one.
        environment["RUSTC_BOOTSTRAP"] = "1"
        command += ["-Z", "build-std=std,panic_abort"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return target_folder / TARGET / "wasm" / "ovir_wasm.wasm"


def main():
    """Builds and puts everything into one folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="the folder to write [default: page in cargo's target folder]")
    parser.add_argument("--validator-only", action="store_true", help="leave running models out")
    parser.add_argument("--rustc", help="the compiler, if it is not cargo's own")
    parser.add_argument("--build-std", action="store_true", help="build the standard library as well")
    arguments = parser.parse_args()
    target_folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    output = arguments.output or target_folder / "page"
    module = build(arguments, target_folder)
    output.mkdir(parents=True, exist_ok=True)
    for file in sorted((ROOT / "crates/wasm/page").iterdir()):
        shutil.copy(file, output)
    shutil.copy(module, output)
    content = module.read_bytes()
    print(f"{output}: module of {len(content):,} bytes, {len(gzip.compress(content, 9)):,} compressed")


if __name__ == "__main__":
    main()
