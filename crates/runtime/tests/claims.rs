//! Every claimed operation against its reference evaluation, over shapes drawn at random.

// Everything here is test code, helpers included.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::fmt::Write as _;
use std::sync::Arc;

use ovir_graph::{BuildOptions, build, validate};
use ovir_ir::{Weights, read_document};
use ovir_ops::Registry;
use ovir_runtime::{CompileOptions, Compiled, Request};
use ovir_tensor::{ElementType, Shape, Tensor, f16};

/// A generator of numbers (xorshift), so that failures repeat.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn between(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() >> 20) as usize % (high - low + 1)
    }

    fn shape(&mut self, rank: usize) -> Vec<usize> {
        let most = [1, 700, 40, 12, 8, 5][rank.min(5)];
        (0..rank).map(|_| if self.between(0, 30) == 0 { 0 } else { self.between(1, most) }).collect()
    }

    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 22) as f32 - 2.0
    }

    fn tensor(&mut self, element_type: ElementType, shape: &[usize]) -> Tensor {
        let shape = Shape::from_slice(shape);
        let n = shape.elements();
        let mut integer = |low: i64, high: i64| low + (self.next() >> 20) as i64 % (high - low + 1);
        match element_type {
            ElementType::I32 => Tensor::from_slice(&(0..n).map(|_| integer(-9, 9) as i32).collect::<Vec<_>>(), shape),
            ElementType::I64 => Tensor::from_slice(&(0..n).map(|_| integer(-9, 9)).collect::<Vec<_>>(), shape),
            ElementType::I8 => Tensor::from_slice(&(0..n).map(|_| integer(-128, 127) as i8).collect::<Vec<_>>(), shape),
            ElementType::U8 => Tensor::from_slice(&(0..n).map(|_| integer(0, 255) as u8).collect::<Vec<_>>(), shape),
            ElementType::Boolean => {
                Tensor::from_booleans(&(0..n).map(|_| integer(0, 1) == 1).collect::<Vec<_>>(), shape)
            }
            ElementType::F16 => {
                Tensor::from_slice(&(0..n).map(|_| f16::from_f32(self.float())).collect::<Vec<_>>(), shape)
            }
            ElementType::F64 => Tensor::from_slice(&(0..n).map(|_| f64::from(self.float())).collect::<Vec<_>>(), shape),
            _ => Tensor::from_slice(&(0..n).map(|_| self.float()).collect::<Vec<_>>(), shape),
        }
        .unwrap()
    }
}

/// The name of an element type in a port. Ports of other layers declare what is wrong, which is only a warning.
fn precision(element_type: ElementType) -> &'static str {
    match element_type {
        ElementType::Boolean => "BOOL",
        ElementType::F16 => "FP16",
        ElementType::F64 => "FP64",
        ElementType::I8 => "I8",
        ElementType::U8 => "U8",
        ElementType::I32 => "I32",
        ElementType::I64 => "I64",
        _ => "FP32",
    }
}

/// One layer and what it is given.
struct Case {
    opset: &'static str,
    type_name: &'static str,
    attributes: Vec<(&'static str, String)>,
    /// The tensors, and whether they are constants of the model.
    inputs: Vec<(Tensor, bool)>,
    outputs: usize,
    /// Whether no dimension of a Parameter is declared.
    dynamic: bool,
    /// Whether inputs come out of a layer, so that the kernel may take over their memory.
    through: bool,
    tolerance: f64,
}

impl Case {
    fn new(opset: &'static str, type_name: &'static str) -> Case {
        Case {
            opset,
            type_name,
            attributes: Vec::new(),
            inputs: Vec::new(),
            outputs: 1,
            dynamic: false,
            through: false,
            tolerance: 2e-5,
        }
    }

    fn attribute(mut self, name: &'static str, value: impl ToString) -> Case {
        self.attributes.push((name, value.to_string()));
        self
    }

    fn input(mut self, tensor: Tensor) -> Case {
        self.inputs.push((tensor, false));
        self
    }

    fn constant(mut self, tensor: Tensor) -> Case {
        self.inputs.push((tensor, true));
        self
    }

    fn integers(self, values: &[i64]) -> Case {
        self.constant(Tensor::from_slice(values, [values.len()]).unwrap())
    }

    fn integer(self, value: i64) -> Case {
        self.constant(Tensor::from_slice(&[value], Shape::default()).unwrap())
    }

    fn outputs(mut self, count: usize) -> Case {
        self.outputs = count;
        self
    }

    fn tolerance(mut self, tolerance: f64) -> Case {
        self.tolerance = tolerance;
        self
    }

    fn xml(&self) -> (String, Vec<u8>) {
        let (mut layers, mut edges, mut bin) = (String::new(), String::new(), Vec::new());
        for (i, (tensor, constant)) in self.inputs.iter().enumerate() {
            let (kind, shape) = (tensor.element_type(), tensor.shape());
            let dims: Vec<String> =
                shape.iter().map(|d| if self.dynamic && !constant { "?".into() } else { d.to_string() }).collect();
            let dims = dims.join(",");
            let ports: String = match constant {
                true => shape.iter().map(|d| format!("<dim>{d}</dim>")).collect(),
                false => dims
                    .split(',')
                    .filter(|d| !d.is_empty())
                    .map(|d| format!("<dim>{}</dim>", if d == "?" { "-1" } else { d }))
                    .collect(),
            };
            let output = format!("<output><port id=\"0\" precision=\"{}\">{ports}</port></output>", precision(kind));
            if *constant {
                let (offset, size) = (bin.len(), tensor.bytes().len());
                bin.extend_from_slice(tensor.bytes());
                bin.resize(bin.len().next_multiple_of(64), 0);
                write!(layers, "<layer id=\"{i}\" name=\"c{i}\" type=\"Const\" version=\"opset1\"><data element_type=\"{kind}\" shape=\"{dims}\" offset=\"{offset}\" size=\"{size}\"/>{output}</layer>").unwrap();
            } else {
                write!(layers, "<layer id=\"{i}\" name=\"p{i}\" type=\"Parameter\" version=\"opset1\"><data element_type=\"{kind}\" shape=\"{dims}\"/>{output}</layer>").unwrap();
            }
            let through = match kind {
                _ if *constant || !self.through => None,
                ElementType::Boolean => Some("LogicalNot"),
                ElementType::U8 => None,
                _ => Some("Negative"),
            };
            match through {
                Some(name) => {
                    let id = 50 + i;
                    write!(layers, "<layer id=\"{id}\" name=\"t{i}\" type=\"{name}\" version=\"opset1\"><input><port id=\"0\"/></input><output><port id=\"1\" precision=\"FP32\"/></output></layer>").unwrap();
                    write!(edges, "<edge from-layer=\"{i}\" from-port=\"0\" to-layer=\"{id}\" to-port=\"0\"/><edge from-layer=\"{id}\" from-port=\"1\" to-layer=\"100\" to-port=\"{i}\"/>").unwrap();
                }
                None => write!(edges, "<edge from-layer=\"{i}\" from-port=\"0\" to-layer=\"100\" to-port=\"{i}\"/>")
                    .unwrap(),
            }
        }
        let mut data = String::new();
        self.attributes.iter().for_each(|(name, value)| write!(data, " {name}=\"{value}\"").unwrap());
        let inputs: String = (0..self.inputs.len()).map(|i| format!("<port id=\"{i}\"/>")).collect();
        let outputs: String =
            (0..self.outputs).map(|o| format!("<port id=\"{}\" precision=\"FP32\"/>", 200 + o)).collect();
        write!(layers, "<layer id=\"100\" name=\"op\" type=\"{}\" version=\"{}\"><data{data}/><input>{inputs}</input><output>{outputs}</output></layer>", self.type_name, self.opset).unwrap();
        for o in 0..self.outputs {
            write!(layers, "<layer id=\"{}\" name=\"r{o}\" type=\"Result\" version=\"opset1\"><input><port id=\"0\"/></input></layer>", 300 + o).unwrap();
            write!(
                edges,
                "<edge from-layer=\"100\" from-port=\"{}\" to-layer=\"{}\" to-port=\"0\"/>",
                200 + o,
                300 + o
            )
            .unwrap();
        }
        let xml = format!(
            "<?xml version=\"1.0\"?><net name=\"case\" version=\"11\"><layers>{layers}</layers><edges>{edges}</edges></net>"
        );
        (xml, bin)
    }

    /// The outputs, and whether the layer ran in a kernel.
    fn run(&self, reference_only: bool) -> Result<(Vec<Tensor>, bool), String> {
        let (xml, bin) = self.xml();
        let (document, diagnostics) = read_document(xml.as_bytes());
        let weights = Weights::from_bytes(bin);
        let built = build(document.unwrap(), Some(&weights), &Registry::default(), BuildOptions::default());
        let earlier = diagnostics.into_iter().chain(built.diagnostics).collect();
        let validated = validate(built.model, earlier).into_validated().map_err(|d| format!("{d:?}"))?;
        let options = CompileOptions { threads: 2, reference_only, ..CompileOptions::default() };
        let compiled = Compiled::new(validated, &options).map_err(|e| e.to_string())?;
        let mut request = Request::new(Arc::new(compiled));
        request.set_profiling(true);
        for (index, (tensor, _)) in self.inputs.iter().filter(|(_, constant)| !constant).enumerate() {
            request.set_input(index, tensor.clone()).map_err(|e| e.to_string())?;
        }
        for _ in 0..2 {
            request.infer().map_err(|e| e.to_string())?;
        }
        let kernel =
            request.profile().is_some_and(|p| p.entries.iter().any(|e| e.friendly_name == "op" && e.is_kernel));
        Ok(((0..self.outputs).map(|o| request.output(o).unwrap().clone()).collect(), kernel))
    }

