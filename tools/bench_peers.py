"""Times ovir beside its peers on the models of the zoo.

    python tools/bench_peers.py                          # all models, 1 and 2 threads
    python tools/bench_peers.py resnet50 vit --threads 2 --rounds 31
    python tools/bench_peers.py --start                  # also start-up and peak memory
    python tools/bench_peers.py --json peers.json --plot peers.svg
    python tools/bench_peers.py --peer "rten=ovir-peers rten" --peer "tract=ovir-peers tract"

Every model and number of threads has a process of its own, in which all systems
hold the model and take turns, one inference each: ovir through its C interface,
OpenVINO's CPU plugin in f32, and onnxruntime where the model came from an ONNX
file that is in the zoo's packages. Times are medians in milliseconds.

A further peer is a program: it is started as `PROGRAM MODEL.onnx INPUTS.npz
THREADS`, says `ready`, and answers each line `run` with the milliseconds of one
inference. `cargo build --release --manifest-path tools/peers/Cargo.toml` makes
one for rten and tract.

Start-up is measured on whole processes of `ovir run`, less the steady median,
against OpenVINO from `Core()` to its first result, less its median: the import
of its Python package does not count. Peak memory is that of the process (files
that are mapped included); OpenVINO's is less what a process takes that only
imports it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

TOOLS = Path(__file__).resolve().parent
REPOSITORY = TOOLS.parent
sys.path.insert(0, str(TOOLS))

import oracle  # noqa: E402
import ovir_capi  # noqa: E402
from zoo_models import MODELS  # noqa: E402
from zoo_timing import OpenVino, time_sequence, time_step  # noqa: E402

GOAL = 1.25
"""No model is to take longer than this many times OpenVINO's time."""

STARTS = 3
"""Processes of each system for start-up and memory; the median counts."""


