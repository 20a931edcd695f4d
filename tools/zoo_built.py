"""Models built by hand: control flow, the YOLO and SSD operations of older models, saved preprocessing."""

from __future__ import annotations

import numpy as np

import zoo_inputs as inputs
from zoo_model import made


class Builder:
    """Seeded layers in openvino's operations."""

    def __init__(self, seed: int):
        from openvino import opset13

        self.ops = opset13
        self.random = np.random.default_rng(seed)

    def constant(self, value, dtype=np.float32):
        return self.ops.constant(np.asarray(value, dtype))

    def draw(self, *shape: int, scale: float = 1.0):
        return self.ops.constant((self.random.normal(size=shape) * scale).astype(np.float32))

    def parameter(self, name: str, shape: list[int], dtype=np.float32):
        node = self.ops.parameter(shape, dtype, name=name)
        node.output(0).get_tensor().set_names({name})
        return node

    def convolution(self, value, inputs_: int, outputs: int, size: int = 3, stride: int = 1, active: bool = True):
        ops, pad = self.ops, [size // 2] * 2
        weights = self.draw(outputs, inputs_, size, size, scale=(1.6 / (inputs_ * size * size)) ** 0.5)
        made_ = ops.convolution(value, weights, [stride] * 2, pad, pad, [1, 1])
        biased = ops.add(made_, self.draw(1, outputs, 1, 1, scale=0.1))
        return ops.prelu(biased, self.constant([0.1])) if active else biased

    def model(self, results: dict, parameters: list, name: str):
        import openvino

        for key, value in results.items():
            port = value.output(0) if hasattr(value, "output") else value
            port.get_tensor().set_names({key})
        return openvino.Model([self.ops.result(value) for value in results.values()], parameters, name)


def yolo_v3(source, seed: int):
    """Two scales with RegionYolo, and ReorgYolo in between as YOLOv2 has it."""
    b = Builder(seed)
    ops = b.ops
    image = b.parameter("image", [-1, 3, 96, 128])
    x = b.convolution(image, 3, 16, stride=2)
    x = ops.max_pool(b.convolution(x, 16, 32), [2, 2], [1, 1], [0, 0], [0, 0], [2, 2]).output(0)
    fine = b.convolution(x, 32, 32, stride=2)
    coarse = b.convolution(fine, 32, 64, stride=2)
    joined = ops.concat([coarse, ops.reorg_yolo(fine, [2])], 1)
    anchors = [10.0, 13.0, 16.0, 30.0, 33.0, 23.0, 30.0, 61.0, 62.0, 45.0, 59.0, 119.0]
    heads = {}
    upper = ops.interpolate(
        coarse,
        b.constant([2.0, 2.0]),
        "nearest",
        "scales",
        axes=b.constant([2, 3], np.int64),
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    upper = ops.concat([upper, fine], 1)
    for name, value, width, mask in (("coarse", joined, 192, [3, 4, 5]), ("fine", upper, 96, [0, 1, 2])):
        raw = b.convolution(value, width, 3 * (5 + 4), 1, active=False)
        heads[name] = ops.region_yolo(raw, 4, 4, 6, False, mask, 1, 3, anchors)
    raw = b.convolution(joined, 192, 3 * (5 + 4), 1, active=False)
    heads["v2"] = ops.region_yolo(raw, 4, 4, 3, True, [], 1, 3, anchors[:6])
    return b.model(heads, [image], "yolo_v3")


def ssd(source, seed: int):
    """The single-shot detector of Caffe models: PriorBoxClustered and DetectionOutput."""
    b = Builder(seed)
    ops = b.ops
    image = b.parameter("image", [1, 3, 96, 128])
    x = b.convolution(b.convolution(image, 3, 16, stride=2), 16, 32, stride=2)
    levels = [b.convolution(x, 32, 48, stride=2)]
    levels.append(b.convolution(levels[0], 48, 48, stride=2))
    places, scores, priors = [], [], []
    size = ops.strided_slice(ops.shape_of(image), *(b.constant(v, np.int64) for v in ([2], [4], [1])), [0], [0])
    for number, level in enumerate(levels):
        for found, count, scale in ((places, 4, 0.3), (scores, 5, 2.0)):
            raw = ops.multiply(b.convolution(level, 48, 3 * count, active=False), b.constant(scale))
            last = ops.transpose(raw, b.constant([0, 2, 3, 1], np.int64))
            found.append(ops.reshape(last, b.constant([0, -1], np.int64), True))
        grid = ops.strided_slice(ops.shape_of(level), *(b.constant(v, np.int64) for v in ([2], [4], [1])), [0], [0])
        widths = [18.0 * (number + 1), 30.0 * (number + 1), 12.0 * (number + 1)]
        attributes = {"width": widths, "height": widths[::-1], "clip": True, "variance": [0.1, 0.1, 0.2, 0.2]}
        attributes |= {"step": 0.0, "offset": 0.5}
        priors.append(ops.unsqueeze(ops.prior_box_clustered(grid, size, attributes), b.constant(0, np.int64)))
    scores = ops.reshape(ops.concat(scores, 1), b.constant([0, -1, 5], np.int64), True)
    scores = ops.reshape(ops.softmax(scores, 2), b.constant([0, -1], np.int64), True)
    attributes = {"background_label_id": 0, "top_k": 50, "keep_top_k": [20], "nms_threshold": 0.45}
    attributes |= {"code_type": "caffe.PriorBoxParameter.CENTER_SIZE", "confidence_threshold": 0.3}
    attributes |= {"share_location": True, "variance_encoded_in_target": False, "normalized": True}
    found = ops.detection_output(ops.concat(places, 1), scores, ops.concat(priors, 2), attributes)
    return b.model({"detections": found}, [image], "ssd")


def growing_loop(source, seed: int):
    """Greedy decoding inside of the graph: a Loop that appends a token until one of
    them ends it or a limit is reached; its exit and its result's size depend on data."""
    import openvino

    b = Builder(seed)
    ops = b.ops
    first = b.parameter("first", [1], np.int64)
    limit = b.parameter("limit", [], np.int64)
    table, mix, head = b.draw(24, 32), b.draw(32, 32, scale=0.25), b.draw(32, 24, scale=0.6)

    tokens = ops.parameter([-1], np.int64)
    hidden = ops.parameter([1, 32], np.float32)
    axis = b.constant(0, np.int64)
    last = ops.gather(tokens, b.constant([-1], np.int64), axis)
    fresh = ops.tanh(ops.add(ops.gather(table, last, axis), ops.matmul(hidden, mix, False, False)))
    logits = ops.matmul(fresh, head, False, False)
    chosen = ops.topk(logits, b.constant(1, np.int64), 1, "max", "value", "i64").output(1)
    grown = ops.concat([tokens, ops.reshape(chosen, b.constant([1], np.int64), False)], 0)
    goes_on = ops.squeeze(ops.not_equal(chosen, b.constant(5, np.int64)), b.constant([0, 1], np.int64))
    body = openvino.Model([goes_on, grown, fresh, logits], [tokens, hidden], "step")

    loop = ops.loop(limit, b.constant(True, np.bool_))
    loop.set_function(body)
    loop.set_special_body_ports([-1, 0])
    start = ops.broadcast(b.constant(0.0), b.constant([1, 32], np.int64))
    loop.set_merged_input(tokens, first.output(0), grown.output(0))
    loop.set_merged_input(hidden, start.output(0), fresh.output(0))
    text = loop.get_iter_value(grown.output(0), -1)
    scores = loop.get_concatenated_slices(logits.output(0), 0, 1, 1, -1, 0)
    return b.model({"tokens": text, "scores": scores}, [first, limit], "growing_loop")


def two_way_iterator(source, seed: int):
    """A gated recurrence over a dynamic time axis, forwards and backwards, by
    TensorIterator, and a GRU of the same data. Its lengths are the whole time, for OpenVINO
    reads beyond shorter ones."""
    import openvino

    b = Builder(seed)
    ops = b.ops
    x = b.parameter("x", [-1, -1, 16])
    lengths = b.parameter("lengths", [-1], np.int32)
    batch = ops.gather(ops.shape_of(x), b.constant([0], np.int64), b.constant(0, np.int64))
    state = ops.broadcast(b.constant(0.0), ops.concat([batch, b.constant([24], np.int64)], 0))
    outputs = {}
    for name, step in (("forwards", 1), ("backwards", -1)):
        part, old = ops.parameter([-1, 1, 16], np.float32), ops.parameter([-1, 24], np.float32)
        flat = ops.squeeze(part, b.constant([1], np.int64))
        joined = ops.concat([flat, old], 1)
        gate = ops.sigmoid(ops.matmul(joined, b.draw(40, 24, scale=0.2), False, False))
        new = ops.tanh(ops.matmul(joined, b.draw(40, 24, scale=0.3), False, False))
        mixed = ops.add(ops.multiply(gate, new), ops.multiply(ops.subtract(b.constant(1.0), gate), old))
        column = ops.unsqueeze(mixed, b.constant([1], np.int64))
        iterator = ops.tensor_iterator()
        iterator.set_body(openvino.Model([mixed, column], [part, old], name))
        begin, end = (0, -1) if step > 0 else (-1, 0)
        iterator.set_sliced_input(part, x.output(0), begin, step, 1, end, 1)
        iterator.set_merged_input(old, state.output(0), mixed.output(0))
        outputs[f"{name}_last"] = iterator.get_iter_value(mixed.output(0), -1)
        outputs[name] = iterator.get_concatenated_slices(column.output(0), begin, step, 1, end, 1)
    initial = ops.broadcast(b.constant(0.0), ops.concat([batch, b.constant([2, 20], np.int64)], 0))
    weights = (b.draw(2, 60, 16, scale=0.25), b.draw(2, 60, 20, scale=0.25), b.draw(2, 80, scale=0.1))
    gru = ops.gru_sequence(x, initial, lengths, *weights, 20, "bidirectional", linear_before_reset=True)
    outputs |= {"gru": gru.output(0), "gru_last": gru.output(1)}
    return b.model(outputs, [x, lengths], "two_way_iterator")


def nested_branches(source, seed: int):
    """An If inside of an If, whose branches read outer values and give other shapes."""
    import openvino
    from openvino import opset8

    b = Builder(seed)
    ops = b.ops
    x = b.parameter("x", [-1, 12])
    threshold = b.parameter("threshold", [], np.float32)

    def branch(build):
        value = ops.parameter([-1, 12], np.float32)
        level = ops.parameter([], np.float32)
        return openvino.Model([build(value, level)], [value, level], "branch"), value, level

    def choose(condition, data, level, build_then, build_else):
        node = opset8.if_op(condition.output(0))
        then, *then_in = branch(build_then)
        other, *other_in = branch(build_else)
        node.set_then_body(then)
        node.set_else_body(other)
        for outer, inside, other_inside in zip((data, level), then_in, other_in):
            node.set_input(outer.output(0), inside, other_inside)
        return node.set_output(then.results[0], other.results[0])

    def mean(value):
        return ops.reduce_mean(value, b.constant([0, 1], np.int64), False)

    def inner(value, level):
        condition = ops.greater(ops.reduce_max(value, b.constant([0, 1], np.int64), False), level)
        widen = lambda v, _: ops.matmul(v, b.draw(12, 20, scale=0.3), False, False)  # noqa: E731
        return choose(condition, value, level, widen, lambda v, _: ops.relu(v))

    def double(value, level):
        return ops.concat([value, ops.multiply(value, level)], 0)

    found = choose(ops.greater(mean(x), b.constant(0.0)), x, threshold, inner, double)
    return b.model({"y": found}, [x, threshold], "nested_branches")


def preprocessed(source, seed: int, resize: str, colour: str):
    """A small network behind a saved PrePostProcessor: u8 photographs of any size in,
    resized, recoloured and normalised inside."""
    import openvino
    from openvino import preprocess

    b = Builder(seed)
    image = b.parameter("image", [1, 3, 64, 64])
    x = b.convolution(b.convolution(image, 3, 16, stride=2), 16, 32, stride=2)
    y = b.ops.reduce_mean(x, b.constant([2, 3], np.int64), False)
    model = b.model({"features": y, "map": b.convolution(x, 32, 4, 1, active=False)}, [image], "preprocessed")
    formats = preprocess.ColorFormat
    processor = preprocess.PrePostProcessor(model)
    tensor = processor.input().tensor()
    tensor.set_element_type(openvino.Type.u8).set_layout(openvino.Layout("NHWC")).set_spatial_dynamic_shape()
    tensor.set_color_format(getattr(formats, colour))
    processor.input().model().set_layout(openvino.Layout("NCHW"))
    steps = processor.input().preprocess()
    steps.convert_color(formats.RGB if colour != "RGB" else formats.BGR).convert_element_type(openvino.Type.f32)
    steps.resize(getattr(preprocess.ResizeAlgorithm, resize)).mean([123.7, 116.3, 103.5]).scale([58.4, 57.1, 57.4])
    processor.output("map").tensor().set_layout(openvino.Layout("NHWC"))
    processor.output("map").model().set_layout(openvino.Layout("NCHW"))
    return processor.build()


def _loop_inputs(packages):
    steps = ((3, 12), (11, 20), (7, 4))
    return [{"first": np.array([f], np.int64), "limit": np.array(n, np.int64)} for f, n in steps]


def _branch_inputs(packages):
    generator = np.random.default_rng(2)
    cases = ((0.5, 1.0), (0.5, 9.0), (-0.5, 0.7), (0.4, 1.0))
    return [
        {"x": (generator.normal(size=(3, 12)) + mean).astype(np.float32), "threshold": np.array(level, np.float32)}
        for mean, level in cases
    ]


_IMAGES = inputs.photographs("image", (128, 96), (128, 96))
_TIME = inputs.drawn(
    {"x": inputs.normal(2, 9, 16), "lengths": np.array([9, 9], np.int32)},
    {"x": inputs.normal(3, 5, 16), "lengths": np.array([5, 5, 5], np.int32)},
)


def _preprocessed(name: str, **options):
    maker = inputs.with_alpha("image") if options["colour"] in ("RGBX", "BGRX") else inputs.whole_photographs("image")
    return made(name, preprocessed, maker, options=options, samples=("scikit-image",))


MODELS = [
    made("yolo_v3", yolo_v3, _IMAGES, samples=("scikit-image",)),
    made("ssd_caffe", ssd, _IMAGES, samples=("scikit-image",)),
    made("growing_loop", growing_loop, _loop_inputs),
    made("two_way_iterator", two_way_iterator, _TIME),
    made("nested_branches", nested_branches, _branch_inputs),
    _preprocessed("preprocessed_linear", resize="RESIZE_LINEAR", colour="BGR"),
    _preprocessed("preprocessed_cubic", resize="RESIZE_CUBIC", colour="RGB"),
    _preprocessed("preprocessed_nearest", resize="RESIZE_NEAREST", colour="BGRX"),
    _preprocessed("preprocessed_pillow", resize="RESIZE_BILINEAR_PILLOW", colour="RGBX"),
]
