"""Older detectors and sequence models built by hand: the operations that TensorFlow's and Caffe's converters write."""

from __future__ import annotations

import numpy as np

import zoo_inputs as inputs
from zoo_built import Builder
from zoo_model import made


def _make(opset: str, kind: str, given: list, **attributes):
    """A layer that openvino's opsets in Python have no function for."""
    from openvino.utils.node_factory import NodeFactory

    ports = [node.output(0) if hasattr(node, "output") else node for node in given]
    return NodeFactory(opset).create(kind, ports, attributes)


def r_fcn(source, seed: int):
    """R-FCN: Proposal, position-sensitive pooling, and pooled features beside it."""
    b = Builder(seed)
    ops = b.ops
    image, size = b.parameter("image", [1, 3, 96, 128]), b.parameter("size", [3])
    features = b.convolution(b.convolution(b.convolution(image, 3, 16, 3, 2), 16, 32, 3, 2), 32, 48, 3, 2)
    region = b.convolution(features, 48, 32)
    pairs = ops.reshape(b.convolution(region, 32, 12, 1, active=False), b.constant([0, 2, -1, 16], np.int64), True)
    scores = ops.reshape(ops.softmax(pairs, 1), b.constant([0, 12, -1, 16], np.int64), True)
    deltas = ops.multiply(b.convolution(region, 32, 24, 1, active=False), b.constant(0.2))
    proposals = _make(
        "opset4",
        "Proposal",
        [scores, deltas, size],
        base_size=16,
        pre_nms_topn=100,
        post_nms_topn=20,
        nms_thresh=0.7,
        feat_stride=8,
        min_size=8,
        ratio=[0.5, 1.0, 2.0],
        scale=[1.0, 2.0],
        clip_before_nms=True,
        normalize=False,
        framework="",
    )
    rois = proposals.output(0)
    classes = ops.psroi_pooling(b.convolution(features, 48, 45, 1, active=False), rois, 5, 3, 0.125, 1, 1, "average")
    boxes = ops.psroi_pooling(b.convolution(features, 48, 72, 1, active=False), rois, 8, 3, 0.125, 1, 1, "average")
    spatial = b.constant([2, 3], np.int64)
    results = {
        "rois": rois,
        "classes": ops.softmax(ops.reduce_mean(classes, spatial, False), 1),
        "boxes": ops.reduce_mean(boxes, spatial, False),
        "pooled": ops.roi_pooling(features, rois, [4, 4], 0.125, "max"),
    }
    return b.model(results, [image, size], "r_fcn")


def detectron(source, seed: int):
    """Mask R-CNN as Detectron's converter writes it: a pyramid, proposals of each level, boxes and masks."""
    b = Builder(seed)
    ops = b.ops
    image, size = b.parameter("image", [1, 3, 96, 128]), b.parameter("size", [1, 3])
    level = b.convolution(image, 3, 16, 3, 2)
    levels = []
    for width, wider in ((16, 24), (24, 32), (32, 48)):
        level = b.convolution(level, width, wider, 3, 2)
        levels.append(b.convolution(level, wider, 16, 1, active=False))
    whole = ops.reshape(size, b.constant([3], np.int64), False)
    proposals = [_proposals_of_level(b, image, whole, features, number) for number, features in enumerate(levels)]
    rois, scores = (ops.concat([p.output(k) for p in proposals], 0) for k in (0, 1))
    best = _make("opset6", "ExperimentalDetectronTopKROIs", [rois, scores], max_rois=20)
    pyramid = {"sampling_ratio": 2, "pyramid_scales": [4, 8, 16]}
    extractor = "ExperimentalDetectronROIFeatureExtractor"
    pooled = _make("opset6", extractor, [best, *levels], output_size=5, aligned=False, **pyramid)
    flat = ops.reshape(pooled.output(0), b.constant([0, -1], np.int64), True)
    hidden = ops.relu(ops.matmul(flat, b.draw(400, 32, scale=0.07), False, False))
    classes = ops.softmax(ops.matmul(hidden, b.draw(32, 4, scale=0.4), False, False), 1)
    deltas = ops.matmul(hidden, b.draw(32, 16, scale=0.2), False, False)
    found = _make(
        "opset6",
        "ExperimentalDetectronDetectionOutput",
        [best, deltas, classes, size],
        score_threshold=0.2,
        nms_threshold=0.5,
        max_delta_log_wh=4.135,
        num_classes=4,
        post_nms_count=10,
        max_detections_per_image=10,
        class_agnostic_box_regression=False,
        deltas_weights=[10.0, 10.0, 5.0, 5.0],
    )
    regions = _make("opset6", extractor, [found.output(0), *levels], output_size=7, aligned=True, **pyramid)
    kernel, flat_sides = b.draw(16, 4, 2, 2, scale=0.3), [0, 0]
    masks = ops.convolution_backprop_data(
        regions.output(0), kernel, [2, 2], pads_begin=flat_sides, pads_end=flat_sides, dilations=[1, 1]
    )
    results = {"boxes": found.output(0), "labels": found.output(1), "scores": found.output(2)}
    return b.model({**results, "masks": ops.sigmoid(masks)}, [image, size], "detectron")


