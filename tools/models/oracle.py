#!/usr/bin/env python3
"""Runs an IR with OpenVINO's CPU plugin and writes what it answers.

    oracle.py MODEL.xml --inputs inputs-1.npz [inputs-2.npz ...] --outputs expected-1.npz [expected-2.npz ...]

The k-th inputs file feeds the k-th consecutive inference of one request, so states carry over from one to the next.
Outputs are keyed by tensor name, the lexicographically first where there are several. Everything is computed in f32
on one thread. Other scripts call `answer`, which runs this file in a child process, because a crash of the plugin
must not take the caller along.
"""
import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np

PROPERTIES = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    "INFERENCE_NUM_THREADS": "1",
    "NUM_STREAMS": "1",
}


def answer(model, inputs, outputs):
    """Writes `outputs[k]`, the answers of `model` to `inputs[k]`, from one child process."""
    command = [sys.executable, __file__, str(model), "--inputs", *map(str, inputs), "--outputs", *map(str, outputs)]
    subprocess.run(command, check=True)
    return [dict(np.load(path)) for path in outputs]


def answer_folder(folder, steps):
    """Writes inputs-K.npz, one for each of `steps`, beside model.xml and has expected-K.npz answered."""
    folder = Path(folder)
    inputs, outputs = [], []
    for number, step in enumerate(steps, start=1):
        inputs.append(folder / f"inputs-{number}.npz")
        outputs.append(folder / f"expected-{number}.npz")
        np.savez_compressed(inputs[-1], **step)
    return answer(folder / "model.xml", inputs, outputs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--inputs", nargs="+", required=True)
    parser.add_argument("--outputs", nargs="+", required=True)
    arguments = parser.parse_args()
    if len(arguments.inputs) != len(arguments.outputs):
        parser.error("as many outputs as inputs are wanted")

    import openvino

    compiled = openvino.Core().compile_model(arguments.model, "CPU", PROPERTIES)
    request = compiled.create_infer_request()
    for source, target in zip(arguments.inputs, arguments.outputs):
        request.infer(dict(np.load(source)))
        results = {min(port.names): request.get_tensor(port).data.copy() for port in compiled.outputs}
        np.savez_compressed(target, **results)


if __name__ == "__main__":
    main()
