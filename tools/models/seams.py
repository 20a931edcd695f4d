#!/usr/bin/env python3
"""Builds the small IRs of tests/models that exercise the seams between operations: bodies, states, run-time shapes.

    seams.py [NAME ...]      all of them, or those named

Each folder gets model.xml, model.bin, and inputs-K.npz with expected-K.npz for the K-th consecutive inference of one
request, answered by OpenVINO's CPU plugin in f32.
"""
import sys
from pathlib import Path

import numpy as np
import openvino
from openvino import PartialShape, opset1, opset3, opset4, opset6, opset8, opset12, opset13, opset15
from openvino import opset13 as ops
from openvino.op import Parameter
from openvino.op.util import Variable, VariableInfo

from oracle import answer_folder

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "models"


def parameter(name, element_type, shape):
    """A named Parameter; `shape` in the notation of the file, such as "[?,1..8,4]"."""
    node = Parameter(element_type, PartialShape(shape))
    node.set_friendly_name(name)
    node.output(0).set_names({name})
    return node


def result(name, value):
    """A named Result; `value` is a node or one of its outputs."""
    output = value.output(0) if isinstance(value, openvino.Node) else value
    output.add_names({name})
    node = ops.result(output)
    node.set_friendly_name(f"{name}/result")
    return node


def integers(values):
    return ops.constant(np.array(values, np.int64))


