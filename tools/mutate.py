#!/usr/bin/env python3
"""Damages sound models, one damage each, and tabulates what ovir and OpenVINO say to every copy.

  mutate.py make FOLDER [--base MODEL.xml ...] [--per-class 2]   writes the copies and FOLDER/manifest.json
  mutate.py check FOLDER [--ovir target/release/ovir]            judges ovir's findings
  mutate.py openvino FOLDER                                      asks OpenVINO to read and compile every copy
  mutate.py table FOLDER                                         both verdicts by class, as Markdown

A copy counts as found if `ovir validate` gives a finding of the right code on a line of the damage, and at most one
further finding.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys

from damages import DAMAGES, Model

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASES = [
    "models/digits", "models/karate", "models/chardecoder", "tests/models/if_two_branches",
    "tests/models/loop_growing_concat", "tests/models/tensor_iterator_lstm", "tests/models/kv_state_32mb",
    "tests/models/dynamic_shapes", "tests/models/growing_decoder",
]  # fmt: skip
ANSWER = """
import sys, openvino
core = openvino.Core()
for line in sys.stdin:
    try:
        verdict = "read"
        model = core.read_model(line.strip())
        verdict = "compile"
        core.compile_model(model, "CPU")
        verdict = "accepted"
    except Exception as error:
        verdict += ": " + str(error).strip().splitlines()[-1][:300]
    print("VERDICT", verdict, flush=True)
"""


def make(options):
    options.folder.mkdir(parents=True, exist_ok=True)
    bases = [pathlib.Path(b) for b in options.base] or [ROOT / b / "model.xml" for b in BASES]
    manifest = []
    for base in bases:
        model = Model(base)
        for index, (kind, codes, function) in enumerate(DAMAGES):
            taken, seen = 0, set()
            for damaged in function(model):
                if damaged is None or damaged.what in seen:
                    continue
                seen.add(damaged.what)
                name = f"{base.parent.name}-{index:02}-{taken}"
                write(options.folder, name, base, damaged)
                manifest.append({
                    "name": name, "base": base.parent.name, "class": kind, "what": damaged.what,
                    "codes": sorted(set(codes)), "lines": sorted(damaged.lines),
                })  # fmt: skip
                taken += 1
                if taken == options.per_class:
                    break
    (options.folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
    print(f"{len(manifest)} damaged models of {len(bases)} bases, {len({m['class'] for m in manifest})} classes")


def write(folder, name, base, damaged):
    (folder / f"{name}.xml").write_bytes(damaged.text.encode("utf-8", "surrogateescape"))
    weights = folder / f"{name}.bin"
    weights.unlink(missing_ok=True)
    if isinstance(damaged.weights, bytes):
        weights.write_bytes(damaged.weights)
    elif damaged.weights is None and base.with_suffix(".bin").exists():
        weights.symlink_to(base.with_suffix(".bin").resolve())


def check(options):
    manifest = json.loads((options.folder / "manifest.json").read_text())
    failures = 0
    for entry in manifest:
        file = options.folder / f"{entry['name']}.xml"
        command = [options.ovir, "validate", "--format", "json", str(file)]
        result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        findings = json.loads(result.stdout)["reports"][0]["diagnostics"] if result.returncode in (0, 1) else []
        entry["ovir"] = judge(entry, findings, result.returncode)
        entry["findings"] = [
            f"{f['code']} {f['severity']} line {(f['location'] or {}).get('start', {}).get('line')}: {f['message']}"
            for f in findings
        ]
        if entry["ovir"] != "found":
            failures += 1
            print(
                f"{entry['name']}  {entry['class']}  {entry['what']}\n  {entry['ovir']}; expected {entry['codes']} on {shown(entry['lines'])}"
            )
            for finding in entry["findings"][:4]:
                print(f"    {finding[:220]}")
    (options.folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
    print(f"{len(manifest)} damaged models, {failures} not found as they should be")
    return 1 if failures else 0


def judge(entry, findings, code):
    if code not in (0, 1):
        return f"exit code {code}"
    if not findings:
        return "silent"
    lines = [(f["code"], ((f["location"] or {}).get("start") or {}).get("line")) for f in findings]
    right = [i for i, (c, line) in enumerate(lines) if c in entry["codes"] and (line in entry["lines"] or line is None)]
    if not right:
        return "wrong line" if any(c in entry["codes"] for c, _ in lines) else "wrong code"
    return "found" if len(findings) <= 2 else f"{len(findings)} findings"


def shown(lines):
    return lines if len(lines) < 6 else f"{lines[0]}..{lines[-1]}"


def openvino(options):
    """Asks one child process after another: OpenVINO crashes on some copies."""
    manifest = json.loads((options.folder / "manifest.json").read_text())
    child = None
    for entry in manifest:
        if child is None:
            command = [sys.executable, "-c", ANSWER]
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        child.stdin.write(f"{options.folder / entry['name']}.xml\n")
        child.stdin.flush()
        lines = iter(child.stdout.readline, "")
        entry["openvino"] = next((x[8:].strip() for x in lines if x.startswith("VERDICT ")), None)
        if entry["openvino"] is None:
            entry["openvino"] = f"crash: {child.wait()}"
            child = None
    if child is not None:
        child.stdin.close()
        child.wait()
    (options.folder / "manifest.json").write_text(json.dumps(manifest, indent=1))


def table(options):
    manifest = json.loads((options.folder / "manifest.json").read_text())
    rows = collections.defaultdict(collections.Counter)
    for entry in manifest:
        row = rows[entry["class"]]
        row["all"] += 1
        row["found"] += entry.get("ovir") == "found"
        row[entry.get("openvino", "not asked").split(":")[0]] += 1
    print(
        "| damage | copies | ovir: right code and line | OpenVINO: refused by read_model | by compile_model | accepted | crashed |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        cells = [row[k] for k in ("all", "found", "read", "compile", "accepted", "crash")]
        print(f"| {name} | {' | '.join(map(str, cells))} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=["make", "check", "openvino", "table"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--base", action="append", default=[])
    parser.add_argument("--per-class", type=int, default=2)
    parser.add_argument("--ovir", default=str(ROOT / "target" / "release" / "ovir"))
    options = parser.parse_args()
    return {"make": make, "check": check, "openvino": openvino, "table": table}[options.verb](options)


if __name__ == "__main__":
    sys.exit(main())
