#!/usr/bin/env python3
"""Make the golden case packs of `tests/golden`.

`goldens.py [NAME...]` makes the packs named `Type-opsetN` (or all of a type by
`Type` alone; all packs by default). Each becomes `tests/golden/NAME.zip`:

* `cases.json`: a list of {name, oracle, openvino_version, seed, inferences,
  nan_mask, tolerance: {rtol, atol}, note};
* `CASE/model.xml`, `CASE/model.bin`;
* `CASE/inputs.npz`, `CASE/expected.npz`; for several consecutive inferences
  `CASE/inputs-0.npz`, `CASE/expected-0.npz`, ...;
* `CASE/mask.npz` where `nan_mask` is true: booleans by output name, true where
  the expected element binds.

The order of truth: numbers from the specification; numpy written from the
specification, where at least one part of OpenVINO agrees; CPU plugin and
`Model.evaluate` agreeing; one of them alone where the other cannot. A case on
which nobody agrees is left out and reported. What OpenVINO answers against the
specification goes to `tests/deviations/NAME.json`.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

TOOLS = Path(__file__).resolve().parent
sys.path.insert(0, str(TOOLS))

import golden_grid
import oracle
from golden_pack import FURTHER, PACKS, Pack, save_case_list

TOLERANCES = {
    "bfloat16": {"rtol": 1e-2, "atol": 5e-3},
    "float16": {"rtol": 2e-3, "atol": 1e-3},
    "float32": {"rtol": 1e-4, "atol": 1e-5},
    "float64": {"rtol": 1e-6, "atol": 1e-7},
}
"""How far a result may be from the expected value, by the widest of the output
types; others bind exactly."""

TWIN_NOTE = "the values are the oracle's for the same numbers in a type that it computes in itself"
"""What is said of a case that a twin vouches for."""

SHOWN_ELEMENTS = 64
"""A deviation lists at most this many elements of a tensor."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="Type-opsetN or Type")
    parser.add_argument("--tests", type=Path, default=TOOLS.parent / "tests")
    parser.add_argument("--list", action="store_true", help="list the packs and stop")
    parser.add_argument("--check", action="store_true", help="check the packs' files and stop")
    parser.add_argument("--keep", action="store_true", help="do not ask again what the pack holds unchanged")
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    _load_tables()
    names = [n for n in PACKS if _wanted(n, arguments.names)]
    if not names:
        print("no such pack", file=sys.stderr)
        return 2
    if arguments.list:
        print("\n".join(names))
        return 0
    if arguments.build:
        return _build(names[0], arguments.build)
    if arguments.check:
        return check_packs(names, arguments.tests / "golden")
    for name in names:
        make_pack(name, arguments.tests, arguments.keep)
    return 0


def check_packs(names: list[str], folder: Path) -> int:
    """Whether every pack is there and whole; needs no OpenVINO."""
    problems, count = [], 0
    for name in names:
        path = folder / f"{name}.zip"
        if not path.exists():
            problems.append(f"{name}: no pack")
            continue
        with zipfile.ZipFile(path) as archive:
            cases = json.loads(archive.read("cases.json"))
            count += len(cases)
            for case in cases:
                problems += [f"{name}/{case['name']}: {p}" for p in _case_problems(archive, case)]
            if not cases:
                problems.append(f"{name}: no cases")
    size = sum(path.stat().st_size for path in folder.glob("*.zip"))
    print("\n".join(problems), end="\n" if problems else "")
    print(f"{len(names)} packs, {count} cases, {size} bytes, {len(problems)} problems")
    return 1 if problems else 0


def _case_problems(archive: zipfile.ZipFile, case: dict) -> list[str]:
    import xml.etree.ElementTree as ET

    layers = ET.fromstring(archive.read(f"{case['name']}/model.xml")).find("layers")
    inputs = {e.get("name") for e in layers if e.get("type") == "Parameter"}
    problems = []
    for step in range(case["inferences"]):
        suffix = "" if case["inferences"] == 1 else f"-{step}"
        given = _archived_npz(archive, f"{case['name']}/inputs{suffix}.npz")
        expected = _archived_npz(archive, f"{case['name']}/expected{suffix}.npz")
        if set(given) != inputs:
            problems.append(f"inputs {sorted(given)}, Parameters {sorted(inputs)}")
        if not expected:
            problems.append("no outputs")
        if case["nan_mask"]:
            mask = _archived_npz(archive, f"{case['name']}/mask.npz")
            problems += [f"mask of {k}" for k, v in mask.items() if k not in expected or v.shape != expected[k].shape]
    return problems


