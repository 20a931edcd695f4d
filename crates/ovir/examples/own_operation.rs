//! Adds an operation of its own, and validates, describes and runs a model that has it.
//!
//! `cargo run -p ovir --example own_operation`

#![allow(clippy::print_stdout, missing_docs)]

use std::sync::Arc;

use ovir::ops::{EvaluateContext, InferContext, OpDef, OpError, OpResult, Operation, attributes};
use ovir::tensor::ElementClass;
use ovir::{CompileOptions, Core, Tensor};

/// A model of one layer, as a converter with an extension writes it.
const MODEL: &str = r#"<net name="example" version="11">
    <layers>
        <layer id="0" name="x" type="Parameter" version="opset1">
            <data shape="?,2" element_type="f32"/>
            <output><port id="0" precision="FP32" names="x"><dim>-1</dim><dim>2</dim></port></output>
        </layer>
        <layer id="1" name="leak" type="Leak" version="my_operations">
            <data slope="0.5"/>
            <input><port id="0" precision="FP32"><dim>-1</dim><dim>2</dim></port></input>
            <output><port id="1" precision="FP32" names="y"><dim>-1</dim><dim>2</dim></port></output>
        </layer>
        <layer id="2" name="result" type="Result" version="opset1">
            <input><port id="0" precision="FP32"><dim>-1</dim><dim>2</dim></port></input>
        </layer>
    </layers>
    <edges>
        <edge from-layer="0" from-port="0" to-layer="1" to-port="0"/>
        <edge from-layer="1" from-port="1" to-layer="2" to-port="0"/>
    </edges>
</net>"#;

attributes! {
    /// Attributes of Leak.
    pub struct LeakAttributes {
        /// What negative numbers are multiplied by; a number from 0 to 1.
        slope: f32 = "slope", required true;
    }
}

/// The operation: negative numbers become smaller.
#[derive(Debug)]
struct Leak(LeakAttributes);

impl Operation for Leak {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Float)?;
        context.set_output(0, element_type, context.shape(0).clone());
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let input = context.input(0)?;
        let output = context.output_slice::<f32>(0, input.shape())?;
        for (y, x) in output.iter_mut().zip(input.slice::<f32>()?) {
            *y = if *x < 0.0 { x * self.0.slope } else { *x };
        }
        Ok(())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.0.print(1)
    }
}

/// The definition, as those of ovir's own operations are.
fn leak() -> OpDef {
    OpDef::of_user("Leak", LeakAttributes::DEFINITIONS, |context| {
        let attributes = LeakAttributes::read(context.attributes);
        if !(0.0..=1.0).contains(&attributes.slope) {
            let message = format!("`slope` is {}, which must be in [0, 1]", attributes.slope);
            context.attributes.report(OpError::attribute("slope", message));
        }
        Arc::new(Leak(attributes))
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut core = Core::new();
    core.register("my_operations", leak());

    let defective = MODEL.replace("0.5", "2");
    for diagnostic in core.validate_memory(defective.as_bytes(), None, false).diagnostics {
        println!("{}: {}", diagnostic.code, diagnostic.message);
    }

    let model = core.read_model_from_memory(MODEL.as_bytes(), Vec::new())?;
    for output in model.outputs() {
        println!("{} is {}{}", output.name, output.element_type, output.shape);
    }

    let mut request = core.compile_model(&model, &CompileOptions::default())?.create_infer_request();
    request.set_tensor("x", Tensor::from_slice(&[-1f32, 2.0, 3.0, -4.0], [2, 2])?)?;
    request.infer()?;
    println!("{:?}", request.tensor("y")?.slice::<f32>()?);
    Ok(())
}
