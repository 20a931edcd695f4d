"""Control flow and state: If, Loop, TensorIterator, ReadValue, Assign."""

from __future__ import annotations

import numpy as np

from golden_pack import Pack, make_constant, make_model, make_node, make_parameter, pack

F32, I32, I64 = np.float32, np.int32, np.int64


def scalar(value, dtype=F32):
    return make_constant(np.array(value, dtype))


def add(a, b):
    return make_node("Add", "opset1", [a, b])


def multiply(a, b):
    return make_node("Multiply", "opset1", [a, b])


def body(results, parameters):
    import openvino
    from openvino import opset13

    return openvino.Model([opset13.result(r) for r in results], list(parameters), "body")


@pack("If-opset8")
def if_(p: Pack) -> None:
    from openvino import opset8

    def simple(condition, x, shape=None, outer=None):
        """then: x + 1; else: x * 2."""
        then_x, else_x = (
            make_parameter(F32, shape or list(x.shape), "t"),
            make_parameter(F32, shape or list(x.shape), "e"),
        )
        then_body = body([add(then_x, scalar(1))], [then_x])
        else_body = body([multiply(else_x, scalar(2))], [else_x])
        node = opset8.if_op(condition)
        node.set_then_body(then_body)
        node.set_else_body(else_body)
        node.set_input(outer.output(0), then_x, else_x)
        return node.set_output(then_body.results[0], else_body.results[0])

    for taken in (True, False):
        x = p.normal(2, 3)
        expected = [{"y0": x + np.float32(1) if taken else x * np.float32(2)}]
        name = "then" if taken else "else"

        def with_parameter(shape=None, condition_shape=()):
            outer = make_parameter(F32, shape or [2, 3], "x0")
            condition = make_parameter(np.bool_, list(condition_shape), "x1")
            return make_model([simple(condition, x, shape, outer)], [outer, condition])

        p.model(f"{name}_parameter", with_parameter, [{"x0": x, "x1": np.array(taken)}], reference=expected)
        p.model(
            f"{name}_one_element_condition",
            lambda: with_parameter(None, (1,)),
            [{"x0": x, "x1": np.array([taken])}],
            reference=expected,
        )
        p.model(
            f"{name}_dynamic", lambda: with_parameter([-1, 3]), [{"x0": x, "x1": np.array(taken)}], reference=expected
        )

        def with_constant():
            outer = make_parameter(F32, [2, 3], "x0")
            return make_model([simple(scalar(taken, np.bool_), x, None, outer)], [outer])

        p.model(f"{name}_constant_condition", with_constant, [{"x0": x}], reference=expected)

    def shapes_differ():
        """then: x of [2, 3]; else: its first row, [3]."""
        outer, condition = make_parameter(F32, [2, 3], "x0"), make_parameter(np.bool_, [], "x1")
        then_x, else_x = make_parameter(F32, [2, 3], "t"), make_parameter(F32, [2, 3], "e")
        row = make_node("Gather", "opset8", [else_x, np.array([0], I64), np.array(0, I64)])
        then_body, else_body = body([add(then_x, scalar(0.5))], [then_x]), body([row], [else_x])
        node = opset8.if_op(condition)
        node.set_then_body(then_body)
        node.set_else_body(else_body)
        node.set_input(outer.output(0), then_x, else_x)
        return make_model([node.set_output(then_body.results[0], else_body.results[0])], [outer, condition])

    x = p.normal(2, 3)
    p.model(
        "shapes_differ_then", shapes_differ, [{"x0": x, "x1": np.array(True)}], reference=[{"y0": x + np.float32(0.5)}]
    )
    p.model("shapes_differ_else", shapes_differ, [{"x0": x, "x1": np.array(False)}], reference=[{"y0": x[:1]}])

    def two_outputs():
        """then uses a only, else uses b only; outputs crossed."""
        a, b, condition = (
            make_parameter(F32, [3], "x0"),
            make_parameter(F32, [3], "x1"),
            make_parameter(np.bool_, [], "x2"),
        )
        t, e = make_parameter(F32, [3], "t"), make_parameter(F32, [3], "e")
        then_body = body([add(t, scalar(1)), multiply(t, scalar(3))], [t])
        else_body = body([add(e, scalar(2)), multiply(e, scalar(4))], [e])
        node = opset8.if_op(condition)
        node.set_then_body(then_body)
        node.set_else_body(else_body)
        node.set_input(a.output(0), t, None)
        node.set_input(b.output(0), None, e)
        outputs = [node.set_output(then_body.results[i], else_body.results[i]) for i in range(2)]
        return make_model(outputs, [a, b, condition])

    a, b = p.normal(3), p.normal(3)
    for taken in (True, False):
        value = [a + np.float32(1), a * np.float32(3)] if taken else [b + np.float32(2), b * np.float32(4)]
        p.model(
            f"two_outputs_{taken}",
            two_outputs,
            [{"x0": a, "x1": b, "x2": np.array(taken)}],
            reference=[{"y0": value[0], "y1": value[1]}],
        )

    def nested():
        """if c0: (if c1: x + 1 else x * 2) else: x - 3."""
        outer, c0, c1 = (
            make_parameter(F32, [2, 3], "x0"),
            make_parameter(np.bool_, [], "x1"),
            make_parameter(np.bool_, [], "x2"),
        )
        t, tc, e = (
            make_parameter(F32, [2, 3], "t"),
            make_parameter(np.bool_, [], "tc"),
            make_parameter(F32, [2, 3], "e"),
        )
        then_body, else_body = body([simple(tc, x, [2, 3], t)], [t, tc]), body([add(e, scalar(-3))], [e])
        node = opset8.if_op(c0)
        node.set_then_body(then_body)
        node.set_else_body(else_body)
        node.set_input(outer.output(0), t, e)
        node.set_input(c1.output(0), tc, None)
        return make_model([node.set_output(then_body.results[0], else_body.results[0])], [outer, c0, c1])

    for c0, c1 in ((True, True), (True, False), (False, True)):
        value = (x + np.float32(1) if c1 else x * np.float32(2)) if c0 else x - np.float32(3)
        p.model(
            f"nested_{c0}_{c1}", nested, [{"x0": x, "x1": np.array(c0), "x2": np.array(c1)}], reference=[{"y0": value}]
        )


