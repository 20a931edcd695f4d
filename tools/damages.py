"""Damages to IR files, one each: what is changed, on which line, and which findings are right.

A damage is a function from a `Model` to damaged copies; `@damage(CLASS, CODES)` puts it into `DAMAGES`. It may give
several copies, each on another type of operation; the driver takes some of them.
"""

import itertools
import re
import struct
import xml.parsers.expat
from dataclasses import dataclass, field

DAMAGES = []

WIDTHS = {"f32": 4, "f16": 2, "f64": 8, "i64": 8, "i32": 4, "u8": 1, "i8": 1, "boolean": 1}


@dataclass
class Element:
    """An XML element and the lines of its tags, counted from 0."""

    name: str
    attributes: dict
    line: int
    parent: "Element | None"
    end: int = -1
    children: list = field(default_factory=list)

    def child(self, name):
        return next((c for c in self.children if c.name == name), None)

    def all(self, name):
        return [c for c in self.children if c.name == name]

    def descendants(self, name):
        for child in self.children:
            if child.name == name:
                yield child
            yield from child.descendants(name)

    def lines(self):
        return range(self.line, self.end + 1)


@dataclass
class Damaged:
    """A damaged copy: the text, the weights (None: those of the model), the lines on which a finding is right."""

    what: str
    text: str
    lines: set
    weights: bytes | str | None = None


class Model:
    """An IR file as lines and elements."""

    def __init__(self, path):
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.lines = self.text.split("\n")
        self.root = parse(self.text)
        self.layers = self.root.child("layers").children
        self.edges = self.root.child("edges").children
        self.by_id = {layer.attributes["id"]: layer for layer in self.layers}
        self.producer = {(e.attributes["to-layer"], e.attributes["to-port"]): e for e in self.edges}
        self.consumers = {}
        for e in self.edges:
            self.consumers.setdefault((e.attributes["from-layer"], e.attributes["from-port"]), []).append(e)

    @property
    def weights(self):
        return self.path.with_suffix(".bin").read_bytes()

    def of_type(self, *types):
        return [layer for layer in self.layers if layer.attributes["type"] in types]

    def varied(self, layers=None, skip=("Const", "Parameter", "Result")):
        """The first layer of each type."""
        seen = set(skip)
        for layer in layers if layers is not None else self.layers:
            kind = layer.attributes["type"]
            if kind not in seen and not layer.child("body") and not layer.child("then_body"):
                seen.add(kind)
                yield layer

    def source(self, layer, port):
        """The layer that feeds a port, if there is one."""
        edge = self.producer.get((layer.attributes["id"], str(port)))
        return edge and self.by_id.get(edge.attributes["from-layer"])

    def edit(self, what, changes, right, weights=None):
        """A copy with some lines replaced (None removes a line, a list gives several). `right`: lines before the change."""
        lines, moved = [], {}
        for number, line in enumerate(self.lines):
            new = changes.get(number, line)
            new = [] if new is None else new if isinstance(new, list) else [new]
            moved[number] = range(len(lines) + 1, len(lines) + 1 + max(len(new), 1))
            lines.extend(new)
        return Damaged(what, "\n".join(lines), {new for number in right for new in moved[number]}, weights)

    def sub(self, what, line, old, new, right=()):
        """A copy with one line changed by a regular expression; None if the line has nothing to change."""
        changed, count = re.subn(old, new, self.lines[line], count=1)
        return self.edit(what, {line: changed}, {line, *right}) if count and changed != self.lines[line] else None

    def constant(self, layer):
        """Offset, size, type and shape of a Const."""
        data = layer.child("data").attributes
        shape = [int(d) for d in data["shape"].split(",")] if data["shape"].strip() else []
        return int(data["offset"]), int(data["size"]), data["element_type"], shape


def parse(text):
    parser = xml.parsers.expat.ParserCreate()
    stack = [Element("", {}, 0, None)]

    def start(name, attributes):
        element = Element(name, attributes, parser.CurrentLineNumber - 1, stack[-1])
        stack[-1].children.append(element)
        stack.append(element)

    def end(_name):
        stack.pop().end = parser.CurrentLineNumber - 1

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.Parse(text, True)
    return stack[0].children[0]


