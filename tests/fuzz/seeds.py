"""Makes the seeds of the fuzz targets, from the golden packs and the models of the tests, and words for mutations.

    python tests/fuzz/seeds.py      # writes tests/fuzz/seeds and tests/fuzz/words.dict
"""

import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
SEEDS = Path(__file__).resolve().parent / "seeds"
# Larger files make slow and shallow fuzzing.
MOST_BYTES = 4_000
CASES_PER_PACK = 6
NUMBERS = ["-1", "0", "1", "2147483648", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "nan"]


def models():
    """Yields a name, the XML and the weights of every model that there is."""
    for pack in sorted((ROOT / "tests/golden").glob("*.zip")):
        with zipfile.ZipFile(pack) as archive:
            cases = sorted({name.split("/")[0] for name in archive.namelist() if name.endswith("/model.xml")})
            # Spread over the pack: neighbours are alike.
            for case in cases[:: max(1, len(cases) // CASES_PER_PACK)]:
                binary = f"{case}/model.bin"
                weights = archive.read(binary) if binary in archive.namelist() else b""
                yield f"{pack.stem}-{case}", archive.read(f"{case}/model.xml"), weights
    for xml in sorted(ROOT.glob("tests/models*/*/model.xml")):
        binary = xml.with_suffix(".bin")
        yield xml.parent.name, xml.read_bytes(), binary.read_bytes() if binary.exists() else b""


def layer_text(net):
    """The layer of a model that is no Parameter, constant or Result, in the text of the target `attributes`."""
    layers = net.findall("./layers/layer")
    inner = [layer for layer in layers if layer.get("type") not in ("Parameter", "Const", "Result")]
    if len(inner) != 1 or inner[0].find("body") is not None:
        return None
    producers = {edge.get("to-port"): edge.get("from-layer") for edge in net.findall("./edges/edge")
                 if edge.get("to-layer") == inner[0].get("id")}
    by_id = {layer.get("id"): layer for layer in layers}
    lines = [f"{inner[0].get('type')} {inner[0].get('version')}"]
    for port in inner[0].findall("./input/port"):
        data = by_id[producers[port.get("id")]].find("data")
        constant = ":1,0,2" if by_id[producers[port.get("id")]].get("type") == "Const" else ""
        lines.append(f"<{data.get('element_type')} {data.get('shape')}{constant}")
    for port in inner[0].findall("./output/port"):
        lines.append(f">{port.get('precision').lower().replace('fp', 'f')} " + ",".join(d.text for d in port.findall("dim")))
    data = inner[0].find("data")
    lines += [f"{name}={value}" for name, value in (data.attrib if data is not None else {}).items()]
    return "\n".join(lines)


def words():
    """Words of the format and of the operations, for the mutations."""
    source = "".join(path.read_text() for path in (ROOT / "crates/ops/src").rglob("*.rs"))
    types = re.findall(r'specified\("(\w+)"', source)
    names = re.findall(r': [^=]+ = "(\w+)",', source)
    tags = ["<layer ", "<edge ", "<port ", "<dim>", "<data ", "<body>", "<port_map>", "<back_edges>", "<rt_info>"]
    return sorted(set(types + names + NUMBERS + tags + [f"opset{n}" for n in range(1, 18)]))


def dense(xml):
    """The XML without the white space between elements, so that a file of several layers is small."""
    return re.sub(rb">\s+<", b"><", xml)


def write(target, name, content):
    """Writes a seed unless it is too large."""
    if len(content) <= MOST_BYTES:
        folder = SEEDS / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def main():
    """Writes everything."""
    for name, xml, weights in models():
        write("xml", name, dense(xml))
        write("weights", name, dense(xml).rstrip() + weights)
        write("run", name, dense(xml).rstrip() + weights)
        text = layer_text(ElementTree.fromstring(xml))
        if text is not None:
            write("attributes", name, text.encode())
    # Bytes name operations and inputs there, so that any will do.
    for number in range(256):
        write("inference", f"{number:03}", bytes((number, 0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 1, 2, 1, 0, 3, 1, 2, 1)))
    escaped = (re.sub(r'(["\\])', r"\\\1", word) for word in words())
    (SEEDS.parent / "words.dict").write_text("".join(f'"{word}"\n' for word in escaped))


if __name__ == "__main__":
    main()