@pack("Loop-opset5")
def loop(p: Pack) -> None:
    from openvino import opset5

    def accumulate(trips, condition, keep, start_condition=True, scan=True, shape=(1, 2)):
        """h = h * 0.5 + x a turn; goes on while keep(iteration) in the body."""

        def build():
            x = make_parameter(F32, list(shape), "x0")
            h0 = make_parameter(F32, list(shape), "x1")
            bound = make_parameter(I64, [], "x2") if trips is None else None
            iteration, bh, bx = (
                make_parameter(I64, [], "i"),
                make_parameter(F32, list(shape), "h"),
                make_parameter(F32, list(shape), "x"),
            )
            h = add(multiply(bh, scalar(0.5)), bx)
            going = make_node("Less", "opset1", [iteration, scalar(keep, I64)]) if condition else scalar(True, np.bool_)
            inner = body([going, h], [iteration, bh, bx])
            node = opset5.loop(bound or scalar(trips, I64), scalar(start_condition, np.bool_))
            node.set_function(inner)
            node.set_special_body_ports([0, 0])
            node.set_merged_input(bh, h0.output(0), inner.results[1].output(0))
            node.set_invariant_input(bx, x.output(0))
            outputs = [node.get_iter_value(inner.results[1].output(0), -1)]
            if scan:
                outputs.append(node.get_concatenated_slices(inner.results[1].output(0), 0, 1, 1, -1, 0))
            return make_model(outputs, [v for v in (x, h0, bound) if v is not None])

        return build

    def expected(x, h, turns, scan=True):
        seen = []
        for _ in range(turns):
            h = h * np.float32(0.5) + x
            seen.append(h)
        result = {"y0": h}
        if scan:
            result["y1"] = np.concatenate(seen, 0) if seen else np.zeros((0, *h.shape[1:]), h.dtype)
        return [result]

    x, h = p.normal(1, 2), p.normal(1, 2)
    step = {"x0": x, "x1": h}
    p.model("trip_count", accumulate(3, False, 0), [step], reference=expected(x, h, 3))
    p.model("trip_count_one", accumulate(1, False, 0), [step], reference=expected(x, h, 1))
    p.model(
        "condition_stops",
        accumulate(10, True, 2),
        [step],
        reference=expected(x, h, 3),
        note="the condition is looked at after the turn",
    )
    p.model(
        "endless_with_condition", accumulate(-1, True, 4), [step], reference=expected(x, h, 5), note="trip count -1"
    )
    p.model(
        "trip_count_parameter",
        accumulate(None, False, 0),
        [{**step, "x2": np.array(4, I64)}],
        reference=expected(x, h, 4),
    )
    p.model(
        "no_turn",
        accumulate(0, False, 0, scan=False),
        [step],
        reference=expected(x, h, 0, False),
        example=True,
        note="the initial value comes through",
    )
    p.model(
        "start_condition_false",
        accumulate(5, False, 0, start_condition=False, scan=False),
        [step],
        reference=expected(x, h, 0, False),
        example=True,
        note="the initial value comes through",
    )

    def sliced(axis):
        """Running sum over slices of x along an axis, results concatenated."""

        def build():
            x = make_parameter(F32, [4, 3], "x0")
            part = [1, 3] if axis == 0 else [4, 1]
            iteration, bs, bx = (
                make_parameter(I64, [], "i"),
                make_parameter(F32, part, "s"),
                make_parameter(F32, part, "x"),
            )
            total = add(bs, bx)
            inner = body([scalar(True, np.bool_), total], [iteration, bs, bx])
            node = opset5.loop(scalar(4 if axis == 0 else 3, I64), scalar(True, np.bool_))
            node.set_function(inner)
            node.set_special_body_ports([0, 0])
            node.set_merged_input(bs, make_constant(np.zeros(part, F32)).output(0), inner.results[1].output(0))
            node.set_sliced_input(bx, x.output(0), 0, 1, 1, -1, axis)
            outputs = [
                node.get_concatenated_slices(inner.results[1].output(0), 0, 1, 1, -1, axis),
                node.get_iter_value(inner.results[1].output(0), -1),
            ]
            return make_model(outputs, [x])

        return build

    data = p.normal(4, 3)
    for axis in (0, 1):
        total = np.cumsum(data.astype(np.float64), axis).astype(F32)
        last = total[-1:] if axis == 0 else total[:, -1:]
        p.model(f"slices_axis_{axis}", sliced(axis), [{"x0": data}], reference=[{"y0": total, "y1": last}])

    def counter():
        """Uses the iteration number: sum of i * x."""
        x = make_parameter(F32, [3], "x0")
        iteration, bs, bx = make_parameter(I64, [], "i"), make_parameter(F32, [3], "s"), make_parameter(F32, [3], "x")
        number = make_node("Convert", "opset1", [iteration], {"destination_type": "f32"})
        inner = body([scalar(True, np.bool_), add(bs, multiply(number, bx))], [iteration, bs, bx])
        node = opset5.loop(scalar(4, I64), scalar(True, np.bool_))
        node.set_function(inner)
        node.set_special_body_ports([0, 0])
        node.set_merged_input(bs, make_constant(np.zeros(3, F32)).output(0), inner.results[1].output(0))
        node.set_invariant_input(bx, x.output(0))
        return make_model([node.get_iter_value(inner.results[1].output(0), -1)], [x])

    x3 = p.normal(3)
    p.model("iteration_number", counter, [{"x0": x3}], reference=[{"y0": x3 * np.float32(6)}])

    def growing():
        """A merged value that grows by a row each turn."""
        x = make_parameter(F32, [1, 2], "x0")
        iteration, bs = make_parameter(I64, [], "i"), make_parameter(F32, [-1, 2], "s")
        inner = body(
            [
                scalar(True, np.bool_),
                make_node("Concat", "opset1", [bs, make_constant(np.ones((1, 2), F32))], {"axis": 0}),
            ],
            [iteration, bs],
        )
        node = opset5.loop(scalar(3, I64), scalar(True, np.bool_))
        node.set_function(inner)
        node.set_special_body_ports([0, 0])
        node.set_merged_input(bs, x.output(0), inner.results[1].output(0))
        return make_model([node.get_iter_value(inner.results[1].output(0), -1)], [x])

    row = p.normal(1, 2)
    p.model("growing_value", growing, [{"x0": row}], reference=[{"y0": np.concatenate([row, np.ones((3, 2), F32)])}])


