//! Operations of users, and operations that nobody knows.

use std::fmt::Write as _;
use std::sync::Arc;

use ovir::diagnostics::{Code, Diagnostic};
use ovir::ops::{EvaluateContext, InferContext, OpDef, OpResult, Operation, attributes};
use ovir::{CompileOptions, Core, Tensor};
use pretty_assertions::assert_eq;

attributes! {
    /// Attributes of the test's operation.
    pub struct TimesAttributes {
        /// What elements are multiplied by.
        factor: f32 = "factor", required true;
    }
}

#[derive(Debug)]
struct Times(TimesAttributes);

impl Operation for Times {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.set_output(0, context.element_type(0), context.shape(0).clone());
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        assert!(self.0.factor >= 0.0, "the factor {} is negative", self.0.factor);
        let input = context.input(0)?;
        let output = context.output_slice::<f32>(0, input.shape())?;
        output.iter_mut().zip(input.slice::<f32>()?).for_each(|(y, x)| *y = x * self.0.factor);
        Ok(())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.0.print(1)
    }
}

/// A model whose layers of one input and one output follow each other.
fn chain(layers: &[(&str, &str, &str)]) -> String {
    let port = |id: usize, names: &str| format!("<port id=\"{id}\" precision=\"FP32\"{names}><dim>2</dim></port>");
    let mut text = "<net name=\"m\" version=\"11\"><layers>\n".to_owned();
    let _ = writeln!(
        text,
        "<layer id=\"0\" name=\"x\" type=\"Parameter\" version=\"opset1\"><data shape=\"2\" element_type=\"f32\"/>\
         <output>{}</output></layer>",
        port(0, " names=\"x\"")
    );
    for (index, (kind, version, data)) in layers.iter().enumerate() {
        let _ = writeln!(
            text,
            "<layer id=\"{id}\" name=\"l{id}\" type=\"{kind}\" version=\"{version}\">{data}<input>{}</input>\
             <output>{}</output></layer>",
            port(0, ""),
            port(1, &format!(" names=\"y{id}\"", id = index + 1)),
            id = index + 1
        );
    }
    let last = layers.len();
    let _ = writeln!(
        text,
        "<layer id=\"{}\" name=\"r\" type=\"Result\" version=\"opset1\"><input>{}</input></layer></layers><edges>",
        last + 1,
        port(0, "")
    );
    for index in 0..=last {
        let from = usize::from(index > 0);
        let _ = writeln!(
            text,
            "<edge from-layer=\"{index}\" from-port=\"{from}\" to-layer=\"{}\" to-port=\"0\"/>",
            index + 1
        );
    }
    text + "</edges></net>"
}

fn core() -> Core {
    let mut core = Core::new();
    core.register(
        "mine",
        OpDef::of_user("Times", TimesAttributes::DEFINITIONS, |context| {
            Arc::new(Times(TimesAttributes::read(context.attributes)))
        }),
    );
    core
}

fn findings(core: &Core, layers: &[(&str, &str, &str)]) -> Vec<Diagnostic> {
    core.validate_memory(chain(layers).as_bytes(), None, false).diagnostics
}

#[test]
fn an_operation_of_a_user_is_validated_described_and_run() {
    let layers = [("Times", "mine", "<data factor=\"3\"/>"), ("ReLU", "opset1", "")];
    let model = core().read_model_from_memory(chain(&layers).as_bytes(), Vec::new()).unwrap();
    assert_eq!(model.outputs()[0].shape.to_string(), "[2]");
    assert!(
        model.ordered_operations().iter().any(|operation| operation.type_name == "Times" && operation.opset == "mine")
    );
    let mut request = core().compile_model(&model, &CompileOptions::default()).unwrap().create_infer_request();
    request.set_tensor("x", Tensor::from_slice(&[-1f32, 2.0], [2]).unwrap()).unwrap();
    request.infer().unwrap();
    assert_eq!(request.tensor("y2").unwrap().slice::<f32>().unwrap(), [0.0, 6.0]);
}

#[test]
fn attributes_of_a_user_are_checked() {
    let found = findings(&core(), &[("Times", "mine", "<data factr=\"3\"/>")]);
    let codes: Vec<Code> = found.iter().map(|d| d.code).collect();
    assert_eq!(codes, [Code::MissingAttribute, Code::UnknownAttribute]);
    assert_eq!(found[1].help.as_deref(), Some("did you mean `factor`?"));
}

#[test]
fn a_panic_of_a_user_is_an_error_of_the_layer() {
    let layers = [("Times", "mine", "<data factor=\"-1\"/>")];
    let model = core().read_model_from_memory(chain(&layers).as_bytes(), Vec::new()).unwrap();
    let mut request = core().compile_model(&model, &CompileOptions::default()).unwrap().create_infer_request();
    request.set_tensor("x", Tensor::from_slice(&[1f32, 2.0], [2]).unwrap()).unwrap();
    let error = request.infer().unwrap_err().to_string();
    assert!(error.contains("layer \"l1\"") && error.contains("the factor -1 is negative"), "{error}");
}

#[test]
fn an_unknown_operation_is_reported_once_with_all_its_layers() {
    let found = findings(&core(), &[("Tims", "mine", ""), ("ReLU", "opset1", ""), ("Tims", "mine", "")]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].code, Code::UnknownOperation);
    assert_eq!(found[0].message, "unknown operation \"Tims\" of 2 layers");
    assert_eq!(found[0].notes, ["the layers are \"l1\", \"l3\""]);
    let help = found[0].help.as_deref().unwrap();
    assert!(help.contains("Times"), "{help}");
}

#[test]
fn operations_of_plugins_are_reported_once() {
    let layers = [("RMS", "ie_internal_opset", ""), ("RoPE", "extension", ""), ("RMS", "ie_internal_opset", "")];
    let found = findings(&Core::new(), &layers);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].message, "RMS (2 layers), RoPE: in no opset, only inside OpenVINO's plugins");
    assert!(found[0].help.as_deref().unwrap().contains("save_model"));
}

#[test]
fn a_tokenizer_is_reported_once() {
    let layers = [
        ("StringTensorUnpack", "extension", ""),
        ("RegexSplit", "extension", "<data behaviour=\"isolate\"/>"),
        ("BPETokenizer", "extension", ""),
        ("ReLU", "opset1", ""),
    ];
    let found = findings(&Core::new(), &layers);
    assert_eq!(found.len(), 1);
    let expected = "BPETokenizer, RegexSplit, StringTensorUnpack: of the package openvino-tokenizers, in no opset";
    assert_eq!(found[0].message, expected);
}
