"""Turn the models that packages carry into OpenVINO IR files.

Everything here needs the `onnx` and `openvino` packages and is only called by
`zoo.py fetch`, in a child process.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np


def randomise_light_weights(onnx_model, seed: int) -> None:
    """Replace the weights of an ONNX "light" model by seeded He-normal ones.

    The light models of the onnx package hold the structure of well-known image
    classifiers; their large weights are `ConstantOfShape` nodes of one constant
    value. Weights that remain from the original training no longer fit random
    neighbours, so every parameter is drawn anew from its role: convolution and
    matrix weights He-normal, batch normalisation close to the identity, biases
    small.
    """
    from onnx import numpy_helper

    generator = np.random.default_rng(seed)
    graph = onnx_model.graph
    shapes = _parameter_shapes(graph)
    roles = _parameter_roles(graph)
    kept_nodes = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.output[0] in shapes:
            continue
        kept_nodes.append(node)
    kept_initializers = [i for i in graph.initializer if i.name not in shapes]
    for name, shape in shapes.items():
        value = _draw(generator, roles.get(name, "bias"), shape)
        kept_initializers.append(numpy_helper.from_array(value, name))
    del graph.node[:]
    graph.node.extend(kept_nodes)
    del graph.initializer[:]
    graph.initializer.extend(kept_initializers)
    used = {name for node in graph.node for name in node.input}
    kept_inputs = [i for i in graph.input if i.name in used and i.name not in shapes]
    del graph.input[:]
    graph.input.extend(kept_inputs)


def convert_light(source: Path, seed: int, **_):
    """Read a light ONNX model, draw its weights and convert it."""
    import onnx
    import openvino

    onnx_model = onnx.load(str(source))
    randomise_light_weights(onnx_model, seed)
    changed = Path(source).with_suffix(".weights.onnx")
    onnx.save(onnx_model, str(changed))
    try:
        return openvino.convert_model(str(changed))
    finally:
        changed.unlink()


def convert_light_with_preprocessing(source: Path, seed: int, **_):
    """A light model that takes photographs as they are: u8, NHWC, of any size.
    OpenVINO's PrePostProcessor puts conversion, resizing and normalisation in front."""
    import openvino
    from openvino import preprocess

    processor = preprocess.PrePostProcessor(convert_light(source, seed))
    tensor = processor.input().tensor()
    tensor.set_element_type(openvino.Type.u8).set_layout(openvino.Layout("NHWC")).set_spatial_dynamic_shape()
    processor.input().model().set_layout(openvino.Layout("NCHW"))
    steps = processor.input().preprocess()
    steps.convert_element_type(openvino.Type.f32).resize(preprocess.ResizeAlgorithm.RESIZE_LINEAR)
    steps.mean([123.675, 116.28, 103.53]).scale([58.395, 57.12, 57.375]).convert_layout(openvino.Layout("NCHW"))
    return processor.build()


def convert_onnx(source: Path, seed: int, shapes: dict | None = None):
    """Convert an ONNX model with its own weights, for other input shapes if given."""
    import openvino

    if shapes is None:
        return openvino.convert_model(str(source))
    return openvino.convert_model(str(source), input=list(shapes.items()))


def build_minilm(source: Path, seed: int, **_):
    """Build the BERT encoder of all-MiniLM-L6-v2 from its safetensors file.

    The graph has the form that Hugging Face exporters give it: embeddings by
    Gather, an additive attention mask made from `attention_mask`, attention by
    ScaledDotProductAttention, MVN for layer normalisation, Gelu, and the mean
    pooling and normalisation of sentence-transformers at the end.
    """
    return _MiniLmBuilder(_read_safetensors(source)).build()


def build_minilm_u8(source: Path, seed: int, **_):
    """The same encoder with its matrices stored in u8."""
    return _CompressedMiniLmBuilder(_read_safetensors(source)).build()


def build_minilm_decoder(source: Path, seed: int, **_):
    """A stateful decoder over the encoder's weights: every layer keeps its keys
    and values in states, as exporters of language models write it (ReadValue,
    Gather by beam_idx, Concat, attention, Assign); logits over the vocabulary."""
    return _DecoderBuilder(_read_safetensors(source)).build()


