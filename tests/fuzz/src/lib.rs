//! What the fuzz targets do with bytes: each is a function that must return, whatever the bytes are.
//!
//! The test suite of the library includes this file and feeds it the committed corpus.

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use ovir::diagnostics::{Report, SourceText, render_github, render_human, render_json, render_junit, render_sarif};
use ovir::ir::Weights;
use ovir::ops::OpDef;
use ovir::tensor::Tensor;
use ovir::{CompileOptions, Core, Dim, ElementType, Model, PartialShape, Validation};

/// Made once: the registry of operations takes longer than a small file.
static CORE: LazyLock<Core> = LazyLock::new(Core::new);

static OPERATIONS: LazyLock<Vec<&'static OpDef>> = LazyLock::new(|| CORE.registry().built_in());

/// A target: its name, which is that of its corpus, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 5] =
    [("xml", xml), ("attributes", attributes), ("weights", weights), ("inference", inference), ("run", run)];

/// Elements of one input of a model that is run.
const MAX_INPUT_ELEMENTS: usize = 1 << 9;

/// Bytes that an inference may take.
const MEMORY_LIMIT: usize = 1 << 20;

/// Bytes that the values of known shapes may take together.
const STATIC_BYTES: usize = 1 << 22;

/// The time that an inference may take before it stops by itself.
const TIME_LIMIT: Duration = Duration::from_millis(20);

/// Element types that inputs of the target `inference` have.
const TYPES: [&str; 12] = ["f32", "i64", "i32", "f16", "boolean", "u8", "i8", "f64", "string", "u4", "nf4", "dynamic"];

/// Sizes of dimensions that make a difference somewhere.
const SIZES: [&str; 12] = ["1", "2", "3", "4", "0", "?", "1..3", "8", "..5", "16", "9223372036854775807", "7.."];

/// Numbers that attributes and constants get.
const NUMBERS: [i64; 16] = [0, 1, 2, 3, -1, -2, 4, 5, 7, 8, 16, 100, -100, i32::MAX as i64, i64::MAX, i64::MIN];

/// XML of any kind, without weights: reading, validating, every renderer.
pub fn xml(data: &[u8]) {
    let core = &*CORE;
    let validation = core.validate_memory(data, None, true);
    render(&validation);
    if validation.is_valid() {
        let text = validation.xml.clone();
        // What is valid once is valid again, with the same findings.
        let again = core.validate_memory(text.as_bytes(), None, true);
        assert!(again.is_valid(), "validation says two things of one file");
    }
}

/// One layer in a text of lines: `Type opset` first, then `NAME=VALUE` for attributes, `<TYPE SHAPE` for Parameters,
/// `<TYPE SHAPE:NUMBER,..` for constants, `>TYPE SHAPE` for outputs.
pub fn attributes(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let (type_name, opset) = lines.next().and_then(|line| line.split_once(' ')).unwrap_or(("Relu", "opset1"));
    let mut layer = Layer::new(type_name, opset);
    for line in lines.take(64) {
        if let Some(port) = line.strip_prefix('<') {
            layer.inputs.extend(Port::parse(port));
        } else if let Some(port) = line.strip_prefix('>') {
            layer.outputs.extend(Port::parse(port));
        } else if let Some((name, value)) = line.split_once('=') {
            layer.attributes.push((name.to_owned(), value.to_owned()));
        }
    }
    layer.check();
}

/// An XML text and, after its `</net>`, the bytes of the weights.
pub fn weights(data: &[u8]) {
    let (xml, bytes) = split(data);
    let weights = Weights::from_bytes(bytes.to_vec());
    let validation = CORE.validate_memory(xml, Some(&weights), false);
    render(&validation);
    if let Some(result) = &validation.result {
        let _ = ovir::graph::check_values(&result.model);
    }
}

