#!/usr/bin/env python3
"""Writes a large synthetic IR without weights, to measure how fast IR files are read.

    python3 tools/big_ir.py OUT.xml [LAYERS]

The default of 45000 layers gives about 22 MB: a chain of Clamp layers, with the tensor names and attributes
that converters write. The result is a sound model.
"""

import argparse
from pathlib import Path


def dims(indent, sizes):
    return "".join(f"{indent}<dim>{size}</dim>\n" for size in sizes)


def port(number, names=""):
    names = f' names="{names}"' if names else ""
    return (
        f'\t\t\t\t<port id="{number}" precision="FP32"{names}>\n'
        + dims("\t\t\t\t\t", (1, 64, 56, 56))
        + "\t\t\t\t</port>\n"
    )


def layer(number):
    name = f"/encoder/block.{number // 10}/layer.{number}/Clamp"
    return (
        f'\t\t<layer id="{number}" name="{name}" type="Clamp" version="opset1">\n'
        '\t\t\t<data min="0" max="6" />\n'
        "\t\t\t<input>\n" + port(0) + "\t\t\t</input>\n"
        "\t\t\t<output>\n" + port(1, f"{name}_output_0") + "\t\t\t</output>\n"
        "\t\t</layer>\n"
    )


def edge(source, source_port, target, target_port):
    return f'\t\t<edge from-layer="{source}" from-port="{source_port}" to-layer="{target}" to-port="{target_port}" />\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="the file to write")
    parser.add_argument("layers", type=int, nargs="?", default=45000)
    arguments = parser.parse_args()
    last = arguments.layers + 1
    with arguments.out.open("w", encoding="utf-8") as out:
        out.write('<?xml version="1.0"?>\n<net name="big" version="11">\n\t<layers>\n')
        out.write('\t\t<layer id="0" name="x" type="Parameter" version="opset1">\n')
        out.write('\t\t\t<data shape="1,64,56,56" element_type="f32" />\n\t\t\t<output>\n')
        out.write(port(0, "x") + "\t\t\t</output>\n\t\t</layer>\n")
        for number in range(1, last):
            out.write(layer(number))
        out.write(f'\t\t<layer id="{last}" name="y" type="Result" version="opset1">\n\t\t\t<input>\n')
        out.write(port(0) + "\t\t\t</input>\n\t\t</layer>\n\t</layers>\n\t<edges>\n")
        for number in range(1, last):
            out.write(edge(number - 1, 0 if number == 1 else 1, number, 0))
        out.write(edge(last - 1, 1, last, 0))
        out.write("\t</edges>\n\t<rt_info />\n</net>\n")


if __name__ == "__main__":
    main()