def _parameter_shapes(graph) -> dict[str, tuple[int, ...]]:
    """Shapes of the float parameters, constant or filled, by tensor name."""
    from onnx import numpy_helper

    constants = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    shapes = {}
    for name, value in constants.items():
        if value.dtype == np.float32 and value.size > 1:
            shapes[name] = value.shape
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = tuple(int(d) for d in constants[node.input[0]])
    return shapes


def _parameter_roles(graph) -> dict[str, str]:
    """What each parameter is used for, by the operation that reads it."""
    roles = {}
    batch_norm = [None, "scale", "bias", "mean", "variance"]
    through = {}
    for node in graph.node:
        if node.op_type == "Unsqueeze":
            through[node.output[0]] = node.input[0]
        if node.op_type in ("Conv", "Gemm", "MatMul"):
            roles[node.input[1]] = "weight"
        if node.op_type == "BatchNormalization":
            for name, role in zip(node.input, batch_norm):
                if role:
                    roles[name] = role
        if node.op_type == "Mul" and node.input[1] in through:
            roles[through[node.input[1]]] = "scale"
    added = {name for node in graph.node if node.op_type == "Sum" for name in node.input}
    for node in graph.node:
        if node.op_type == "BatchNormalization" and node.output[0] in added:
            # Residual sums would grow without bound and saturate the softmax.
            roles[node.input[1]] = "residual scale"
    return roles


def _draw(generator, role: str, shape: tuple[int, ...]) -> np.ndarray:
    if role == "weight":
        fan_in = int(np.prod(shape[1:])) or 1
        value = generator.normal(0.0, np.sqrt(2.0 / fan_in), shape)
    elif role == "scale":
        value = generator.uniform(0.8, 1.2, shape)
    elif role == "residual scale":
        value = generator.uniform(0.2, 0.4, shape)
    elif role == "variance":
        value = generator.uniform(0.8, 1.5, shape)
    else:
        value = generator.normal(0.0, 0.05, shape)
    return value.astype(np.float32)