/// One layer made of bytes that always name an operation, attributes that it has, and inputs.
pub fn inference(data: &[u8]) {
    let mut bytes = Bytes { data };
    let operations = OPERATIONS.as_slice();
    let definition = operations[bytes.number() % operations.len()];
    let version = definition.versions[bytes.number() % definition.versions.len()];
    let mut layer = Layer::new(definition.type_name, &format!("opset{}", version.first_opset));
    for attribute in definition.attributes {
        let kind = &attribute.kind;
        let value = match bytes.number() {
            // Most attributes are left to their defaults, so that few bytes reach far.
            0..=127 if !attribute.required => continue,
            number if !kind.allowed.is_empty() => kind.allowed[number % kind.allowed.len()].to_owned(),
            number => {
                let values: Vec<String> = (0..=number % 4).map(|_| bytes.value().to_string()).collect();
                match number % 8 {
                    0 => TYPES[values.len()].to_owned(),
                    1 => ["true", "false"][values.len() % 2].to_owned(),
                    2 => values[0].clone(),
                    _ => values.join(","),
                }
            }
        };
        layer.attributes.push((attribute.name.to_owned(), value));
    }
    for _ in 0..bytes.number() % 9 {
        layer.inputs.push(bytes.port());
    }
    let (fewest, most) = version.outputs;
    for _ in 0..fewest.max(most.min(3)) {
        layer.outputs.push(Port { element_type: "dynamic".to_owned(), shape: "...".to_owned(), values: None });
    }
    layer.check();
}

/// A model with weights as for the target [`weights`], compiled and run on inputs of small numbers if it is valid.
pub fn run(data: &[u8]) {
    let (xml, bytes) = split(data);
    let core = &*CORE;
    let Ok(model) = core.read_model_from_memory(xml, bytes.to_vec()) else { return };
    execute(core, &model);
}

/// Compiles a model and runs it twice, by kernels and by reference. Errors are no defect.
fn execute(core: &Core, model: &Model) {
    // A file may ask for gigabytes in a few digits, and gets them from whoever runs it without a limit.
    if static_bytes(model) > STATIC_BYTES {
        return;
    }
    let inputs: Option<Vec<Tensor>> = model.inputs().iter().map(|p| input(p.element_type, &p.shape)).collect();
    let Some(inputs) = inputs else { return };
    for reference_only in [false, true] {
        let options = CompileOptions { threads: 1, reference_only, ..CompileOptions::default() };
        let Ok(compiled) = core.compile_model(model, &options) else { return };
        let mut request = compiled.create_infer_request();
        let _ = request.set_memory_limit(MEMORY_LIMIT);
        let _ = request.set_time_limit(Some(TIME_LIMIT));
        for (index, tensor) in inputs.iter().enumerate() {
            let _ = request.set_input_tensor(index, tensor.clone());
        }
        // The second time finds memory and shapes of the first.
        let _ = request.infer();
        let _ = request.infer();
    }
}

/// The bytes of all values whose shapes are known before the run.
fn static_bytes(model: &Model) -> usize {
    let values = model.graph().iter().flat_map(|(id, _)| model.validated().inference().outputs(id));
    let bytes =
        values.filter_map(|facts| facts.element_type.storage_bytes(facts.shape.to_shape()?.checked_elements()?));
    bytes.fold(0, usize::saturating_add)
}

/// A tensor of small numbers that fits; `None` where it would be large, or the type has no plain bytes.
fn input(element_type: ElementType, shape: &PartialShape) -> Option<Tensor> {
    let dims: Vec<usize> = match shape.rank() {
        None => vec![2, 3],
        Some(rank) => (0..rank).map(|index| some_size(shape.dim(index))).collect::<Option<_>>()?,
    };
    let elements = dims.iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
    if elements > MAX_INPUT_ELEMENTS {
        return None;
    }
    let numbers: Vec<i64> = (0..elements as i64).map(|index| index * 7 % 5).collect();
    tensor(element_type, &numbers, &dims)
}

/// A size that the dimension allows, small if it allows small ones.
fn some_size(dim: Dim) -> Option<usize> {
    usize::try_from(dim.min().max(2).min(dim.max())).ok()
}