def damage(kind, *codes):
    def add(function):
        DAMAGES.append((kind, codes, function))
        return function

    return add


def ports(layer, side):
    section = layer.child(side)
    return section.children if section else []


def kind(layer):
    return layer.attributes["type"]


# XML


@damage("xml: truncated", "OV101")
def truncated(m):
    for layer in m.varied():
        at = layer.end - 1
        yield Damaged(f"cut in {kind(layer)}", "\n".join(m.lines[:at]) + "\n", {at, at + 1})


@damage("xml: end tag of another name", "OV101")
def mismatched(m):
    for layer in m.varied():
        yield m.sub(f"{kind(layer)} ends as </layr>", layer.end, "</layer>", "</layr>")


@damage("xml: attribute given twice", "OV101")
def twice(m):
    for layer in m.varied():
        yield m.sub(f"type of {kind(layer)} twice", layer.line, r' type="', f' type="{kind(layer)}" type="')


@damage("xml: two roots", "OV101")
def two_roots(m):
    yield Damaged("a second <net>", m.text.rstrip("\n") + "\n<net />\n", {len(m.text.rstrip("\n").split("\n")) + 1})


@damage("xml: undefined entity", "OV101")
def entity(m):
    for layer in m.varied():
        yield m.sub(f"name of {kind(layer)} with &nbsp;", layer.line, r' name="', ' name="&nbsp;')


@damage("xml: not UTF-8", "OV101")
def not_utf8(m):
    for layer in m.varied():
        yield m.sub(f"name of {kind(layer)}", layer.line, r' name="', ' name="\udcff')


@damage("xml: control character", "OV101")
def control(m):
    for layer in m.varied():
        yield m.sub(f"name of {kind(layer)}", layer.line, r' name="', ' name="\x01')


@damage("xml: value without quotes", "OV101")
def unquoted(m):
    for layer in m.varied():
        yield m.sub(f"id of {kind(layer)}", layer.line, r' id="(\d+)"', r" id=\1")


@damage("xml: tag not closed", "OV101")
def unclosed(m):
    for layer in m.varied():
        yield m.sub(f"tag of {kind(layer)}", layer.line, r">$", "", {layer.line + 1})


# Structure


@damage("structure: unknown element", "OV104")
def unknown_element(m):
    for layer in m.varied():
        if layer.child("output"):
            at = layer.child("output").line
            yield m.edit(f"<remark> in {kind(layer)}", {at: ["\t\t\t<remark />", m.lines[at]]}, {at})


@damage("structure: misspelt section", "OV104", "OV209", "OV203")
def misspelt_section(m):
    for layer in m.varied():
        section = layer.child("input")
        if section:
            changes = {section.line: "\t\t\t<inputs>", section.end: "\t\t\t</inputs>"}
            yield m.edit(f"<inputs> in {kind(layer)}", changes, {section.line})


@damage("structure: section given twice", "OV110")
def section_twice(m):
    for layer in m.varied():
        data = layer.child("data")
        if data and data.line == data.end:
            yield m.edit(f"<data> of {kind(layer)}", {data.line: [m.lines[data.line]] * 2}, {data.line, data.line + 1})


@damage("structure: no layers", "OV105")
def no_layers(m):
    section = m.root.child("layers")
    yield m.edit("<layers> removed", {n: None for n in section.lines()}, {m.root.line})


@damage("structure: unknown XML attribute", "OV109")
def unknown_xml_attribute(m):
    for layer in m.varied():
        yield m.sub(f"attribute of {kind(layer)}", layer.line, r">$", ' colour="red">')
    yield m.sub("attribute of an edge", m.edges[0].line, "/>", 'colour="red" />')


@damage("structure: required XML attribute missing", "OV106")
def missing_xml_attribute(m):
    for layer in m.varied():
        yield m.sub(f"{kind(layer)} without version", layer.line, r' version="[^"]*"', "")
        for port in ports(layer, "output"):
            yield m.sub(f"{kind(layer)}: output without precision", port.line, r' precision="[^"]*"', "")
    yield m.sub("edge without to-port", m.edges[-1].line, r' to-port="\d+"', "")


