#!/usr/bin/env python3
"""Trains models/digits, a convolutional network for handwritten digits, and writes its IR, inputs and images.

    digits.py            from scratch, about half a minute on one core

Plain NumPy: the forward and backward passes are written out below, so that nothing but NumPy's random generator and
matrix product decides the result.
"""
import json
from pathlib import Path

import numpy as np
import openvino
from openvino import opset13 as ops
from PIL import Image
from sklearn.datasets import load_digits

from oracle import answer

FOLDER = Path(__file__).resolve().parents[2] / "models" / "digits"
SEED = 2026
HELD_OUT = 360
SIZE = 32
MEAN = SCALE = 127.5
EPOCHS = 24
BATCH = 64
CHANNELS = (16, 32, 48)
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
# Edge length, mode and resampling of the committed image of each digit.
IMAGES = [
    ("-8", 8, "L", Image.NEAREST),
    ("-16", 16, "L", Image.BILINEAR),
    ("-28", 28, "L", Image.BICUBIC),
    ("-64", 64, "RGB", Image.BICUBIC),
    ("-28-rgb", 28, "RGB", Image.BILINEAR),
    ("-16-rgb", 16, "RGB", Image.BICUBIC),
    ("-64", 64, "L", Image.BILINEAR),
    ("", 28, "L", Image.BILINEAR),
    ("-8-rgb", 8, "RGB", Image.NEAREST),
    ("-100", 100, "L", Image.BICUBIC),
]


def split():
    """Returns images in 0..255, labels, and the indices of the training and the held-out part."""
    data = load_digits()
    images = np.round(data.images * (255 / 16)).astype(np.uint8)
    order = np.random.default_rng(SEED).permutation(len(images))
    return images, data.target, order[HELD_OUT:], order[:HELD_OUT]


def resize(image, size):
    """Bilinear, half-pixel centres, edges clamped, no antialiasing: the plain rule most runtimes share."""
    image = np.asarray(image, np.float32)

    def taps(source):
        centre = (np.arange(size) + 0.5) * (source / size) - 0.5
        centre = np.clip(centre, 0, source - 1)
        low = np.floor(centre).astype(int)
        return low, np.minimum(low + 1, source - 1), (centre - low).astype(np.float32)

    low, high, weight = taps(image.shape[0])
    image = image[low] * (1 - weight)[:, None] + image[high] * weight[:, None]
    low, high, weight = taps(image.shape[1])
    return image[:, low] * (1 - weight) + image[:, high] * weight


def preprocess(image):
    """A decoded picture of any size and mode to the [1, SIZE, SIZE] input of the network."""
    return (resize(np.asarray(image.convert("L")), SIZE)[None] - MEAN) / SCALE


def variants(image):
    """The same digit as pictures of several sizes would deliver it."""
    picture = Image.fromarray(image)
    for size, resample in [(8, Image.NEAREST), (16, Image.BILINEAR), (28, Image.BICUBIC), (64, Image.BICUBIC), (64, Image.NEAREST)]:
        yield preprocess(picture.resize((size, size), resample))


def patches(x):
    """[N, C, H, W] to [N, H, W, C * 9], the 3x3 neighbourhoods with zeros outside."""
    n, c, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = [padded[:, :, i : i + h, j : j + w] for i in range(3) for j in range(3)]
    return np.stack(views, axis=2).transpose(0, 3, 4, 1, 2).reshape(n, h, w, c * 9)