    /// Compares both ways for static and dynamic shapes, from inputs and from layers. Returns whether a kernel ran.
    fn check(mut self) -> bool {
        let (mut claimed, mut errors) = (false, Vec::new());
        for (dynamic, through) in [(false, false), (true, false), (false, true)] {
            self.dynamic = dynamic;
            self.through = through;
            let what = format!(
                "{} {:?} of {:?}, dynamic {dynamic}, through {through}",
                self.type_name,
                self.attributes,
                self.inputs
                    .iter()
                    .map(|(t, c)| format!("{}{}{}", t.element_type(), t.shape(), if *c { "=" } else { "" }))
                    .collect::<Vec<_>>()
            );
            match (self.run(true), self.run(false)) {
                (Ok((expected, _)), Ok((actual, kernel))) => {
                    claimed |= kernel;
                    for (expected, actual) in expected.iter().zip(&actual) {
                        compare(expected, actual, self.tolerance, &what);
                    }
                }
                (Err(error), Err(_)) => errors.push(error),
                (Err(error), Ok(_)) => panic!("{what}: only the reference fails: {error}"),
                (Ok(_), Err(error)) => panic!("{what}: only the kernel fails: {error}"),
            }
        }
        if !claimed {
            println!("{}: no kernel ran: {errors:?}", self.type_name);
        }
        claimed
    }
}

fn compare(expected: &Tensor, actual: &Tensor, tolerance: f64, what: &str) {
    assert_eq!(expected.shape(), actual.shape(), "{what}");
    assert_eq!(expected.element_type(), actual.element_type(), "{what}");
    let check = |i: usize, e: f64, a: f64| {
        let same = e == a || (e.is_nan() && a.is_nan()) || (e - a).abs() <= tolerance * (1.0 + e.abs());
        assert!(same, "{what}: element {i} is {a}, the reference has {e}");
    };
    match expected.element_type() {
        ElementType::F32 => {
            let (e, a) = (expected.slice::<f32>().unwrap(), actual.slice::<f32>().unwrap());
            e.iter().zip(a).enumerate().for_each(|(i, (e, a))| check(i, f64::from(*e), f64::from(*a)));
        }
        ElementType::F64 => {
            let (e, a) = (expected.slice::<f64>().unwrap(), actual.slice::<f64>().unwrap());
            e.iter().zip(a).enumerate().for_each(|(i, (e, a))| check(i, *e, *a));
        }
        _ => assert_eq!(expected.bytes(), actual.bytes(), "{what}"),
    }
}

/// Runs many cases; at least one of them must have run in a kernel.
fn many(seed: u64, count: usize, mut make: impl FnMut(&mut Random, usize) -> Case) {
    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ seed);
    let mut claimed = 0;
    for round in 0..count {
        claimed += usize::from(make(&mut random, round).check());
    }
    assert!(claimed > count / 4, "only {claimed} of {count} cases ran in a kernel");
}

fn thinned(random: &mut Random, shape: &[usize]) -> Vec<usize> {
    let drop = random.between(0, shape.len());
    let keep = |random: &mut Random, d: usize| if random.between(0, 2) == 0 { 1 } else { d };
    let thin: Vec<usize> = shape.iter().map(|d| keep(random, *d)).collect();
    if random.between(0, 1) == 0 { thin } else { thin[drop..].to_vec() }
}

#[test]
fn binary_functions() {
    const TYPES: [ElementType; 4] = [ElementType::F32, ElementType::I32, ElementType::I64, ElementType::U8];
    let names = [
        "Add",
        "Subtract",
        "Multiply",
        "Divide",
        "Maximum",
        "Minimum",
        "SquaredDifference",
        "Mod",
        "FloorMod",
        "Power",
    ];
    many(1, 90, |random, round| {
        let rank = random.between(0, 5);
        let shape = random.shape(rank);
        let element_type = if round % 2 == 0 { ElementType::F32 } else { TYPES[random.between(0, 3)] };
        let (a, b) = (random.tensor(element_type, &shape), thinned(random, &shape));
        let b = random.tensor(element_type, &b);
        let name = names[round % names.len()];
        let case = Case::new("opset1", name).tolerance(2e-6);
        if random.between(0, 2) == 0 && name != "Power" { case.input(b).input(a) } else { case.input(a).input(b) }
    });
}

#[test]
fn inverse_functions() {
    many(72, 40, |random, round| {
        let (opset, name) = [
            ("opset1", "Acos"),
            ("opset1", "Asin"),
            ("opset4", "Acosh"),
            ("opset17", "ErfInv"),
            ("opset1", "Tan"),
            ("opset1", "Atan"),
            ("opset1", "Sinh"),
            ("opset1", "Cosh"),
            ("opset4", "Asinh"),
            ("opset4", "Atanh"),
        ][round % 10];
        let rank = random.between(0, 4);
        let shape = random.shape(rank);
        Case::new(opset, name).tolerance(4e-7).input(random.tensor(ElementType::F32, &shape))
    });
}

#[test]
fn simple_powers() {
    many(2, 10, |random, round| {
        let exponent = Tensor::from_slice(&[[2f32, -1.0, 1.0, 3.0, 0.5][round % 5]], Shape::default()).unwrap();
        Case::new("opset1", "Power").input(random.tensor(ElementType::F32, &[3, 70])).constant(exponent)
    });
}