@damage("structure: number", "OV107")
def number(m):
    for layer in m.varied():
        dims = [d for p in ports(layer, "output") for d in p.all("dim")]
        if dims:
            yield m.sub(f"dim of {kind(layer)}", dims[0].line, r"<dim>[^<]*", "<dim>x3")
            yield m.sub(f"dim of {kind(layer)}", dims[0].line, r"<dim>[^<]*", "<dim>-7")
    yield m.sub("port of an edge", m.edges[0].line, r'to-port="\d+"', 'to-port="one"')
    yield m.sub("id of a layer", m.layers[-1].line, r' id="\d+"', ' id="99999999999999999999"')


@damage("structure: unknown precision", "OV108")
def precision(m):
    for layer in m.varied():
        for port in ports(layer, "output"):
            yield m.sub(f"output of {kind(layer)}", port.line, r'precision="[^"]*"', 'precision="FP31"')


@damage("structure: IR version", "OV103", "OV107", "OV106")
def ir_version(m):
    for version in ("7", "12", "eleven"):
        yield m.sub(f"version {version}", m.root.line, r'version="\d+"', f'version="{version}"')
    yield m.sub("no version", m.root.line, r' version="\d+"', "")


# Attributes


def data_attributes(m, pattern):
    """Layers, one of each type, with the first attribute of <data> whose value matches."""
    for layer in m.varied():
        data = layer.child("data")
        for name, value in (data.attributes if data else {}).items():
            if re.fullmatch(pattern, value):
                yield layer, data, name, value
                break


@damage("attribute: misspelt", "OV304", "OV306")
def misspelt_attribute(m):
    for layer, data, name, _ in data_attributes(m, r".+"):
        yield m.sub(f"{name} of {kind(layer)}", data.line, rf' {name}="', f' {name[:-1]}z="')


@damage("attribute: unknown", "OV304")
def unknown_attribute(m):
    for layer, data, _, _ in data_attributes(m, r".*"):
        yield m.sub(f"kernel of {kind(layer)}", data.line, "<data ", '<data thickness="3" ')


@damage("attribute: boolean", "OV305")
def boolean(m):
    for layer, data, name, _ in data_attributes(m, "true|false"):
        yield m.sub(f"{name} of {kind(layer)}", data.line, rf' {name}="[^"]*"', f' {name}="maybe"')


@damage("attribute: number", "OV305")
def number_attribute(m):
    for layer, data, name, _ in data_attributes(m, r"-?\d+(, ?-?\d+)*"):
        yield m.sub(f"{name} of {kind(layer)}", data.line, rf' {name}="[^"]*"', f' {name}="1x"')


@damage("attribute: word outside the list", "OV305", "OV305")
def word(m):
    for layer, data, name, _ in data_attributes(
        m, "numpy|explicit|same_upper|valid|floor|half_to_even|constant|reflect"
    ):
        yield m.sub(f"{name} of {kind(layer)}", data.line, rf' {name}="[^"]*"', f' {name}="numpi"')


@damage("attribute: required one missing", "OV306")
def missing_attribute(m):
    required = {
        "Convolution": "strides", "GroupConvolution": "dilations", "MaxPool": "kernel", "AvgPool": "exclude-pad",
        "Concat": "axis", "Clamp": "max", "Convert": "destination_type", "LSTMSequence": "hidden_size",
        "FakeQuantize": "levels", "TopK": "axis", "Pad": "pad_mode", "Parameter": "element_type", "Const": "shape",
        "ReadValue": "variable_id", "Assign": "variable_id", "LRN": "alpha", "BatchNormInference": "epsilon",
        "Split": "num_splits", "NormalizeL2": "eps", "MVN": "eps",
    }  # fmt: skip
    for layer in m.varied(skip=()):
        name, data = required.get(kind(layer)), layer.child("data")
        if name and data and name in data.attributes:
            yield m.sub(f"{name} of {kind(layer)}", data.line, rf' {name}="[^"]*"', "", {layer.line})