def scatter_patches(grad, channels):
    """The adjoint of `patches`."""
    n, h, w, _ = grad.shape
    grad = grad.reshape(n, h, w, channels, 9).transpose(0, 3, 4, 1, 2)
    padded = np.zeros((n, channels, h + 2, w + 2), np.float32)
    for k in range(9):
        padded[:, :, k // 3 : k // 3 + h, k % 3 : k % 3 + w] += grad[:, :, k]
    return padded[:, :, 1:-1, 1:-1]


def initial_weights(random):
    weights, previous = [], 1
    for channels in CHANNELS:
        weights += [random.normal(0, np.sqrt(2 / (9 * previous)), (channels, previous * 9)), np.zeros(channels)]
        previous = channels
    features = previous * (SIZE // 8) ** 2
    weights += [random.normal(0, np.sqrt(1 / features), (features, 10)), np.zeros(10)]
    return [w.astype(np.float32) for w in weights]


def forward(weights, x):
    """Returns the logits and what the backward pass needs."""
    saved = []
    for layer in range(3):
        columns = patches(x)
        y = np.maximum(columns @ weights[2 * layer].T + weights[2 * layer + 1], 0)
        n, h, w, c = y.shape
        blocks = y.reshape(n, h // 2, 2, w // 2, 2, c)
        pooled = blocks.max(axis=(2, 4))
        saved.append((columns, blocks, pooled, x.shape[1]))
        x = pooled.transpose(0, 3, 1, 2)
    flat = x.reshape(len(x), -1)
    return flat @ weights[6] + weights[7], (saved, flat, x.shape)


def backward(weights, grad, memory):
    saved, flat, shape = memory
    gradients = [None] * 6 + [flat.T @ grad, grad.sum(0)]
    grad = (grad @ weights[6].T).reshape(shape)
    for layer in (2, 1, 0):
        columns, blocks, pooled, channels = saved[layer]
        n, h, _, w, _, c = blocks.shape
        pooled = pooled[:, :, None, :, None]
        grad = grad.transpose(0, 2, 3, 1)[:, :, None, :, None]
        grad = np.where((blocks == pooled) & (blocks > 0), grad, 0).reshape(-1, c)
        gradients[2 * layer] = grad.T @ columns.reshape(len(grad), -1)
        gradients[2 * layer + 1] = grad.sum(0)
        if layer:
            grad = scatter_patches((grad @ weights[2 * layer]).reshape(n, 2 * h, 2 * w, -1), channels)
    return gradients


def train(inputs, labels):
    """Adam with a cosine rate; every epoch sees each digit once, in one of its variants, shifted by up to 2 pixels."""
    random = np.random.default_rng(SEED)
    weights = initial_weights(random)
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    steps, step = EPOCHS * (len(labels) // BATCH), 0
    for epoch in range(EPOCHS):
        order, total = random.permutation(len(labels)), 0.0
        for start in range(0, len(labels) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            x = inputs[chosen, random.integers(inputs.shape[1], size=BATCH)]
            shifts = random.integers(-2, 3, (BATCH, 2))
            x = np.stack([np.roll(image, shift, (1, 2)) for image, shift in zip(x, shifts)])
            x = x + random.normal(0, 0.05, x.shape).astype(np.float32)
            logits, memory = forward(weights, x)
            logits -= logits.max(1, keepdims=True)
            probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            # Smoothed targets keep the probabilities away from 0 and 1, where f32 comparisons say little.
            target = np.full((BATCH, 10), 0.01, np.float32)
            target[np.arange(BATCH), labels[chosen]] = 0.91
            total -= (target * np.log(probabilities + 1e-12)).sum()
            step += 1
            rate = 0.003 * 0.5 * (1 + np.cos(np.pi * step / steps))
            for i, g in enumerate(backward(weights, (probabilities - target) / BATCH, memory)):
                first[i] += 0.1 * (g - first[i])
                second[i] += 0.001 * (g * g - second[i])
                scaled = (first[i] / (1 - 0.9**step)) / (np.sqrt(second[i] / (1 - 0.999**step)) + 1e-8)
                weights[i] -= (rate * scaled).astype(np.float32)
        print(f"epoch {epoch + 1:2d}  loss {total / len(labels):.4f}", flush=True)
    return weights


def build(weights):
    """The network as an openvino.Model, with what an image needs on its way in written into the file."""
    image = ops.parameter(openvino.PartialShape(f"[1..,1,{SIZE},{SIZE}]"), np.float32, name="image")
    image.output(0).set_names({"image"})
    image.set_layout(openvino.Layout("NCHW"))
    x = image
    for layer in range(3):
        kernel = weights[2 * layer].reshape(CHANNELS[layer], -1, 3, 3)
        bias = weights[2 * layer + 1].reshape(1, -1, 1, 1)
        x = ops.convolution(x, ops.constant(kernel), [1, 1], [1, 1], [1, 1], [1, 1], name=f"convolution_{layer + 1}")
        x = ops.relu(ops.add(x, ops.constant(bias), name=f"bias_{layer + 1}"), name=f"relu_{layer + 1}")
        # The class version 1: one output, no indices.
        x = openvino.opset1.max_pool(x, [2, 2], [0, 0], [0, 0], [2, 2], "floor", name=f"pool_{layer + 1}")
    x = ops.reshape(x, ops.constant(np.array([0, -1], np.int64)), True, name="flat")
    # The columns of the last matrix follow the flattened [channel, row, column] order of the training code.
    x = ops.add(ops.matmul(x, ops.constant(weights[6]), False, False, name="dense"), ops.constant(weights[7][None]), name="logits")
    x = ops.softmax(x, 1, name="probabilities")
    x.output(0).set_names({"probabilities"})
    model = openvino.Model([ops.result(x, name="result")], [image], "digits")
    for key, value in {
        "model_type": "Classification",
        "labels": " ".join(map(str, range(10))),
        "mean_values": str(MEAN),
        "scale_values": str(SCALE),
        "resize_type": "standard",
        "reverse_input_channels": "False",
    }.items():
        model.set_rt_info(value, ["model_info", key])
    return model


def write_images(images, labels, held_out):
    """One picture of each digit, the first held-out one of its class, and the label of each file."""
    folder = FOLDER / "images"
    folder.mkdir(exist_ok=True)
    for stale in folder.glob("*.png"):
        stale.unlink()
    pictures = {}
    for digit, (suffix, size, mode, resample) in enumerate(IMAGES):
        chosen = next(i for i in held_out if labels[i] == digit)
        picture = Image.fromarray(images[chosen]).resize((size, size), resample).convert(mode)
        name = f"{NAMES[digit]}{suffix}.png"
        picture.save(folder / name, optimize=True)
        pictures[name] = digit
    return folder, pictures


def check_images(weights, folder, pictures):
    """Has OpenVINO classify the files as they are on disk, and writes what it said."""
    opened = [Image.open(folder / name) for name in pictures]
    inputs = np.stack([preprocess(picture) for picture in opened]).astype(np.float32)
    np.savez_compressed(FOLDER / "inputs-images.npz", image=inputs)
    [results] = answer(FOLDER / "model.xml", [FOLDER / "inputs-images.npz"], [FOLDER / "expected-images.npz"])
    table = {}
    for (name, digit), row in zip(pictures.items(), results["probabilities"]):
        best = np.argsort(-row)
        print(f"{name:18} {best[0]} {row[best[0]]:.3f}  then {best[1]} {row[best[1]]:.3f}")
        assert best[0] == digit and row[best[0]] > 0.6, name
        table[name] = {"label": str(digit), "probability": round(float(row[digit]), 4)}
    (folder / "labels.json").write_text(json.dumps(table, indent=2) + "\n")

    # Runtimes differ in how they shrink pictures; an antialiased resize must not change the answer.
    antialiased = [picture.convert("L").resize((SIZE, SIZE), Image.BILINEAR) for picture in opened]
    inputs = np.stack([(np.asarray(a, np.float32)[None] - MEAN) / SCALE for a in antialiased])
    assert forward(weights, inputs.astype(np.float32))[0].argmax(1).tolist() == list(pictures.values())


def main():
    images, labels, training, held_out = split()
    inputs = np.stack([np.stack(list(variants(images[i]))) for i in training]).astype(np.float32)
    weights = train(inputs, labels[training])

    FOLDER.mkdir(parents=True, exist_ok=True)
    openvino.serialize(build(weights), FOLDER / "model.xml", FOLDER / "model.bin")
    upscaled = [np.stack(v) for v in zip(*(variants(images[i]) for i in held_out))]
    for name, x in zip(["8 nearest", "16 bilinear", "28 bicubic", "64 bicubic", "64 nearest"], upscaled):
        accuracy = (forward(weights, x.astype(np.float32))[0].argmax(1) == labels[held_out]).mean()
        print(f"held out, {name}: {accuracy:.4f}")

    np.savez_compressed(FOLDER / "inputs.npz", image=upscaled[0][:16].astype(np.float32))
    [results] = answer(FOLDER / "model.xml", [FOLDER / "inputs.npz"], [FOLDER / "expected.npz"])
    wrong = (results["probabilities"].argmax(1) != labels[held_out][:16]).sum()
    print(f"inputs.npz: {wrong} of 16 wrong; labels {labels[held_out][:16].tolist()}")

    check_images(weights, *write_images(images, labels, held_out))


if __name__ == "__main__":
    main()
