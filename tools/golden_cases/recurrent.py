"""Recurrent cells and sequences, written from the formulas of the specification."""

from __future__ import annotations

import numpy as np
from golden_pack import Pack, pack

F32, F16, I32, I64 = np.float32, np.float16, np.int32, np.int64

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
HALF = {"rtol": 4e-3, "atol": 4e-3}

ACTIVATIONS = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
}


def clipped(x, clip):
    return np.clip(x, -clip, clip) if clip else x


def lstm_step(x, h, c, w, r, b, names, clip):
    """Gate order of the rows: f, i, c, o. The cell state itself is not clipped."""
    f, g, k = (ACTIVATIONS[n] for n in names)
    gates = np.split(x @ w.T + h @ r.T + b, 4, axis=-1)
    forget, enter, fresh, out = (clipped(v, clip) for v in gates)
    cell = f(forget) * c + f(enter) * g(fresh)
    return f(out) * k(cell), cell


def gru_step(x, h, w, r, b, names, clip, linear):
    """Gate order of the rows: z, r, h."""
    f, g = (ACTIVATIONS[n] for n in names)
    wz, wr, wh = np.split(w, 3)
    rz, rr, rh = np.split(r, 3)
    bz, br, bh, *extra = np.split(b, 4 if linear else 3)
    update = f(clipped(x @ wz.T + h @ rz.T + bz, clip))
    reset = f(clipped(x @ wr.T + h @ rr.T + br, clip))
    if linear:
        fresh = x @ wh.T + reset * (h @ rh.T + extra[0]) + bh
    else:
        fresh = x @ wh.T + (reset * h) @ rh.T + bh
    return (1 - update) * g(clipped(fresh, clip)) + update * h


def rnn_step(x, h, w, r, b, names, clip):
    return ACTIVATIONS[names[0]](clipped(x @ w.T + h @ r.T + b, clip))


def wide(*arrays):
    return [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]


def cell_attributes(size, names, clip=0.0):
    return {
        "hidden_size": size,
        "activations": list(names),
        "activations_alpha": [],
        "activations_beta": [],
        "clip": clip,
    }


SETTINGS = {
    "LSTM": (4, ("sigmoid", "tanh", "tanh")),
    "GRU": (3, ("sigmoid", "tanh")),
    "RNN": (1, ("tanh",)),
}


def weights(p: Pack, family, size, width, linear=False, lead=(), dtype=F32):
    gates = SETTINGS[family][0]
    bias = gates + 1 if linear else gates
    return [
        p.normal(*lead, gates * size, width, dtype=dtype, scale=0.5),
        p.normal(*lead, gates * size, size, dtype=dtype, scale=0.5),
        p.normal(*lead, bias * size, dtype=dtype, scale=0.5),
    ]


@pack("LSTMCell-opset1", "LSTMCell-opset4", "GRUCell-opset3", "RNNCell-opset1")
def cell(p: Pack) -> None:
    family = p.kind.removesuffix("Cell")
    _, usual = SETTINGS[family]
    states = 2 if family == "LSTM" else 1

    def reference(names, clip=0.0, linear=False):
        def apply(*inputs):
            if family == "LSTM":
                result = lstm_step(*wide(*inputs[:6]), names, clip)
                return [v.astype(inputs[0].dtype) for v in result]
            if family == "GRU":
                return gru_step(*wide(*inputs), names, clip, linear).astype(inputs[0].dtype)
            return rnn_step(*wide(*inputs), names, clip).astype(inputs[0].dtype)

        return apply

    def add(name, batch, width, size, names=usual, clip=0.0, linear=False, dtype=F32, **facts):
        attributes = cell_attributes(size, names, clip)
        if family == "GRU":
            attributes["linear_before_reset"] = linear
        inputs = [
            p.normal(batch, width, dtype=dtype),
            *(p.normal(batch, size, dtype=dtype) for _ in range(states)),
            *weights(p, family, size, width, linear, dtype=dtype),
        ]
        fixed = tuple(range(1 + states, len(inputs)))
        facts.setdefault("tolerance", TOLERANCE if dtype == F32 else HALF)
        p.case(name, inputs, attributes, constant=fixed, reference=reference(names, clip, linear), **facts)

    if p.kind == "LSTMCell" and p.version == "opset1":
        attributes = {**cell_attributes(3, usual), "input_forget": False, "weights_format": "fico"}
        for batch in (1, 2):
            inputs = [p.normal(batch, 4), p.normal(batch, 3), p.normal(batch, 3), *weights(p, family, 3, 4)]
            p.case(
                f"batch{batch}", inputs, attributes, constant=(3, 4, 5), reference=reference(usual), tolerance=TOLERANCE
            )
        return
    add("small", 1, 2, 3)
    add("batch", 3, 4, 5)
    add("wide", 2, 19, 17)
    add("clip", 2, 4, 3, clip=0.4)
    add("relu", 2, 4, 3, names=("relu", *usual[1:]))
    if family != "RNN":
        add("all_tanh", 2, 4, 3, names=("tanh",) * len(usual))
    if family == "GRU":
        add("linear_before_reset", 2, 4, 3, linear=True)
    add("f16", 2, 4, 3, dtype=F16)
    add("dynamic_batch", 2, 4, 3, shapes={0: [-1, 4], 1: [-1, 3], **({2: [-1, 3]} if states == 2 else {})})