@damage("attribute: out of range", "OV305", "OV503", "OV505")
def out_of_range(m):
    ranges = {
        "strides": "-1, 1", "dilations": "0, 0", "kernel": "0, 0", "axis": "77", "levels": "1", "num_splits": "0",
        "batch_dims": "9", "hidden_size": "-1", "pads_begin": "-1, -1",
    }  # fmt: skip
    for layer in m.varied():
        data = layer.child("data")
        for name, value in ranges.items():
            if data and name in data.attributes and not (name == "pads_begin" and kind(layer) == "Pad"):
                yield m.sub(
                    f"{name} of {kind(layer)}", data.line, rf' {name}="[^"]*"', f' {name}="{value}"', {layer.line}
                )
                break


# Layers, ports and edges


@damage("graph: id of another layer", "OV201")
def layer_id(m):
    for before, layer in itertools.pairwise(m.layers):
        # The layer's own edges dangle then, which is no second defect.
        yield m.sub(f"{kind(layer)}", layer.line, r' id="\d+"', f' id="{before.attributes["id"]}"', {before.line})


@damage("graph: id of another port", "OV202")
def port_id(m):
    for layer in m.varied():
        inputs = ports(layer, "input")
        if len(inputs) > 1:
            yield m.sub(f"{kind(layer)}", inputs[1].line, r' id="\d+"', f' id="{inputs[0].attributes["id"]}"')


@damage("graph: name of another layer", "OV207")
def same_name(m):
    for before, layer in itertools.pairwise(m.layers):
        name = before.attributes["name"].replace("\\", r"\\")
        yield m.sub(f"{kind(layer)}", layer.line, r' name="[^"]*"', f' name="{name}"')


@damage("graph: tensor name of another port", "OV701")
def same_tensor_name(m):
    named = [p for layer in m.layers for p in ports(layer, "output") if p.attributes.get("names")]
    for before, port in itertools.pairwise(named):
        name = before.attributes["names"].split(",")[0].replace("\\", r"\\")
        yield m.sub(kind(port.parent.parent), port.line, r' names="[^"]*"', f' names="{name}"')


@damage("graph: edge from a layer that is not there", "OV203")
def edge_from_nowhere(m):
    for edge in m.edges:
        yield m.sub(
            f"to {kind(m.by_id[edge.attributes['to-layer']])}", edge.line, r'from-layer="\d+"', 'from-layer="987654"'
        )


@damage("graph: edge to a port that is not there", "OV203")
def edge_to_no_port(m):
    for edge in m.edges:
        yield m.sub(f"to {kind(m.by_id[edge.attributes['to-layer']])}", edge.line, r'to-port="\d+"', 'to-port="77"')


@damage("graph: edge given twice", "OV204")
def edge_twice(m):
    for edge in m.edges:
        what = f"to {kind(m.by_id[edge.attributes['to-layer']])}"
        yield m.edit(what, {edge.line: [m.lines[edge.line]] * 2}, {edge.line, edge.line + 1})


@damage("graph: edge to the layer itself", "OV206")
def edge_to_self(m):
    for edge in m.edges:
        layer = m.by_id[edge.attributes["to-layer"]]
        outputs = ports(layer, "output")
        if outputs:
            new = f'from-layer="{layer.attributes["id"]}" from-port="{outputs[0].attributes["id"]}"'
            yield m.sub(kind(layer), edge.line, r'from-layer="\d+" from-port="\d+"', new, {layer.line})


@damage("graph: edge removed", "OV205")
def no_edge(m):
    for edge in m.edges:
        layer = m.by_id[edge.attributes["to-layer"]]
        port = next(p for p in ports(layer, "input") if p.attributes["id"] == edge.attributes["to-port"])
        yield m.edit(kind(layer), {edge.line: None}, {port.line})