def _read_safetensors(source: Path) -> dict[str, np.ndarray]:
    """Read the tensors of a safetensors file (f32 and i64 only)."""
    import json

    raw = Path(source).read_bytes()
    header_size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + header_size])
    kinds = {"F32": np.float32, "I64": np.int64}
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + header_size + offset for offset in entry["data_offsets"])
        values = np.frombuffer(raw[begin:end], kinds[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


class _MiniLmBuilder:
    """Builds the encoder layer by layer with openvino.opset14."""

    HEADS = 12
    HIDDEN = 384
    LAYERS = 6
    EPSILON = 1e-12

    def __init__(self, weights: dict[str, np.ndarray]):
        from openvino import opset14

        self.ops = opset14
        self.weights = weights

    def build(self):
        import openvino

        ops = self.ops
        names = ("input_ids", "attention_mask", "token_type_ids")
        inputs = [ops.parameter([-1, -1], np.int64, name=name) for name in names]
        for node, name in zip(inputs, names):
            node.output(0).tensor.set_names({name})
        ids, mask, kinds = inputs
        bias = self._mask_bias(mask)
        hidden = self._embeddings(ids, kinds)
        for layer in range(self.LAYERS):
            hidden = self._layer(hidden, bias, f"encoder.layer.{layer}")
        hidden.output(0).tensor.set_names({"last_hidden_state"})
        sentence = self._mean_pool(hidden, mask)
        sentence.output(0).tensor.set_names({"sentence_embedding"})
        results = [ops.result(hidden), ops.result(sentence)]
        return openvino.Model(results, inputs, "all_minilm_l6_v2")

    def _constant(self, value, dtype=np.float32):
        return self.ops.constant(np.asarray(value, dtype))

    def _linear(self, value, prefix: str):
        weight = self._constant(self.weights[f"{prefix}.weight"])
        product = self.ops.matmul(value, weight, False, True)
        return self.ops.add(product, self._constant(self.weights[f"{prefix}.bias"]))

    def _layer_norm(self, value, prefix: str):
        axis = self._constant([-1], np.int64)
        normal = self.ops.mvn(value, axis, True, self.EPSILON, "inside_sqrt")
        scaled = self.ops.multiply(normal, self._constant(self.weights[f"{prefix}.weight"]))
        return self.ops.add(scaled, self._constant(self.weights[f"{prefix}.bias"]))

    def _mask_bias(self, mask):
        """[batch, 1, 1, length]: 0 where attended, the lowest f32 where not."""
        ops = self.ops
        wide = ops.unsqueeze(mask, self._constant([1, 2], np.int64))
        absent = ops.subtract(self._constant(1.0), ops.convert(wide, "f32"))
        return ops.multiply(absent, self._constant(np.finfo(np.float32).min))

    def _embeddings(self, ids, kinds):
        ops = self.ops
        axis = self._constant(0, np.int64)
        table = "embeddings.{}_embeddings.weight"
        words = ops.gather(self._constant(self.weights[table.format("word")]), ids, axis)
        types = ops.gather(self._constant(self.weights[table.format("token_type")]), kinds, axis)
        length = ops.gather(ops.shape_of(ids), self._constant(1, np.int64), axis)
        positions = ops.slice(
            self._constant(self.weights[table.format("position")]),
            self._constant([0], np.int64),
            ops.unsqueeze(length, self._constant(0, np.int64)),
            self._constant([1], np.int64),
            self._constant([0], np.int64),
        )
        total = ops.add(ops.add(words, types), positions)
        return self._layer_norm(total, "embeddings.LayerNorm")

    def _heads(self, value):
        ops = self.ops
        shape = self._constant([0, 0, self.HEADS, self.HIDDEN // self.HEADS], np.int64)
        split = ops.reshape(value, shape, True)
        return ops.transpose(split, self._constant([0, 2, 1, 3], np.int64))

    def _layer(self, hidden, bias, prefix: str):
        ops = self.ops
        inner = f"{prefix}.attention.self"
        query, key, value = (self._heads(self._linear(hidden, f"{inner}.{part}")) for part in ("query", "key", "value"))
        context = ops.scaled_dot_product_attention(query, key, value, bias)
        merged = ops.reshape(
            ops.transpose(context, self._constant([0, 2, 1, 3], np.int64)),
            self._constant([0, 0, self.HIDDEN], np.int64),
            True,
        )
        attended = self._linear(merged, f"{prefix}.attention.output.dense")
        hidden = self._layer_norm(ops.add(attended, hidden), f"{prefix}.attention.output.LayerNorm")
        grown = ops.gelu(self._linear(hidden, f"{prefix}.intermediate.dense"), "erf")
        shrunk = self._linear(grown, f"{prefix}.output.dense")
        return self._layer_norm(ops.add(shrunk, hidden), f"{prefix}.output.LayerNorm")

    def _mean_pool(self, hidden, mask):
        ops = self.ops
        axis = self._constant([1], np.int64)
        weight = ops.convert(ops.unsqueeze(mask, self._constant([-1], np.int64)), "f32")
        total = ops.reduce_sum(ops.multiply(hidden, weight), axis, False)
        count = ops.maximum(ops.reduce_sum(weight, axis, False), self._constant(1e-9))
        return ops.normalize_l2(ops.divide(total, count), self._constant([1], np.int64), 1e-12, "max")


class _CompressedMiniLmBuilder(_MiniLmBuilder):
    """Matrices as u8 with zero point and scale for each row."""

    def _linear(self, value, prefix: str):
        import openvino

        ops = self.ops
        weight = self.weights[f"{prefix}.weight"]
        low, high = weight.min(1, keepdims=True), weight.max(1, keepdims=True)
        scale = ((high - low) / 255).astype(np.float32)
        zero = np.rint(-low / scale).astype(np.uint8)
        stored = np.clip(np.rint(weight / scale) + zero, 0, 255).astype(np.uint8)
        wide = ops.convert(ops.constant(stored), openvino.Type.f32)
        centred = ops.subtract(wide, ops.convert(ops.constant(zero), openvino.Type.f32))
        restored = ops.multiply(centred, ops.constant(scale))
        product = ops.matmul(value, restored, False, True)
        return ops.add(product, self._constant(self.weights[f"{prefix}.bias"]))


class _DecoderBuilder(_MiniLmBuilder):
    """The encoder's layers with causal attention over cached keys and values."""

    def build(self):
        import openvino

        ops = self.ops
        ids = self._input("input_ids", [-1, -1], np.int64)
        positions = self._input("position_ids", [-1, -1], np.int64)
        self.beams = self._input("beam_idx", [-1], np.int32)
        self.batch = ops.gather(ops.shape_of(ids), self._constant([0], np.int64), self._constant(0, np.int64))
        self.sinks = []
        axis = self._constant(0, np.int64)
        table = "embeddings.{}_embeddings.weight"
        vocabulary = self._constant(self.weights[table.format("word")])
        places = self._constant(self.weights[table.format("position")])
        embedded = ops.add(ops.gather(vocabulary, ids, axis), ops.gather(places, positions, axis))
        hidden = self._layer_norm(embedded, "embeddings.LayerNorm")
        for layer in range(self.LAYERS):
            hidden = self._layer(hidden, None, f"encoder.layer.{layer}")
        logits = ops.matmul(hidden, vocabulary, False, True)
        logits.output(0).tensor.set_names({"logits"})
        parameters = [ids, positions, self.beams]
        return openvino.Model([ops.result(logits)], self.sinks, parameters, "minilm_decoder")

    def _input(self, name: str, shape: list[int], dtype):
        node = self.ops.parameter(shape, dtype, name=name)
        node.output(0).tensor.set_names({name})
        return node

    def _layer(self, hidden, bias, prefix: str):
        ops = self.ops
        inner = f"{prefix}.attention.self"
        query, key, value = (self._heads(self._linear(hidden, f"{inner}.{part}")) for part in ("query", "key", "value"))
        key, value = self._cached(key, f"{prefix}.key"), self._cached(value, f"{prefix}.value")
        context = ops.scaled_dot_product_attention(query, key, value, self._causal_mask(query, key))
        merged = ops.reshape(
            ops.transpose(context, self._constant([0, 2, 1, 3], np.int64)),
            self._constant([0, 0, self.HIDDEN], np.int64),
            True,
        )
        attended = self._linear(merged, f"{prefix}.attention.output.dense")
        hidden = self._layer_norm(ops.add(attended, hidden), f"{prefix}.attention.output.LayerNorm")
        grown = ops.gelu(self._linear(hidden, f"{prefix}.intermediate.dense"), "erf")
        shrunk = self._linear(grown, f"{prefix}.output.dense")
        return self._layer_norm(ops.add(shrunk, hidden), f"{prefix}.output.LayerNorm")

    def _cached(self, fresh, name: str):
        """The state's rows, reordered by beam_idx, with the fresh ones after them."""
        import openvino

        ops, width = self.ops, self.HIDDEN // self.HEADS
        tail = self._constant([self.HEADS, 0, width], np.int64)
        empty = ops.broadcast(self._constant(0.0), ops.concat([self.batch, tail], 0))
        shape = openvino.PartialShape([-1, self.HEADS, -1, width])
        old = ops.read_value(empty, name, openvino.Type.f32, shape)
        picked = ops.gather(old, self.beams, self._constant(0, np.int64))
        whole = ops.concat([picked, fresh], 2)
        self.sinks.append(ops.assign(whole, name))
        return whole

    def _causal_mask(self, query, key):
        """[length, total]: 0 where a key is not later than its query, else lowest f32."""
        ops = self.ops
        length, total = (self._length(v) for v in (query, key))
        zero, one = self._constant(0, np.int64), self._constant(1, np.int64)
        columns = ops.range(zero, total, one, "i64")
        rows = ops.range(ops.subtract(total, length), total, one, "i64")
        visible = ops.less_equal(columns, ops.unsqueeze(rows, self._constant([1], np.int64)))
        return ops.select(visible, self._constant(0.0), self._constant(np.finfo(np.float32).min))

    def _length(self, value):
        ops = self.ops
        shape = ops.shape_of(value)
        return ops.gather(shape, self._constant(2, np.int64), self._constant(0, np.int64))