#[test]
fn comparisons_and_logic() {
    const TYPES: [ElementType; 4] = [ElementType::F32, ElementType::I32, ElementType::I64, ElementType::U8];
    let names =
        ["Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "LogicalAnd", "LogicalOr", "LogicalXor"];
    many(3, 45, |random, round| {
        let name = names[round % names.len()];
        let element_type = if name.starts_with("Logical") { ElementType::Boolean } else { TYPES[random.between(0, 3)] };
        let rank = random.between(0, 5);
        let shape = random.shape(rank);
        let b = thinned(random, &shape);
        Case::new("opset1", name).input(random.tensor(element_type, &shape)).input(random.tensor(element_type, &b))
    });
}

#[test]
fn prelu_slopes() {
    many(4, 12, |random, round| {
        let rank = random.between(2, 4);
        let shape = random.shape(rank);
        let slope = if round % 2 == 0 { vec![shape[1]] } else { vec![1] };
        Case::new("opset1", "PRelu")
            .input(random.tensor(ElementType::F32, &shape))
            .input(random.tensor(ElementType::F32, &slope))
    });
}

#[test]
fn transposed_convolutions() {
    many(5, 24, |random, round| {
        let axes = random.between(1, 3);
        let list = |random: &mut Random, low: usize, high: usize| -> Vec<usize> {
            (0..axes).map(|_| random.between(low, high)).collect()
        };
        let text = |items: &[usize]| items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let (stride, kernel) = (list(random, 1, 3), list(random, 1, 4));
        let dilation = list(random, 1, 2);
        let pads = list(random, 0, 1);
        let spatial = list(random, 2, 7);
        let (groups, inputs, outputs) = (random.between(1, 3), random.between(1, 4), random.between(1, 5));
        let grouped = round % 2 == 1;
        let groups = if grouped { groups } else { 1 };
        let data: Vec<usize> = [random.between(1, 2), groups * inputs].into_iter().chain(spatial).collect();
        let head = if grouped { vec![groups, inputs, outputs] } else { vec![inputs, outputs] };
        let filter: Vec<usize> = head.into_iter().chain(kernel).collect();
        let name = if grouped { "GroupConvolutionBackpropData" } else { "ConvolutionBackpropData" };
        Case::new("opset1", name)
            .attribute("strides", text(&stride))
            .attribute("dilations", text(&dilation))
            .attribute("pads_begin", text(&pads))
            .attribute("pads_end", text(&pads))
            .input(random.tensor(ElementType::F32, &data))
            .constant(random.tensor(ElementType::F32, &filter))
    });
}

/// Convolutions whose filter is a value of the model.
#[test]
fn convolutions_of_given_filters() {
    many(71, 24, |random, round| {
        let axes = random.between(1, 3);
        let mut list =
            |low: usize, high: usize| -> Vec<usize> { (0..axes).map(|_| random.between(low, high)).collect() };
        let (stride, kernel, dilation, pads) = (list(1, 2), list(1, 3), list(1, 2), list(0, 1));
        let spatial = list(5, 9);
        let text = |items: &[usize]| items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let (groups, inputs, outputs) = (random.between(2, 3), random.between(1, 4), random.between(1, 33));
        let (groups, outputs) = if round % 3 == 0 { (groups * 8, 1) } else { (groups, outputs) };
        let groups = if round % 2 == 1 { groups } else { 1 };
        let inputs = if outputs == 1 { 1 } else { inputs };
        let data: Vec<usize> = [random.between(1, 2), groups * inputs].into_iter().chain(spatial).collect();
        let head = if round % 2 == 1 { vec![groups, outputs, inputs] } else { vec![outputs, inputs] };
        let filter: Vec<usize> = head.into_iter().chain(kernel).collect();
        Case::new("opset1", if round % 2 == 1 { "GroupConvolution" } else { "Convolution" })
            .attribute("strides", text(&stride))
            .attribute("dilations", text(&dilation))
            .attribute("pads_begin", text(&pads))
            .attribute("pads_end", text(&pads))
            .input(random.tensor(ElementType::F32, &data))
            .input(random.tensor(ElementType::F32, &filter))
    });
}

/// i32 values up to a magnitude.
fn integers(random: &mut Random, shape: &[usize], largest: i64) -> Tensor {
    let shape = Shape::from_slice(shape);
    let values = (0..shape.elements()).map(|_| ((random.next() >> 8) as i64 % (2 * largest + 1) - largest) as i32);
    Tensor::from_slice(&values.collect::<Vec<_>>(), shape).unwrap()
}

/// Sums beyond what f32 holds exactly, and data of all 32 bits, whose products wrap.
const MAGNITUDES: [i64; 3] = [255, 2000, i32::MAX as i64];

#[test]
fn contractions() {
    let equations = [
        "ij,jk->ik",
        "abc->cab",
        "bhid,bhjd->bhij",
        "bihd,bjhd->bhij",
        "bqc,bchw->bqhw",
        "bhwc,hkc->bhwk",
        "bildsk,biokl->bolsd",
        "i,j->ji",
        "ij,ij->",
        "abc,cb->a",
        "aij,ajk->kia",
        "...ij,...jk->...ik",
        "iji,kj->ik",
        "abcde,fbce->adf",
        "ij,kl->ik",
        "abcdef,abcdeg->fabcdeg",
    ];
    many(67, 6 * equations.len(), |random, round| {
        let equation = equations[round % equations.len()];
        let most = if round % 4 == 0 { 9 } else { 4 };
        let sizes: Vec<usize> = (0..26).map(|_| random.between(1, most)).collect();
        let (inputs, _) = equation.split_once("->").unwrap();
        let case = Case::new("opset7", "Einsum").attribute("equation", equation).tolerance(1e-4);
        inputs.split(',').fold(case, |case, subscript| {
            let letters = subscript.trim_start_matches('.').bytes();
            let mut shape: Vec<usize> = letters.map(|letter| sizes[usize::from(letter - b'a')]).collect();
            if subscript.starts_with('.') {
                shape.splice(0..0, [random.between(1, 2), 3]);
            }
            case.input(random.tensor(ElementType::F32, &shape))
        })
    });
}

#[test]
fn integer_products() {
    many(61, 24, |random, round| {
        let (rows, k, n) = (random.between(1, 9), random.between(1, 900), random.between(1, 20));
        let transposed = round % 2 == 1;
        let images = random.between(1, 2);
        let data = integers(random, &[images, rows, k], MAGNITUDES[round % 3]);
        let weights = if transposed { [n, k] } else { [k, n] };
        Case::new("opset1", "MatMul")
            .attribute("transpose_b", transposed)
            .input(data)
            .constant(integers(random, &weights, 255))
    });
}

#[test]
fn integer_convolutions() {
    many(62, 24, |random, round| {
        let grouped = round % 2 == 1;
        let (groups, inputs) = (if grouped { random.between(2, 3) } else { 1 }, random.between(1, 40));
        let inputs = if grouped { inputs.min(9) } else { 4 * inputs };
        let outputs = random.between(1, 6);
        let data = [random.between(1, 2), groups * inputs, random.between(3, 8), random.between(3, 9)];
        let filter = [groups, outputs, inputs, random.between(1, 3), random.between(1, 3)];
        let name = if grouped { "GroupConvolution" } else { "Convolution" };
        let (stride, pad) = (random.between(1, 2), random.between(0, 1));
        Case::new("opset1", name)
            .attribute("strides", format!("{stride},1"))
            .attribute("dilations", "1,1")
            .attribute("pads_begin", format!("{pad},{pad}"))
            .attribute("pads_end", format!("{pad},1"))
            .input(integers(random, &data, MAGNITUDES[round % 3]))
            .constant(integers(random, &filter[usize::from(!grouped)..], 255))
    });
}

#[test]
fn fake_quantisations() {
    many(63, 24, |random, round| {
        let channels = random.between(2, 9);
        let data = [random.between(1, 3), channels, random.between(1, 40), random.between(1, 40)];
        let limit = if round % 3 == 0 { vec![] } else { vec![channels, 1, 1] };
        let mut case = Case::new("opset1", "FakeQuantize").attribute("levels", [256, 255, 16, 2][round % 4]);
        case = case.input(random.tensor(ElementType::F32, &data));
        for offset in [-2.0, 1.5, -1.0, 3.0] {
            // One limit of the whole tensor beside limits of channels, and limits the wrong way round.
            let shape = if offset == 3.0 { &[][..] } else { &limit };
            let values = random.tensor(ElementType::F32, shape);
            let values: Vec<f32> = values.slice::<f32>().unwrap().iter().map(|v| v + offset).collect();
            case = case.constant(Tensor::from_slice(&values, Shape::from_slice(shape)).unwrap());
        }
        Case { dynamic: round % 2 == 1, through: round % 5 == 1, ..case.tolerance(0.0) }
    });
}

#[test]
fn poolings() {
    many(6, 40, |random, round| {
        let axes = random.between(1, 3);
        let list = |random: &mut Random, low: usize, high: usize| -> Vec<usize> {
            (0..axes).map(|_| random.between(low, high)).collect()
        };
        let text = |items: &[usize]| items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let kernel = list(random, 1, 3);
        let begin: Vec<usize> = kernel.iter().map(|k| random.between(0, k - 1)).collect();
        let end: Vec<usize> = kernel.iter().map(|k| random.between(0, k - 1)).collect();
        let (strides, spatial) = (list(random, 1, 3), list(random, 3, 20));
        let data: Vec<usize> = [random.between(1, 2), random.between(1, 9)].into_iter().chain(spatial).collect();
        let case = Case::new("opset1", if round % 2 == 0 { "MaxPool" } else { "AvgPool" })
            .attribute("kernel", text(&kernel))
            .attribute("strides", text(&strides))
            .attribute("pads_begin", text(&begin))
            .attribute("pads_end", text(&end))
            .attribute("rounding_type", ["floor", "ceil"][random.between(0, 1)]);
        let case = if round % 2 == 1 { case.attribute("exclude-pad", random.between(0, 1) == 1) } else { case };
        case.input(random.tensor(if round % 4 == 0 { ElementType::U8 } else { ElementType::F32 }, &data))
    });
    // Windows whose positions lie apart, of which some may have no value at all.
    many(7, 40, |random, round| {
        let pairs = |random: &mut Random, low: usize, high: usize| [0, 1].map(|_| random.between(low, high));
        let text = |[a, b]: [usize; 2]| format!("{a},{b}");
        let (kernel, dilations) = (pairs(random, 1, 3), pairs(random, 1, 3));
        let reach = [0, 1].map(|axis| (kernel[axis] - 1) * dilations[axis]);
        let pads = [(); 2].map(|()| reach.map(|reach| random.between(0, reach)));
        let [high, wide] = pairs(random, 5, 20);
        let case = Case::new("opset16", "AvgPool")
            .attribute("kernel", text(kernel))
            .attribute("strides", text(pairs(random, 1, 5)))
            .attribute("dilations", text(dilations))
            .attribute("pads_begin", text(pads[0]))
            .attribute("pads_end", text(pads[1]))
            .attribute("rounding_type", ["floor", "ceil"][round % 2])
            .attribute("exclude-pad", random.between(0, 1) == 1);
        let channels = random.between(1, 40);
        case.input(random.tensor(ElementType::F32, &[1, channels, high, wide]))
    });
}

#[test]
fn adaptive_poolings() {
    many(83, 40, |random, round| {
        let rank = 3 + round % 3;
        let shape: Vec<usize> = (0..rank).map(|axis| random.between(1, if axis < 2 { 3 } else { 20 })).collect();
        let sizes: Vec<i64> = (2..rank).map(|_| random.between(1, 6) as i64).collect();
        let data = random.tensor(ElementType::F32, &shape);
        if round % 2 == 0 {
            return Case::new("opset8", "AdaptiveAvgPool").tolerance(1e-6).input(data).integers(&sizes);
        }
        let case = Case::new("opset8", "AdaptiveMaxPool").outputs(2).tolerance(0.0);
        let index_type = ["i32", "i64"][random.between(0, 1)];
        case.attribute("index_element_type", index_type).input(data).integers(&sizes)
    });
}

#[test]
fn regions_of_yolo() {
    many(81, 24, |random, round| {
        let (coords, classes, regions) = (random.between(0, 5), random.between(1, 7), random.between(1, 4));
        let do_softmax = round % 2 == 0;
        let channels = (coords + classes + 1) * regions;
        let shape = [random.between(1, 2), channels, random.between(1, 9), random.between(1, 9)];
        let mask: Vec<String> = (0..regions).map(|index| index.to_string()).collect();
        Case::new("opset1", "RegionYolo")
            .attribute("axis", 1)
            .attribute("end_axis", 3)
            .attribute("coords", coords)
            .attribute("classes", classes)
            .attribute("num", regions)
            .attribute("mask", mask.join(","))
            .attribute("do_softmax", do_softmax)
            .input(random.tensor(ElementType::F32, &shape))
    });
}

#[test]
fn reorganizations_of_yolo() {
    many(82, 24, |random, round| {
        let stride = random.between(1, 3);
        let side = |random: &mut Random| stride * random.between(1, 5);
        let shape = [random.between(1, 2), stride * side(random), side(random), side(random)];
        let kind = [ElementType::F32, ElementType::U8, ElementType::F16][round % 3];
        Case::new("opset2", "ReorgYolo").attribute("stride", stride).input(random.tensor(kind, &shape))
    });
}

#[test]
fn softmaxes() {
    many(7, 24, |random, round| {
        let rank = random.between(1, 5);
        let shape = random.shape(rank);
        let axis = random.between(0, 2 * rank - 1) as i64 - rank as i64;
        let (opset, name) = if round % 2 == 0 { ("opset8", "Softmax") } else { ("opset5", "LogSoftmax") };
        Case::new(opset, name).attribute("axis", axis).input(random.tensor(ElementType::F32, &shape))
    });
}

#[test]
fn reductions() {
    let names = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"];
    many(8, 70, |random, round| {
        let rank = random.between(1, 5);
        let shape = random.shape(rank);
        let first = random.between(0, rank - 1);
        let last = random.between(first, rank - 1);
        let axes: Vec<i64> =
            (first..=last).map(|axis| if round % 2 == 0 { axis as i64 } else { axis as i64 - rank as i64 }).collect();
        let name = names[round % names.len()];
        let opset = if matches!(name, "ReduceL1" | "ReduceL2") { "opset4" } else { "opset1" };
        Case::new(opset, name)
            .attribute("keep_dims", random.between(0, 1) == 1)
            .tolerance(1e-4)
            .input(random.tensor(ElementType::F32, &shape))
            .integers(&axes)
    });
}

/// Axes of which the first two do not lie side by side.
fn some_axes(random: &mut Random, rank: usize) -> Vec<i64> {
    let more = random.between(0, 3);
    (0..rank).filter(|axis| [true, false, true, more & 1 == 1, more & 2 == 2][*axis]).map(|axis| axis as i64).collect()
}

#[test]
fn reductions_of_any_axes() {
    let names = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"];
    many(85, 70, |random, round| {
        let shape: Vec<usize> = (0..random.between(3, 5)).map(|_| random.between(2, 6)).collect();
        let axes = some_axes(random, shape.len());
        let name = names[round % names.len()];
        let opset = if matches!(name, "ReduceL1" | "ReduceL2") { "opset4" } else { "opset1" };
        let integers = [ElementType::I32, ElementType::I64, ElementType::U8, ElementType::I8];
        let element_type = if random.between(0, 2) == 0 { integers[random.between(0, 3)] } else { ElementType::F32 };
        let is_for_floats = name == "ReduceL2" || name == "ReduceL1" && element_type == ElementType::I8;
        let element_type = if is_for_floats { ElementType::F32 } else { element_type };
        Case::new(opset, name)
            .attribute("keep_dims", round % 2 == 0)
            .tolerance(1e-4)
            .input(random.tensor(element_type, &shape))
            .integers(&axes)
    });
}

#[test]
fn normalisations_over_any_axes() {
    many(86, 24, |random, round| {
        let shape: Vec<usize> = (0..random.between(3, 5)).map(|_| random.between(2, 6)).collect();
        let axes = some_axes(random, shape.len());
        Case::new("opset6", "MVN")
            .attribute("eps", 1e-3)
            .attribute("eps_mode", ["inside_sqrt", "outside_sqrt"][random.between(0, 1)])
            .attribute("normalize_variance", round % 3 != 1)
            .tolerance(1e-4)
            .input(random.tensor(ElementType::F32, &shape))
            .integers(&axes)
    });
}

#[test]
fn cumulative_sums() {
    const TYPES: [ElementType; 5] =
        [ElementType::F32, ElementType::I32, ElementType::I64, ElementType::U8, ElementType::I8];
    many(87, 40, |random, round| {
        let rank = random.between(1, 4);
        let axis = random.between(0, 2 * rank - 1) as i64 - rank as i64;
        let shape = random.shape(rank);
        let data = random.tensor(TYPES[round % TYPES.len()], &shape);
        Case::new("opset3", "CumSum")
            .attribute("exclusive", random.between(0, 1) == 1)
            .attribute("reverse", random.between(0, 1) == 1)
            .input(data)
            .constant(Tensor::from_slice(&[axis], []).unwrap())
    });
}

#[test]
fn integer_products_of_computed_operands() {
    many(88, 24, |random, round| {
        let (batch, rows, k, n) =
            (random.between(1, 3), random.between(1, 40), random.between(1, 300), random.between(1, 70));
        let (turn_a, turn_b) = (round % 2 == 1, round / 2 % 2 == 1);
        let magnitude = [9, 1 << 20, 1 << 30][round % 3];
        let a = integers(random, &if turn_a { [batch, k, rows] } else { [batch, rows, k] }, magnitude);
        let repeats = if random.between(0, 1) == 0 { 1 } else { batch };
        let b = integers(random, &if turn_b { [repeats, n, k] } else { [repeats, k, n] }, magnitude);
        Case::new("opset1", "MatMul")
            .attribute("transpose_a", turn_a)
            .attribute("transpose_b", turn_b)
            .input(a)
            .input(b)
    });
}

/// Vectors on either side, which no attribute turns, and batches that one right operand serves.
#[test]
fn products_with_vectors() {
    many(89, 48, |random, round| {
        let (batch, rows, k, n) =
            (random.between(1, 4), random.between(1, 20), random.between(1, 300), random.between(1, 40));
        let (turn_a, turn_b) = (random.between(0, 1) == 1, random.between(0, 1) == 1);
        let left = if turn_a { [batch, k, rows] } else { [batch, rows, k] };
        let right = if turn_b { [batch, n, k] } else { [batch, k, n] };
        let a = match round % 4 {
            0 => vec![k],
            1 => left.to_vec(),
            _ => left[random.between(0, 1)..].to_vec(),
        };
        let b = match round % 4 {
            1 => vec![k],
            2 => right[1..].to_vec(),
            3 => vec![1, right[1], right[2]],
            _ => right[random.between(0, 1)..].to_vec(),
        };
        let b = if round % 16 == 8 { vec![k] } else { b };
        let case = Case::new("opset1", "MatMul")
            .attribute("transpose_a", turn_a)
            .attribute("transpose_b", turn_b)
            .tolerance(1e-4)
            .input(random.tensor(ElementType::F32, &a));
        let b = random.tensor(ElementType::F32, &b);
        if random.between(0, 2) == 0 { case.constant(b) } else { case.input(b) }
    });
}

#[test]
fn row_normalisations() {
    many(9, 24, |random, round| {
        let rank = random.between(1, 4);
        let shape = random.shape(rank);
        let first = random.between(0, rank - 1);
        let axes: Vec<i64> = (first..rank).map(|axis| axis as i64 - rank as i64).collect();
        let data = random.tensor(ElementType::F32, &shape);
        if round % 3 == 0 {
            let case = Case::new("opset1", "NormalizeL2").attribute("eps", 1e-5).attribute("eps_mode", "add");
            return case.input(data).integers(&axes);
        }
        Case::new("opset6", "MVN")
            .attribute("eps", 1e-3)
            .attribute("eps_mode", ["inside_sqrt", "outside_sqrt"][random.between(0, 1)])
            .attribute("normalize_variance", round % 3 == 1)
            .tolerance(1e-4)
            .input(data)
            .integers(&axes)
    });
}

#[test]
fn channel_normalisations() {
    many(10, 24, |random, round| {
        let (groups, in_group) = (random.between(1, 3), random.between(1, 4));
        let channels = groups * in_group;
        let shape = [random.between(1, 3), channels, random.between(1, 7), random.between(1, 9)];
        let data = random.tensor(ElementType::F32, &shape);
        let mut channel = || random.tensor(ElementType::F32, &[channels]);
        match round % 3 {
            0 => Case::new("opset12", "GroupNormalization")
                .attribute("num_groups", groups)
                .attribute("epsilon", 1e-3)
                .tolerance(1e-4)
                .input(data)
                .input(channel())
                .input(channel()),
            1 => {
                let (gamma, beta, mean) = (channel(), channel(), channel());
                let variance = Tensor::from_slice(&vec![0.7f32; channels], [channels]).unwrap();
                Case::new("opset5", "BatchNormInference")
                    .attribute("epsilon", 1e-3)
                    .tolerance(1e-4)
                    .input(data)
                    .constant(gamma)
                    .constant(beta)
                    .constant(mean)
                    .constant(variance)
            }
            _ => Case::new("opset1", "LRN")
                .attribute("alpha", 0.3)
                .attribute("beta", 0.75)
                .attribute("bias", 1.0)
                .attribute("size", 3)
                .input(data)
                .integers(&[1]),
        }
    });
}

#[test]
fn local_responses_over_any_axes() {
    many(31, 30, |random, round| {
        let rank = random.between(1, 5);
        let shape = random.shape(rank);
        let axes = some_axes(random, rank);
        Case::new("opset1", "LRN")
            .attribute("alpha", 0.7)
            .attribute("beta", [0.75, 1.0, 0.5][round % 3])
            .attribute("bias", 1.0)
            .attribute("size", random.between(1, 8))
            .input(random.tensor(ElementType::F32, &shape))
            .integers(&axes)
    });
}

/// Rising numbers up to a limit.
fn rising(random: &mut Random, count: usize, most: usize) -> Vec<i64> {
    let mut numbers: Vec<i64> = (0..count).map(|_| random.between(0, most) as i64).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn bags_of_embeddings() {
    let names = [
        ("opset3", "EmbeddingBagOffsetsSum"),
        ("opset15", "EmbeddingBagOffsets"),
        ("opset3", "EmbeddingBagPackedSum"),
        ("opset15", "EmbeddingBagPacked"),
        ("opset3", "EmbeddingSegmentsSum"),
    ];
    many(32, 80, |random, round| {
        let (opset, name) = names[round % names.len()];
        let (rows, bags, is_wide) = (random.between(1, 30), random.between(1, 20), random.between(0, 1) == 0);
        let row = [vec![random.between(1, 150)], vec![], vec![3, 5]][random.between(0, 2)].clone();
        let table: Vec<usize> = [rows].into_iter().chain(row).collect();
        let numbers = |values: &[i64], shape: &[usize]| match is_wide {
            true => Tensor::from_slice(values, Shape::from_slice(shape)).unwrap(),
            false => {
                let values: Vec<i32> = values.iter().map(|value| *value as i32).collect();
                Tensor::from_slice(&values, Shape::from_slice(shape)).unwrap()
            }
        };
        let is_packed = name.contains("Packed");
        let count = if is_packed { bags * random.between(1, 4) } else { random.between(0, 40) };
        let shape = if is_packed { vec![bags, count / bags] } else { vec![count] };
        let mut indices: Vec<i64> = (0..count).map(|_| random.between(0, rows - 1) as i64).collect();
        // What is wrong with an index is an error of both.
        if random.between(0, 6) == 0
            && let Some(first) = indices.first_mut()
        {
            *first = [-1, rows as i64][random.between(0, 1)];
        }
        let mut case = Case::new(opset, name)
            .tolerance(0.0)
            .input(random.tensor(ElementType::F32, &table))
            .input(numbers(&indices, &shape));
        let mut is_mean = false;
        if opset == "opset15" {
            is_mean = random.between(0, 1) == 0;
            case = case.attribute("reduction", if is_mean { "mean" } else { "sum" });
        }
        if name.contains("Offsets") {
            let beyond = usize::from(random.between(0, 9) == 0);
            case = case.input(numbers(&rising(random, bags, count + beyond), &[bags]));
        } else if !is_packed {
            let beyond = usize::from(random.between(0, 9) == 0);
            case = case.input(numbers(&rising(random, count, bags - 1 + beyond), &[count]));
            case = case.constant(numbers(&[bags as i64], &[]));
        }
        let more = random.between(0, 2);
        if more > 0 && !is_packed {
            case = case.input(numbers(&[random.between(0, rows) as i64 - 1], &[]));
        }
        if more > 1 && !is_mean {
            case = case.input(random.tensor(ElementType::F32, &shape));
        }
        case
    });
}

#[test]
fn movements() {
    const TYPES: [ElementType; 5] =
        [ElementType::F32, ElementType::I64, ElementType::F16, ElementType::U8, ElementType::Boolean];
    many(11, 60, |random, round| {
        let rank = random.between(1, 5);
        let shape = random.shape(rank);
        let element_type = TYPES[random.between(0, 4)];
        let data = random.tensor(element_type, &shape);
        let axis = random.between(0, rank - 1);
        match round % 4 {
            0 => {
                let mut order: Vec<i64> = (0..rank as i64).collect();
                (0..rank).for_each(|i| order.swap(i, random.between(0, rank - 1)));
                Case::new("opset1", "Transpose").input(data).integers(&order)
            }
            1 => {
                let mut case = Case::new("opset1", "Concat").attribute("axis", axis as i64 - rank as i64).input(data);
                for _ in 0..random.between(0, 3) {
                    let mut part = shape.clone();
                    part[axis] = random.between(0, 5);
                    case = case.input(random.tensor(element_type, &part));
                }
                case
            }
            2 => {
                let parts = [random.between(0, 4), random.between(0, 4), random.between(0, 4)];
                let mut whole = shape.clone();
                whole[axis] = parts.iter().sum();
                let lengths: Vec<i64> = parts.iter().map(|p| *p as i64).collect();
                Case::new("opset1", "VariadicSplit")
                    .input(random.tensor(element_type, &whole))
                    .integer(axis as i64)
                    .integers(&lengths)
                    .outputs(3)
            }
            _ => {
                let parts = random.between(1, 3);
                let mut whole = shape.clone();
                whole[axis] = parts * random.between(1, 4);
                Case::new("opset1", "Split")
                    .attribute("num_splits", parts)
                    .input(random.tensor(element_type, &whole))
                    .integer(axis as i64)
                    .outputs(parts)
            }
        }
    });
}

#[test]
fn slices() {
    const TYPES: [ElementType; 4] = [ElementType::F32, ElementType::I64, ElementType::F16, ElementType::U8];
    many(47, 80, |random, round| {
        let rank = random.between(1, 5);
        let shape = random.shape(rank);
        let element_type = TYPES[random.between(0, 3)];
        let data = random.tensor(element_type, &shape);
        let count = random.between(1, rank);
        let mut bounds = |low: i64, high: i64| -> Vec<i64> {
            (0..count).map(|_| low + random.between(0, (high - low) as usize) as i64).collect()
        };
        let (start, stop) = (bounds(-9, 12), bounds(-9, 40));
        let steps: Vec<i64> = bounds(0, 7).into_iter().map(|step| [1, 1, 1, 2, 3, -1, -2, 1][step as usize]).collect();
        let mask: Vec<String> = bounds(0, 1).iter().map(i64::to_string).collect();
        let tensor = |values: &[i64]| Tensor::from_slice(values, [values.len()]).unwrap();
        let parts = [tensor(&start), tensor(&stop), tensor(&steps)];
        let is_slice = round % 2 == 0;
        let case = if is_slice {
            Case::new("opset8", "Slice")
        } else {
            // New axes and axes of one element only now and then, since the latter may lie outside.
            let given = |now: bool| if now { mask.join(",") } else { "0".to_string() };
            Case::new("opset1", "StridedSlice")
                .attribute("begin_mask", given(round % 3 == 0))
                .attribute("end_mask", given(round % 5 == 0))
                .attribute("new_axis_mask", given(round % 7 == 0))
                .attribute("shrink_axis_mask", given(round % 9 == 0))
        };
        let is_constant = round % 4 < 2;
        let case = parts.into_iter().fold(case.input(data), |case, part| match is_constant {
            true => case.constant(part),
            false => case.input(part),
        });
        let axes: Vec<i64> =
            (0..count as i64).map(|axis| if axis % 2 == 0 { axis } else { axis - rank as i64 }).collect();
        if is_slice && round % 8 != 0 { case.integers(&axes) } else { case }
    });
}

#[test]
fn repeated_elements() {
    const TYPES: [ElementType; 4] = [ElementType::F32, ElementType::I64, ElementType::F16, ElementType::Boolean];
    many(48, 60, |random, round| {
        let rank = random.between(1, 4);
        let target = random.shape(rank);
        let shape = thinned(random, &target);
        let element_type = TYPES[random.between(0, 3)];
        let data = random.tensor(element_type, &shape);
        let sizes: Vec<i64> = target.iter().map(|size| *size as i64).collect();
        let repeats: Vec<i64> = (0..random.between(1, rank + 1)).map(|_| random.between(0, 3) as i64).collect();
        let tensor = |values: &[i64]| Tensor::from_slice(values, [values.len()]).unwrap();
        let is_constant = round % 4 < 2;
        let add = |case: Case, values: &[i64]| match is_constant {
            true => case.integers(values),
            false => case.input(tensor(values)),
        };
        match round % 6 {
            0 => add(Case::new("opset1", "Tile").input(data), &repeats),
            // More axes than a copy has.
            3 => add(Case::new("opset1", "Tile").input(random.tensor(element_type, &[2; 8])), &[2; 8]),
            1 => add(Case::new("opset3", "Broadcast").attribute("mode", "numpy").input(data), &sizes),
            2 => add(Case::new("opset3", "Broadcast").attribute("mode", "bidirectional").input(data), &sizes),
            _ => {
                let mut all = vec![2];
                all.extend(&sizes);
                let axes: Vec<i64> = (1 + rank - shape.len()..=rank).map(|axis| axis as i64).collect();
                add(Case::new("opset3", "Broadcast").attribute("mode", "explicit").input(data), &all).integers(&axes)
            }
        }
    });
}

#[test]
fn rolled_elements() {
    const TYPES: [ElementType; 4] = [ElementType::F32, ElementType::I64, ElementType::F16, ElementType::Boolean];
    many(49, 60, |random, round| {
        let rank = random.between(1, 6);
        let shape = random.shape(rank);
        let element_type = TYPES[random.between(0, 3)];
        let data = random.tensor(element_type, &shape);
        let count = random.between(1, rank);
        let shifts = if round % 5 == 0 { 1 } else { count };
        let shifts: Vec<i64> = (0..shifts).map(|_| random.between(0, 30) as i64 - 15).collect();
        // Some axes are named twice.
        let axes: Vec<i64> = (0..count).map(|_| random.between(0, 2 * rank - 1) as i64 - rank as i64).collect();
        let case = Case::new("opset7", "Roll").input(data);
        let tensor = |values: &[i64]| Tensor::from_slice(values, [values.len()]).unwrap();
        match round % 4 < 2 {
            true => case.integers(&shifts).integers(&axes),
            false => case.input(tensor(&shifts)).input(tensor(&axes)),
        }
    });
}

#[test]
fn pads() {
    many(21, 48, |random, round| {
        let rank = random.between(1, 4);
        let shape: Vec<usize> = (0..rank).map(|_| random.between(1, 7)).collect();
        let mode = ["constant", "edge", "reflect", "symmetric"][round % 4];
        let mut pads = || -> Vec<i64> {
            let most = |size: usize| if mode == "reflect" { size - 1 } else { size.min(4) };
            shape.iter().map(|size| random.between(0, most(*size)) as i64).collect()
        };
        let (begin, end) = (pads(), pads());
        let element_type = [ElementType::F32, ElementType::U8, ElementType::I64][random.between(0, 2)];
        let case = Case::new("opset12", "Pad").attribute("pad_mode", mode).input(random.tensor(element_type, &shape));
        let case = case.integers(&begin).integers(&end);
        if round % 3 == 0 { case } else { case.input(random.tensor(element_type, &[])) }
    });
}

#[test]
fn gathers() {
    many(12, 36, |random, round| {
        let rank = random.between(1, 4);
        let shape = random.shape(rank);
        let axis = random.between(0, rank - 1);
        let batch = if round % 3 == 0 { random.between(0, axis) } else { 0 };
        let extra = random.between(0, 2);
        let indices: Vec<usize> =
            shape[..batch].iter().copied().chain(random.shape(extra).into_iter().map(|d| d.min(9))).collect();
        let count: usize = indices.iter().product();
        let size = shape[axis] as i64;
        // Version 8 counts from the end, and picks zeros out of range; version 7 refuses.
        let (opset, low, high) =
            if round % 2 == 0 { ("opset8", -size - 1, size) } else { ("opset7", 0, (size - 1).max(0)) };
        let values: Vec<i32> =
            (0..count).map(|_| (low + random.between(0, (high - low) as usize) as i64) as i32).collect();
        Case::new(opset, "Gather")
            .attribute("batch_dims", batch)
            .input(random.tensor(ElementType::F32, &shape))
            .constant(Tensor::from_slice(&values, Shape::from_slice(&indices)).unwrap())
            .integer(axis as i64)
    });
}

#[test]
fn refused_indices_are_named() {
    let case = Case::new("opset7", "Gather")
        .input(Tensor::from_slice(&[1f32, 2.0, 3.0], [3]).unwrap())
        .input(Tensor::from_slice(&[0i64, 3], [2]).unwrap())
        .integer(0);
    let error = case.run(false).unwrap_err();
    assert!(error.contains("index 3 at position 1 is out of range [-3, 2]"), "{error}");
}

/// A tensor of indices in `[-size, size - 1]`, or in `[0, size - 1]`.
fn drawn(random: &mut Random, shape: &[usize], sizes: &[usize], wraps: bool, wide: bool) -> Tensor {
    let count: usize = shape.iter().product();
    let picked: Vec<i64> = (0..count)
        .map(|i| {
            let size = sizes[i % sizes.len().max(1)];
            let index = random.between(0, size.max(1) - 1) as i64;
            if wraps && random.between(0, 2) == 0 { index - size as i64 } else { index }
        })
        .collect();
    match wide {
        true => Tensor::from_slice(&picked, Shape::from_slice(shape)),
        false => Tensor::from_slice(&picked.iter().map(|i| *i as i32).collect::<Vec<_>>(), Shape::from_slice(shape)),
    }
    .unwrap()
}

#[test]
fn scatters() {
    const TYPES: [ElementType; 7] = [
        ElementType::F32,
        ElementType::F64,
        ElementType::F16,
        ElementType::I64,
        ElementType::U8,
        ElementType::I32,
        ElementType::Boolean,
    ];
    many(17, 90, |random, round| {
        let rank = random.between(1, 4);
        let shape: Vec<usize> = random.shape(rank).iter().map(|d| (*d).max(1)).collect();
        let element_type = TYPES[random.between(0, 6)];
        let (axis, wide) = (random.between(0, rank - 1), random.between(0, 1) == 0);
        let data = random.tensor(element_type, &shape);
        match round % 3 {
            0 => {
                let extra = random.between(0, 2);
                let picked = random.shape(extra).iter().map(|d| (*d).min(9)).collect::<Vec<_>>();
                let updates: Vec<usize> =
                    shape[..axis].iter().chain(&picked).chain(&shape[axis + 1..]).copied().collect();
                let indices = drawn(random, &picked, &[shape[axis]], false, wide);
                Case::new("opset3", "ScatterUpdate")
                    .input(data)
                    .input(indices)
                    .input(random.tensor(element_type, &updates))
                    .integer(axis as i64 - rank as i64)
            }
            1 => {
                let full = random.between(0, 1) == 0;
                let picked: Vec<usize> = (0..rank)
                    .map(|i| {
                        if i == axis {
                            random.between(0, 9)
                        } else if full {
                            shape[i]
                        } else {
                            random.between(1, shape[i])
                        }
                    })
                    .collect();
                let mean = if element_type == ElementType::Boolean { "sum" } else { "mean" };
                let reduction = ["none", "sum", "prod", "min", "max", mean][random.between(0, 5)];
                Case::new("opset12", "ScatterElementsUpdate")
                    .attribute("reduction", reduction)
                    .attribute("use_init_val", random.between(0, 1) == 0)
                    .input(data)
                    .input(drawn(random, &picked, &[shape[axis]], true, wide))
                    .input(random.tensor(element_type, &picked))
                    .integer(axis as i64)
                    .tolerance(0.0)
            }
            _ => {
                let depth = random.between(0, rank);
                let rows = random.between(0, 12);
                let updates: Vec<usize> = std::iter::once(rows).chain(shape[depth..].iter().copied()).collect();
                let reduction = ["none", "sum", "sub", "prod", "min", "max"][random.between(0, 5)];
                let sizes = if depth == 0 { &[1][..] } else { &shape[..depth] };
                Case::new("opset15", "ScatterNDUpdate")
                    .attribute("reduction", reduction)
                    .input(data)
                    .input(drawn(random, &[rows, depth], sizes, true, wide))
                    .input(random.tensor(element_type, &updates))
                    .tolerance(0.0)
            }
        }
    });
}

#[test]
fn scatters_refuse_what_is_out_of_range() {
    let floats = |n: usize| Tensor::from_slice(&vec![1f32; n], [n]).unwrap();
    for index in [3, -4, i64::MIN, i64::MAX, (1 << 32) + 1] {
        let indices = Tensor::from_slice(&[0, index], [2]).unwrap();
        let case = Case::new("opset12", "ScatterElementsUpdate")
            .input(floats(3))
            .input(indices.clone())
            .input(floats(2))
            .integer(0);
        let error = case.run(false).unwrap_err();
        let expected =
            format!("index {index} at position [1] is out of range of axis 0 of size 3: it must be in [-3, 2]");
        assert!(error.contains(&expected) && error.contains("\"op\""), "{error}");
        let case = Case::new("opset3", "ScatterUpdate").input(floats(3)).input(indices).input(floats(2)).integer(0);
        assert!(case.run(false).unwrap_err().contains(&format!("index {index} at position [1]")));
    }
}

#[test]
fn conversions() {
    use ElementType::{Boolean, F16, F32, I8, I32, I64, U8};
    let pairs = [
        (F16, F32),
        (F32, F16),
        (F32, I32),
        (F32, I64),
        (F32, U8),
        (F32, I8),
        (F32, Boolean),
        (I64, I32),
        (I64, F32),
        (I64, Boolean),
        (I32, I64),
        (I32, F32),
        (I32, Boolean),
        (U8, F32),
        (U8, Boolean),
        (I8, F32),
        (Boolean, F32),
        (Boolean, I32),
        (Boolean, I64),
        (Boolean, U8),
    ];
    many(13, 2 * pairs.len(), |random, round| {
        let (from, to) = pairs[round % pairs.len()];
        let rank = random.between(0, 3);
        let shape = random.shape(rank);
        Case::new("opset1", "Convert")
            .attribute("destination_type", to)
            .tolerance(0.0)
            .input(random.tensor(from, &shape))
    });
}

#[test]
fn odd_numbers_convert_as_the_reference_says() {
    let odd = [f32::NAN, f32::INFINITY, -f32::INFINITY, 3e9, -3e9, 1e30, -0.0, 255.9, -1.5, 300.0];
    for to in ["i32", "i64", "u8", "i8", "boolean", "f16"] {
        let tensor = Tensor::from_slice(&odd, [odd.len()]).unwrap();
        assert!(Case::new("opset1", "Convert").attribute("destination_type", to).input(tensor).check());
    }
}

#[test]
fn selections() {
    const TYPES: [ElementType; 4] = [ElementType::F32, ElementType::I64, ElementType::F16, ElementType::U8];
    many(14, 30, |random, _| {
        let rank = random.between(0, 5);
        let shape = random.shape(rank);
        let element_type = TYPES[random.between(0, 3)];
        let (a, b, c) = (thinned(random, &shape), thinned(random, &shape), thinned(random, &shape));
        Case::new("opset1", "Select")
            .input(random.tensor(ElementType::Boolean, &a))
            .input(random.tensor(element_type, &b))
            .input(random.tensor(element_type, &c))
    });
    // Short lines are joined to blocks, the last of which may be shorter.
    many(15, 30, |random, _| {
        let shape = [random.between(1, 3), random.between(1, 300), random.between(1, 30), random.between(1, 9)];
        let element_type = TYPES[random.between(0, 3)];
        let (a, b, c) = (thinned(random, &shape), thinned(random, &shape), thinned(random, &shape));
        Case::new("opset1", "Select")
            .input(random.tensor(ElementType::Boolean, &a))
            .input(random.tensor(element_type, &b))
            .input(random.tensor(element_type, &c))
    });
}

#[test]
fn attentions() {
    many(15, 24, |random, round| {
        let (batch, heads) = (random.between(1, 2), random.between(1, 3));
        let (queries, keys) = (random.between(1, 40), random.between(1, 50));
        let (depth, values) = (random.between(1, 20), random.between(1, 20));
        let shape = |heads: usize, rows: usize, columns: usize| match round % 4 {
            0 | 2 => vec![batch, heads, rows, columns],
            1 => vec![2, batch, heads, rows, columns],
            _ => vec![batch, rows, columns],
        };
        let key_heads = if random.between(0, 2) == 0 { 1 } else { heads };
        let causal = round % 3 == 0;
        let case = Case::new("opset13", "ScaledDotProductAttention")
            .attribute("causal", causal)
            .tolerance(1e-4)
            .input(random.tensor(ElementType::F32, &shape(heads, queries, depth)))
            .input(random.tensor(ElementType::F32, &shape(key_heads, keys, depth)))
            .input(random.tensor(ElementType::F32, &shape(key_heads, keys, values)));
        if causal || random.between(0, 3) == 0 {
            return case;
        }
        let mask = if random.between(0, 1) == 0 { ElementType::F32 } else { ElementType::Boolean };
        let rows = if random.between(0, 1) == 0 { 1 } else { queries };
        let case = case.input(random.tensor(mask, &[rows, keys]));
        if random.between(0, 1) == 0 {
            return case;
        }
        let case = case.input(Tensor::from_slice(&[0.3f32], [1]).unwrap());
        let heads = if round % 4 == 3 { 1 } else { heads };
        let sink = shape(heads, if random.between(0, 1) == 0 { 1 } else { queries }, 1);
        if random.between(0, 1) == 0 { case } else { case.input(random.tensor(ElementType::F32, &sink)) }
    });
}

#[test]
fn recurrent_sequences() {
    many(16, 36, |random, round| {
        let (batch, steps, input) = (random.between(1, 3), random.between(1, 6), random.between(1, 9));
        let hidden = random.between(1, 20);
        let direction = ["forward", "reverse", "bidirectional"][round % 3];
        let directions = if round % 3 == 2 { 2 } else { 1 };
        let kind = ["LSTMSequence", "GRUSequence", "RNNSequence"][round / 3 % 3];
        let (lstm, gru) = (kind == "LSTMSequence", kind == "GRUSequence");
        let linear = gru && random.between(0, 1) == 1;
        let gates = if lstm { 4 } else { 2 * usize::from(gru) + 1 };
        let biases = if linear { 4 } else { gates };
        let relu = random.between(0, 1) == 1;
        let lengths: Vec<i32> =
            (0..batch).map(|_| if round % 4 == 0 { steps as i32 } else { random.between(1, steps) as i32 }).collect();
        let mut tensor = |shape: &[usize]| random.tensor(ElementType::F32, shape);
        let case = Case::new("opset5", kind)
            .attribute("hidden_size", hidden)
            .attribute("direction", direction)
            .tolerance(1e-4)
            .input(tensor(&[batch, steps, input]))
            .input(tensor(&[batch, directions, hidden]));
        let case = if lstm { case.input(tensor(&[batch, directions, hidden])).outputs(3) } else { case.outputs(2) };
        let case = if gru { case.attribute("linear_before_reset", linear) } else { case };
        let case = if !lstm && !gru && relu { case.attribute("activations", "relu") } else { case };
        case.constant(Tensor::from_slice(&lengths, [batch]).unwrap())
            .constant(tensor(&[directions, gates * hidden, input]))
            .constant(tensor(&[directions, gates * hidden, hidden]))
            .constant(tensor(&[directions, biases * hidden]))
    });
}

#[test]
fn interpolations() {
    const TYPES: [ElementType; 4] = [ElementType::F32, ElementType::F32, ElementType::U8, ElementType::I8];
    const MODES: [&str; 6] = ["nearest", "linear_onnx", "linear", "cubic", "bilinear_pillow", "bicubic_pillow"];
    many(17, 96, |random, round| {
        let mut shape = [random.between(1, 2), random.between(1, 5), random.between(1, 9), random.between(1, 9)];
        // Images whose channels come last too.
        let axes = if round % 4 == 0 { [1, 2] } else { [2, 3] };
        if round % 4 == 0 {
            shape.swap(1, 3);
        }
        let target = [random.between(1, 20) as i64, random.between(1, 20) as i64];
        let mode = MODES[round / 4 % 6];
        let coordinates = ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"][random.between(0, 3)];
        let case = Case::new("opset11", "Interpolate")
            .attribute("mode", mode)
            .attribute("coordinate_transformation_mode", coordinates)
            .attribute("nearest_mode", ["round_prefer_floor", "floor", "ceil", "simple"][random.between(0, 3)])
            .attribute("antialias", random.between(0, 3) == 0);
        let scales = [random.between(1, 3) as f32, random.between(2, 9) as f32 / 4.0];
        let by_scales = random.between(0, 1) == 1;
        let case = case.attribute("shape_calculation_mode", if by_scales { "scales" } else { "sizes" });
        let case = case.input(random.tensor(TYPES[round % 4], &shape));
        let case =
            if by_scales { case.constant(Tensor::from_slice(&scales, [2]).unwrap()) } else { case.integers(&target) };
        case.integers(&axes)
    });
}

#[test]
fn bits() {
    const TYPES: [ElementType; 5] =
        [ElementType::I8, ElementType::U8, ElementType::I32, ElementType::I64, ElementType::Boolean];
    let names = ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseLeftShift", "BitwiseRightShift"];
    many(71, 50, |random, round| {
        let name = names[round % names.len()];
        let most = if name.ends_with("Shift") { 3 } else { 4 };
        let element_type = TYPES[random.between(0, most)];
        let rank = random.between(0, 4);
        let shape = random.shape(rank);
        let b = thinned(random, &shape);
        Case::new("opset15", name).input(random.tensor(element_type, &shape)).input(random.tensor(element_type, &b))
    });
}

#[test]
fn functions_of_integers_and_tests_of_floats() {
    const TYPES: [ElementType; 4] = [ElementType::I8, ElementType::U8, ElementType::I32, ElementType::I64];
    let names = ["Abs", "Negative", "Sign", "ReLU", "Floor", "Ceiling", "Clamp", "BitwiseNot", "Round"];
    many(72, 36, |random, round| {
        let name = names[round % names.len()];
        let opset = if name == "BitwiseNot" {
            "opset13"
        } else if name == "Round" {
            "opset5"
        } else {
            "opset1"
        };
        let shape = random.shape(2);
        let element_type = TYPES[random.between(0, 3)];
        let case = Case::new(opset, name).input(random.tensor(element_type, &shape));
        if name == "Clamp" { case.attribute("min", -3.5).attribute("max", 7.5) } else { case }
    });
    many(73, 12, |random, round| {
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0, 0.0];
        let values: Vec<f32> = (0..70).map(|_| special[random.between(0, 4)]).collect();
        let case = Case::new("opset10", ["IsNaN", "IsInf", "IsFinite"][round % 3])
            .input(Tensor::from_slice(&values, [7, 10]).unwrap());
        if round % 3 == 1 { case.attribute("detect_negative", round % 2 == 0) } else { case }
    });
}

#[test]
fn functions_of_doubles() {
    let names = ["Abs", "Negative", "Sign", "ReLU", "Floor", "Ceiling", "Clamp", "Sqrt", "Round"];
    many(75, 27, |random, round| {
        let name = names[round % names.len()];
        let special = [f64::NAN, f64::INFINITY, -0.0, 1e300];
        let mut values: Vec<f64> = (0..90).map(|_| random.between(0, 160) as f64 / 8.0 - 10.0).collect();
        values[random.between(0, 89)] = special[random.between(0, 3)];
        let opset = if name == "Round" { "opset5" } else { "opset1" };
        let case = Case::new(opset, name).input(Tensor::from_slice(&values, [9, 10]).unwrap());
        match name {
            "Clamp" => case.attribute("min", -3.5).attribute("max", 7.5),
            "Round" => case.attribute("mode", ["half_to_even", "half_away_from_zero"][round / names.len() % 2]),
            _ => case,
        }
    });
}

#[test]
fn rounding_functions() {
    many(74, 12, |random, round| {
        let halves: Vec<f32> = (0..90).map(|_| random.between(0, 40) as f32 / 2.0 - 10.0).collect();
        let mode = ["half_to_even", "half_away_from_zero"][round % 2];
        Case::new("opset5", "Round").attribute("mode", mode).input(Tensor::from_slice(&halves, [9, 10]).unwrap())
    });
}

#[test]
fn every_conversion() {
    const TYPES: [(ElementType, &str); 8] = [
        (ElementType::F32, "f32"),
        (ElementType::F64, "f64"),
        (ElementType::F16, "f16"),
        (ElementType::I8, "i8"),
        (ElementType::U8, "u8"),
        (ElementType::I32, "i32"),
        (ElementType::I64, "i64"),
        (ElementType::Boolean, "boolean"),
    ];
    const FURTHER: [&str; 4] = ["u16", "i16", "u32", "u64"];
    many(75, 96, |random, round| {
        let shape = random.shape(2);
        let (from, _) = TYPES[round % 8];
        let to = if round / 8 < 8 { TYPES[round / 8].1 } else { FURTHER[round / 8 - 8] };
        Case::new("opset1", "Convert").attribute("destination_type", to).input(random.tensor(from, &shape))
    });
}

#[test]
fn the_best_elements() {
    const TYPES: [ElementType; 4] = [ElementType::F32, ElementType::I32, ElementType::U8, ElementType::I8];
    many(76, 48, |random, round| {
        let rank = random.between(1, 3);
        let shape: Vec<usize> = random.shape(rank).iter().map(|d| (*d).max(1)).collect();
        let axis = random.between(0, rank - 1);
        let k = if round % 3 == 0 { 1 } else { random.between(1, shape[axis]) };
        let element_type = TYPES[random.between(0, 3)];
        Case::new("opset11", "TopK")
            .attribute("axis", axis)
            .attribute("mode", ["max", "min"][round % 2])
            .attribute("sort", ["value", "index", "none"][random.between(0, 2)])
            .attribute("index_element_type", ["i32", "i64"][random.between(0, 1)])
            .attribute("stable", "true")
            .outputs(2)
            .input(random.tensor(element_type, &shape))
            .integer(k as i64)
    });
}

#[test]
fn recurrent_cells() {
    many(77, 24, |random, round| {
        let (name, opset, gates, biases, states) = [
            ("LSTMCell", "opset4", 4, 4, 2),
            ("GRUCell", "opset3", 3, 3, 1),
            ("GRUCell", "opset3", 3, 4, 1),
            ("RNNCell", "opset1", 1, 1, 1),
        ][round % 4];
        let (batch, input, hidden) = (random.between(1, 5), random.between(1, 20), random.between(1, 24));
        let case = Case::new(opset, name).attribute("hidden_size", hidden).outputs(states).tolerance(1e-4);
        let case = if biases > gates { case.attribute("linear_before_reset", "true") } else { case };
        let case = case.input(random.tensor(ElementType::F32, &[batch, input]));
        let state = |random: &mut Random| random.tensor(ElementType::F32, &[batch, hidden]);
        let case = (0..states).fold(case, |case, _| case.input(state(random)));
        case.constant(random.tensor(ElementType::F32, &[gates * hidden, input]))
            .constant(random.tensor(ElementType::F32, &[gates * hidden, hidden]))
            .constant(random.tensor(ElementType::F32, &[biases * hidden]))
    });
}

#[test]
fn colours_of_images() {
    many(78, 24, |random, round| {
        let name = ["NV12toRGB", "NV12toBGR", "I420toRGB", "I420toBGR"][round % 4];
        let (batch, height, width) = (random.between(1, 2), 2 * random.between(1, 9), 2 * random.between(1, 70));
        let element_type = if round % 3 == 0 { ElementType::F32 } else { ElementType::U8 };
        let case = Case::new("opset8", name).tolerance(1e-4);
        let mut plane = |height: usize, width: usize, depth: usize| {
            let values = random.tensor(ElementType::U8, &[batch, height, width, depth]);
            if element_type == ElementType::U8 {
                return values;
            }
            let floats: Vec<f32> = values.slice::<u8>().unwrap().iter().map(|v| f32::from(*v)).collect();
            Tensor::from_slice(&floats, values.shape().clone()).unwrap()
        };
        if round / 4 % 2 == 0 {
            return case.input(plane(height / 2 * 3, width, 1));
        }
        let case = case.input(plane(height, width, 1));
        match name.starts_with("NV12") {
            true => case.input(plane(height / 2, width / 2, 2)),
            false => case.input(plane(height / 2, width / 2, 1)).input(plane(height / 2, width / 2, 1)),
        }
    });
}

#[test]
fn deformable_convolutions() {
    many(79, 24, |random, round| {
        let (group, bent) = (random.between(1, 2), random.between(1, 2));
        let (channels, outputs) = (2 * random.between(1, 3), group * random.between(1, 4));
        let (kernel, size) =
            ([random.between(1, 3), random.between(1, 3)], [random.between(3, 9), random.between(3, 9)]);
        let pad = random.between(0, 1);
        let windows = [size[0] + 2 * pad - kernel[0] + 1, size[1] + 2 * pad - kernel[1] + 1];
        let taps = bent * kernel[0] * kernel[1];
        let case = Case::new("opset8", "DeformableConvolution")
            .attribute("strides", "1,1")
            .attribute("dilations", "1,1")
            .attribute("pads_begin", format!("{pad},{pad}"))
            .attribute("pads_end", format!("{pad},{pad}"))
            .attribute("group", group)
            .attribute("deformable_group", bent)
            .attribute("bilinear_interpolation_pad", round % 2 == 0)
            .tolerance(1e-4)
            .input(random.tensor(ElementType::F32, &[2, channels, size[0], size[1]]))
            .input(random.tensor(ElementType::F32, &[2, 2 * taps, windows[0], windows[1]]))
            .constant(random.tensor(ElementType::F32, &[outputs, channels / group, kernel[0], kernel[1]]));
        match round % 3 {
            0 => case.input(random.tensor(ElementType::F32, &[2, taps, windows[0], windows[1]])),
            _ => case,
        }
    });
}

/// Regions `[count, 5]` of images, some of which leave the map.
fn regions(random: &mut Random, count: usize, batch: usize, size: f32) -> Tensor {
    let mut values = Vec::new();
    for _ in 0..count {
        values.push(random.between(0, batch - 1) as f32);
        let [x, y] = [0, 1].map(|_| random.float() * size / 3.0 + size / 4.0);
        values.extend([x, y, x + (random.float() + 2.0) * size / 4.0, y + (random.float() + 2.0) * size / 4.0]);
    }
    Tensor::from_slice(&values, [count, 5]).unwrap()
}

#[test]
fn pooled_regions() {
    many(80, 24, |random, round| {
        let (batch, count, height, width) = (2, random.between(1, 80), random.between(3, 20), random.between(3, 20));
        let is_max = round % 2 == 0;
        let case = Case::new("opset2", "ROIPooling")
            .attribute("pooled_h", random.between(1, 7))
            .attribute("pooled_w", random.between(1, 7))
            .attribute("spatial_scale", if is_max { 0.5 } else { 1.0 })
            .attribute("method", if is_max { "max" } else { "bilinear" });
        let channels = random.between(16, 40);
        let case = case.input(random.tensor(ElementType::F32, &[batch, channels, height, width]));
        case.input(regions(random, count, batch, if is_max { 30.0 } else { 1.2 }))
    });
    many(81, 12, |random, _| {
        let (groups, outputs, count) = (random.between(1, 4), random.between(1, 5), random.between(1, 20));
        let case = Case::new("opset1", "PSROIPooling")
            .attribute("output_dim", outputs)
            .attribute("group_size", groups)
            .attribute("spatial_scale", 0.25)
            .attribute("mode", "average");
        let case = case.input(random.tensor(ElementType::F32, &[2, outputs * groups * groups, 9, 12]));
        case.input(regions(random, count, 2, 40.0))
    });
}

#[test]
fn reductions_of_integers() {
    const TYPES: [ElementType; 4] = [ElementType::I32, ElementType::I64, ElementType::U8, ElementType::I8];
    let names = [
        ("opset1", "ReduceSum"),
        ("opset1", "ReduceMax"),
        ("opset1", "ReduceMin"),
        ("opset1", "ReduceProd"),
        ("opset1", "ReduceMean"),
        ("opset4", "ReduceL1"),
        ("opset1", "ReduceLogicalAnd"),
        ("opset1", "ReduceLogicalOr"),
    ];
    many(82, 48, |random, round| {
        let (opset, name) = names[round % names.len()];
        let element_type = if name.contains("Logical") { ElementType::Boolean } else { TYPES[random.between(0, 3)] };
        let shape = random.shape(3);
        let first = random.between(0, 2);
        let axes: Vec<i64> = (first..=random.between(first, 2)).map(|axis| axis as i64).collect();
        Case::new(opset, name)
            .attribute("keep_dims", round % 2 == 0)
            .input(random.tensor(element_type, &shape))
            .integers(&axes)
    });
}

#[test]
fn fourier_transforms() {
    let names = [("opset7", "DFT"), ("opset7", "IDFT"), ("opset9", "RDFT"), ("opset9", "IRDFT")];
    many(83, 60, |random, round| {
        let (opset, name) = names[round % 4];
        let rank = random.between(1, 3);
        let mut shape: Vec<usize> = (0..rank).map(|_| random.between(2, [40, 20, 9][rank - 1])).collect();
        let mut axes: Vec<i64> = (0..rank as i64).collect();
        for i in 0..rank {
            axes.swap(i, random.between(0, rank - 1));
        }
        axes.truncate(random.between(1, rank));
        if name != "RDFT" {
            shape.push(2);
        }
        let sizes: Vec<i64> = axes.iter().map(|_| [-1, random.between(2, 30) as i64][random.between(0, 1)]).collect();
        let has_sizes = random.between(0, 1) == 0;
        let case =
            Case::new(opset, name).tolerance(2e-4).input(random.tensor(ElementType::F32, &shape)).integers(&axes);
        if has_sizes { case.integers(&sizes) } else { case }
    });
    many(84, 16, |random, round| {
        let (size, step) = (random.between(2, 40), random.between(1, 30));
        let length = size + random.between(0, 200);
        let shape = if round % 2 == 0 { vec![length] } else { vec![2, length] };
        let window = random.between(1, size);
        Case::new("opset15", "STFT")
            .attribute("transpose_frames", random.between(0, 1) == 0)
            .tolerance(2e-4)
            .input(random.tensor(ElementType::F32, &shape))
            .input(random.tensor(ElementType::F32, &[window]))
            .integer(size as i64)
            .integer(step as i64)
    });
    many(84, 32, |random, round| {
        let size = random.between(1, 65);
        let step = random.between(1, size + 3);
        let (results, frames) = (size / 2 + 1, random.between(1, 40));
        let shape = if round % 2 == 0 { vec![results, frames, 2] } else { vec![2, results, frames, 2] };
        // Where windows are small, a division by their squares would make errors large.
        let window: Vec<f32> = (0..random.between(1, size)).map(|_| 1.5 + 0.5 * random.float()).collect();
        let case = Case::new("opset16", "ISTFT")
            .attribute("center", random.between(0, 1) == 0)
            .attribute("normalized", random.between(0, 1) == 0)
            .tolerance(2e-4)
            .input(random.tensor(ElementType::F32, &shape))
            .input(Tensor::from_slice(&window, [window.len()]).unwrap())
            .integer(size as i64)
            .integer(step as i64);
        if round % 3 == 0 { case.integer(random.between(1, 900) as i64) } else { case }
    });
}

#[test]
fn blocks_of_space_and_shuffled_channels() {
    const TYPES: [ElementType; 4] = [ElementType::F32, ElementType::U8, ElementType::F16, ElementType::I64];
    many(85, 24, |random, round| {
        let block = random.between(1, 3);
        let spatial = random.between(1, 3);
        let name = ["DepthToSpace", "SpaceToDepth"][round % 2];
        let mut shape = vec![random.between(1, 2), random.between(1, 3)];
        shape.extend((0..spatial).map(|_| random.between(1, 5)));
        match name {
            "DepthToSpace" => shape[1] *= block.pow(spatial as u32),
            _ => shape[2..].iter_mut().for_each(|size| *size *= block),
        }
        Case::new("opset1", name)
            .attribute("mode", ["blocks_first", "depth_first"][random.between(0, 1)])
            .attribute("block_size", block)
            .input(random.tensor(TYPES[round % 4], &shape))
    });
    many(86, 8, |random, _| {
        let group = random.between(1, 3);
        let shape = [random.between(1, 3), group * random.between(1, 4), random.between(1, 9), 4];
        Case::new("opset1", "ShuffleChannels")
            .attribute("axis", 1)
            .attribute("group", group)
            .input(random.tensor(ElementType::F32, &shape))
    });
}

#[test]
fn promoted_types() {
    const TYPES: [ElementType; 4] = [ElementType::F32, ElementType::I32, ElementType::U8, ElementType::I64];
    many(87, 12, |random, round| {
        let (a, b) = (random.shape(2), random.shape(3));
        Case::new("opset14", "ConvertPromoteTypes")
            .attribute("promote_unsafe", "true")
            .attribute("pytorch_scalar_promotion", "false")
            .attribute("u64_integer_promotion_target", "f32")
            .outputs(2)
            .input(random.tensor(TYPES[round % 4], &a))
            .input(random.tensor(TYPES[round / 4 % 4], &b))
    });
}
