#!/usr/bin/env python3
"""Trains models/chardecoder, a character-level transformer decoder with its key/value cache in states, and builds its IR.

    apt-get download r-cran-janeaustenr
    chardecoder.py train r-cran-janeaustenr_*.deb weights.npz     wants torch besides
    chardecoder.py build weights.npz

The text is Jane Austen's Pride and Prejudice out of Debian's package. `train` runs on one thread from fixed seeds.
"""
import argparse
import io
import math
import struct
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import numpy as np
import openvino
from openvino import opset3, opset6, opset7, opset8
from openvino import opset13 as ops
from openvino.op.util import Variable, VariableInfo

from oracle import PROPERTIES, answer_folder

FOLDER = Path(__file__).resolve().parents[2] / "models" / "chardecoder"
VOCABULARY = "\n !\"'(),-.:;?" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + "abcdefghijklmnopqrstuvwxyz"
LAYERS, WIDTH, HEADS, CONTEXT = 4, 96, 4, 256
SEED = 1811
STEPS = 6000
# The step at which the falling learning rate would reach its floor.
DECAY = 6500
BATCH = 8
# Out of the part of the novel that the network was not trained on.
PROMPT = '"It did. Bingley is most unaffectedly modest. '
GREEDY = 64


def novels(package):
    """The texts in the data file of Debian's r-cran-janeaustenr.

    The file is R's lazy-load database: blocks of a big-endian length and a zlib stream. Each block is one vector of
    strings, the lines of a novel, in R's XDR serialization: a vector of type 16 with its length, then for every string
    its flags, a length and the bytes.
    """
    tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        member = next(m for m in archive.getnames() if m.endswith("janeaustenr/data/Rdata.rdb"))
        data = archive.extractfile(member).read()
    texts = []
    while data:
        stream = zlib.decompressobj()
        block = stream.decompress(data[4:])
        data = stream.unused_data
        position = block.index(b"\0\0\0\x10")
        (count,) = struct.unpack_from(">i", block, position + 4)
        position += 8
        lines = []
        for _ in range(count):
            (length,) = struct.unpack_from(">i", block, position + 4)
            lines.append(block[position + 8 : position + 8 + length].decode())
            position += 8 + length
        texts.append("\n".join(lines))
    return texts


def clean(text):
    """One line a paragraph, headings dropped, and nothing but the vocabulary."""
    paragraphs = (" ".join(p.split()) for p in text.replace("--", " - ").split("\n\n"))
    kept = "\n".join(p for p in paragraphs if len(p) > 40)
    return "".join(c for c in kept if c in VOCABULARY)


def encode(text):
    return [VOCABULARY.index(c) for c in text]


def decode(tokens):
    return "".join(VOCABULARY[t] for t in tokens)