@damage("graph: cycle", "OV206")
def cycle(m):
    for edge in m.edges:
        first = m.by_id[edge.attributes["from-layer"]]
        second = m.by_id[edge.attributes["to-layer"]]
        inputs, outputs = ports(first, "input"), ports(second, "output")
        back = inputs and m.producer.get((first.attributes["id"], inputs[0].attributes["id"]))
        if back and outputs:
            new = f'from-layer="{second.attributes["id"]}" from-port="{outputs[0].attributes["id"]}"'
            right = {first.line, second.line, edge.line}
            yield m.sub(
                f"{kind(first)} reads {kind(second)}", back.line, r'from-layer="\d+" from-port="\d+"', new, right
            )


@damage("graph: layer that nobody reads", "OV210")
def unreachable(m):
    for layer in m.varied():
        outputs, inputs = ports(layer, "output"), ports(layer, "input")
        if len(outputs) == 1 and len(inputs) == 1 and kind(layer) not in ("Assign", "ReadValue"):
            edge = m.producer[(layer.attributes["id"], inputs[0].attributes["id"])]
            copy = [re.sub(r' names="[^"]*"', "", m.lines[n]) for n in layer.lines()]
            copy[0] = re.sub(r' name="[^"]*"', ' name="a copy"', re.sub(r' id="\d+"', ' id="987654"', copy[0]))
            more = re.sub(r'to-layer="\d+"', 'to-layer="987654"', m.lines[edge.line])
            changes = {layer.line: [*copy, m.lines[layer.line]], edge.line: [m.lines[edge.line], more]}
            yield m.edit(f"a copy of {kind(layer)}", changes, {layer.line})


@damage("graph: no results", "OV208", "OV210")
def no_results(m):
    if m.of_type("Assign"):
        return
    gone = {r.attributes["id"] for r in m.of_type("Result")}
    changes = {n: None for r in m.of_type("Result") for n in r.lines()}
    changes |= {e.line: None for e in m.edges if e.attributes["to-layer"] in gone}
    yield m.edit("Result removed", changes, {m.root.line})


@damage("graph: output port too many", "OV209")
def output_too_many(m):
    for layer in m.varied():
        outputs = ports(layer, "output")
        if len(outputs) == 1 and kind(layer) not in ("Loop", "TensorIterator", "If", "Split", "VariadicSplit"):
            extra = '\t\t\t\t<port id="66" precision="FP32" />'
            at = layer.child("output").end
            yield m.edit(kind(layer), {at: [extra, m.lines[at]]}, {layer.line, at})


# Types, versions and element types


@damage("type: misspelt", "OV301")
def misspelt_type(m):
    for layer in m.varied():
        yield m.sub(kind(layer), layer.line, r' type="([^"]*)"', r' type="\1x"')


@damage("type: opset without it", "OV302")
def opset(m):
    for layer in m.varied():
        yield m.sub(f"{kind(layer)} of opset99", layer.line, r' version="[^"]*"', ' version="opset99"')


@damage("element type: of a constant", "OV504", "OV502", "OV402", "OV503")
def constant_type(m):
    other = {"f32": "i32", "i64": "f64", "f16": "i16", "i32": "f32", "u8": "i8"}
    for layer in m.of_type("Const"):
        data = layer.child("data")
        new = other.get(data.attributes["element_type"])
        for edge in m.consumers.get((layer.attributes["id"], "0"), ())[:1] if new else ():
            reader = m.by_id[edge.attributes["to-layer"]]
            what = f"{data.attributes['element_type']} to {new}, read by {kind(reader)}"
            right = {*layer.lines(), *reader.lines()}
            yield m.sub(what, data.line, r'element_type="\w+"', f'element_type="{new}"', right)


@damage("element type: of a parameter", "OV504", "OV502")
def parameter_type(m):
    for layer in m.of_type("Parameter"):
        data = layer.child("data")
        new = "f32" if data.attributes["element_type"] != "f32" else "i64"
        for edge in m.consumers.get((layer.attributes["id"], "0"), ())[:1]:
            reader = m.by_id[edge.attributes["to-layer"]]
            right = {*layer.lines(), *reader.lines()}
            yield m.sub(f"read by {kind(reader)}", data.line, r'element_type="\w+"', f'element_type="{new}"', right)