def _archived_npz(archive: zipfile.ZipFile, name: str) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(archive.read(name)), allow_pickle=False) as content:
        return {key: content[key] for key in content.files}


def make_pack(name: str, tests: Path, keep: bool = False) -> None:
    """Build, ask and write one pack, and report what was left out."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / name
        folder.mkdir()
        command = [sys.executable, str(TOOLS / "goldens.py"), name, "--build", str(folder)]
        built = subprocess.run(command, capture_output=True, text=True)
        if built.returncode:
            print(f"{name}: building failed: {built.stderr[-2000:]}", file=sys.stderr)
            return
        listing = json.loads((folder / "list.json").read_text())
        kept = _kept(tests, name, folder, listing) if keep else {}
        settled, deviations = _settle_all(name, folder, listing, kept)
        _write_pack(tests / "golden" / f"{name}.zip", folder, settled)
        _write_deviations(tests / "deviations" / f"{name}.json", deviations)
    size = (tests / "golden" / f"{name}.zip").stat().st_size
    left_out = len(listing["cases"]) - len(settled)
    print(f"{name}: {len(settled)} cases, {left_out} left out, {len(deviations)} deviations, {size} bytes", flush=True)


def _load_tables() -> None:
    import importlib

    for path in sorted((TOOLS / "golden_cases").glob("[a-z]*.py")):
        importlib.import_module(f"golden_cases.{path.stem}")


def _wanted(name: str, asked: list[str]) -> bool:
    return not asked or name in asked or name.rsplit("-", 1)[0] in asked


def _build(name: str, folder: Path) -> int:
    kind, version = name.rsplit("-", 1)
    pack = Pack(kind, version, folder)
    for fill in (PACKS[name], *FURTHER.get(name, [])):
        fill(pack)
    golden_grid.extend(pack)
    save_case_list(pack)
    return 0


def _kept(tests: Path, name: str, folder: Path, listing: dict) -> dict[str, tuple[dict, dict | None]]:
    """The cases that the pack holds with the same IR and inputs, with their deviations; their files are restored."""
    path = tests / "golden" / f"{name}.zip"
    if not path.exists():
        return {}
    deviations = tests / "deviations" / f"{name}.json"
    against = {d["case"]: d for d in (json.loads(deviations.read_text()) if deviations.exists() else [])}
    wanted, kept = {e["name"]: e for e in listing["cases"]}, {}
    with zipfile.ZipFile(path) as archive:
        for case in json.loads(archive.read("cases.json")):
            entry = wanted.get(case["name"])
            files = {n.split("/")[1]: archive.read(n) for n in archive.namelist() if n.startswith(f"{case['name']}/")}
            # What a twin vouches for is asked again: the case's own files do not show the twin.
            if entry is None or entry["note"] != case["note"] or not _is_unchanged(folder / case["name"], files):
                continue
            for file, content in files.items():
                (folder / case["name"] / file).write_bytes(content)
            kept[case["name"]] = (case, against.get(case["name"]))
    return kept


def _is_unchanged(folder: Path, files: dict[str, bytes]) -> bool:
    """Whether a case that was built is the one whose files are given."""
    for name, content in files.items():
        built = folder / ("inputs-0.npz" if name == "inputs.npz" else name)
        if (name.startswith(("model", "inputs"))) and not (built.exists() and built.read_bytes() == content):
            return False
    return True


def _settle_all(name: str, folder: Path, listing: dict, kept: dict) -> tuple[list[dict], list[dict]]:
    entries = []
    for entry in listing["cases"]:
        if entry["problem"]:
            print(f"{name}/{entry['name']}: not built: {entry['problem'][:400]}", file=sys.stderr)
        elif entry["name"] not in kept:
            entries.append(entry)
    questions = [
        oracle.Question(
            folder / e["name"] / "model.xml",
            _load_steps(folder / e["name"], "inputs", e["steps"]),
            tuple(e["oracles"]),
        )
        for e in entries
    ]
    answers = oracle.ask(questions, time_limit=30.0)
    twins = _ask_twins(folder, entries)
    settled, deviations = [], []
    for entry, answer in zip(entries, answers):
        case, against = _settle(folder / entry["name"], entry, answer)
        if case is None and entry["name"] in twins:
            case, against = _settle_by_twin(folder / entry["name"], entry, answer, twins[entry["name"]])
        if case is None:
            print(f"{name}/{entry['name']}: left out: {against}", file=sys.stderr)
            continue
        case.update(seed=listing["seed"], openvino_version=_openvino_version())
        settled.append(case)
        if against:
            deviations.append({"case": entry["name"], "note": entry["note"], **against})
    settled += [case for case, _ in kept.values()]
    deviations += [deviation for _, deviation in kept.values() if deviation]
    order = [e["name"] for e in listing["cases"]]
    settled.sort(key=lambda case: order.index(case["name"]))
    deviations.sort(key=lambda deviation: order.index(deviation["case"]))
    return settled, deviations


def _ask_twins(folder: Path, entries: list[dict]) -> dict[str, oracle.Answer]:
    """What the oracles say of the twins: the same numbers in types that they compute in themselves."""
    having = [e for e in entries if e["twin"]]
    questions = []
    for entry in having:
        twin = folder / entry["name"] / "twin"
        questions.append(oracle.Question(twin / "model.xml", _load_steps(twin, "inputs", 1), tuple(entry["oracles"])))
    answers = oracle.ask(questions, time_limit=30.0)
    return {entry["name"]: answer for entry, answer in zip(having, answers)}


def _settle_by_twin(folder: Path, entry: dict, answer: oracle.Answer, twin: oracle.Answer):
    """Decide a case by its twin, unless both oracles agree on other values for the case itself."""
    verdict = oracle.settle(twin, _agreement(twin))
    if verdict.outputs is None:
        return None, f"{verdict.objection} {answer.failures} {twin.failures}"
    types = _output_types(folder / "model.xml", answer)
    given = {k: v.dtype for k, v in _load_steps(folder / "twin", "inputs", 1)[0].items()}
    expected = [{n: _converted(v, types.get(n), folder, given) for n, v in verdict.outputs[0].items()}]
    if not all(np.isfinite(v.astype(np.float64)).all() for v in expected[0].values()):
        return None, "the twin's values do not fit"
    entry = {**entry, "tolerance": entry["tolerance"] or _coarser(_tolerance(expected), _tolerance(verdict.outputs))}
    note = entry["note"] or TWIN_NOTE
    return _case(folder, {**entry, "note": note}, expected, f"{verdict.oracle}", None), {}


def _coarser(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return max(one, other, key=lambda tolerance: tolerance["rtol"])


def _converted(value: np.ndarray, dtype: np.dtype | None, folder: Path, given: dict) -> np.ndarray:
    """A twin's output in the type that the case's output has."""
    own = _load_steps(folder, "inputs", 1)[0]
    if dtype is None:
        # The oracles did not take the case: outputs of the type of an input follow it.
        dtype = next((own[k].dtype for k in sorted(given) if given[k] == value.dtype), value.dtype)
    return value.astype(dtype)


def _output_types(xml: Path, answer: oracle.Answer) -> dict[str, np.dtype]:
    """The types of the outputs, as an oracle gave them; none if the case was refused."""
    outputs = next(iter(answer.outputs.values()), None)
    return {} if outputs is None else {name: value.dtype for name, value in outputs[0].items()}


def _settle(folder: Path, entry: dict, answer: oracle.Answer):
    """Decide the expected outputs of a case: (case, deviation) or (None, reason)."""
    binding = oracle.load_npz(folder / "binding.npz") if entry["binding"] else None
    if not entry["reference"]:
        verdict = oracle.settle(answer, entry["tolerance"] or _agreement(answer))
        if verdict.outputs is None:
            return None, f"{verdict.objection} {answer.failures}"
        return _case(folder, entry, verdict.outputs, verdict.oracle, binding), {}
    expected = _load_steps(folder, "reference", entry["steps"])
    tolerance = entry["tolerance"] or _tolerance(expected)
    agreeing, deviation = [], {}
    for name in oracle.ORACLES:
        if name not in answer.outputs:
            if "died" in answer.failures.get(name, ""):
                deviation[name] = answer.failures[name]
            continue
        bound = _bound(answer.outputs[name], expected, binding)
        difference = oracle.compare(_bound(expected, expected, binding), bound, **tolerance)
        if not difference and name not in answer.unstable:
            agreeing.append(name)
            continue
        reason = difference or "two runs differ"
        deviation[name] = {"difference": reason, "outputs": _shown(answer.outputs[name])}
    if not agreeing and not entry["example"]:
        return None, f"the reference stands alone: {deviation} {answer.failures}"
    vouching = "+".join(["specification" if entry["example"] else "numpy", *agreeing])
    if deviation:
        deviation["expected"] = _shown(expected)
    return _case(folder, entry, expected, vouching, binding), deviation


def _case(folder: Path, entry: dict, outputs: oracle.Outputs, vouching: str, binding) -> dict:
    """Write the expected files and describe the case for cases.json."""
    single = entry["steps"] == 1
    for step, arrays in enumerate(outputs):
        oracle.save_npz(folder / ("expected.npz" if single else f"expected-{step}.npz"), arrays)
    if single:
        (folder / "inputs-0.npz").rename(folder / "inputs.npz")
    if binding is not None:
        oracle.save_npz(folder / "mask.npz", binding)
    return {
        "name": entry["name"],
        "oracle": vouching,
        "inferences": entry["steps"],
        "nan_mask": binding is not None,
        "tolerance": entry["tolerance"] or _tolerance(outputs),
        "note": entry["note"],
    }


def _bound(outputs: oracle.Outputs, like: oracle.Outputs, binding) -> oracle.Outputs:
    """The outputs with every element that does not bind set to zero."""
    if binding is None:
        return outputs
    return [
        {
            name: np.where(binding[name], value, np.zeros_like(value))
            if name in binding and value.shape == binding[name].shape
            else value
            for name, value in step.items()
        }
        for step in outputs
    ]


def _agreement(answer: oracle.Answer) -> dict[str, float]:
    outputs = next(iter(answer.outputs.values()), [])
    return _tolerance(outputs)


def _tolerance(outputs: oracle.Outputs) -> dict[str, float]:
    kinds = {str(a.dtype) for step in outputs for a in step.values()}
    for kind, tolerance in TOLERANCES.items():
        if kind in kinds:
            return tolerance
    return {"rtol": 0.0, "atol": 0.0}


def _shown(outputs: oracle.Outputs) -> list[dict]:
    """Tensors as JSON, cut to a readable number of elements."""
    return [
        {
            name: {
                "type": str(value.dtype),
                "shape": list(value.shape),
                "values": [str(v) for v in value.ravel()[:SHOWN_ELEMENTS].tolist()],
            }
            for name, value in step.items()
        }
        for step in outputs
    ]


def _load_steps(folder: Path, stem: str, count: int) -> oracle.Outputs:
    return [oracle.load_npz(folder / f"{stem}-{step}.npz") for step in range(count)]


def _write_pack(path: Path, folder: Path, cases: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        _add(archive, "cases.json", (json.dumps(cases, indent=1) + "\n").encode())
        for case in cases:
            names = ["model.xml", "model.bin", "mask.npz", "inputs.npz", "expected.npz"]
            for step in range(case["inferences"]):
                names += [f"inputs-{step}.npz", f"expected-{step}.npz"]
            for name in names:
                source = folder / case["name"] / name
                if source.exists():
                    _add(archive, f"{case['name']}/{name}", source.read_bytes())


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a file without a time stamp, so that equal packs are equal bytes."""
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)


def _write_deviations(path: Path, deviations: list[dict]) -> None:
    if not deviations:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(deviations, indent=1) + "\n")


def _openvino_version() -> str:
    from importlib.metadata import version

    return version("openvino")


if __name__ == "__main__":
    sys.exit(main())