/// The numbers as a tensor of the type, wrapped around where it is too small for them.
fn tensor(element_type: ElementType, numbers: &[i64], dims: &[usize]) -> Option<Tensor> {
    fn of<T: ovir::tensor::NativeElement>(numbers: &[i64], dims: &[usize], to: impl Fn(i64) -> T) -> Option<Tensor> {
        let values: Vec<T> = numbers.iter().map(|number| to(*number)).collect();
        Tensor::from_slice(&values, dims).ok()
    }
    match element_type {
        ElementType::F32 => of(numbers, dims, |n| n as f32),
        ElementType::F64 => of(numbers, dims, |n| n as f64),
        ElementType::F16 => of(numbers, dims, |n| ovir::f16::from_f32(n as f32)),
        ElementType::Bf16 => of(numbers, dims, |n| ovir::bf16::from_f32(n as f32)),
        ElementType::I64 => of(numbers, dims, |n| n),
        ElementType::U64 => of(numbers, dims, |n| n as u64),
        ElementType::I32 => of(numbers, dims, |n| n as i32),
        ElementType::U32 => of(numbers, dims, |n| n as u32),
        ElementType::I16 => of(numbers, dims, |n| n as i16),
        ElementType::U16 => of(numbers, dims, |n| n as u16),
        ElementType::I8 => of(numbers, dims, |n| n as i8),
        ElementType::U8 => of(numbers, dims, |n| n as u8),
        ElementType::Boolean => {
            Tensor::from_booleans(&numbers.iter().map(|n| n % 2 != 0).collect::<Vec<_>>(), dims).ok()
        }
        ElementType::String => Tensor::from_strings(numbers.iter().map(i64::to_string).collect(), dims).ok(),
        _ => {
            let mut tensor = Tensor::zeros(element_type, dims).ok()?;
            let bytes = tensor.bytes_mut().ok()?;
            bytes.iter_mut().zip(numbers).for_each(|(byte, number)| *byte = *number as u8);
            Some(tensor)
        }
    }
}

/// The XML text and the weights after it.
fn split(data: &[u8]) -> (&[u8], &[u8]) {
    const END: &[u8] = b"</net>";
    let end = data.windows(END.len()).position(|window| window == END).map_or(data.len(), |start| start + END.len());
    // Files end with a newline, which is no part of the weights.
    let (xml, bytes) = data.split_at(end);
    (xml, bytes.strip_prefix(b"\n").unwrap_or(bytes))
}

/// Renders the findings in every form.
fn render(validation: &Validation) {
    let report = [Report::new("fuzz.xml", Some(SourceText::new(&validation.xml)), validation.diagnostics.clone())];
    for renderer in [render_json, render_sarif, render_github, render_junit] {
        let _ = renderer(&report);
    }
    let _ = render_human(&report, false);
}

/// A model of one layer between Parameters, constants and Results.
struct Layer {
    type_name: String,
    opset: String,
    attributes: Vec<(String, String)>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
}

/// An input or output of the layer.
struct Port {
    element_type: String,
    /// As a Parameter writes it.
    shape: String,
    /// The values of a constant.
    values: Option<Vec<i64>>,
}

impl Port {
    fn parse(text: &str) -> Option<Port> {
        let (element_type, shape) = text.split_once(' ')?;
        let (shape, values) = match shape.split_once(':') {
            Some((shape, values)) => (shape, Some(values.split(',').filter_map(|v| v.parse().ok()).collect())),
            None => (shape, None),
        };
        Some(Port { element_type: element_type.to_owned(), shape: shape.to_owned(), values })
    }

    /// The dimensions as ports declare them.
    fn dims(&self) -> String {
        let dims = self.shape.split(',').filter(|dim| !dim.is_empty() && *dim != "...");
        dims.fold(String::new(), |mut text, dim| {
            let size: i64 = dim.parse().unwrap_or(-1);
            let _ = write!(text, "<dim>{size}</dim>");
            text
        })
    }

    fn precision(&self) -> String {
        match self.element_type.as_str() {
            "boolean" => "BOOL".to_owned(),
            "string" => "STRING".to_owned(),
            name if name.starts_with('f') => name.replacen('f', "FP", 1),
            name => name.to_uppercase(),
        }
    }

    /// The bytes of a constant with the values, repeated to fill the shape.
    fn bytes(&self, values: &[i64]) -> Vec<u8> {
        let sizes = self.shape.split(',').filter_map(|dim| dim.parse::<usize>().ok());
        let elements = sizes.fold(1usize, usize::saturating_mul).min(MAX_INPUT_ELEMENTS);
        let numbers: Vec<i64> =
            values.iter().copied().cycle().take(if values.is_empty() { 0 } else { elements }).collect();
        let Ok(element_type) = self.element_type.parse::<ElementType>() else { return Vec::new() };
        let dims = [numbers.len()];
        tensor(element_type, &numbers, &dims).map_or_else(Vec::new, |tensor| tensor.bytes().to_vec())
    }
}