@damage("element type: stale output", "OV502")
def stale_output_precision(m):
    for layer in m.varied():
        for port in ports(layer, "output"):
            new = "FP16" if port.attributes.get("precision") != "FP16" else "I32"
            yield m.sub(kind(layer), port.line, r'precision="\w+"', f'precision="{new}"')


@damage("element type: stale input", "OV502")
def stale_input_precision(m):
    for layer in m.varied():
        for port in ports(layer, "input"):
            new = "FP16" if port.attributes.get("precision") != "FP16" else "I32"
            yield m.sub(kind(layer), port.line, r'precision="\w+"', f'precision="{new}"')


# Shapes


@damage("shape: stale output", "OV501")
def stale_output(m):
    for layer in m.varied():
        for dim in [d for p in ports(layer, "output") for d in p.all("dim")]:
            if m.lines[dim.line].strip() != "<dim>-1</dim>":
                yield m.sub(kind(layer), dim.line, r"<dim>\d+", "<dim>9173", {dim.parent.line})
                break


@damage("shape: stale input", "OV501")
def stale_input(m):
    for layer in m.varied():
        for dim in [d for p in ports(layer, "input") for d in p.all("dim")]:
            if m.lines[dim.line].strip() != "<dim>-1</dim>":
                yield m.sub(kind(layer), dim.line, r"<dim>\d+", "<dim>9173", {dim.parent.line})
                break


@damage("shape: output of another rank", "OV501")
def stale_rank(m):
    for layer in m.varied():
        for dim in [d for p in ports(layer, "output") for d in p.all("dim")]:
            yield m.edit(kind(layer), {dim.line: [m.lines[dim.line]] * 2}, {*dim.parent.lines()})
            break


@damage("shape: of a constant", "OV503", "OV501", "OV505")
def constant_shape(m):
    for layer in m.of_type("Const"):
        _, _, _, shape = m.constant(layer)
        data = layer.child("data")
        if len(shape) > 1 and shape != shape[::-1]:
            for edge in m.consumers.get((layer.attributes["id"], "0"), ())[:1]:
                reader = m.by_id[edge.attributes["to-layer"]]
                new = ", ".join(map(str, shape[::-1]))
                right = {*layer.lines(), *reader.lines()}
                yield m.sub(f"reversed, read by {kind(reader)}", data.line, r'shape="[^"]*"', f'shape="{new}"', right)


@damage("shape: of a parameter", "OV503", "OV501", "OV505")
def parameter_shape(m):
    for layer in m.of_type("Parameter"):
        data = layer.child("data")
        shape = data.attributes["shape"].split(",")
        if len(shape) > 1 and shape[1].isdigit():
            shape[1] = str(int(shape[1]) + 1)
            right = {*layer.lines()} | {
                n
                for e in m.consumers.get((layer.attributes["id"], "0"), ())
                for n in m.by_id[e.attributes["to-layer"]].lines()
            }
            yield m.sub(
                f"of {layer.attributes['name']}", data.line, r'shape="[^"]*"', f'shape="{",".join(shape)}"', right
            )


@damage("shape: inputs exchanged", "OV503", "OV504", "OV505", "OV506", "OV501", "OV502")
def exchanged(m):
    for layer in m.varied(skip=("Const", "Parameter", "Result", "Add", "Multiply", "Concat", "MatMul")):
        edges = [m.producer.get((layer.attributes["id"], p.attributes["id"])) for p in ports(layer, "input")[:2]]
        if len(edges) == 2 and all(edges):
            first, second = (re.search(r'from-layer="\d+" from-port="\d+"', m.lines[e.line])[0] for e in edges)
            changes = {
                edges[0].line: m.lines[edges[0].line].replace(first, second),
                edges[1].line: m.lines[edges[1].line].replace(second, first),
            }
            yield m.edit(kind(layer), changes, {*layer.lines(), edges[0].line, edges[1].line})


# Weights and constants


@damage("constant: offset beyond the weights", "OV401")
def offset(m):
    for layer in m.of_type("Const"):
        data = layer.child("data")
        yield m.sub(layer.attributes["name"], data.line, r'offset="\d+"', 'offset="99999999999"')