def write(name, results, parameters, steps, sinks=None):
    """Serializes the model to its folder and has the steps answered; returns the answers."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.npz"):
        stale.unlink()
    model = openvino.Model(results, sinks or [], parameters, Path(name).name)
    model.validate_nodes_and_infer_types()
    openvino.serialize(model, folder / "model.xml", folder / "model.bin")
    answers = answer_folder(folder, steps)
    for number, outputs in enumerate(answers, start=1):
        assert all(np.isfinite(v).all() for v in outputs.values())
        print(f"{name} {number}: " + ", ".join(f"{k} {v.dtype}{list(v.shape)}" for k, v in outputs.items()))
    return answers


def random_f32(random, *shape):
    """Values with few digits, so that files stay small and sums stay exact."""
    return (random.integers(-64, 65, shape) / 16).astype(np.float32)


def if_two_branches():
    """If whose branches read different outer inputs and disagree about a dimension of their first output."""
    condition = parameter("condition", openvino.Type.boolean, "[]")
    x = parameter("x", openvino.Type.f32, "[?,4]")
    y = parameter("y", openvino.Type.f32, "[?,4]")
    z = parameter("z", openvino.Type.f32, "[1,4]")

    then_x, then_y = parameter("then_x", openvino.Type.f32, "[?,4]"), parameter("then_y", openvino.Type.f32, "[?,4]")
    joined = ops.result(ops.concat([then_x, then_y], 0, name="joined"))
    largest = ops.result(ops.reduce_max(then_x, integers([0, 1]), False, name="largest"))
    then_body = openvino.Model([joined, largest], [then_x, then_y], "then")

    else_y, else_z = parameter("else_y", openvino.Type.f32, "[?,4]"), parameter("else_z", openvino.Type.f32, "[1,4]")
    shifted = ops.result(ops.subtract(else_y, else_z, name="shifted"))
    total = ops.result(ops.reduce_sum(else_z, integers([0, 1]), False, name="total"))
    else_body = openvino.Model([shifted, total], [else_y, else_z], "else")

    node = opset8.if_op(condition)
    node.set_friendly_name("choice")
    node.set_then_body(then_body)
    node.set_else_body(else_body)
    node.set_input(x.output(0), then_x, None)
    node.set_input(y.output(0), then_y, else_y)
    node.set_input(z.output(0), None, else_z)
    rows = node.set_output(joined, shifted)
    number = node.set_output(largest, total)

    random = np.random.default_rng(1)
    steps = []
    for flag, n, m in [(True, 2, 3), (False, 2, 3), (True, 1, 5), (False, 4, 1)]:
        step = {"condition": np.array(flag), "x": random_f32(random, n, 4), "y": random_f32(random, m, 4)}
        steps.append(step | {"z": random_f32(random, 1, 4)})
    answers = write("if_two_branches", [result("rows", rows), result("number", number)], [condition, x, y, z], steps)
    for step, got in zip(steps, answers):
        if step["condition"]:
            np.testing.assert_array_equal(got["rows"], np.concatenate([step["x"], step["y"]]))
            assert got["number"] == step["x"].max()
        else:
            np.testing.assert_array_equal(got["rows"], step["y"] - step["z"])
            assert got["number"] == step["z"].sum()


def loop_growing_concat():
    """Loop that stops by its data, counts its iterations, grows a merged value and concatenates an output."""
    start = parameter("start", openvino.Type.f32, "[1,3]")
    limit = parameter("limit", openvino.Type.f32, "[]")

    iteration = parameter("iteration", openvino.Type.i64, "[]")
    current = parameter("current", openvino.Type.f32, "[1,3]")
    history = parameter("history", openvino.Type.f32, "[?,3]")
    bound = parameter("bound", openvino.Type.f32, "[]")
    counted = ops.convert(iteration, "f32")
    following = ops.add(ops.multiply(current, ops.constant(np.float32(1.5))), counted, name="following")
    grown = ops.concat([history, following], 0, name="grown")
    again = ops.less(ops.reduce_sum(following, integers([0, 1]), False), bound, name="again")
    outcomes = [ops.result(v) for v in (again, following, grown)]
    body = openvino.Model(outcomes, [iteration, current, history, bound], "body")

    node = opset6.loop(integers(12), ops.constant(np.array(True)))
    node.set_friendly_name("loop")
    node.set_function(body)
    node.set_special_body_ports([0, 0])
    node.set_merged_input(current, start.output(0), outcomes[1].output(0))
    node.set_merged_input(history, start.output(0), outcomes[2].output(0))
    node.set_invariant_input(bound, limit.output(0))
    last = node.get_iter_value(outcomes[1].output(0), -1)
    trace = node.get_concatenated_slices(outcomes[1].output(0), 0, 1, 1, -1, 0)
    grown_out = node.get_iter_value(outcomes[2].output(0), -1)

    steps = []
    for first, bound_value in [([1, 2, 3], 60), ([1, 2, 3], 5), ([0, 0, 1], 400), ([0.25, 0, 0], 1e9)]:
        steps.append({"start": np.array([first], np.float32), "limit": np.array(bound_value, np.float32)})
    results = [result("last", last), result("trace", trace), result("history_out", grown_out)]
    answers = write("loop_growing_concat", results, [start, limit], steps)
    for step, got in zip(steps, answers):
        rows, i = [step["start"]], 0
        while i < 12:
            rows.append(rows[-1] * np.float32(1.5) + np.float32(i))
            i += 1
            if not rows[-1].sum() < step["limit"]:
                break
        np.testing.assert_array_equal(got["history_out"], np.concatenate(rows))
        np.testing.assert_array_equal(got["trace"], np.concatenate(rows[1:]))
        np.testing.assert_array_equal(got["last"], rows[-1])


def loop_trip_count():
    """Loop whose trip count and first condition are inputs, with a sliced input and a running sum."""
    trips = parameter("trips", openvino.Type.i64, "[]")
    enter = parameter("enter", openvino.Type.boolean, "[]")
    x = parameter("x", openvino.Type.f32, "[5,2]")
    start = parameter("start", openvino.Type.f32, "[1,2]")

    row = parameter("row", openvino.Type.f32, "[1,2]")
    total = parameter("total", openvino.Type.f32, "[1,2]")
    added = ops.add(total, row, name="added")
    outcomes = [ops.result(ops.constant(np.array(True))), ops.result(added)]
    body = openvino.Model(outcomes, [row, total], "body")

    node = opset6.loop(trips, enter)
    node.set_friendly_name("loop")
    node.set_function(body)
    node.set_special_body_ports([-1, 0])
    node.set_sliced_input(row, x.output(0), 0, 1, 1, -1, 0)
    node.set_merged_input(total, start.output(0), outcomes[1].output(0))
    final = node.get_iter_value(outcomes[1].output(0), -1)

    random = np.random.default_rng(2)
    steps = []
    for count, flag in [(5, True), (3, True), (1, True), (0, True), (4, False)]:
        step = {"trips": np.array(count, np.int64), "enter": np.array(flag)}
        steps.append(step | {"x": random_f32(random, 5, 2), "start": random_f32(random, 1, 2)})
    answers = write("loop_trip_count", [result("final", final)], [trips, enter, x, start], steps)
    for step, got in zip(steps, answers):
        count = int(step["trips"]) if step["enter"] else 0
        np.testing.assert_array_equal(got["final"], step["start"] + step["x"][:count].sum(0, keepdims=True))


def tensor_iterator_lstm(reverse=False):
    """TensorIterator over an LSTMCell: a sliced input, two back edges, every hidden value and the last ones."""
    size, hidden = 4, 3
    random = np.random.default_rng(3)
    sequence = parameter("sequence", openvino.Type.f32, f"[2,?,{size}]")
    hidden_start = parameter("hidden_start", openvino.Type.f32, f"[2,{hidden}]")
    cell_start = parameter("cell_start", openvino.Type.f32, f"[2,{hidden}]")

    slice_ = parameter("slice", openvino.Type.f32, f"[2,1,{size}]")
    h, c = parameter("h", openvino.Type.f32, f"[2,{hidden}]"), parameter("c", openvino.Type.f32, f"[2,{hidden}]")
    weights = [random.normal(0, 0.6, shape).astype(np.float32) for shape in ((4 * hidden, size), (4 * hidden, hidden), (4 * hidden,))]
    cell = opset4.lstm_cell(ops.squeeze(slice_, integers([1])), h, c, *map(ops.constant, weights), hidden)
    cell.set_friendly_name("cell")
    outcomes = [ops.result(ops.unsqueeze(cell.output(0), integers([1]))), ops.result(cell.output(0)), ops.result(cell.output(1))]
    body = openvino.Model(outcomes, [slice_, h, c], "body")

    node = opset1.tensor_iterator()
    node.set_friendly_name("iterator")
    node.set_body(body)
    run = (-1, -1, 1, 0, 1) if reverse else (0, 1, 1, -1, 1)
    node.set_sliced_input(slice_, sequence.output(0), *run)
    node.set_merged_input(h, hidden_start.output(0), outcomes[1].output(0))
    node.set_merged_input(c, cell_start.output(0), outcomes[2].output(0))
    all_hidden = node.get_concatenated_slices(outcomes[0].output(0), *run)
    last_hidden = node.get_iter_value(outcomes[1].output(0), -1)
    last_cell = node.get_iter_value(outcomes[2].output(0), -1)

    steps = []
    for length in (5, 3, 1):
        step = {"sequence": random_f32(random, 2, length, size), "hidden_start": random_f32(random, 2, hidden)}
        steps.append(step | {"cell_start": random_f32(random, 2, hidden)})
    results = [result("all_hidden", all_hidden), result("last_hidden", last_hidden), result("last_cell", last_cell)]
    name = "tensor_iterator_lstm_reversed" if reverse else "tensor_iterator_lstm"
    answers = write(name, results, [sequence, hidden_start, cell_start], steps)

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    for step, got in zip(steps, answers):
        hidden_now, cell_now = step["hidden_start"], step["cell_start"]
        order = range(step["sequence"].shape[1])
        for t in reversed(order) if reverse else order:
            gates = step["sequence"][:, t] @ weights[0].T + hidden_now @ weights[1].T + weights[2]
            f, i, g, o = np.split(gates, 4, axis=1)
            cell_now = sigmoid(f) * cell_now + sigmoid(i) * np.tanh(g)
            hidden_now = sigmoid(o) * np.tanh(cell_now)
            np.testing.assert_allclose(got["all_hidden"][:, t], hidden_now, atol=1e-5)
        np.testing.assert_allclose(got["last_hidden"], hidden_now, atol=1e-5)
        np.testing.assert_allclose(got["last_cell"], cell_now, atol=1e-5)


def tensor_iterator_lstm_reversed():
    """The same from the last slice to the first."""
    tensor_iterator_lstm(reverse=True)


def state(name, shape, initial):
    """A variable and the ReadValue that reads it."""
    information = VariableInfo()
    information.data_shape, information.data_type, information.variable_id = PartialShape(shape), openvino.Type.f32, name
    variable = Variable(information)
    return variable, opset6.read_value(initial, variable, name=f"{name}/read")


def kv_state_32mb():
    """A cache of 32 MiB in a state, of which every inference writes one row and reads one."""
    position = parameter("position", openvino.Type.i64, "[1]")
    row = parameter("row", openvino.Type.f32, "[1,32,1,128]")
    probe = parameter("probe", openvino.Type.i64, "[1]")
    initial = opset3.broadcast(ops.constant(np.float32(0)), integers([1, 32, 2048, 128]), "NUMPY", name="empty_cache")
    variable, cache = state("cache", "[1,32,2048,128]", initial)
    updated = opset3.scatter_update(cache, position, row, integers(2), name="cache/write")
    sink = opset6.assign(updated, variable, name="cache/assign")
    read = opset8.gather(updated, probe, integers(2), name="cache/row")
    sums = ops.reduce_sum(read, integers([3]), False, name="cache/row_sums")

    random = np.random.default_rng(4)
    steps = []
    for written, probed in [(0, 0), (1, 0), (2, 1), (2047, 2047), (1, 1), (3, 2), (4, 2046)]:
        step = {"position": np.array([written], np.int64), "row": random_f32(random, 1, 32, 1, 128)}
        steps.append(step | {"probe": np.array([probed], np.int64)})
    results = [result("row_read", read), result("row_sums", sums)]
    answers = write("kv_state_32mb", results, [position, row, probe], steps, [sink])
    rows = {}
    for step, got in zip(steps, answers):
        rows[int(step["position"][0])] = step["row"]
        wanted = rows.get(int(step["probe"][0]), np.zeros_like(step["row"]))
        np.testing.assert_array_equal(got["row_read"], wanted)
        np.testing.assert_array_equal(got["row_sums"], wanted.sum(3))


def growing_decoder():
    """The attention of an exported decoder: states reordered by beam, grown by the new token, attended to."""
    heads, size = 2, 16
    width = heads * size
    random = np.random.default_rng(5)
    x = parameter("x", openvino.Type.f32, f"[?,1,{width}]")
    beams = parameter("beam_idx", openvino.Type.i32, "[?]")
    batch = opset8.gather(opset3.shape_of(x, "i64"), integers([0]), integers(0), name="batch")
    weights = [random.normal(0, width**-0.5, (width, width)).astype(np.float32) for _ in range(4)]
    projections, sinks = [], []
    for name, weight in zip(("query", "key", "value"), weights):
        flat = ops.matmul(x, ops.constant(weight), False, True, name=f"{name}/projection")
        split = ops.reshape(flat, integers([0, 0, heads, size]), True)
        projections.append(ops.transpose(split, integers([0, 2, 1, 3]), name=name))
    for place, name in ((1, "key"), (2, "value")):
        extent = ops.concat([batch, integers([heads]), integers([0]), integers([size])], 0)
        initial = opset3.broadcast(ops.constant(np.float32(0)), extent, "NUMPY", name=f"{name}/empty")
        variable, past = state(f"past_{name}", f"[?,{heads},?,{size}]", initial)
        reordered = opset8.gather(past, beams, integers(0), name=f"{name}/reordered")
        projections[place] = ops.concat([reordered, projections[place]], 2, name=f"{name}/grown")
        sinks.append(opset6.assign(projections[place], variable, name=f"past_{name}/assign"))
    attended = opset13.scaled_dot_product_attention(*projections, name="attention")
    merged = ops.reshape(ops.transpose(attended, integers([0, 2, 1, 3])), integers([0, 0, width]), True)
    y = ops.matmul(merged, ops.constant(weights[3]), False, True, name="output/projection")

    steps = []
    for order in [[0, 1], [0, 1], [1, 0], [0, 0], [0, 1], [1, 1], [1, 0], [0, 1], [0, 0]]:
        steps.append({"x": random_f32(random, 2, 1, width), "beam_idx": np.array(order, np.int32)})
    answers = write("growing_decoder", [result("y", y)], [x, beams], steps, sinks)
    past = np.zeros((2, 2, heads, 0, size), np.float32)
    for step, got in zip(steps, answers):
        query, key, value = ((step["x"] @ w.T).reshape(2, 1, heads, size).transpose(0, 2, 1, 3) for w in weights[:3])
        past = np.concatenate([past[:, step["beam_idx"]], np.stack([key, value])], axis=3)
        scores = query @ past[0].transpose(0, 1, 3, 2) / np.sqrt(size)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = scores / scores.sum(-1, keepdims=True) @ past[1]
        merged = mixed.transpose(0, 2, 1, 3).reshape(2, 1, width)
        np.testing.assert_allclose(got["y"], merged @ weights[3].T, atol=2e-5)


def dynamic_shapes():
    """Shapes computed from shapes: an interval and an unknown dimension through ShapeOf, Gather, Concat, Reshape."""
    x = parameter("x", openvino.Type.f32, "[1..8,?,6]")
    bias = parameter("bias", openvino.Type.f32, "[1,6]")
    shape = opset3.shape_of(x, "i64", name="shape")
    rows = opset8.gather(shape, integers([0]), integers(0), name="rows")
    columns = opset8.gather(shape, integers([1]), integers(0), name="columns")
    doubled = ops.multiply(columns, integers([2]), name="doubled")
    folded = ops.reshape(x, ops.concat([rows, doubled, integers([-1])], 0, name="folded_shape"), False, name="folded")
    spread = opset3.broadcast(bias, ops.concat([columns, integers([6])], 0), "NUMPY", name="spread")
    shifted = ops.add(x, spread, name="shifted")
    half = ops.divide(ops.add(columns, integers([1])), integers([2]), name="half")
    front = opset8.slice(x, integers([0]), half, integers([1]), integers([1]), name="front")
    numbers = ops.range(integers(0), ops.squeeze(columns, integers([0])), integers(1), "i64", name="numbers")
    count = ops.reduce_prod(shape, integers([0]), False, name="count")

    random = np.random.default_rng(6)
    steps = [{"x": random_f32(random, n, m, 6), "bias": random_f32(random, 1, 6)} for n, m in [(1, 4), (3, 7), (8, 1)]]
    named = {"folded": folded, "shifted": shifted, "front": front, "numbers": numbers, "count": count}
    results = [result(f"{name}_out", node) for name, node in named.items()]
    answers = write("dynamic_shapes", results, [x, bias], steps)
    for step, got in zip(steps, answers):
        n, m, _ = step["x"].shape
        np.testing.assert_array_equal(got["folded_out"], step["x"].reshape(n, 2 * m, 3))
        np.testing.assert_array_equal(got["shifted_out"], step["x"] + step["bias"])
        np.testing.assert_array_equal(got["front_out"], step["x"][:, : (m + 1) // 2])
        np.testing.assert_array_equal(got["numbers_out"], np.arange(m))
        assert got["count_out"] == 6 * n * m


# Data, indices and updates of the example "update of two slices" that ScatterNDUpdate-3, -15 and ONNX ScatterND share.
CUBE = [
    [[1, 2, 3, 4], [5, 6, 7, 8], [8, 7, 6, 5], [4, 3, 2, 1]],
    [[1, 2, 3, 4], [5, 6, 7, 8], [8, 7, 6, 5], [4, 3, 2, 1]],
    [[8, 7, 6, 5], [4, 3, 2, 1], [1, 2, 3, 4], [5, 6, 7, 8]],
    [[8, 7, 6, 5], [4, 3, 2, 1], [1, 2, 3, 4], [5, 6, 7, 8]],
]
SLICES = [
    [[5, 5, 5, 5], [6, 6, 6, 6], [7, 7, 7, 7], [8, 8, 8, 8]],
    [[1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3], [4, 4, 4, 4]],
]
CUBE_UPDATED = [SLICES[0], CUBE[1], SLICES[1], CUBE[3]]
VECTOR, FIVE_INDICES, FIVE_UPDATES = [1, 2, 3, 4], [[0], [2], [-3], [-3], [0]], [10, 20, 30, 40, 50]
ZEROS_3X3 = [[0.0] * 3] * 3


def example(build, element_type, data, indices, updates, expected, axis=None, **attributes):
    return (build, element_type, data, indices, updates, expected, axis, attributes)


# What the specifications print. Where a printed value contradicts the specification's own rule, README.md says so and
# the value here follows the rule.
SCATTER_EXAMPLES = {
    "scatter_update_3_example_2": example(
        opset3.scatter_update, "f32",
        [[-1, 1, -1, 3, 4], [-1, 6, -1, 8, 9], [-1, 11, 1, 13, 14]], [0, 2], [[1, 1], [1, 1], [1, 2]],
        [[1, 1, 1, 3, 4], [1, 6, 1, 8, 9], [1, 11, 2, 13, 14]], axis=[1],
    ),
    "scatter_elements_update_12_example_1": example(
        opset12.scatter_elements_update, "f32", [2, 3, 4, 6], [1, 0, 0, -2, -1, 2], [10, 20, 30, 40, 70, 60],
        [52, 13, 104, 76], axis=[0], reduction="sum", use_init_val=True,
    ),
    "scatter_elements_update_12_example_2": example(
        opset12.scatter_elements_update, "f32", [2, 3, 4, 6], [1, 0, 0, 2, 3, 2], [10, 20, 30, 40, 70, 60],
        [50, 10, 100, 70], axis=[0], reduction="sum", use_init_val=False,
    ),
    "scatter_elements_update_12_example_3": example(
        opset12.scatter_elements_update, "i32", [[0] * 4] * 3, [[1, 2], [0, 3]], [[11, 12], [13, 14]],
        [[0, 11, 12, 0], [13, 0, 0, 14], [0, 0, 0, 0]], axis=[1], reduction="none", use_init_val=True,
    ),
    "scatter_elements_update_12_example_4": example(
        opset12.scatter_elements_update, "i32", [[1] * 4] * 3, [[1, 1], [0, 3]], [[11, 12], [13, 14]],
        [[1, 24, 1, 1], [14, 1, 1, 15], [1, 1, 1, 1]], axis=[1], reduction="sum", use_init_val=True,
    ),
    "scatter_elements_update_12_example_5": example(
        opset12.scatter_elements_update, "i32", [[2] * 4] * 3, [[1, 1], [0, 3]], [[11, 12], [13, 14]],
        [[2, 264, 2, 2], [26, 2, 2, 28], [2, 2, 2, 2]], axis=[1], reduction="prod", use_init_val=True,
    ),
    "scatter_nd_update_3_example_1": example(
        opset4.scatter_nd_update, "f32", [1, 2, 3, 4, 5, 6, 7, 8], [[4], [3], [1], [7]], [9, 10, 11, 12],
        [1, 11, 3, 10, 9, 6, 7, 12],
    ),
    "scatter_nd_update_3_example_2": example(opset4.scatter_nd_update, "f32", CUBE, [[0], [2]], SLICES, CUBE_UPDATED),
    "scatter_nd_update_15_simple": example(
        opset15.scatter_nd_update, "f32", [1, 2, 3, 4, 5, 6, 7, 8], [[4], [3], [1], [7], [-2], [-4]],
        [9, 10, 11, 12, 13, 14], [1, 11, 3, 10, 14, 6, 13, 12], reduction="none",
    ),
    "scatter_nd_update_15_slices": example(opset15.scatter_nd_update, "f32", CUBE, [[0], [2]], SLICES, CUBE_UPDATED, reduction="none"),
    "scatter_nd_update_15_example_1": example(
        opset15.scatter_nd_update, "f32", VECTOR, FIVE_INDICES, FIVE_UPDATES, [50, 40, 20, 4], reduction="none",
    ),
    "scatter_nd_update_15_example_2": example(
        opset15.scatter_nd_update, "f16", VECTOR, FIVE_INDICES, FIVE_UPDATES, [61, 72, 23, 4], reduction="sum",
    ),
    "scatter_nd_update_15_example_3": example(
        opset15.scatter_nd_update, "i32", VECTOR, FIVE_INDICES, FIVE_UPDATES, [-59, -68, -17, 4], reduction="sub",
    ),
    "scatter_nd_update_15_example_4": example(
        opset15.scatter_nd_update, "f32", VECTOR, FIVE_INDICES, FIVE_UPDATES, [500, 2400, 60, 4], reduction="prod",
    ),
    "onnx_scatter_elements_example_1": example(
        opset12.scatter_elements_update, "f32", ZEROS_3X3, [[1, 0, 2], [0, 2, 1]], [[1.0, 1.1, 1.2], [2.0, 2.1, 2.2]],
        [[2.0, 1.1, 0.0], [1.0, 0.0, 2.2], [0.0, 2.1, 1.2]], axis=0,
    ),
    "onnx_scatter_elements_example_2": example(
        opset12.scatter_elements_update, "f32", [[1, 2, 3, 4, 5]], [[1, 3]], [[1.1, 2.1]], [[1.0, 1.1, 3.0, 2.1, 5.0]], axis=1,
    ),
    "onnx_scatter_nd_example_1": example(
        opset15.scatter_nd_update, "f32", [1, 2, 3, 4, 5, 6, 7, 8], [[4], [3], [1], [7]], [9, 10, 11, 12],
        [1, 11, 3, 10, 9, 6, 7, 12],
    ),
    "onnx_scatter_nd_example_2": example(opset15.scatter_nd_update, "f32", CUBE, [[0], [2]], SLICES, CUBE_UPDATED),
    "torch_scatter_example_1": example(
        opset12.scatter_elements_update, "i64", [[0] * 5] * 3, [[0, 1, 2, 0]], [[1, 2, 3, 4]],
        [[1, 0, 0, 4, 0], [0, 2, 0, 0, 0], [0, 0, 3, 0, 0]], axis=0,
    ),
    "torch_scatter_example_2": example(
        opset12.scatter_elements_update, "i64", [[0] * 5] * 3, [[0, 1, 2], [0, 1, 4]], [[1, 2, 3], [6, 7, 8]],
        [[1, 2, 3, 0, 0], [6, 7, 0, 0, 8], [0, 0, 0, 0, 0]], axis=1,
    ),
    "torch_scatter_example_3": example(
        opset12.scatter_elements_update, "f32", [[2.0] * 4] * 2, [[2], [3]], [[1.23], [1.23]],
        [[2, 2, 2.46, 2], [2, 2, 2, 2.46]], axis=1, reduction="prod",
    ),
    "torch_scatter_example_4": example(
        opset12.scatter_elements_update, "f32", [[2.0] * 4] * 2, [[2], [3]], [[1.23], [1.23]],
        [[2, 2, 3.23, 2], [2, 2, 2, 3.23]], axis=1, reduction="sum",
    ),
    "torch_scatter_example_5": example(
        opset12.scatter_elements_update, "f32", [[0.0] * 5] * 3, [[0, 1]], [[2.0, 2.0]],
        [[2, 0, 0, 0, 0], [0, 2, 0, 0, 0], [0, 0, 0, 0, 0]], axis=0,
    ),
}


def shape_only_examples():
    """The examples that print shapes alone, with every large dimension cut down, on generated data."""
    random = np.random.default_rng(7)
    data = random_f32(random, 10, 8, 5, 3)
    # ScatterUpdate-3, example 1: the target positions are distinct, so that the order of writing does not matter.
    indices = random.permutation(8)[:8].reshape(4, 2)
    updates = random_f32(random, 10, 4, 2, 5, 3)
    expected = data.copy()
    for place in np.ndindex(4, 2):
        expected[:, indices[place]] = updates[:, place[0], place[1]]
    yield "scatter_update_3_example_1", example(opset3.scatter_update, "f32", data, indices, updates, expected, axis=[1])

    # ScatterElementsUpdate-3 and -12, example 6: the axis is 0 and every other dimension of indices is at most data's.
    data, updates = random_f32(random, 10, 8, 7, 7), random_f32(random, 5, 4, 7, 6)
    indices = np.stack([random.permutation(10)[:5] for _ in range(4 * 7 * 6)], axis=1).reshape(5, 4, 7, 6)
    expected = data.copy()
    for place in np.ndindex(*indices.shape):
        expected[(indices[place], *place[1:])] = updates[place]
    for name, version in ("3_example", opset3), ("12_example_6", opset12):
        built = example(version.scatter_elements_update, "f32", data, indices, updates, expected, axis=[0])
        yield f"scatter_elements_update_{name}", built

    # ScatterNDUpdate-3 and -15, the last example: k is 3 of 4 dimensions.
    data, updates = random_f32(random, 10, 8, 5, 3), random_f32(random, 4, 6, 3)
    flat = random.permutation(10 * 8 * 5)[:24]
    indices = np.stack(np.unravel_index(flat, (10, 8, 5)), axis=1).reshape(4, 6, 3)
    expected = data.copy()
    for place in np.ndindex(4, 6):
        expected[tuple(indices[place])] = updates[place]
    yield "scatter_nd_update_3_example", example(opset4.scatter_nd_update, "f32", data, indices, updates, expected)
    yield "scatter_nd_update_15_example_5", example(opset15.scatter_nd_update, "f32", data, indices, updates, expected)


def scatter_examples():
    """The examples of the specifications of ScatterUpdate, ScatterElementsUpdate, ScatterNDUpdate and their kin."""
    for name, case in (SCATTER_EXAMPLES | dict(shape_only_examples())).items():
        build, element_type, data, indices, updates, expected, axis, attributes = case
        dtype = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i64": np.int64}[element_type]
        # ScatterNDUpdate-15 prints I32 indices; the rest leave the type open, and i64 is what exporters write.
        wide = np.int32 if name.startswith("scatter_nd_update_15_example") else np.int64
        step = {"data": np.array(data, dtype), "indices": np.array(indices, wide), "updates": np.array(updates, dtype)}
        parameters = [
            parameter(key, openvino.Type(value.dtype), str(list(value.shape)).replace(" ", "")) for key, value in step.items()
        ]
        operands = parameters + ([] if axis is None else [integers(axis)])
        node = build(*operands, **attributes)
        node.set_friendly_name("scatter")
        folder = f"scatter_examples/{name}"
        [got] = write(folder, [result("output", node)], parameters, [step])
        wanted = np.array(expected, dtype)
        np.testing.assert_array_equal(got["output"], wanted)
        np.savez_compressed(FOLDER / folder / "expected-1.npz", output=wanted)


SEAMS = [
    if_two_branches, loop_growing_concat, loop_trip_count, tensor_iterator_lstm, tensor_iterator_lstm_reversed,
    kv_state_32mb, growing_decoder, dynamic_shapes, scatter_examples,
]


def main():
    wanted = sys.argv[1:] or [seam.__name__ for seam in SEAMS]
    unknown = set(wanted) - {seam.__name__ for seam in SEAMS}
    if unknown:
        sys.exit(f"no such model: {', '.join(sorted(unknown))}")
    for seam in SEAMS:
        if seam.__name__ in wanted:
            seam()


if __name__ == "__main__":
    main()