def orthogonal(matrix):
    """The orthogonal factor of a matrix by Newton-Schulz iterations, the step of the Muon optimizer (K. Jordan, 2024)."""
    x = matrix / (matrix.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def train(package, target):
    import torch
    from torch.nn import functional as F

    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    random = np.random.default_rng(SEED)
    [novel] = (text for text in novels(package) if text.startswith("PRIDE AND PREJUDICE"))
    text = np.array(encode(clean(novel)), np.int64)
    # The last twentieth of the novel is held out.
    training, held_out = np.split(text, [len(text) * 19 // 20])
    print(f"{len(training)} characters to train on, {len(held_out)} held out, {len(VOCABULARY)} different ones")

    def matrix(rows, columns, scale=1.0):
        return torch.nn.Parameter(torch.randn(rows, columns) * (scale / math.sqrt(rows)))

    p = {"embedding": torch.nn.Parameter(torch.randn(len(VOCABULARY), WIDTH) * 0.1)}
    p["positions"] = torch.nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
    for i in range(LAYERS):
        p[f"{i}.attention_norm"] = torch.nn.Parameter(torch.ones(WIDTH))
        p[f"{i}.query_key_value"] = matrix(WIDTH, 3 * WIDTH)
        p[f"{i}.output"] = matrix(WIDTH, WIDTH, 0.3)
        p[f"{i}.feed_norm"] = torch.nn.Parameter(torch.ones(WIDTH))
        p[f"{i}.up"] = matrix(WIDTH, 4 * WIDTH)
        p[f"{i}.down"] = matrix(4 * WIDTH, WIDTH, 0.3)
    p["final_norm"] = torch.nn.Parameter(torch.ones(WIDTH))

    def norm(x, gain):
        return F.layer_norm(x, (WIDTH,), gain, None, 1e-5)

    def logits(tokens):
        batch, length = tokens.shape
        x = p["embedding"][tokens] + p["positions"][:length]
        for i in range(LAYERS):
            heads = (norm(x, p[f"{i}.attention_norm"]) @ p[f"{i}.query_key_value"]).view(batch, length, 3, HEADS, -1)
            query, key, value = heads.permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + y.transpose(1, 2).reshape(batch, length, WIDTH) @ p[f"{i}.output"]
            x = x + F.gelu(norm(x, p[f"{i}.feed_norm"]) @ p[f"{i}.up"]) @ p[f"{i}.down"]
        return norm(x, p["final_norm"]) @ p["embedding"].T

    def loss_of(text, starts):
        window = torch.from_numpy(np.stack([text[s : s + CONTEXT + 1] for s in starts]))
        return F.cross_entropy(logits(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())

    def held_out_loss():
        with torch.no_grad():
            starts = np.arange(0, len(held_out) - CONTEXT - 1, CONTEXT)
            parts = [loss_of(held_out, part).item() for part in np.array_split(starts, 32)]
        return sum(parts) / len(parts)

    hidden = [v for name, v in p.items() if name[0].isdigit() and v.ndim == 2]
    others = [v for name, v in p.items() if not (name[0].isdigit() and v.ndim == 2)]
    optimizer = torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0)
    momenta = [torch.zeros_like(v) for v in hidden]
    for step in range(STEPS):
        rate = min((step + 1) / 100, 0.01 + 0.99 * min(1.0, 1.5 * (1 - step / DECAY)))
        optimizer.param_groups[0]["lr"] = 4e-3 * rate
        loss = loss_of(training, random.integers(0, len(training) - CONTEXT - 1, BATCH))
        for v in p.values():
            v.grad = None
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for v, momentum in zip(hidden, momenta):
                momentum.mul_(0.95).add_(v.grad)
                v.mul_(1 - 0.01 * 0.02 * rate)
                v.sub_(0.02 * rate * math.sqrt(max(1, v.shape[1] / v.shape[0])) * orthogonal(v.grad + 0.95 * momentum))
        if step % 100 == 0:
            print(f"step {step}  loss {loss.item():.3f}", flush=True)
        if step % 1000 == 999 or step == STEPS - 1:
            print(f"step {step + 1}  held out {held_out_loss():.4f} nats a character", flush=True)
            np.savez(target, **{name: value.detach().numpy() for name, value in p.items()})


def build(weights):
    """One character in, the logits of the next one out; keys and values of what came before are kept in states."""
    size = WIDTH // HEADS

    def constant(value):
        return ops.constant(np.ascontiguousarray(value, np.float32))

    def integers(values):
        return ops.constant(np.array(values, np.int64))

    def parameter(name, shape):
        node = ops.parameter(shape, np.int64, name=name)
        node.output(0).set_names({name})
        return node

    def norm(x, gain, name):
        return ops.multiply(opset6.mvn(x, integers([-1]), True, 1e-5, "INSIDE_SQRT"), constant(gain), name=name)

    def dense(x, matrix, name):
        return ops.matmul(x, constant(matrix.T), False, True, name=name)

    def remembered(name, row):
        information = VariableInfo()
        information.data_shape = openvino.PartialShape([1, HEADS, CONTEXT, size])
        information.data_type, information.variable_id = openvino.Type.f32, name
        variable = Variable(information)
        empty = opset3.broadcast(constant(0), integers([1, HEADS, CONTEXT, size]), "NUMPY", name=f"{name}/empty")
        past = opset6.read_value(empty, variable, name=f"{name}/read")
        present = opset3.scatter_update(past, position, row, integers(2), name=f"{name}/write")
        sinks.append(opset6.assign(present, variable, name=f"{name}/assign"))
        return present

    sinks = []
    token, position = parameter("token", [1, 1]), parameter("position", [1])
    embedding = constant(weights["embedding"])
    x = opset8.gather(embedding, token, integers(0), name="embedding")
    x = ops.add(x, opset8.gather(constant(weights["positions"]), position, integers(0)), name="embedding/placed")
    seen = ops.less_equal(integers(np.arange(CONTEXT)), position, name="seen")
    mask = ops.select(seen, constant(0), constant(-1e9), name="mask")
    for i in range(LAYERS):
        part = f"layer_{i}"
        heads = norm(x, weights[f"{i}.attention_norm"], f"{part}/attention_norm")
        heads = dense(heads, weights[f"{i}.query_key_value"], f"{part}/query_key_value")
        heads = ops.reshape(heads, integers([1, 1, 3, HEADS, size]), False)
        heads = ops.split(ops.transpose(heads, integers([2, 0, 3, 1, 4])), integers(0), 3, name=f"{part}/heads")
        query, key, value = (ops.squeeze(output, integers([0])) for output in heads.outputs())
        keys, values = remembered(f"{part}.key", key), remembered(f"{part}.value", value)
        scores = ops.multiply(ops.matmul(query, keys, False, True), constant(size**-0.5), name=f"{part}/scores")
        shares = ops.softmax(ops.add(scores, mask), -1, name=f"{part}/shares")
        mixed = ops.transpose(ops.matmul(shares, values, False, False), integers([0, 2, 1, 3]))
        mixed = ops.reshape(mixed, integers([1, 1, WIDTH]), False)
        x = ops.add(x, dense(mixed, weights[f"{i}.output"], f"{part}/output"), name=f"{part}/attended")
        up = dense(norm(x, weights[f"{i}.feed_norm"], f"{part}/feed_norm"), weights[f"{i}.up"], f"{part}/up")
        x = ops.add(x, dense(opset7.gelu(up, "ERF"), weights[f"{i}.down"], f"{part}/down"), name=part)
    x = ops.matmul(norm(x, weights["final_norm"], "final_norm"), embedding, False, True, name="logits")
    x.output(0).set_names({"logits"})
    model = openvino.Model([ops.result(x, name="result")], sinks, [token, position], "chardecoder")
    model.set_rt_info(VOCABULARY, ["model_info", "vocabulary"])
    return model


def greedy(prompt, target):
    """Feeds the prompt, then always the likeliest character, and keeps every step's logits."""
    request = openvino.Core().compile_model(FOLDER / "model.xml", "CPU", PROPERTIES).create_infer_request()
    tokens, logits = encode(prompt), []
    for place in range(len(tokens) + GREEDY - 1):
        inputs = {"token": np.array([[tokens[place]]], np.int64), "position": np.array([place], np.int64)}
        logits.append(request.infer(inputs)["logits"][0, 0].copy())
        if place >= len(prompt) - 1:
            tokens.append(int(logits[-1].argmax()))
    tokens = np.array(tokens, np.int64)
    sections = {"prompt_tokens": tokens[: len(prompt)], "greedy_tokens": tokens[len(prompt) :], "logits": np.array(logits)}
    np.savez_compressed(target, prompt=np.array(prompt), **sections)


def write(weights):
    FOLDER.mkdir(parents=True, exist_ok=True)
    openvino.save_model(build(weights), FOLDER / "model.xml", compress_to_fp16=True)
    lines = [c.replace("\n", "\\n") for c in VOCABULARY]
    (FOLDER / "vocabulary.txt").write_text("\n".join(lines) + "\n")
    steps = [{"token": np.array([[t]], np.int64), "position": np.array([i], np.int64)} for i, t in enumerate(encode(PROMPT)[:8])]
    answer_folder(FOLDER, steps)
    target = FOLDER / "expected.npz"
    # In a process of its own, as a crash of the plugin must not take this one along.
    subprocess.run([sys.executable, __file__, "greedy", PROMPT, target], check=True)
    found = np.load(target)
    print(PROMPT + "|" + decode(found["greedy_tokens"]))
    ranked = np.sort(found["logits"], axis=1)
    print(f"least lead of a greedy character over the second: {(ranked[:, -1] - ranked[:, -2])[len(PROMPT) - 1 :].min():.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, operands in {"train": ["package", "weights"], "build": ["weights"], "greedy": ["prompt", "target"]}.items():
        child = verbs.add_parser(verb)
        for operand in operands:
            child.add_argument(operand)
    arguments = parser.parse_args()
    if arguments.verb == "train":
        train(arguments.package, arguments.weights)
    elif arguments.verb == "build":
        write(dict(np.load(arguments.weights)))
    else:
        greedy(arguments.prompt, arguments.target)


if __name__ == "__main__":
    main()
