//! Models written as text, layer by layer, and run both ways.

use std::fmt::Write as _;
use std::sync::Arc;

use ovir_graph::{BuildOptions, Validated, build, validate};
use ovir_ir::{Weights, read_document};
use ovir_ops::Registry;
use ovir_optimize::{Options, PassReport, optimize, optimize_traced};
use ovir_runtime::{CompileOptions, Compiled, ProfileEntry, Request};
use ovir_tensor::Tensor;

/// A model as text, built layer by layer.
#[derive(Default)]
pub struct Text {
    layers: String,
    edges: String,
    bin: Vec<u8>,
    count: usize,
    body: String,
    /// Bytes from a place that fits every element to where each constant begins.
    shift: usize,
}

/// A layer and its output port.
#[derive(Clone, Copy)]
pub struct Value(pub usize, pub usize);

impl Text {
    /// A model each of whose constants begins so many bytes behind a place that fits every element.
    pub fn shifted(shift: usize) -> Text {
        Text { shift, ..Text::default() }
    }

    pub fn layer(&mut self, kind: &str, data: &str, inputs: &[Value], precision: &str) -> Value {
        self.layer_of(kind, data, inputs, precision, usize::from(kind != "Result"))
    }

    /// A layer with several outputs; the value is the first of them.
    pub fn layer_of(&mut self, kind: &str, data: &str, inputs: &[Value], precision: &str, count: usize) -> Value {
        let id = self.count;
        self.count += 1;
        let ports: String = (0..inputs.len()).map(|port| format!("<port id=\"{port}\"/>")).collect();
        let output = inputs.len();
        let outputs: String =
            (output..output + count).map(|id| format!("<port id=\"{id}\" precision=\"{precision}\"/>")).collect();
        let opset = match kind {
            "Gather" | "MaxPool" | "RandomUniform" | "Slice" => "opset8",
            "HSwish" | "Interpolate" | "Swish" => "opset4",
            "CumSum" | "NonZero" => "opset3",
            "Einsum" => "opset7",
            "Round" => "opset5",
            "GridSample" | "ROIAlign" => "opset9",
            "GroupNormalization" => "opset12",
            "ScaledDotProductAttention" => "opset13",
            "Broadcast" | "ShapeOf" => "opset3",
            "Assign" | "ExperimentalDetectronROIFeatureExtractor" | "MVN" | "ReadValue" => "opset6",
            _ => "opset1",
        };
        write!(self.layers, "<layer id=\"{id}\" name=\"{kind}{id}\" type=\"{kind}\" version=\"{opset}\"><data {data}/><input>{ports}</input><output>{outputs}</output></layer>").unwrap();
        for (port, Value(from, from_port)) in inputs.iter().enumerate() {
            write!(
                self.edges,
                "<edge from-layer=\"{from}\" from-port=\"{from_port}\" to-layer=\"{id}\" to-port=\"{port}\"/>"
            )
            .unwrap();
        }
        Value(id, output)
    }

    /// Builds a nested graph, which the next layer with a body has.
    pub fn nested<T>(&mut self, build: impl FnOnce(&mut Text) -> T) -> T {
        let mut body = Text { bin: std::mem::take(&mut self.bin), shift: self.shift, ..Text::default() };
        let built = build(&mut body);
        self.bin = std::mem::take(&mut body.bin);
        self.body = format!("<body><layers>{}</layers><edges>{}</edges></body>", body.layers, body.edges);
        built
    }

    /// A layer with the nested graph that was built last; `map` says how the two are connected.
    pub fn with_body<const N: usize>(
        &mut self,
        kind: &str,
        map: &str,
        inputs: &[Value],
        precision: &str,
    ) -> [Value; N] {
        let Value(id, first) = self.layer_of(kind, "", inputs, precision, N);
        let end = self.layers.rfind("</layer>").unwrap();
        self.layers.insert_str(end, &format!("{map}{}", self.body));
        std::array::from_fn(|port| Value(id, first + port))
    }

    pub fn constant(&mut self, element_type: &str, shape: &[usize], bytes: &[u8]) -> Value {
        self.bin.resize(self.bin.len().next_multiple_of(64) + self.shift, 0);
        let (offset, size) = (self.bin.len(), bytes.len());
        self.bin.extend_from_slice(bytes);
        let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
        let data = format!(
            "element_type=\"{element_type}\" shape=\"{}\" offset=\"{offset}\" size=\"{size}\"",
            shape.join(",")
        );
        self.layer("Const", &data, &[], "FP32")
    }

