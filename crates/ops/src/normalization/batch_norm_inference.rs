//! # BatchNormInference
//! `gamma * (x - mean) / sqrt(variance + epsilon) + beta`, each parameter one number a channel.
//!
//! Specification: `normalization/batch-norm-inference-1`, `normalization/batch-norm-inference-5`.
//!
//! | port (version 1) | port (version 5) | name | types | shape |
//! |---|---|---|---|---|
//! | in 2 | in 0 | data | any floating-point type | [N, C, ...] |
//! | in 0 | in 1 | gamma | that of `data` | `[C]` |
//! | in 1 | in 2 | beta | that of `data` | `[C]` |
//! | in 3 | in 3 | mean | that of `data` | `[C]` |
//! | in 4 | in 4 | variance | that of `data` | `[C]` |
//! | out 0 | out 0 | | that of `data` | that of `data` |
//!
//! Deviation: the page of version 1 puts `data` first, but files have it third, as OpenVINO reads and writes them.

use std::sync::Arc;

use ovir_tensor::{ElementClass, dispatch};

use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of BatchNormInference.
pub static BATCH_NORM_INFERENCE: OpDef = OpDef {
    type_name: "BatchNormInference",
    category: Category::Normalization,
    versions: &[OpVersion::new(1, (1, 4), (5, 5), (1, 1)), OpVersion::new(5, (5, 16), (5, 5), (1, 1))],
    attributes: BatchNormInferenceAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of BatchNormInference.
    pub struct BatchNormInferenceAttributes {
        /// What is added to the variance.
        epsilon: f64 = "epsilon", required true;
    }
}

/// A BatchNormInference layer.
#[derive(Debug)]
pub struct BatchNormInference {
    /// The attributes.
    pub attributes: BatchNormInferenceAttributes,
    /// The port of the data; the ports of gamma, beta, mean and variance.
    pub ports: (usize, [usize; 4]),
}

impl Operation for BatchNormInference {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let (data, parameters) = self.ports;
        context.require_class(data, ElementClass::Float)?;
        let element_type =
            context.require_same_type(&[data, parameters[0], parameters[1], parameters[2], parameters[3]])?;
        context.require_rank(data, 2..=usize::MAX)?;
        let mut shape = context.shape(data).clone();
        let mut channels = shape.dim(1);
        for port in parameters {
            context.require_rank(port, 1..=1)?;
            let length = context.shape(port).dim(0);
            channels = channels.merge(length).ok_or_else(|| {
                let message =
                    format!("length {length} differs from {channels}, the number of channels of input {data}");
                OpError::shape(Blame::Input(port), message)
            })?;
        }
        if let Some(dim) = shape.dims_mut().and_then(|dims| dims.get_mut(1)) {
            *dim = channels;
        }
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (port, [gamma, beta, mean, variance]) = self.ports;
        let data = context.input(port)?;
        let shape = data.shape();
        let [_, channels, spatial @ ..] = &shape[..] else {
            return Err(OpError::shape(Blame::Input(port), format!("shape {shape} must have a rank of at least 2")));
        };
        let length = spatial.iter().product::<usize>();
        let inputs = [context.input(gamma)?, context.input(beta)?, context.input(mean)?, context.input(variance)?];
        if let Some(i) = inputs.iter().position(|input| input.elements() != *channels) {
            let message = format!("{} elements are given for {channels} channels", inputs[i].elements());
            return Err(OpError::shape(Blame::Input(self.ports.1[i]), message));
        }
        let element_type = data.element_type();
        let mut output = context.output(0, shape)?;
        if shape.elements() == 0 {
            return Ok(());
        }
        let epsilon = self.attributes.epsilon;
        dispatch!(element_type, T in [float] => {
            let (x, target) = (data.slice::<T>()?, output.slice_mut::<T>()?);
            let [gamma, beta, mean, variance] =
                [inputs[0].slice::<T>()?, inputs[1].slice::<T>()?, inputs[2].slice::<T>()?, inputs[3].slice::<T>()?];
            for (block, (t, s)) in target.chunks_mut(length).zip(x.chunks(length)).enumerate() {
                let c = block % channels;
                let scale = Number::to_f64(gamma[c]) / (Number::to_f64(variance[c]) + epsilon).sqrt();
                let (center, shift) = (Number::to_f64(mean[c]), Number::to_f64(beta[c]));
                for (t, s) in t.iter_mut().zip(s) {
                    *t = T::from_f64((Number::to_f64(*s) - center) * scale + shift);
                }
            }
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(5)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let ports = if context.class_version == 1 { (2, [0, 1, 3, 4]) } else { (0, [1, 2, 3, 4]) };
    let attributes = BatchNormInferenceAttributes::read(context.attributes);
    if attributes.epsilon < 0.0 || attributes.epsilon.is_nan() {
        let message = format!("`epsilon` is {}, which must not be negative", attributes.epsilon);
        context.attributes.report(OpError::attribute("epsilon", message));
    }
    Arc::new(BatchNormInference { attributes, ports })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(opset: &str) -> Case {
        Case::new("BatchNormInference", opset).attribute("epsilon", "0")
    }

    #[test]
    fn examples_of_the_specification() {
        let case = case("opset5");
        assert_eq!(case.infer(&["f32[10,128]", "f32[128]", "f32[128]", "f32[128]", "f32[128]"]), ["f32[10,128]"]);
        assert_eq!(case.infer(&["f32[1,?,224,224]", "f32[3]", "f32[3]", "f32[3]", "f32[3]"]), ["f32[1,3,224,224]"]);
        assert_eq!(
            case.infer_error(&["f32[1,3,224,224]", "f32[3]", "f32[4]", "f32[3]", "f32[3]"]),
            "input 2: length 4 differs from 3, the number of channels of input 0"
        );
    }

    #[test]
    fn the_order_of_ports_differs_by_version() {
        let data = tensor(&[1f32, 2.0, 3.0, 4.0], [1, 2, 2]);
        let (gamma, beta) = (tensor(&[1f32, 2.0], [2]), tensor(&[0f32, 1.0], [2]));
        let (mean, variance) = (tensor(&[1f32, 3.0], [2]), tensor(&[1f32, 4.0], [2]));
        let expected = tensor(&[0f32, 1.0, 1.0, 2.0], [1, 2, 2]);
        let inputs = [data.clone(), gamma.clone(), beta.clone(), mean.clone(), variance.clone()];
        assert_eq!(case("opset5").run(&inputs).unwrap()[0], expected);
        assert_eq!(case("opset1").run(&[gamma, beta, data, mean, variance]).unwrap()[0], expected);
    }

    #[test]
    fn inference_is_monotone() {
        case("opset5").assert_monotone(&["f32[1,3,4]", "f32[3]", "f32[3]", "f32[3]", "f32[3]"]);
        case("opset1").assert_monotone(&["f32[3]", "f32[3]", "f32[1,3,4]", "f32[3]", "f32[3]"]);
    }
}