def main() -> int:
    arguments = _parse_arguments()
    if arguments.child:
        return _child(arguments)
    names = arguments.names or sorted(path.parent.name for path in arguments.zoo.glob("*/model.xml"))
    results = {"machine": _machine(), "systems": [], "rows": []}
    for threads in arguments.threads:
        print(f"{threads} thread{'s' if threads > 1 else ''}", flush=True)
        for name in names:
            row = _measure(name, threads, arguments)
            results["rows"].append(row)
            print("  " + _line(row), flush=True)
        print(_summary([row for row in results["rows"] if row["threads"] == threads]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    if arguments.plot:
        arguments.plot.write_text(_plot(results["rows"]))
    return 0


_WATCH = """
import os, sys, time
begin = time.perf_counter()
child = os.fork()
if child == 0:
    out = os.open(os.devnull, os.O_WRONLY)
    os.dup2(out, 1), os.dup2(out, 2)
    os.execvp(sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(child, 0)
elapsed = (time.perf_counter() - begin) * 1e3
print('{"ms": %f, "kib": %d}' % (elapsed, usage.ru_maxrss))
sys.exit(1 if status else 0)
"""
"""Runs a program, and prints its milliseconds and its peak memory."""


# Measuring


def _measure(name: str, threads: int, arguments: argparse.Namespace) -> dict:
    """Everything about one model at one number of threads."""
    row = {"model": name, "threads": threads, "load": os.getloadavg()[0], "megahertz": _megahertz()}
    done = _ask(name, threads, "steady", arguments)
    if "error" in done:
        return {**row, **done}
    row["ms"] = done
    if arguments.start:
        row["start"] = _starts(name, threads, done, arguments)
    return row


def _ask(name: str, threads: int, task: str, arguments: argparse.Namespace) -> dict:
    """What a process of its own answers."""
    command = [sys.executable, __file__, name, "--child", task, "--threads", str(threads)]
    command += ["--zoo", str(arguments.zoo), "--library", str(arguments.library), "--rounds", str(arguments.rounds)]
    for peer in arguments.peer:
        command += ["--peer", peer]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.time_limit)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {arguments.time_limit:.0f} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
        return {"error": last[:200]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def _starts(name: str, threads: int, steady: dict, arguments: argparse.Namespace) -> dict:
    """Milliseconds to the first result and peak memory of both systems."""
    ours = [_own_start(name, threads, arguments) for _ in range(STARTS)]
    theirs = [_ask(name, threads, "start", arguments) for _ in range(STARTS)]
    base = _ask(name, threads, "import", arguments)
    if any("error" in one for one in [*ours, *theirs, base]):
        return {"error": "a process failed"}
    median = lambda runs, key: statistics.median(run[key] for run in runs)  # noqa: E731
    return {
        "ovir": {
            "total_ms": median(ours, "ms"),
            "start_ms": max(median(ours, "ms") - steady["ovir"], 0.0),
            "peak_kib": median(ours, "kib"),
        },
        "openvino": {
            "total_ms": median(theirs, "ms"),
            "start_ms": max(median(theirs, "ms") - steady["openvino"], 0.0),
            "peak_kib": median(theirs, "kib") - base["kib"],
        },
    }


def _own_start(name: str, threads: int, arguments: argparse.Namespace) -> dict:
    """A whole process of the command line."""
    folder = arguments.zoo / name
    command = [str(arguments.ovir), "run", str(folder / "model.xml"), "--inputs", str(folder / "inputs-0.npz")]
    command += ["-nthreads", str(threads)]
    # What forks counts as the peak of what it starts, so that something small has to.
    done = subprocess.run([sys.executable, "-I", "-S", "-c", _WATCH, *command], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {"error": "failed"}


# In the child


def _child(arguments: argparse.Namespace) -> int:
    name, threads = arguments.names[0], arguments.threads[0]
    folder = arguments.zoo / name
    if arguments.child == "steady":
        print(json.dumps(_steady(folder, threads, arguments)))
        return 0
    import openvino  # noqa: F401 - loading the package is no part of the time

    begin = time.perf_counter()
    if arguments.child == "start":
        system = OpenVino(folder / "model.xml", threads)
        system.set_inputs(_inputs(folder)[0])
        system.run()
    elapsed = (time.perf_counter() - begin) * 1e3
    print(json.dumps({"ms": elapsed, "kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
    return 0


def _steady(folder: Path, threads: int, arguments: argparse.Namespace) -> dict:
    """The median of each system, all of them taking turns."""
    inputs = _inputs(folder)
    systems = {
        "openvino": OpenVino(folder / "model.xml", threads),
        "ovir": ovir_capi.CompiledModel(arguments.library, folder / "model.xml", threads=threads),
    }
    has_state = systems["openvino"].has_state()
    source = _onnx_source(folder, arguments.zoo)
    if source and not has_state:
        systems.update(_others(source, folder, threads, arguments, inputs[0]))
    if has_state:
        medians = time_sequence(systems, inputs, arguments.rounds)
    else:
        medians = [time_step(systems, arrays, arguments.rounds) for arrays in inputs[:1]]
    return {system: statistics.mean(step[system] for step in medians) for system in systems}


def _inputs(folder: Path) -> list[dict[str, np.ndarray]]:
    paths = sorted(folder.glob("inputs-*.npz"), key=lambda path: int(path.stem.split("-")[1]))
    return [oracle.load_npz(path) for path in paths]


def _onnx_source(folder: Path, zoo: Path) -> Path | None:
    """The ONNX file that a model was converted from."""
    model = next((model for model in MODELS if model.name == folder.name), None)
    path = zoo / "packages" / model.package / model.source if model and model.source.endswith(".onnx") else None
    return path if path and path.exists() else None


def _others(source: Path, folder: Path, threads: int, arguments: argparse.Namespace, arrays: dict) -> dict:
    """Peers that read ONNX; one that does not take the model is left out."""
    found = {}
    makers = {"onnxruntime": lambda: OnnxRuntime(source, threads)}
    for text in arguments.peer:
        name, program = text.split("=", 1)
        makers[name] = lambda program=program: Program(program, source, folder / "inputs-0.npz", threads)
    for name, make in makers.items():
        try:
            system = make()
            system.set_inputs(arrays)
            system.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the peer cannot be timed
            print(f"{name}: {error}", file=sys.stderr)
            continue
        found[name] = system
    return found


class OnnxRuntime:
    """onnxruntime's CPU provider."""

    def __init__(self, path: Path, threads: int):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.feed: dict[str, np.ndarray] = {}

    def set_inputs(self, arrays: dict[str, np.ndarray]) -> None:
        """By name, or by position where the conversion has renamed the inputs."""
        names = [port.name for port in self.session.get_inputs()]
        if not all(name in arrays for name in names):
            self.feed = dict(zip(names, arrays.values(), strict=True))
        else:
            self.feed = {name: arrays[name] for name in names}

    def run(self) -> None:
        self.session.run(None, self.feed)


class Program:
    """A peer that is a program of its own."""

    def __init__(self, program: str, path: Path, inputs: Path, threads: int):
        command = [*program.split(), str(path), str(inputs), str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{program} does not take the model")

    def set_inputs(self, arrays: dict[str, np.ndarray]) -> None:
        """The program has read them itself."""

    def run(self) -> float:
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


# What is printed


def _line(row: dict) -> str:
    if "error" in row:
        return f"{row['model']:30} {row['error']}"
    times = row["ms"]
    cells = [f"{row['model']:30}"]
    for system, milliseconds in times.items():
        ratio = f" x{milliseconds / times['openvino']:.2f}" if system != "openvino" else ""
        cells.append(f"{system} {milliseconds:.3f} ms{ratio}")
    start = row.get("start", {})
    if "ovir" in start:
        ours, theirs = start["ovir"], start["openvino"]
        cells.append(f"start {ours['start_ms']:.0f}/{theirs['start_ms']:.0f} ms")
        cells.append(f"total {ours['total_ms']:.0f}/{theirs['total_ms']:.0f} ms")
        cells.append(f"peak {ours['peak_kib'] / 1024:.0f}/{theirs['peak_kib'] / 1024:.0f} MiB")
    elif start:
        cells.append(start["error"])
    return "  ".join(cells)


def _ratios(rows: list[dict], system: str) -> list[float]:
    """A system's times as parts of OpenVINO's."""
    return [row["ms"][system] / row["ms"]["openvino"] for row in rows if system in row.get("ms", {})]


def _geomean(values: list[float]) -> float:
    return math.exp(statistics.mean(math.log(max(value, 1e-9)) for value in values))


def _summary(rows: list[dict]) -> str:
    lines = []
    for system in sorted({name for row in rows for name in row.get("ms", {})} - {"openvino"}):
        ratios = _ratios(rows, system)
        above = sum(ratio > GOAL for ratio in ratios)
        lines.append(
            f"  {system}: {len(ratios)} models, geometric mean {_geomean(ratios):.3f} of OpenVINO's time, "
            f"{above} above {GOAL}, largest {max(ratios):.2f}"
        )
    starts = [row["start"] for row in rows if "ovir" in row.get("start", {})]
    if starts:
        begin = [one["ovir"]["start_ms"] / max(one["openvino"]["start_ms"], 1e-3) for one in starts]
        total = [one["ovir"]["total_ms"] / one["openvino"]["total_ms"] for one in starts]
        peak = [one["ovir"]["peak_kib"] / max(one["openvino"]["peak_kib"], 1) for one in starts]
        lines.append(f"  start-up: geometric mean {_geomean(begin):.3f}, median {statistics.median(begin):.3f}")
        slower = sum(ratio > 1 for ratio in total)
        lines.append(f"  start to first result: {slower} of {len(total)} take longer than OpenVINO")
        lines.append(f"  peak memory: median {statistics.median(peak):.3f}, largest {max(peak):.2f}")
    return "\n".join(lines)


def _plot(rows: list[dict]) -> str:
    """Ratios to OpenVINO as SVG: a mark for each model, system and number of threads, on a logarithmic scale."""
    colours = {"ovir": "#c62828", "onnxruntime": "#1a4fa3", "rten": "#2e7d32", "tract": "#b26a00"}
    models = sorted({row["model"] for row in rows if "ms" in row})
    left, wide, high = 230, 700, 15
    place = lambda ratio: left + wide * (math.log2(min(max(ratio, 1 / 16), 8)) + 4) / 7  # noqa: E731
    parts = []
    for tick in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, GOAL, 2, 4, 8):
        x = place(tick)
        colour = "#2e7d32" if tick == 1 else "#d8a000" if tick == GOAL else "#dddddd"
        parts.append(f'<path d="M{x:.1f} 24V{40 + high * len(models)}" stroke="{colour}"/>')
        parts.append(f'<text x="{x:.1f}" y="16" text-anchor="middle">{tick:g}</text>')
    for index, model in enumerate(models):
        y = 40 + high * index
        parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{model}</text>')
        for row in (row for row in rows if row["model"] == model and "ms" in row):
            for system, milliseconds in row["ms"].items():
                if system == "openvino":
                    continue
                ratio = milliseconds / row["ms"]["openvino"]
                colour = colours.get(system, "#666666")
                fill = colour if row["threads"] == 1 else "none"
                title = f"{model}, {system}, {row['threads']} threads: {ratio:.2f}"
                parts.append(
                    f'<circle cx="{place(ratio):.1f}" cy="{y}" r="4" fill="{fill}" stroke="{colour}">'
                    f"<title>{title}</title></circle>"
                )
    height = 60 + high * len(models)
    legend = "time as a part of OpenVINO's; full: 1 thread, open: more; " + ", ".join(
        f"{name} {colour}" for name, colour in colours.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + wide + 30}" height="{height}" '
        f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>\n'
        + "\n".join(parts)
        + f'\n<text x="{left}" y="{height - 6}">{legend}</text>\n</svg>\n'
    )


def _machine() -> dict:
    names = {line.split(":", 1)[1].strip() for line in _cpuinfo() if line.startswith("model name")}
    return {"processor": ", ".join(sorted(names)), "threads": os.cpu_count()}


def _megahertz() -> float | None:
    values = [float(line.split(":", 1)[1]) for line in _cpuinfo() if line.startswith("cpu MHz")]
    return max(values, default=None)


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models; all of the zoo by default")
    parser.add_argument("--zoo", type=Path, default=Path(os.environ.get("OVIR_ZOO", str(REPOSITORY / "zoo"))))
    target = Path(os.environ.get("CARGO_TARGET_DIR", str(REPOSITORY / "target"))) / "release"
    parser.add_argument("--ovir", type=Path, default=target / "ovir", help="the ovir binary")
    parser.add_argument("--library", type=Path, default=target / "libovir_capi.so", help="ovir's C interface")
    threads = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser.add_argument("--threads", type=threads, default=[1, 2], help="such as 1,2")
    parser.add_argument("--rounds", type=int, default=15, help="timed inferences of each system")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PROGRAM", help="a further peer")
    parser.add_argument("--start", action="store_true", help="also start-up and peak memory")
    parser.add_argument("--time-limit", type=float, default=600.0, help="seconds a model")
    parser.add_argument("--json", type=Path, help="writes everything that was measured")
    parser.add_argument("--plot", type=Path, help="writes the ratios as SVG")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    sys.exit(main())
