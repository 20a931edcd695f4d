"""Models that NNCF quantised after training: FakeQuantize before convolutions and products."""

from __future__ import annotations

import zoo_inputs as inputs
import zoo_text
import zoo_torch as torch_models
import zoo_vision
from zoo_model import made


def quantised_image_model(source, seed: int, **options):
    """A classifier of timm, quantised over noise that looks like normalised photographs."""
    import nncf

    model = zoo_vision.timm_model(source, seed, **options)
    items = [torch_models.noise(k, 1, 3, 224, 224).numpy() for k in range(12)]
    return nncf.quantize(model, nncf.Dataset(items), preset=nncf.QuantizationPreset.MIXED, subset_size=12)


def quantised_text_model(source, seed: int, **options):
    """A text encoder, quantised as a transformer."""
    import nncf
    import numpy as np

    model = zoo_text.encoder(source, seed, **options)
    generator = np.random.default_rng(seed)
    mask = np.ones((1, 16), np.int64)
    items = [
        {"input_ids": generator.integers(3, zoo_text.VOCABULARY, (1, 16)), "attention_mask": mask} for _ in range(12)
    ]
    return nncf.quantize(model, nncf.Dataset(items), model_type=nncf.ModelType.TRANSFORMER, subset_size=12)


def dynamically_quantised(source, seed: int, kind: str):
    """A model that onnxruntime quantised: activations at run time, products in integers."""
    import tempfile
    from pathlib import Path

    import openvino
    import torch
    from onnxruntime import quantization

    body = {"products": _mixer, "convolutions": _small_classifier}[kind]()
    example = torch_models.noise(seed, 1, 3, 32, 32)
    model = torch_models.calibrate_normalisation(torch_models.seed_weights(body, seed, 1.3), example)
    with tempfile.TemporaryDirectory() as temporary:
        plain, reduced = Path(temporary) / "plain.onnx", Path(temporary) / "reduced.onnx"
        axes = {"image": {0: "batch"}}
        torch.onnx.export(
            model,
            (example,),
            str(plain),
            input_names=["image"],
            output_names=["logits"],
            dynamic_axes=axes,
            dynamo=False,
        )
        quantization.quantize_dynamic(plain, reduced, weight_type=quantization.QuantType.QUInt8)
        return openvino.convert_model(str(reduced))


def _mixer():
    from torch import nn

    return nn.Sequential(
        nn.Flatten(2), nn.Linear(1024, 64), nn.GELU(), nn.Linear(64, 32), nn.Flatten(), nn.Linear(96, 10)
    )


def _small_classifier():
    from torch import nn

    layers = [nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 96, 3, 2, 1)]
    return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10))


def _quantised(name: str, convert, maker, **options):
    return made(name, convert, maker, options=options, samples=("scikit-image",), torch=True, quantised=True)


_SMALL_IMAGES = inputs.photographs("image", (32, 32), (32, 32))
_TEXT = {"kind": "Bert", "head": "ForSequenceClassification"}

MODELS = [
    _quantised("quantised_mobilenet", quantised_image_model, zoo_vision.square(224), kind="mobilenetv2_050"),
    _quantised("quantised_resnet", quantised_image_model, zoo_vision.square(224), kind="resnet18"),
    _quantised("quantised_vit", quantised_image_model, zoo_vision.square(224), kind="vit_tiny_patch16_224", depth=3),
    _quantised("quantised_bert", quantised_text_model, zoo_text.TOKENS, **_TEXT),
    _quantised("dynamic_products", dynamically_quantised, _SMALL_IMAGES, kind="products"),
    _quantised("dynamic_convolutions", dynamically_quantised, _SMALL_IMAGES, kind="convolutions"),
]