def _proposals_of_level(b: Builder, image, size, features, number: int):
    ops, stride = b.ops, 2.0 ** (number + 2)
    hidden = b.convolution(features, 16, 16)
    first = b.constant([0], np.int64)
    scores = ops.squeeze(ops.sigmoid(b.convolution(hidden, 16, 3, 1, active=False)), first)
    deltas = ops.squeeze(ops.multiply(b.convolution(hidden, 16, 12, 1, active=False), b.constant(0.3)), first)
    corners = np.array([[-12, -8, 12, 8], [-8, -12, 8, 12], [-9, -9, 9, 9]], np.float32) * 2.0**number
    anchors = _make(
        "opset6",
        "ExperimentalDetectronPriorGridGenerator",
        [b.constant(corners), features, image],
        flatten=True,
        h=0,
        w=0,
        stride_x=stride,
        stride_y=stride,
    )
    return _make(
        "opset6",
        "ExperimentalDetectronGenerateProposalsSingleImage",
        [size, anchors, deltas, scores],
        min_size=2.0,
        nms_threshold=0.7,
        post_nms_count=30,
        pre_nms_count=60,
    )


def selections(source, seed: int):
    """Suppression in all its kinds over the same boxes."""
    from openvino import opset4, opset8

    b = Builder(seed)
    ops = b.ops
    boxes, scores = b.parameter("boxes", [-1, -1, 4]), b.parameter("scores", [-1, 3, -1])
    limits = [b.constant(4, np.int64), b.constant(0.5), b.constant(0.2)]
    corner = ("corner", True)
    hard = ops.non_max_suppression(boxes, scores, *limits, b.constant(0.0), *corner, "i64")
    soft = ops.non_max_suppression(boxes, scores, *limits, b.constant(0.3), *corner, "i32")
    options = {"score_threshold": 0.2, "nms_top_k": 6, "keep_top_k": 9}
    classes = opset8.multiclass_nms(
        boxes, scores, sort_result_type="classid", background_class=0, iou_threshold=0.5, **options
    )
    matrix = opset8.matrix_nms(
        boxes,
        scores,
        sort_result_type="score",
        background_class=1,
        decay_function="gaussian",
        gaussian_sigma=2.0,
        post_threshold=0.1,
        **options,
    )
    results = {
        "version_4": opset4.non_max_suppression(boxes, scores, *limits, *corner, output_type="i64"),
        **{f"hard_{k}": hard.output(k) for k in range(3)},
        **{f"soft_{k}": soft.output(k) for k in range(3)},
        **{f"classes_{k}": classes.output(k) for k in range(2)},
        **{f"matrix_{k}": matrix.output(k) for k in range(2)},
    }
    return b.model(results, [boxes, scores], "selections")


def text_line(source, seed: int):
    """A recogniser of text lines: convolutions, two LSTMs over the columns, both greedy CTC decoders."""
    b = Builder(seed)
    ops, width, classes = b.ops, 24, 11
    image, lengths = b.parameter("image", [-1, 3, 16, -1]), b.parameter("lengths", [-1], np.int32)
    x = b.convolution(b.convolution(image, 3, 16, 3, 2), 16, 20, 3, 2)
    columns = ops.transpose(ops.reduce_mean(x, b.constant([2], np.int64), False), b.constant([0, 2, 1], np.int64))
    zero = b.constant(0, np.int64)
    batch = ops.gather(ops.shape_of(columns), b.constant([0], np.int64), zero)
    steps = ops.broadcast(ops.gather(ops.shape_of(columns), b.constant(1, np.int64), zero), batch)
    state = ops.broadcast(b.constant(0.0), ops.concat([batch, b.constant([2, width], np.int64)], 0))
    weights = [b.draw(2, 4 * width, n, scale=0.3) for n in (20, width)]
    found = ops.lstm_sequence(
        columns, state, state, steps, *weights, b.draw(2, 4 * width, scale=0.1), width, "bidirectional"
    )
    merged = ops.transpose(found.output(0), b.constant([0, 2, 1, 3], np.int64))
    merged = ops.reshape(merged, b.constant([0, 0, -1], np.int64), True)
    logits = ops.matmul(merged, b.draw(2 * width, classes, scale=0.8), False, False)
    decoded = ops.ctc_greedy_decoder_seq_len(logits, lengths, b.constant(classes - 1, np.int32), True, "i32", "i32")
    by_time = ops.transpose(logits, b.constant([1, 0, 2], np.int64))
    shape = ops.gather(ops.shape_of(by_time), b.constant([0, 1], np.int64), zero)
    older = ops.ctc_greedy_decoder(ops.softmax(by_time, 2), ops.broadcast(b.constant(1.0), shape), True)
    results = {"logits": logits, "text": decoded.output(0), "lengths_": decoded.output(1), "older": older}
    return b.model(results, [image, lengths], "text_line")