@pack("TensorIterator-opset1")
def tensor_iterator(p: Pack) -> None:
    from openvino import opset1

    def recurrence(stride, length=5, part=1, dynamic=False):
        """h = tanh(x_t + h), over slices of axis 1; all h and the last."""

        def build():
            x = make_parameter(F32, [2, -1 if dynamic else length, 3], "x0")
            h0 = make_parameter(F32, [2, part, 3], "x1")
            bx, bh = make_parameter(F32, [2, part, 3], "x"), make_parameter(F32, [2, part, 3], "h")
            inner = body([make_node("Tanh", "opset1", [add(bx, bh)])], [bx, bh])
            node = opset1.tensor_iterator()
            node.set_body(inner)
            start, end = (0, -1) if stride > 0 else (-1, 0)
            node.set_sliced_input(bx, x.output(0), start, stride, part, end, 1)
            node.set_merged_input(bh, h0.output(0), inner.results[0].output(0))
            outputs = [
                node.get_iter_value(inner.results[0].output(0), -1),
                node.get_concatenated_slices(inner.results[0].output(0), start, stride, part, end, 1),
            ]
            return make_model(outputs, [x, h0])

        return build

    def expected(x, h, stride, part=1):
        count = x.shape[1] // part
        seen = {}
        for k in range(count) if stride > 0 else range(count - 1, -1, -1):
            h = np.tanh(x[:, k * part : (k + 1) * part] + h)
            seen[k] = h
        return [{"y0": h, "y1": np.concatenate([seen[k] for k in range(count)], 1)}]

    x, h = p.normal(2, 5, 3), p.normal(2, 1, 3)
    for stride in (1, -1):
        name = "forward" if stride > 0 else "reverse"
        p.model(name, recurrence(stride), [{"x0": x, "x1": h}], reference=expected(x, h, stride))
        p.model(
            f"{name}_dynamic", recurrence(stride, dynamic=True), [{"x0": x, "x1": h}], reference=expected(x, h, stride)
        )
    wide_x, wide_h = p.normal(2, 6, 3), p.normal(2, 2, 3)
    p.model(
        "parts_of_two", recurrence(2, 6, 2), [{"x0": wide_x, "x1": wide_h}], reference=expected(wide_x, wide_h, 2, 2)
    )
    one, start = p.normal(2, 1, 3), p.normal(2, 1, 3)
    p.model("one_turn", recurrence(1, 1), [{"x0": one, "x1": start}], reference=expected(one, start, 1))

    def invariant():
        x, scale = make_parameter(F32, [2, 4], "x0"), make_parameter(F32, [2, 1], "x1")
        bx, bs = make_parameter(F32, [2, 1], "x"), make_parameter(F32, [2, 1], "s")
        inner = body([multiply(bx, bs)], [bx, bs])
        node = opset1.tensor_iterator()
        node.set_body(inner)
        node.set_sliced_input(bx, x.output(0), 0, 1, 1, -1, 1)
        node.set_invariant_input(bs, scale.output(0))
        return make_model([node.get_concatenated_slices(inner.results[0].output(0), 0, 1, 1, -1, 1)], [x, scale])

    a, s = p.normal(2, 4), p.normal(2, 1)
    p.model("invariant_input", invariant, [{"x0": a, "x1": s}], reference=[{"y0": a * s}])


