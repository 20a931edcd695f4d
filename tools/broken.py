#!/usr/bin/env python3
"""Damages models and inputs in many ways, runs `ovir` on them and prints a table of exit codes and messages.

  broken.py [--ovir target/release/ovir]

Every case must end with one clear message and the exit code of the command line's contract: never a panic (101), a
signal, a hang or a partial output file. The tool ends with 1 if a case does not.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIGITS = ROOT / "models" / "digits"
CACHE = ROOT / "tests" / "models" / "kv_state_32mb"


def replace(old, new, count=1):
    """A change of the XML text; the old text must be there."""

    def change(xml):
        assert re.search(old, xml), old
        return re.sub(old, new, xml, count=count)

    return change


# name, change of the XML, change of the weights, verb and arguments, expected exit code
XML_CASES = [
    ("truncated XML", lambda x: x[: len(x) // 2], None, 1),
    ("mismatched tag", replace("</layers>", "</layer>"), None, 1),
    ("two roots", lambda x: x + "<net/>", None, 1),
    ("not IR", lambda x: "<html><body/></html>", None, 1),
    ("empty file", lambda x: "", None, 1),
    ("IR version 7", replace('version="11"', 'version="7"'), None, 1),
    ("IR version 12", replace('version="11"', 'version="12"'), None, 1),
    ("unknown operation", replace('type="MatMul"', 'type="MatMull"'), None, 2),
    (
        "operation not in the opset",
        replace('type="SoftMax" version="opset8"', 'type="SoftMax" version="opset99"'),
        None,
        1,
    ),
    ("misspelt attribute", replace("transpose_b=", "transpoze_b="), None, 0),
    ("boolean attribute maybe", replace('transpose_b="(true|false)"', 'transpose_b="maybe"'), None, 1),
    ("missing required attribute", replace(r' strides="[^"]*"', ""), None, 1),
    ("negative stride", replace(r'strides="[^"]*"', 'strides="-1, 1"'), None, 1),
    ("stale declared dim", replace(r"<dim>10</dim>(?=\s*</port>\s*</output>)", "<dim>11</dim>"), None, 0),
    ("dangling edge", replace(r'<edge from-layer="0"', '<edge from-layer="999"'), None, 1),
    ("duplicate edge", lambda x: re.sub(r"(<edge [^>]*/>)", r"\1\1", x, count=1), None, 1),
    ("duplicate layer id", replace(r'<layer id="1"', '<layer id="0"'), None, 1),
    ("unknown precision", replace('precision="FP32"', 'precision="FP31"'), None, 1),
    ("dim not a number", replace(r"<dim>10</dim>", "<dim>ten</dim>"), None, 1),
    ("constant beyond the weights", replace(r'offset="0"', 'offset="99999999"'), None, 1),
    ("constant of another size", replace(r'size="(\d+)"', 'size="4"'), None, 1),
    (
        "constant shape too large",
        replace(
            r'(element_type="f32" )?shape="[\d, ]+" offset', 'element_type="f32" shape="4000000000, 4000000000" offset'
        ),
        None,
        1,
    ),
    ("axis out of range", replace(r'<data axis="-?\d+"', '<data axis="7"'), None, 1),
    ("weights cut in half", None, lambda b: b[: len(b) // 2], 1),
    ("weights missing", None, "missing", 1),
    ("weights of a Git-LFS pointer", None, lambda b: b"version https://git-lfs.github.com/spec/v1\n", 1),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ovir", default=str(ROOT / "target" / "release" / "ovir"))
    options = parser.parse_args()
    rows, failures = [], 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        good = np.load(DIGITS / "inputs.npz")
        name = good.files[0]
        for title, arguments, expected in cases(folder, name, good[name]):
            output = folder / "out.npz"
            output.unlink(missing_ok=True)
            result = subprocess.run(
                [options.ovir, *arguments, "--outputs", str(output)], capture_output=True, text=True, timeout=60
            )
            message = clean(result.stderr, folder)
            clear = 0 <= result.returncode < 3 and "internal defect" not in message
            partial = result.returncode != 0 and output.exists()
            fits = result.returncode == expected and clear and not partial
            failures += not fits
            rows.append((title, result.returncode, expected, message, fits))
    for title, code, expected, message, fits in rows:
        mark = "" if fits else f" (expected {expected})"
        print(f"| {title} | {code}{mark} | {message} |")
    print(f"\n{len(rows)} cases, {failures} not as they should be", file=sys.stderr)
    return 1 if failures else 0


def cases(folder, name, image):
    """Title, arguments and expected exit code of every case."""
    xml, weights = (DIGITS / "model.xml").read_text(), (DIGITS / "model.bin").read_bytes()
    np.savez(folder / "good.npz", **{name: image[:1]})
    for index, (title, change, damage, code) in enumerate(XML_CASES):
        model = folder / f"case{index}.xml"
        model.write_text(change(xml) if change else xml)
        if damage != "missing":
            model.with_suffix(".bin").write_bytes(damage(weights) if damage else weights)
        yield title, ["run", str(model), "--inputs", str(folder / "good.npz")], code
    model = str(DIGITS / "model.xml")
    inputs = {
        "input of another name": ({"picture": image[:1]}, 2),
        "input of another rank": ({name: image[0]}, 2),
        "input of another size": ({name: image[:1, :, :5]}, 2),
        "input of another type": ({name: image[:1].astype(np.int64)}, 2),
    }
    for title, (arrays, code) in inputs.items():
        file = folder / f"{title}.npz"
        np.savez(file, **arrays)
        yield title, ["run", model, "--inputs", str(file)], code
    (folder / "broken.npz").write_bytes(b"PK\x03\x04 not an archive")
    yield "damaged npz", ["run", model, "--inputs", str(folder / "broken.npz")], 2
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n....")
    yield "damaged image", ["run", model, "-i", str(folder / "broken.png")], 2
    yield "model file missing", ["run", str(folder / "nowhere.xml")], 2
    yield "no input given", ["run", model], 2
    yield (
        "shape that violates a rule",
        ["run", model, "--shape", "[1,2,32,32]", "--inputs", str(folder / "good.npz")],
        2,
    )
    cache = dict(np.load(CACHE / "inputs-1.npz"))
    for array in cache:
        if cache[array].dtype.kind == "i":
            cache[array] = np.full_like(cache[array], 5000)
    np.savez(folder / "index.npz", **cache)
    yield "index out of range at run time", ["run", str(CACHE / "model.xml"), "--inputs", str(folder / "index.npz")], 2


def clean(text, folder):
    """The message on one line, without the temporary folder."""
    text = text.replace(str(folder) + "/", "").replace(str(ROOT) + "/", "")
    first = [line.strip() for line in text.splitlines() if line.strip()][:3]
    return " / ".join(first).replace("|", "\\|")[:240]


if __name__ == "__main__":
    sys.exit(main())