def spectra(source, seed: int):
    """Transforms of signals: STFT and back, real and complex transforms of planes, contractions by Einsum."""
    from openvino import opset16

    b = Builder(seed)
    ops = b.ops
    signal, plane = b.parameter("signal", [-1, -1]), b.parameter("plane", [-1, 12, 10])
    window = b.constant(np.hanning(16))
    size, step = b.constant(16, np.int64), b.constant(5, np.int64)
    spectrum = opset16.stft(signal, window, size, step, True)
    axes = b.constant([1, 2], np.int64)
    real = ops.rdft(plane, axes)
    turned = ops.dft(real, b.constant([1], np.int64))
    power = ops.reduce_sum(ops.multiply(real, real), b.constant([3], np.int64), False)
    results = {
        "spectrum": spectrum,
        "signal_": opset16.istft(spectrum, window, size, step, True, False),
        "plane_": ops.irdft(real, axes),
        "turned": turned,
        "gram": ops.einsum([power, power], "bij,bkj->bik"),
        "mixed": ops.einsum([power, b.draw(6, 12, scale=0.1)], "bij,ji->ib"),
    }
    return b.model(results, [signal, plane], "spectra")


def camera(source, seed: int, colour: str, planes: int):
    """A convolution with a saved PrePostProcessor for a camera's image in YUV with halved chroma."""
    import openvino
    from openvino import preprocess

    b = Builder(seed)
    image = b.parameter("image", [1, 3, 40, 56])
    model = b.model({"map": b.convolution(image, 3, 8)}, [image], "camera")
    processor = preprocess.PrePostProcessor(model)
    formats, given = preprocess.ColorFormat, processor.input()
    names = {1: [], 2: ["y", "uv"], 3: ["y", "u", "v"]}[planes]
    given.tensor().set_element_type(openvino.Type.u8)
    given.tensor().set_color_format(getattr(formats, colour), *([names] if names else []))
    given.tensor().set_spatial_static_shape(48, 64)
    given.model().set_layout(openvino.Layout("NCHW"))
    steps = given.preprocess().convert_color(formats.BGR).convert_element_type(openvino.Type.f32)
    steps.resize(preprocess.ResizeAlgorithm.RESIZE_LINEAR).mean([100.0, 110.0, 120.0]).scale([50.0, 60.0, 70.0])
    return processor.build()


def _frames(packages):
    generator = np.random.default_rng(6)
    size = np.array([96, 128, 1], np.float32)
    return [{"image": generator.normal(size=(1, 3, 96, 128)).astype(np.float32), "size": size} for _ in range(2)]


def _framed(packages):
    return [{**step, "size": step["size"][None]} for step in _frames(packages)]


def _boxes(packages):
    generator = np.random.default_rng(7)
    steps = []
    for batch, count in ((1, 20), (1, 33), (2, 26)):
        corners = generator.uniform(0, 50, (batch, count, 2))
        ends = corners + generator.uniform(5, 30, (batch, count, 2))
        scores = generator.permutation(batch * 3 * count).reshape(batch, 3, count) / (batch * 3 * count)
        boxes = np.concatenate([corners, ends], 2).astype(np.float32)
        steps.append({"boxes": boxes, "scores": scores.astype(np.float32)})
    return steps


def _camera_image(sizes: dict[str, tuple[int, int, int]]):
    def maker(packages):
        generator = np.random.default_rng(8)
        return [
            {name: generator.integers(0, 256, (1, *size)).astype(np.uint8) for name, size in sizes.items()}
            for _ in range(2)
        ]

    return maker


_LINES = inputs.drawn(
    {"image": inputs.normal(2, 3, 16, 64), "lengths": np.array([16, 9], np.int32)},
    {"image": inputs.normal(1, 3, 16, 100), "lengths": np.array([25], np.int32)},
)
_SIGNALS = inputs.drawn(
    {"signal": inputs.normal(2, 96), "plane": inputs.normal(2, 12, 10)},
    {"signal": inputs.normal(1, 131), "plane": inputs.normal(3, 12, 10)},
)
_PLANES = {"image/y": (48, 64, 1), "image/uv": (24, 32, 2)}

MODELS = [
    made("r_fcn", r_fcn, _frames),
    made("detectron", detectron, _framed),
    made("selections", selections, _boxes),
    made("text_line", text_line, _LINES),
    made("spectra", spectra, _SIGNALS),
    made(
        "camera_i420",
        camera,
        _camera_image({"image": (72, 64, 1)}),
        options={"colour": "I420_SINGLE_PLANE", "planes": 1},
    ),
    made("camera_nv12", camera, _camera_image(_PLANES), options={"colour": "NV12_TWO_PLANES", "planes": 2}),
]