impl Layer {
    fn new(type_name: &str, opset: &str) -> Layer {
        let (type_name, opset) = (type_name.to_owned(), opset.to_owned());
        Layer { type_name, opset, attributes: Vec::new(), inputs: Vec::new(), outputs: Vec::new() }
    }

    /// Validates the model, and runs it if it is valid.
    fn check(&self) {
        let (xml, bytes) = self.model();
        let core = &*CORE;
        let weights = Weights::from_bytes(bytes.clone());
        let validation = core.validate_memory(xml.as_bytes(), Some(&weights), false);
        let Ok(model) = validation.into_model(None) else { return };
        execute(core, &model);
    }

    fn model(&self) -> (String, Vec<u8>) {
        let (mut layers, mut edges, mut bytes) = (String::new(), String::new(), Vec::new());
        let own = self.inputs.len();
        for (index, port) in self.inputs.iter().enumerate() {
            let shape = escape(&port.shape);
            let element_type = escape(&port.element_type);
            let (kind, data) = match &port.values {
                None => ("Parameter", String::new()),
                Some(values) => {
                    let content = port.bytes(values);
                    let data = format!(" offset=\"{}\" size=\"{}\"", bytes.len(), content.len());
                    bytes.extend(content);
                    ("Const", data)
                }
            };
            let _ = write!(
                layers,
                "<layer id=\"{index}\" name=\"in{index}\" type=\"{kind}\" version=\"opset1\">\
                 <data element_type=\"{element_type}\" shape=\"{shape}\"{data}/>\
                 <output><port id=\"0\" precision=\"{}\">{}</port></output></layer>",
                escape(&port.precision()),
                port.dims()
            );
            let _ =
                write!(edges, "<edge from-layer=\"{index}\" from-port=\"0\" to-layer=\"{own}\" to-port=\"{index}\"/>");
        }
        let _ = write!(
            layers,
            "<layer id=\"{own}\" name=\"layer\" type=\"{}\" version=\"{}\"><data",
            escape(&self.type_name),
            escape(&self.opset)
        );
        for (name, value) in &self.attributes {
            let _ = write!(layers, " {}=\"{}\"", escape(name), escape(value));
        }
        layers.push_str("/><input>");
        for (index, port) in self.inputs.iter().enumerate() {
            let _ = write!(layers, "<port id=\"{index}\">{}</port>", port.dims());
        }
        layers.push_str("</input><output>");
        for (index, port) in self.outputs.iter().enumerate() {
            let id = own + index;
            let _ =
                write!(layers, "<port id=\"{id}\" precision=\"{}\">{}</port>", escape(&port.precision()), port.dims());
        }
        layers.push_str("</output></layer>");
        for (index, port) in self.outputs.iter().enumerate() {
            let (id, from) = (own + 1 + index, own + index);
            let _ = write!(
                layers,
                "<layer id=\"{id}\" name=\"out{index}\" type=\"Result\" version=\"opset1\">\
                 <input><port id=\"0\">{}</port></input></layer>",
                port.dims()
            );
            let _ = write!(edges, "<edge from-layer=\"{own}\" from-port=\"{from}\" to-layer=\"{id}\" to-port=\"0\"/>");
        }
        (format!("<net name=\"fuzz\" version=\"11\"><layers>\n{layers}</layers><edges>\n{edges}</edges></net>"), bytes)
    }
}

/// A text as the value of an XML attribute.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// Bytes as a source of choices; without end, since zeros follow.
struct Bytes<'a> {
    data: &'a [u8],
}

impl Bytes<'_> {
    fn number(&mut self) -> usize {
        let Some((first, rest)) = self.data.split_first() else { return 0 };
        self.data = rest;
        usize::from(*first)
    }

    fn value(&mut self) -> i64 {
        NUMBERS[self.number() % NUMBERS.len()]
    }

    fn port(&mut self) -> Port {
        let number = self.number();
        let (element_type, is_constant, rank) = (TYPES[number % TYPES.len()], number >= 128, self.number() % 7);
        let shape: Vec<&str> = match rank {
            6 => vec!["..."],
            _ => (0..rank).map(|_| SIZES[self.number() % SIZES.len()]).collect(),
        };
        let values = is_constant.then(|| (0..1 + self.number() % 6).map(|_| self.value()).collect());
        Port { element_type: element_type.to_owned(), shape: shape.join(","), values }
    }
}