@damage("constant: size", "OV402")
def size(m):
    for layer in m.of_type("Const"):
        data = layer.child("data")
        if m.constant(layer)[1] > 8:
            yield m.sub(layer.attributes["name"], data.line, r'size="\d+"', 'size="5"')


@damage("constant: overlaps another", "OV405")
def overlap(m):
    for layer in m.of_type("Const"):
        start, length, element_type, _ = m.constant(layer)
        data = layer.child("data")
        if length >= 64 and start >= 8 and element_type == "f32":
            yield m.sub(
                layer.attributes["name"], data.line, r'offset="\d+"', f'offset="{start - 4}"', set(data_lines(m))
            )


def data_lines(m):
    return [c.child("data").line for c in m.root.descendants("layer") if kind(c) == "Const"]


@damage("constant: weights cut", "OV401")
def cut(m):
    if len(m.weights) < 4_000_000 and m.of_type("Const"):
        last = max(m.of_type("Const"), key=lambda c: sum(m.constant(c)[:2]))
        start, length, _, _ = m.constant(last)
        yield m.edit("last byte missing", {}, set(data_lines(m)), m.weights[: start + length - 1])


@damage("constant: Git LFS pointer for weights", "OV406")
def pointer(m):
    text = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
    yield m.edit("pointer", {}, set(data_lines(m)), text)


@damage("constant: no weights", "OV403")
def no_weights(m):
    yield m.edit("no .bin", {}, set(data_lines(m)), "missing")


def poke(m, layer, index, value):
    """The weights with one element of a constant changed."""
    start, _, element_type, _ = m.constant(layer)
    code = {"i64": "<q", "i32": "<i"}[element_type]
    weights = bytearray(m.weights)
    struct.pack_into(code, weights, start + index * struct.calcsize(code), value)
    return bytes(weights)


CONSTANT_INPUTS = {
    "Gather": [(2, 99)], "Transpose": [(1, 77)], "Unsqueeze": [(1, 55)], "Squeeze": [(1, 55)],
    "ReduceMean": [(1, 33)], "ReduceSum": [(1, 33)], "Split": [(1, 12)], "VariadicSplit": [(1, 12), (2, 7)],
    "Reshape": [(1, -7)], "ScatterUpdate": [(3, 9), (1, 10**9)], "ScatterElementsUpdate": [(3, 9)],
    "ScatterNDUpdate": [(1, 10**9)],
    "Broadcast": [(1, -3)], "Tile": [(1, -1)], "Slice": [(3, 0), (4, 9)], "StridedSlice": [(3, 0)],
    "Interpolate": [(3, 44)], "TopK": [(1, -5)], "CumSum": [(1, 31)], "OneHot": [(1, -2)],
}  # fmt: skip


@damage("constant: index, axis or shape", "OV503", "OV505", "OV506", "OV501", "OV305")
def constant_value(m):
    if len(m.weights) > 4_000_000:
        return
    for layer in m.varied():
        for port, value in CONSTANT_INPUTS.get(kind(layer), ()):
            source = m.source(layer, port)
            if source is not None and kind(source) == "Const" and m.constant(source)[2] in ("i64", "i32"):
                data = source.child("data").line
                # A changed constant of its own, since others may share the bytes.
                weights = m.weights
                begin, length, _, _ = m.constant(source)
                changed = poke(m, source, 0, value)[begin : begin + length]
                moved = re.sub(r'offset="\d+"', f'offset="{len(weights)}"', m.lines[data])
                right = {*layer.lines(), *source.lines()}
                readers = m.consumers.get((source.attributes["id"], "0"), ())
                right |= {n for e in readers for n in m.by_id[e.attributes["to-layer"]].lines()}
                yield m.edit(f"input {port} of {kind(layer)} is {value}", {data: moved}, right, weights + changed)


# Bodies and states


def bodies(m):
    return [layer for layer in m.layers if layer.child("body") or layer.child("then_body")]


@damage("body: port map names no layer", "OV601")
def map_to_nowhere(m):
    for layer in bodies(m):
        for entry in [e for s in layer.children if s.name.endswith("port_map") for e in s.children]:
            yield m.sub(
                f"{kind(layer)} {entry.name}", entry.line, r'internal_layer_id="\d+"', 'internal_layer_id="9876"'
            )