    pub fn floats(&mut self, shape: &[usize], values: impl Fn(usize) -> f32) -> Value {
        let bytes: Vec<u8> = (0..shape.iter().product()).flat_map(|i| values(i).to_le_bytes()).collect();
        self.constant("f32", shape, &bytes)
    }

    pub fn integers(&mut self, values: &[i64]) -> Value {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant("i64", &[values.len()], &bytes)
    }

    pub fn parameter(&mut self, element_type: &str, shape: &str) -> Value {
        self.layer("Parameter", &format!("element_type=\"{element_type}\" shape=\"{shape}\""), &[], "FP32")
    }

    pub fn run(&self, inputs: &[Tensor], reference_only: bool) -> (Tensor, Vec<ProfileEntry>) {
        let mut request = self.request(reference_only);
        request.set_profiling(true);
        for (index, input) in inputs.iter().enumerate() {
            request.set_input(index, input.clone()).unwrap();
        }
        request.infer().unwrap();
        (request.output(0).unwrap().clone(), request.profile().unwrap().entries.clone())
    }

    /// What an inference with these inputs fails with.
    pub fn failure(&self, inputs: &[Tensor]) -> String {
        let mut request = self.request(false);
        for (index, input) in inputs.iter().enumerate() {
            request.set_input(index, input.clone()).unwrap();
        }
        request.infer().unwrap_err().to_string()
    }

    pub fn request(&self, reference_only: bool) -> Request {
        // The reference too, so that f16 graphs are promoted in both; that of a fused layer is its parts one by one.
        self.request_after(&Options::default(), reference_only)
    }

    /// What the layers of the text give one by one.
    pub fn unoptimised(&self, inputs: &[Tensor]) -> Tensor {
        let mut request = self.plain_request();
        for (index, input) in inputs.iter().enumerate() {
            request.set_input(index, input.clone()).unwrap();
        }
        request.infer().unwrap();
        request.output(0).unwrap().clone()
    }

    /// A request that runs the layers of the text one by one.
    pub fn plain_request(&self) -> Request {
        self.request_after(&Options { enabled: false }, true)
    }

    /// What the passes do.
    pub fn reports(&self) -> Vec<PassReport> {
        optimize_traced(self.validated(), &Options::default()).1
    }

    fn validated(&self) -> Validated {
        let xml = format!(
            "<?xml version=\"1.0\"?><net name=\"case\" version=\"11\"><layers>{}</layers><edges>{}</edges></net>",
            self.layers, self.edges
        );
        let (document, diagnostics) = read_document(xml.as_bytes());
        let weights = Weights::from_bytes(self.bin.clone());
        let built = build(document.unwrap(), Some(&weights), &Registry::default(), BuildOptions::default());
        let earlier = diagnostics.into_iter().chain(built.diagnostics).collect();
        validate(built.model, earlier).into_validated().unwrap()
    }

    fn request_after(&self, passes: &Options, reference_only: bool) -> Request {
        self.request_of(passes, &CompileOptions { threads: 2, reference_only, ..CompileOptions::default() })
    }

    pub fn request_of(&self, passes: &Options, options: &CompileOptions) -> Request {
        let validated = optimize(self.validated(), passes);
        Request::new(Arc::new(Compiled::new(validated, options).unwrap()))
    }

    pub fn check(&self, inputs: &[Tensor], what: &str) {
        let (expected, _) = self.run(inputs, true);
        let (actual, entries) = self.run(inputs, false);
        assert!(entries.iter().all(|entry| entry.is_kernel), "{what} ran by its reference");
        compare(&expected, &actual, what);
    }
}

/// Compares two results of f32.
pub fn compare(expected: &Tensor, actual: &Tensor, what: &str) {
    assert_eq!(expected.shape(), actual.shape(), "{what}");
    let (expected, actual) = (expected.slice::<f32>().unwrap(), actual.slice::<f32>().unwrap());
    let largest = expected.iter().fold(0f32, |most, value| most.max(value.abs()));
    for (index, (e, a)) in expected.iter().zip(actual).enumerate() {
        assert!((e - a).abs() <= 1e-5 * largest, "{what}: element {index} is {a}, the reference has {e}");
    }
}
