"""Times the steps of a language model's decoder at several lengths of what it remembers, beside OpenVINO.

    python tools/bench_decoder.py MODEL.xml --library PATH/libovir_capi.so --contexts 64 1024 4096
    python tools/bench_decoder.py decoder/model.xml --build Qwen2 --library PATH/libovir_capi.so

The model is one that optimum-intel exports with its state: inputs `input_ids`, `beam_idx` and perhaps `attention_mask`
and `position_ids`. `--build` makes one first, of eight layers with random weights (it needs torch, transformers and
optimum-intel). For each length both read a prompt of so many tokens at once, and then one token a step; steps take
turns, and their medians are compared. Arithmetic is f32 on both sides, unless `--property` says otherwise, such as
INFERENCE_PRECISION_HINT=bf16 or DYNAMIC_QUANTIZATION_GROUP_SIZE=32.
"""

import argparse
import statistics
import sys
from pathlib import Path

import numpy as np
import openvino
import ovir_capi
from zoo_timing import OpenVino, timed

SIZES = {
    "vocab_size": 4000,
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 8192,
}

HEADING = " context       prompt       ovir  ratio         step       ovir  ratio   difference"


def build(kind: str, path: Path) -> None:
    """Makes a decoder of transformers' `kind` with random weights."""
    import zoo_decoders

    settings = dict(SIZES)
    if not kind.startswith(("Llama", "Qwen", "Mistral", "Gemma", "Phi3")):
        # Older kinds have a head of keys for each of queries.
        del settings["num_key_value_heads"], settings["head_dim"]
    path.parent.mkdir(parents=True, exist_ok=True)
    openvino.save_model(zoo_decoders.causal(None, 1, kind, **settings), path, compress_to_fp16=False)


class Prompts:
    """Random tokens after `past` others."""

    def __init__(self, path: Path, batch: int):
        self._names = [port.get_any_name() for port in openvino.Core().read_model(path).inputs]
        self._batch = batch
        self._generator = np.random.default_rng(0)

    def __call__(self, count: int, past: int) -> dict[str, np.ndarray]:
        positions = np.arange(past, past + count)
        values = {
            "input_ids": self._generator.integers(3, 500, (self._batch, count)),
            "attention_mask": np.ones((self._batch, past + count), np.int64),
            "position_ids": np.tile(positions, (self._batch, 1)),
            "beam_idx": np.arange(self._batch, dtype=np.int32),
        }
        return {name: values[name] for name in self._names}


def logits(system) -> np.ndarray:
    """What the last inference gave."""
    if isinstance(system, OpenVino):
        return system.request.get_output_tensor(0).data
    return next(iter(system.outputs().values()))


def inference(system, inputs: dict[str, np.ndarray]) -> float:
    """Milliseconds of an inference."""
    system.set_inputs(inputs)
    return timed(system)


def measure(systems, prompts: Prompts, context: int, steps: int) -> str:
    """One line of the table."""
    for system in systems:
        system.reset_state()
    prompt = prompts(context, 0)
    prefills = [inference(system, prompt) for system in systems]
    times, difference = [[] for _ in systems], 0.0
    for step in range(steps):
        inputs = prompts(1, context + step)
        for index in [0, 1] if step % 2 else [1, 0]:
            times[index].append(inference(systems[index], inputs))
        difference = max(difference, float(np.abs(logits(systems[0]) - logits(systems[1])).max()))
    theirs, ours = (statistics.median(line) for line in times)
    return (
        f"{context:8} {prefills[0]:12.1f} {prefills[1]:10.1f} {prefills[1] / prefills[0]:6.2f}"
        f" {theirs:12.3f} {ours:10.3f} {ours / theirs:6.2f} {difference:12.1e}"
    )


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--build", metavar="KIND", help="make the model first, as transformers names its kind: Qwen2")
    parser.add_argument("--library", type=Path, help="ovir's C library [default: the one in target]")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--contexts", type=int, nargs="+", default=[64, 1024, 4096], metavar="TOKENS")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--property", action="append", default=[], metavar="NAME=VALUE", help="of both systems")
    arguments = parser.parse_args()
    properties = dict(text.split("=", 1) for text in arguments.property)
    if arguments.build:
        build(arguments.build, arguments.model)
    library = ovir_capi.find_library(arguments.library, Path(__file__).resolve().parents[1] / "target")
    if library is None:
        sys.exit("no library: cargo build --release -p ovir-capi")
    prompts = Prompts(arguments.model, arguments.batch)
    with ovir_capi.CompiledModel(library, arguments.model, None, arguments.threads, properties) as ours:
        systems = [OpenVino(arguments.model, arguments.threads, properties), ours]
        print(f"{arguments.model}, {arguments.threads} threads, milliseconds")
        print(HEADING)
        for context in arguments.contexts:
            print(measure(systems, prompts, context, arguments.steps), flush=True)


if __name__ == "__main__":
    main()