@damage("body: port map names no port", "OV601")
def map_from_nowhere(m):
    for layer in bodies(m):
        for entry in [e for s in layer.children if s.name.endswith("port_map") for e in s.children]:
            if entry.attributes["external_port_id"] != "-1":
                yield m.sub(
                    f"{kind(layer)} {entry.name}", entry.line, r'external_port_id="\d+"', 'external_port_id="88"'
                )


@damage("body: port map entry missing", "OV603")
def map_missing(m):
    for layer in bodies(m):
        for section in [s for s in layer.children if s.name.endswith("port_map")]:
            for entry in section.children:
                if entry.attributes["external_port_id"] != "-1":
                    right = {*range(layer.line, layer.child("output").end + 1), section.line}
                    right |= {p.line for p in layer.descendants("layer")}
                    yield m.edit(f"{kind(layer)} {entry.name}", {entry.line: None}, right)


@damage("body: back edge to nowhere", "OV601")
def back_edge(m):
    for layer in bodies(m):
        for edge in layer.child("back_edges").children if layer.child("back_edges") else ():
            yield m.sub(f"{kind(layer)}", edge.line, r'from-layer="\d+"', 'from-layer="9876"')
            yield m.sub(f"{kind(layer)}", edge.line, r'to-layer="\d+"', 'to-layer="9876"')


@damage("body: missing", "OV601", "OV105", "OV209")
def no_body(m):
    for layer in bodies(m):
        for section in [s for s in layer.children if s.name.endswith("body")]:
            right = {*range(layer.line, layer.child("output").end + 1)}
            right |= {s.line for s in layer.children if s.name.endswith("port_map")}
            yield m.edit(f"<{section.name}> of {kind(layer)}", {n: None for n in section.lines()}, right)


@damage("body: defect inside", "OV301")
def inside(m):
    for layer in bodies(m):
        for inner in m.varied(list(layer.descendants("layer"))):
            yield m.sub(f"{kind(inner)} in {kind(layer)}", inner.line, r' type="([^"]*)"', r' type="\1x"')


@damage("body: stale dim inside", "OV501")
def stale_inside(m):
    for layer in bodies(m):
        for inner in m.varied(list(layer.descendants("layer"))):
            for dim in [d for p in ports(inner, "output") for d in p.all("dim")]:
                if m.lines[dim.line].strip() != "<dim>-1</dim>":
                    yield m.sub(
                        f"{kind(inner)} in {kind(layer)}", dim.line, r"<dim>\d+", "<dim>9173", {dim.parent.line}
                    )
                    break


@damage("state: Assign of another variable", "OV602")
def assign(m):
    for layer in m.of_type("Assign"):
        data = layer.child("data")
        right = {
            layer.line,
            *(r.line for r in m.of_type("ReadValue")),
            *(r.child("data").line for r in m.of_type("ReadValue")),
        }
        yield m.sub(layer.attributes["name"], data.line, r'variable_id="', 'variable_id="x', right)


@damage("state: element type", "OV602", "OV504", "OV305")
def state_type(m):
    for layer in m.of_type("ReadValue"):
        data = layer.child("data")
        if "variable_type" in data.attributes:
            right = {*layer.lines(), *(n for a in m.of_type("Assign") for n in a.lines())}
            yield m.sub(layer.attributes["name"], data.line, r'variable_type="\w+"', 'variable_type="i32"', right)


@damage("state: shape", "OV602", "OV503", "OV305")
def state_shape(m):
    for layer in m.of_type("ReadValue"):
        data = layer.child("data")
        if data.attributes.get("variable_shape"):
            right = {*layer.lines(), *(n for a in m.of_type("Assign") for n in a.lines())}
            shape = data.attributes["variable_shape"].split(",")
            shape[-1] = "917"
            yield m.sub(
                layer.attributes["name"],
                data.line,
                r'variable_shape="[^"]*"',
                f'variable_shape="{",".join(shape)}"',
                right,
            )
