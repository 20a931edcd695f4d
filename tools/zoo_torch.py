"""What the conversions of torch models share: seeded weights and the way to OpenVINO.

Needs an environment with torch; `zoo.py fetch --torch-python` runs it there.
"""

from __future__ import annotations

import math

import numpy as np


def seed_weights(model, seed: int, gain: float = 1.0):
    """Draw every parameter anew, by its role, so that activations neither vanish nor
    grow: matrices and kernels by fan-in, embeddings of unit variance, normalisations
    close to the identity, biases small. The model is returned in evaluation mode."""
    import torch

    torch.manual_seed(seed)
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    with torch.no_grad():
        for name, value in model.named_parameters():
            if id(value) in embeddings:
                value.normal_(0.0, 1.0)
            elif value.ndim >= 2 and not name.endswith("gain"):
                fan_in = value[0].numel() if value.ndim > 2 or value.shape[0] > 1 else value.shape[-1]
                value.normal_(0.0, gain / math.sqrt(max(fan_in, 1)))
            elif name.endswith("bias"):
                value.normal_(0.0, 0.05)
            else:
                value.uniform_(0.8, 1.2)
        for name, value in model.named_buffers():
            if name.endswith("running_var"):
                value.uniform_(0.8, 1.5)
    return model.eval()


def calibrate_normalisation(model, *examples):
    """Set the statistics of batch normalisation to those of the examples."""
    import torch

    normalisations = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    momenta = [m.momentum for m in normalisations]
    for m in normalisations:
        m.train()
        m.momentum = 1.0
    with torch.no_grad():
        model(*examples)
    for m, momentum in zip(normalisations, momenta):
        m.eval()
        m.momentum = momentum
        # Examples that are alike would make tiny variances, and these would blow up roundings.
        m.running_var.clamp_(min=0.05)
    return model


def convert(model, example, names: list[str] | None = None, outputs: list[str] | None = None, **options):
    """Trace a torch model and convert it. Inputs and outputs get the given names."""
    import openvino
    import torch

    with torch.no_grad():
        converted = openvino.convert_model(model, example_input=example, **options)
    if isinstance(example, dict):
        names = [next(name for name in port.names if name in example) for port in converted.inputs]
    _name_ports(converted, [*zip(converted.inputs, names or []), *zip(converted.outputs, outputs or [])])
    return converted


def _name_ports(model, named: list[tuple]) -> None:
    """Give ports one name each, and take it from whatever else the converter called so."""
    taken = {name for _, name in named}
    for node in model.get_ops():
        for port in node.outputs():
            if port.names & taken:
                port.get_tensor().set_names(port.names - taken)
    for port, name in named:
        port.get_tensor().set_names({name})


def convert_through_onnx(model, example: tuple, names: list[str], outputs: list[str], dynamic: dict | None = None):
    """Export with torch's tracing ONNX exporter, then convert."""
    import tempfile
    from pathlib import Path

    import openvino
    import torch

    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "model.onnx"
        torch.onnx.export(
            model,
            example,
            str(path),
            input_names=names,
            output_names=outputs,
            dynamic_axes=dynamic,
            opset_version=17,
            dynamo=False,
        )
        converted = openvino.convert_model(str(path))
    for port in converted.inputs:
        port.get_tensor().set_names({next(name for name in port.names if name in names)})
    return converted


def noise(seed: int, *shape: int):
    """A seeded normal tensor."""
    import torch

    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


class Picked:
    """Makes a module whose result is a tuple of tensors picked from another's result."""

    def __new__(cls, model, pick):
        import torch

        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, *arguments):
                return pick(self.model(*arguments))

        return Module().eval()