def read(version, initial, name, shape):
    import openvino
    from openvino import opset3, opset6

    if version == "opset3":
        return opset3.read_value(initial, name)
    return opset6.read_value(initial, name, openvino.Type.f32, openvino.PartialShape(shape))


def write(version, value, name):
    from openvino import opset3, opset6

    return (opset3 if version == "opset3" else opset6).assign(value, name)


@pack("ReadValue-opset3", "ReadValue-opset6", "Assign-opset3", "Assign-opset6")
def state(p: Pack) -> None:
    new = p.version == "opset6"

    def running_sum():
        x = make_parameter(F32, [2, 3], "x0")
        old = read(p.version, make_constant(np.zeros((2, 3), F32)), "total", [2, 3])
        total = add(old, x)
        return make_model([multiply(total, scalar(1))], [x], [write(p.version, total, "total")])

    steps = [p.normal(2, 3) for _ in range(3)]
    sums = np.cumsum(np.stack(steps).astype(np.float64), 0).astype(F32)
    p.model("running_sum", running_sum, [{"x0": s} for s in steps], reference=[{"y0": s} for s in sums])

    def two_states():
        x = make_parameter(F32, [3], "x0")
        a = read(p.version, make_constant(np.ones(3, F32)), "a", [3])
        b = read(p.version, make_constant(np.zeros(3, F32)), "b", [3])
        next_a, next_b = multiply(a, x), add(b, a)
        sinks = [write(p.version, next_a, "a"), write(p.version, next_b, "b")]
        return make_model([multiply(next_a, scalar(1)), multiply(next_b, scalar(1))], [x], sinks)

    inputs = [p.positive(3) for _ in range(3)]
    a, b, expected = np.ones(3, F32), np.zeros(3, F32), []
    for value in inputs:
        a, b = a * value, b + a
        expected.append({"y0": a, "y1": b})
    p.model("two_states", two_states, [{"x0": v} for v in inputs], reference=expected)

    def old_value():
        """The output is the state before this inference."""
        x = make_parameter(F32, [4], "x0")
        old = read(p.version, make_constant(np.full(4, 7, F32)), "v", [4])
        return make_model([multiply(old, scalar(1))], [x], [write(p.version, x, "v")])

    def old_value_kept():
        """As above, but a quarter of the old value stays in the state."""
        x = make_parameter(F32, [4], "x0")
        old = read(p.version, make_constant(np.full(4, 8, F32)), "v", [4])
        return make_model([multiply(old, scalar(1))], [x], [write(p.version, add(multiply(old, scalar(0.25)), x), "v")])

    values = [p.normal(4) for _ in range(3)]
    second = np.float32(2) + values[0]
    third = second * np.float32(0.25) + values[1]
    p.model(
        "old_value_kept",
        old_value_kept,
        [{"x0": v} for v in values],
        reference=[{"y0": np.full(4, 8, F32)}, {"y0": second}, {"y0": third}],
    )
    if not new:
        return
    p.model(
        "old_value",
        old_value,
        [{"x0": v} for v in values],
        reference=[{"y0": np.full(4, 7, F32)}, {"y0": values[0]}, {"y0": values[1]}],
        example=True,
        note="Assign takes a Parameter: ReadValue still gives what the inference before wrote",
    )

    def initial_from_input():
        """The initialiser is a subgraph on an input: it runs only the first time."""
        x = make_parameter(F32, [3], "x0")
        old = read(p.version, multiply(x, scalar(10)), "v", [3])
        total = add(old, x)
        return make_model([multiply(total, scalar(1))], [x], [write(p.version, total, "v")])

    v = [p.normal(3) for _ in range(3)]
    total, expected = v[0] * np.float32(10), []
    for value in v:
        total = total + value
        expected.append({"y0": total})
    p.model("initial_from_input", initial_from_input, [{"x0": s} for s in v], reference=expected)

    def growing():
        """A cache that grows along axis 1, as decoders keep it."""
        x = make_parameter(F32, [1, -1, 2], "x0")
        old = read(p.version, make_constant(np.zeros((1, 0, 2), F32)), "cache", [1, -1, 2])
        whole = make_node("Concat", "opset1", [old, x], {"axis": 1})
        return make_model([multiply(whole, scalar(2))], [x], [write(p.version, whole, "cache")])

    rows = [p.normal(1, n, 2) for n in (3, 1, 1)]
    p.model(
        "growing_cache",
        growing,
        [{"x0": r} for r in rows],
        reference=[{"y0": np.concatenate(rows[: i + 1], 1) * np.float32(2)} for i in range(3)],
    )

    def decoder():
        """ReadValue, Gather(beam_idx), Concat, attention, Assign."""
        query = make_parameter(F32, [-1, 2, -1, 4], "x0")
        key, value = make_parameter(F32, [-1, 2, -1, 4], "x1"), make_parameter(F32, [-1, 2, -1, 4], "x2")
        beams = make_parameter(I32, [-1], "x3")
        whole, sinks = [], []
        for name, fresh in (("key", key), ("value", value)):
            old = read(p.version, make_constant(np.zeros((1, 2, 0, 4), F32)), name, [-1, 2, -1, 4])
            picked = make_node("Gather", "opset8", [old, beams, scalar(0, I64)])
            whole.append(make_node("Concat", "opset1", [picked, fresh], {"axis": 2}))
            sinks.append(write(p.version, whole[-1], name))
        output = make_node("ScaledDotProductAttention", "opset13", [query, *whole], {"causal": False})
        return make_model([output], [query, key, value, beams], sinks)

    keys, values, steps, expected = np.zeros((1, 2, 0, 4)), np.zeros((1, 2, 0, 4)), [], []
    for length in (3, 1, 1):
        q, k, w = (p.normal(1, 2, length, 4) for _ in range(3))
        steps.append({"x0": q, "x1": k, "x2": w, "x3": np.array([0], I32)})
        keys, values = np.concatenate([keys, k], 2), np.concatenate([values, w], 2)
        scores = np.exp(q @ keys.swapaxes(-1, -2) / 2.0)
        expected.append({"y0": (scores / scores.sum(-1, keepdims=True) @ values).astype(F32)})
    p.model("decoder_step", decoder, steps, reference=expected)