@pack("LSTMSequence-opset5", "GRUSequence-opset5", "RNNSequence-opset5")
def sequence(p: Pack) -> None:
    family = p.kind.removesuffix("Sequence")
    _, usual = SETTINGS[family]
    states = 2 if family == "LSTM" else 1

    def one_way(x, states_in, length, w, r, b, names, clip, linear, reverse):
        """One batch entry and direction: outputs [T, H] and the last states."""
        outputs = np.zeros((x.shape[0], r.shape[-1]))
        current = list(states_in)
        order = range(length - 1, -1, -1) if reverse else range(length)
        for t in order:
            if family == "LSTM":
                current = list(lstm_step(x[t], *current, w, r, b, names, clip))
            elif family == "GRU":
                current = [gru_step(x[t], *current, w, r, b, names, clip, linear)]
            else:
                current = [rnn_step(x[t], *current, w, r, b, names, clip)]
            outputs[t] = current[0]
        return outputs, current

    def reference(direction, names, clip, linear):
        def apply(*inputs):
            x, *initial = wide(*inputs[: 1 + states])
            lengths = inputs[1 + states]
            w, r, b = wide(*inputs[2 + states :])
            directions, size = w.shape[0], r.shape[-1]
            y = np.zeros((x.shape[0], directions, x.shape[1], size))
            last = [np.zeros((x.shape[0], directions, size)) for _ in range(states)]
            for n in range(x.shape[0]):
                for d in range(directions):
                    reverse = direction == "reverse" or d == 1
                    y[n, d], final = one_way(
                        x[n],
                        [s[n, d] for s in initial],
                        int(lengths[n]),
                        w[d],
                        r[d],
                        b[d],
                        names,
                        clip,
                        linear,
                        reverse,
                    )
                    for target, value in zip(last, final):
                        target[n, d] = value
            return [v.astype(inputs[0].dtype) for v in (y, *last)]

        return apply

    def add(
        name,
        batch,
        steps,
        width,
        size,
        lengths=None,
        direction="forward",
        names=usual,
        clip=0.0,
        linear=False,
        dtype=F32,
        kind=I32,
        **facts,
    ):
        directions = 2 if direction == "bidirectional" else 1
        attributes = {**cell_attributes(size, names, clip), "direction": direction}
        if family == "GRU":
            attributes["linear_before_reset"] = linear
        inputs = [
            p.normal(batch, steps, width, dtype=dtype),
            *(p.normal(batch, directions, size, dtype=dtype) for _ in range(states)),
            np.array(lengths or [steps] * batch, kind),
            *weights(p, family, size, width, linear, (directions,), dtype),
        ]
        fixed = tuple(range(2 + states, len(inputs)))
        facts.setdefault("tolerance", TOLERANCE if dtype == F32 else HALF)
        facts.setdefault("constant", fixed)
        p.case(name, inputs, attributes, reference=reference(direction, names, clip, linear), **facts)

    for direction in ("forward", "reverse", "bidirectional"):
        add(f"{direction}_one_step", 1, 1, 3, 4, direction=direction)
        add(f"{direction}_batch", 2, 5, 3, 4, direction=direction)
        add(
            f"{direction}_lengths",
            3,
            5,
            3,
            4,
            [5, 2, 3],
            direction=direction,
            example=True,
            note="steps beyond a length give zero",
        )
    add("wide", 2, 3, 18, 17)
    add("lengths_i64", 2, 4, 3, 2, kind=I64)
    add("clip", 2, 4, 3, 2, clip=0.4)
    add("relu", 1, 4, 3, 2, names=("relu", *usual[1:]))
    if family == "GRU":
        for direction in ("forward", "bidirectional"):
            add(f"linear_before_reset_{direction}", 2, 4, 3, 2, linear=True, direction=direction)
    add("f16", 2, 3, 3, 2, dtype=F16)
    add("lengths_constant", 2, 4, 3, 2, constant=tuple(range(1 + states, 5 + states)))
    add("dynamic_steps", 2, 4, 3, 2, constant=tuple(range(1 + states, 5 + states)), shapes={0: [2, -1, 3]})
    add(
        "dynamic_batch_full_length",
        2,
        4,
        3,
        2,
        shapes={0: [-1, 4, 3], 1: [-1, 1, 2], **({2: [-1, 1, 2], 3: [-1]} if states == 2 else {2: [-1]})},
    )

    names = ("activations", "activations_alpha", "activations_beta", "clip", "linear_before_reset")
    note = "the usual activations, no clip"
    add("defaults", 1, 3, 2, 2, strip=names, example=True, note=note)
