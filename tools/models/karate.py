#!/usr/bin/env python3
"""Trains models/karate, a graph network that splits Zachary's karate club, and writes its IR and inputs.

    karate.py            from scratch, a few seconds

Message passing is Gather of the source nodes and ScatterElementsUpdate-12 onto the destinations: a sum in the first
layer, a mean in the second. Training is plain NumPy, where the same is a product with the adjacency matrix.
"""
from pathlib import Path

import networkx
import numpy as np
import openvino
from openvino import opset12, opset3, opset8
from openvino import opset13 as ops

from oracle import answer

FOLDER = Path(__file__).resolve().parents[2] / "models" / "karate"
SEED = 1977
# Two members of each club are told to the network; the other thirty are held out.
LABELLED = [0, 3, 33, 32]
HIDDEN = 16
STEPS = 300


def club():
    """Edges in both directions as [2, E], sorted by source, and the club (0 or 1) of each member."""
    graph = networkx.karate_club_graph()
    pairs = sorted(edge for a, b in graph.edges for edge in ((a, b), (b, a)))
    labels = np.array([int(graph.nodes[n]["club"] == "Officer") for n in graph.nodes])
    return np.array(pairs, np.int64).T, labels


def sums_and_means(edges, count):
    """The matrices that add up, and average, what a node's neighbours send."""
    total = np.zeros((count, count), np.float32)
    np.add.at(total, (edges[1], edges[0]), 1)
    return total, total / np.maximum(total.sum(1, keepdims=True), 1)


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def forward(weights, features, total, mean):
    self_1, pass_1, bias_1, self_2, pass_2, bias_2 = weights
    hidden = np.maximum(features @ self_1 + total @ (features @ pass_1) + bias_1, 0)
    return hidden, hidden @ self_2 + mean @ (hidden @ pass_2) + bias_2


def train(features, total, mean, labels):
    random = np.random.default_rng(SEED)
    shapes = [(features.shape[1], HIDDEN)] * 2 + [(HIDDEN,), (HIDDEN, 2), (HIDDEN, 2), (2,)]
    weights = [random.normal(0, 0.2, s).astype(np.float32) if len(s) == 2 else np.zeros(s, np.float32) for s in shapes]
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for step in range(1, STEPS + 1):
        hidden, logits = forward(weights, features, total, mean)
        out = np.zeros_like(logits)
        out[LABELLED] = (softmax(logits) - np.eye(2)[labels])[LABELLED] / len(LABELLED)
        back = (out @ weights[3].T + mean.T @ out @ weights[4].T) * (hidden > 0)
        gradients = [features.T @ back, features.T @ (total.T @ back), back.sum(0)]
        gradients += [hidden.T @ out, hidden.T @ (mean.T @ out), out.sum(0)]
        for i, g in enumerate(gradients):
            g = g + 0.005 * weights[i]
            first[i] += 0.1 * (g - first[i])
            second[i] += 0.001 * (g * g - second[i])
            weights[i] -= (0.01 * (first[i] / (1 - 0.9**step)) / (np.sqrt(second[i] / (1 - 0.999**step)) + 1e-8)).astype(np.float32)
    return weights


def integers(values):
    return ops.constant(np.array(values, np.int64))


def aggregate(values, source, destination, reduction, name):
    """What arrives at each node: the messages of its neighbours, summed or averaged."""
    messages = opset8.gather(values, source, integers(0), name=f"{name}/messages")
    shape = opset3.shape_of(messages, "i64", name=f"{name}/shape")
    indices = opset3.broadcast(ops.unsqueeze(destination, integers([1])), shape, "BIDIRECTIONAL", name=f"{name}/indices")
    empty = opset3.broadcast(ops.constant(np.float32(0)), opset3.shape_of(values, "i64"), "NUMPY", name=f"{name}/empty")
    # A mean must not count the zero it starts from; for a sum that makes no difference.
    count_start = reduction == "sum"
    return opset12.scatter_elements_update(empty, indices, messages, integers(0), reduction, count_start, name=name)


def build(weights):
    features = ops.parameter(openvino.PartialShape(f"[?,{len(weights[0])}]"), np.float32, name="features")
    edges = ops.parameter(openvino.PartialShape("[2,?]"), np.int64, name="edges")
    for node in (features, edges):
        node.output(0).set_names({node.get_friendly_name()})
    source = opset8.gather(edges, integers(0), integers(0), name="source")
    destination = opset8.gather(edges, integers(1), integers(0), name="destination")
    x = features
    for layer, reduction in enumerate(("sum", "mean")):
        own, passed, bias = map(ops.constant, weights[3 * layer : 3 * layer + 3])
        sent = ops.matmul(x, passed, False, False, name=f"layer_{layer + 1}/sent")
        arrived = aggregate(sent, source, destination, reduction, f"layer_{layer + 1}/{reduction}")
        x = ops.add(ops.add(ops.matmul(x, own, False, False), arrived), bias, name=f"layer_{layer + 1}")
        x = ops.relu(x, name="hidden") if layer == 0 else x
    x = ops.softmax(x, 1, name="clubs")
    x.output(0).set_names({"clubs"})
    model = openvino.Model([ops.result(x, name="result")], [features, edges], "karate")
    model.set_rt_info("Mr.Hi Officer", ["model_info", "labels"])
    return model


def main():
    edges, labels = club()
    features = np.eye(len(labels), dtype=np.float32)
    total, mean = sums_and_means(edges, len(labels))
    weights = train(features, total, mean, labels)

    FOLDER.mkdir(parents=True, exist_ok=True)
    openvino.serialize(build(weights), FOLDER / "model.xml", FOLDER / "model.bin")
    # The whole club; the club after twenty friendships have ended; the first twelve members among themselves.
    rest = np.random.default_rng(SEED).permutation(edges.shape[1] // 2)[20:]
    undirected = edges[:, edges[0] < edges[1]][:, np.sort(rest)]
    few = edges[:, (edges < 12).all(0)]
    cases = {
        "": {"features": features, "edges": edges},
        "-fewer-edges": {"features": features, "edges": np.concatenate([undirected, undirected[::-1]], 1)},
        "-twelve-members": {"features": features[:12], "edges": few},
    }
    for name, inputs in cases.items():
        np.savez_compressed(FOLDER / f"inputs{name}.npz", **inputs)
        [got] = answer(FOLDER / "model.xml", [FOLDER / f"inputs{name}.npz"], [FOLDER / f"expected{name}.npz"])
        matrices = sums_and_means(inputs["edges"], len(inputs["features"]))
        wanted = softmax(forward(weights, inputs["features"], *matrices)[1])
        np.testing.assert_allclose(got["clubs"], wanted, atol=1e-5)
        guesses = got["clubs"].argmax(1)
        held_out = [n for n in range(len(guesses)) if n not in LABELLED]
        right = (guesses == labels[: len(guesses)])[held_out]
        wrong = [n for n, ok in zip(held_out, right) if not ok]
        print(f"inputs{name}: {inputs['edges'].shape[1]} edges, held out {right.sum()} of {len(held_out)} right, wrong {wrong}")
        print("  least sure", np.sort(got["clubs"].max(1))[:4])


if __name__ == "__main__":
    main()
