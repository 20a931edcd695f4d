//! Damaged and hostile files: validation never panics, hangs or takes memory without bound.
//!
//! Files that are sound are damaged at random, from a fixed seed. `OVIR_FUZZ_SECONDS=600` goes on for that long with a
//! seed from the clock; a file that makes validation panic or dawdle is written to the temporary folder.

use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ovir::Core;
use ovir::diagnostics::{Report, SourceText, render_human, render_json, render_sarif};
use ovir::ir::Weights;
use ovir::tensor::{Dim, PartialShape};

use super::compare::root;

/// Damaged files that an ordinary test run looks at.
const DAMAGED_FILES: usize = 3000;

/// The longest that one small file may take. Test machines are slow and busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// Texts that stand for numbers, and what they are likely to break.
const NUMBERS: &[&str] = &[
    "-1",
    "0",
    "1",
    "2",
    "3",
    "-2",
    "7",
    "255",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "-9223372036854775808",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999",
    "1e308",
    "-1e-320",
    "nan",
    "inf",
    "?",
    "1..",
    "3..2",
    "..5",
    "",
    "0x10",
    "+1",
];

/// Words that damage puts in the place of attribute values.
const WORDS: &[&str] = &[
    "f32",
    "i64",
    "i32",
    "f16",
    "u8",
    "boolean",
    "string",
    "u1",
    "i4",
    "nf4",
    "FP32",
    "I64",
    "BOOL",
    "dynamic",
    "opset1",
    "opset8",
    "opset13",
    "true",
    "false",
    "numpy",
    "pdpd",
    "none",
    "explicit",
    "same_upper",
    "valid",
    "Parameter",
    "Result",
    "Const",
    "Reshape",
    "Concat",
    "Gather",
    "MatMul",
    "Convolution",
    "Loop",
    "If",
    "TensorIterator",
    "ReadValue",
    "Assign",
    "Broadcast",
    "Range",
    "Tile",
    "Pad",
    "OneHot",
    "StridedSlice",
    "TopK",
    "Interpolate",
    "Split",
    "VariadicSplit",
    "ScatterUpdate",
    "LSTMSequence",
    "MaxPool",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "NonMaxSuppression",
    "Einsum",
    "SpaceToBatch",
    "Col2Im",
];

/// A sound file.
struct Seed {
    xml: Vec<u8>,
    weights: Vec<u8>,
}

/// Marsaglia's xorshift, so that damage is the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn pick<'t>(&mut self, words: &[&'t str]) -> &'t str {
        words[self.below(words.len())]
    }
}

#[test]
fn damaged_files_are_survived() {
    let seeds = seeds();
    assert!(seeds.len() > 20, "{} seeds", seeds.len());
    let seconds: Option<u64> = std::env::var("OVIR_FUZZ_SECONDS").ok().map(|text| text.parse().unwrap());
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut random = Random(if seconds.is_some() { clock | 1 } else { 0x9e37_79b9_7f4a_7c15 });
    let (start, mut count, mut failures) = (Instant::now(), 0usize, Vec::new());
    std::panic::set_hook(Box::new(|_| {}));
    loop {
        let is_over = seconds.map_or(count >= DAMAGED_FILES, |seconds| start.elapsed().as_secs() >= seconds);
        if is_over || failures.len() > 20 {
            break;
        }
        let seed = &seeds[random.below(seeds.len())];
        let (mut xml, mut weights) = (seed.xml.clone(), seed.weights.clone());
        for _ in 0..1 + random.below(4) {
            damage(&mut xml, &seeds, &mut random);
        }
        if random.below(4) == 0 {
            damage_weights(&mut weights, &mut random);
        }
        count += 1;
        let began = Instant::now();
        let shape = random.next();
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| look_at(&xml, &weights, shape)));
        if outcome.is_err() || began.elapsed() > PATIENCE {
            failures.push(keep(&xml, &weights, count, began.elapsed(), outcome.is_err()));
        }
    }
    drop(std::panic::take_hook());
    if seconds.is_some() {
        println!("{count} damaged files in {:?}", start.elapsed());
    }
    assert!(failures.is_empty(), "of {count} files:\n{}", failures.join("\n"));
}

