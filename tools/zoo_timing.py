"""Times of several systems on one model, interleaved in one process.

A system has `set_inputs(arrays)` and `run()`; one with states has
`has_state()` and `reset_state()` too. A `run()` that returns a number has
taken so many milliseconds.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np

import oracle


def time_step(systems: dict, arrays: dict[str, np.ndarray], rounds: int) -> dict[str, float]:
    """Interleaved medians of one inference, in milliseconds, warm."""
    times: dict[str, list[float]] = {name: [] for name in systems}
    for system in systems.values():
        system.set_inputs(arrays)
        system.run()
    for _ in range(rounds):
        for name, system in systems.items():
            times[name].append(timed(system))
    return {name: statistics.median(values) for name, values in times.items()}


def time_sequence(systems: dict, inputs: list[dict[str, np.ndarray]], rounds: int) -> list[dict[str, float]]:
    """Medians of each inference of a whole sequence, the state reset before it."""
    times = [{name: [] for name in systems} for _ in inputs]
    for _ in range(rounds + 1):
        for name, system in systems.items():
            system.reset_state()
            for k, arrays in enumerate(inputs):
                system.set_inputs(arrays)
                times[k][name].append(timed(system))
    return [{name: statistics.median(values[1:]) for name, values in step.items()} for step in times]


def timed(system) -> float:
    """Milliseconds of one inference: what the system says, if it has its own clock."""
    begin = time.perf_counter()
    measured = system.run()
    elapsed = (time.perf_counter() - begin) * 1e3
    return elapsed if measured is None else measured


class OpenVino:
    """OpenVINO's CPU plugin with the oracle's settings and further ones, for timing."""

    def __init__(self, xml: Path, threads: int, properties: dict[str, str] | None = None):
        import openvino

        core = openvino.Core()
        model = core.read_model(str(xml))
        self.names = [oracle.port_name(port) for port in model.inputs]
        settings = {**oracle.SETTINGS, "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        settings |= properties or {}
        self.request = core.compile_model(model, "CPU", settings).create_infer_request()

    def set_inputs(self, arrays: dict[str, np.ndarray]) -> None:
        import openvino

        for index, name in enumerate(self.names):
            self.request.set_input_tensor(
                index, openvino.Tensor(np.ascontiguousarray(arrays[name]).reshape(arrays[name].shape))
            )

    def run(self) -> None:
        self.request.infer()

    def has_state(self) -> bool:
        return bool(self.request.query_state())

    def reset_state(self) -> None:
        self.request.reset_state()