/// Files that were made to be expensive, each in a way of its own.
#[test]
fn hostile_files_are_survived() {
    let many = |text: &dyn Fn(usize) -> String, count: usize| (0..count).map(text).collect::<String>();
    let relu = |id: usize| {
        format!(
            "<layer id=\"{id}\" name=\"{id}\" type=\"ReLU\" version=\"opset1\"><input><port id=\"0\"/></input>\
             <output><port id=\"1\" precision=\"FP32\"/></output></layer>"
        )
    };
    let edge = |from: usize, to: usize| {
        format!("<edge from-layer=\"{from}\" from-port=\"1\" to-layer=\"{to}\" to-port=\"0\"/>")
    };
    let net = |layers: &str, edges: &str| {
        format!("<net name=\"n\" version=\"11\"><layers>{layers}</layers><edges>{edges}</edges></net>")
    };
    let files = [
        ("deep XML", format!("<net version=\"11\">{}", "<a>".repeat(200_000))),
        ("many cycles", net(&many(&relu, 20_000), &many(&|i| edge(i, i), 20_000))),
        ("one long cycle", net(&many(&relu, 20_000), &many(&|i| edge(i, (i + 1) % 20_000), 20_000))),
        ("the same id", net(&many(&|_| relu(7), 20_000), "")),
        ("no edges", net(&many(&relu, 20_000), "")),
        ("edges to nowhere", net("", &many(&|i| edge(i, i + 1), 20_000))),
        (
            "many ports",
            net(
                &wide_layer(60_000),
                &many(&|i| format!("<edge from-layer=\"1\" from-port=\"1\" to-layer=\"0\" to-port=\"{i}\"/>"), 60_000),
            ),
        ),
        ("nested loops", nested_loops(20)),
        ("long name", net(&relu(0).replace("name=\"0\"", &format!("name=\"{}\"", "x".repeat(5_000_000))), "")),
        (
            "many attributes",
            net(
                &relu(0).replace("<input>", &format!("<data {}/><input>", many(&|i| format!("a{i}=\"1\" "), 4_000))),
                "",
            ),
        ),
        (
            "entities",
            format!(
                "<!DOCTYPE a [<!ENTITY b \"{}\"><!ENTITY c \"&b;&b;\">]>{}",
                "x".repeat(1000),
                net("", "").replace("\"n\"", "\"&c;&c;\"")
            ),
        ),
        (
            "huge constant",
            net(
                "<layer id=\"0\" name=\"c\" type=\"Const\" version=\"opset1\"><data element_type=\"u8\" shape=\"9223372036854775807\" offset=\"0\" size=\"9223372036854775807\"/><output><port id=\"1\" precision=\"U8\"/></output></layer>",
                "",
            ),
        ),
    ];
    let mut failures = String::new();
    for (name, xml) in files {
        let began = Instant::now();
        look_at(xml.as_bytes(), b"", 1);
        if began.elapsed() > PATIENCE {
            let _ = writeln!(failures, "{name} takes {:?}", began.elapsed());
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// All that the validator does with a file, and a reshape of what is sound.
fn look_at(xml: &[u8], weights: &[u8], shape: u64) {
    let core = Core::new();
    let validation = core.validate_memory(xml, Some(&Weights::from_bytes(weights.to_vec())), false);
    let report = Report::new("m.xml", Some(SourceText::new(&validation.xml)), validation.diagnostics.clone());
    let reports = [report];
    // Renderers take no part in the time, which is about validation; a few findings are enough for them.
    if validation.diagnostics.len() < 100 {
        std::hint::black_box((render_human(&reports, false), render_json(&reports), render_sarif(&reports)));
    }
    assert!(validation.is_valid() || !validation.diagnostics.is_empty());
    drop(reports);
    let Ok(model) = validation.into_model(None) else { return };
    let dims = (0..shape % 5).map(|axis| match (shape >> (8 * axis)) % 4 {
        0 => Dim::DYNAMIC,
        1 => Dim::fixed((shape >> 16) as usize % 40),
        2 => Dim::interval(1, 8),
        _ => Dim::fixed(1 << ((shape >> 20) % 63)),
    });
    let shapes = [(0, PartialShape::from_dims(dims))];
    if let Ok(reshaped) = ovir::graph::reshape(model.graph(), &shapes) {
        let after = ovir::graph::validate(reshaped, Vec::new());
        std::hint::black_box(ovir::graph::blockers(model.validated(), &after));
    }
}

/// The small sound files of the repository.
fn seeds() -> Vec<Seed> {
    const LARGEST: u64 = 40_000;
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut pending =
        vec![root().join("tests/models"), root().join("tests/cli/models"), root().join("tests/cli/codes")];
    while let Some(folder) = pending.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|e| e == "xml") && path.metadata().unwrap().len() < LARGEST {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths.iter().map(|path| seed(path)).collect()
}

fn seed(path: &Path) -> Seed {
    let weights = std::fs::read(path.with_extension("bin")).unwrap_or_default();
    Seed { xml: std::fs::read(path).unwrap(), weights }
}

fn damage(xml: &mut Vec<u8>, seeds: &[Seed], random: &mut Random) {
    if xml.is_empty() {
        return;
    }
    let at = random.below(xml.len());
    match random.below(9) {
        0 => xml[at] ^= 1 << random.below(8),
        1 => drop(xml.drain(at..xml.len().min(at + 1 + random.below(40)))),
        2 => xml.truncate(at),
        3 => {
            let line = line_at(xml, at);
            let copy = xml[line.clone()].to_vec();
            drop(xml.splice(line.start..line.start, copy));
        }
        4 => {
            let (first, second) = (line_at(xml, at), line_at(xml, random.below(xml.len())));
            let copy = xml[first].to_vec();
            drop(xml.splice(second, copy));
        }
        5 => {
            let other = &seeds[random.below(seeds.len())].xml;
            let line = line_at(other, random.below(other.len()));
            drop(xml.splice(at..at, other[line].to_vec()));
        }
        6 => drop(xml.drain(line_at(xml, at))),
        7 => replace(xml, at, |b| b.is_ascii_digit(), random.pick(NUMBERS)),
        _ => replace(xml, at, |b| b != b'"' && b != b'<' && b != b'>', {
            let words = if random.below(2) == 0 { WORDS } else { NUMBERS };
            random.pick(words)
        }),
    }
}

fn line_at(text: &[u8], at: usize) -> std::ops::Range<usize> {
    let start = text[..at].iter().rposition(|b| *b == b'\n').map_or(0, |p| p + 1);
    let end = text[at..].iter().position(|b| *b == b'\n').map_or(text.len(), |p| at + p + 1);
    start..end
}

/// Replaces the token near `at` that consists of bytes of a kind.
fn replace(text: &mut Vec<u8>, at: usize, is_part: impl Fn(u8) -> bool, new: &str) {
    let Some(start) = text[at..].iter().position(|b| is_part(*b)).map(|p| at + p) else { return };
    let length = text[start..].iter().position(|b| !is_part(*b)).unwrap_or(text.len() - start);
    drop(text.splice(start..start + length, new.bytes()));
}

fn damage_weights(weights: &mut Vec<u8>, random: &mut Random) {
    if weights.is_empty() {
        return;
    }
    let at = random.below(weights.len());
    match random.below(3) {
        0 => weights[at] ^= 1 << random.below(8),
        1 => weights.truncate(at),
        _ => {
            let value = random.next().to_le_bytes();
            for (byte, new) in weights[at..].iter_mut().zip(value) {
                *byte = new;
            }
        }
    }
}

/// Keeps a file that was not survived.
fn keep(xml: &[u8], weights: &[u8], count: usize, took: Duration, is_panic: bool) -> String {
    let path = std::env::temp_dir().join(format!("ovir-damaged-{}-{count}.xml", std::process::id()));
    std::fs::write(&path, xml).unwrap();
    std::fs::write(path.with_extension("bin"), weights).unwrap();
    format!("{}: {} after {took:?}", path.display(), if is_panic { "panic" } else { "too slow" })
}

fn wide_layer(ports: usize) -> String {
    let inputs: String = (0..ports).map(|port| format!("<port id=\"{port}\"/>")).collect();
    format!(
        "<layer id=\"0\" name=\"wide\" type=\"Concat\" version=\"opset1\"><data axis=\"0\"/><input>{inputs}</input>\
         <output><port id=\"1\" precision=\"FP32\"/></output></layer>\
         <layer id=\"1\" name=\"x\" type=\"Parameter\" version=\"opset1\"><data shape=\"3\" element_type=\"f32\"/>\
         <output><port id=\"1\" precision=\"FP32\"/></output></layer>"
    )
}

/// Loops in loops, each inferred until its shapes settle.
fn nested_loops(depth: usize) -> String {
    let mut body = body_of(
        "<layer id=\"3\" name=\"r\" type=\"ReLU\" version=\"opset1\"><input><port id=\"0\"/></input>\
        <output><port id=\"1\" precision=\"FP32\"/></output></layer>",
        "from-layer=\"0\" from-port=\"0\" to-layer=\"3\" to-port=\"0\"",
        1,
    );
    for _ in 0..depth {
        let layer = format!(
            "<layer id=\"3\" name=\"loop\" type=\"TensorIterator\" version=\"opset1\"><input><port id=\"0\"/></input>\
             <output><port id=\"1\" precision=\"FP32\"/></output>\
             <port_map><input external_port_id=\"0\" internal_layer_id=\"0\"/>\
             <output external_port_id=\"1\" internal_layer_id=\"4\"/></port_map>\
             <back_edges><edge from-layer=\"4\" to-layer=\"0\"/></back_edges><body>{body}</body></layer>"
        );
        body = body_of(&layer, "from-layer=\"0\" from-port=\"0\" to-layer=\"3\" to-port=\"0\"", 1);
    }
    format!("<net name=\"n\" version=\"11\">{body}</net>")
}

fn body_of(layer: &str, edge: &str, port: usize) -> String {
    format!(
        "<layers><layer id=\"0\" name=\"x\" type=\"Parameter\" version=\"opset1\"><data shape=\"?,2\" element_type=\"f32\"/>\
         <output><port id=\"0\" precision=\"FP32\"/></output></layer>{layer}\
         <layer id=\"4\" name=\"y\" type=\"Result\" version=\"opset1\"><input><port id=\"0\"/></input></layer></layers>\
         <edges><edge {edge}/><edge from-layer=\"3\" from-port=\"{port}\" to-layer=\"4\" to-port=\"0\"/></edges>"
    )
}
