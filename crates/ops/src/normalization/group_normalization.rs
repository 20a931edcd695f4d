//! # GroupNormalization
//! Mean-variance normalisation of groups of channels, then a scale and a bias for each channel.
//!
//! Specification: `normalization/group-normalization-12`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | [N, C, ...] |
//! | in 1 | scale | that of `data` | `[C]` |
//! | in 2 | bias | that of `data` | `[C]` |
//! | out 0 | | that of `data` | that of `data` |

use std::sync::Arc;

use ovir_tensor::{ElementClass, dispatch};

use crate::common::elementwise::unsupported;
use crate::common::normalization::mean_and_variance;
use crate::common::number::Number;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of GroupNormalization.
pub static GROUP_NORMALIZATION: OpDef = OpDef {
    type_name: "GroupNormalization",
    category: Category::Normalization,
    versions: &[OpVersion::new(12, (12, 16), (3, 3), (1, 1))],
    attributes: GroupNormalizationAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of GroupNormalization.
    pub struct GroupNormalizationAttributes {
        /// Into how many groups the channels are divided.
        num_groups: u64 = "num_groups", required true;
        /// What is added to the variance.
        epsilon: f64 = "epsilon", required true;
    }
}

/// A GroupNormalization layer.
#[derive(Debug)]
pub struct GroupNormalization {
    /// The attributes.
    pub attributes: GroupNormalizationAttributes,
}

impl Operation for GroupNormalization {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        let element_type = context.require_same_type(&[0, 1, 2])?;
        context.require_rank(0, 2..=usize::MAX)?;
        let mut shape = context.shape(0).clone();
        let mut channels = shape.dim(1);
        for port in [1, 2] {
            context.require_rank(port, 1..=1)?;
            let length = context.shape(port).dim(0);
            channels = channels.merge(length).ok_or_else(|| {
                let message = format!("length {length} differs from {channels}, the number of channels of input 0");
                OpError::shape(Blame::Input(port), message)
            })?;
        }
        if let Some(count) = channels.get() {
            self.channels_in_group(count)?;
        }
        if let Some(dim) = shape.dims_mut().and_then(|dims| dims.get_mut(1)) {
            *dim = channels;
        }
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (data, scale, bias) = (context.input(0)?, context.input(1)?, context.input(2)?);
        let shape = data.shape();
        let [_, channels, spatial @ ..] = &shape[..] else {
            return Err(OpError::shape(Blame::Input(0), format!("shape {shape} must have a rank of at least 2")));
        };
        for (port, input) in [(1, scale), (2, bias)] {
            if input.elements() != *channels {
                let message = format!("{} elements are given for {channels} channels", input.elements());
                return Err(OpError::shape(Blame::Input(port), message));
            }
        }
        let group = self.channels_in_group(*channels)?;
        let length = spatial.iter().product::<usize>();
        let element_type = data.element_type();
        let mut output = context.output(0, shape)?;
        if shape.elements() == 0 {
            return Ok(());
        }
        let epsilon = self.attributes.epsilon;
        dispatch!(element_type, T in [float] => {
            let (x, target) = (data.slice::<T>()?, output.slice_mut::<T>()?);
            let (scale, bias) = (scale.slice::<T>()?, bias.slice::<T>()?);
            for (block, (t, s)) in target.chunks_mut(group * length).zip(x.chunks(group * length)).enumerate() {
                let mut elements = |visit: &mut dyn FnMut(f64)| s.iter().for_each(|v| visit(Number::to_f64(*v)));
                let (mean, variance) = mean_and_variance(&mut elements, s.len());
                let divisor = (variance + epsilon).sqrt();
                for (i, (t, s)) in t.iter_mut().zip(s).enumerate() {
                    let c = (block * group + i / length) % channels;
                    let normalized = (Number::to_f64(*s) - mean) / divisor;
                    *t = T::from_f64(normalized * Number::to_f64(scale[c]) + Number::to_f64(bias[c]));
                }
            }
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(12)
    }
}

impl GroupNormalization {
    /// The number of channels of a group.
    ///
    /// # Errors
    /// When `num_groups` does not divide the number of channels.
    fn channels_in_group(&self, channels: usize) -> OpResult<usize> {
        let groups = usize::try_from(self.attributes.num_groups).unwrap_or(usize::MAX);
        if groups > 0 && channels.is_multiple_of(groups) {
            return Ok(channels / groups);
        }
        Err(OpError::attribute(
            "num_groups",
            format!("`num_groups` is {groups}, which does not divide {channels} channels"),
        ))
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = GroupNormalizationAttributes::read(context.attributes);
    if attributes.num_groups == 0 {
        context.attributes.report(OpError::attribute("num_groups", "`num_groups` is 0, which must be at least 1"));
    }
    if attributes.epsilon < 0.0 || attributes.epsilon.is_nan() {
        let message = format!("`epsilon` is {}, which must not be negative", attributes.epsilon);
        context.attributes.report(OpError::attribute("epsilon", message));
    }
    Arc::new(GroupNormalization { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(groups: &str) -> Case {
        Case::new("GroupNormalization", "opset12").attribute("num_groups", groups).attribute("epsilon", "0")
    }

    #[test]
    fn example_of_the_specification() {
        assert_eq!(case("4").infer(&["f32[3,12,100,100]", "f32[12]", "f32[12]"]), ["f32[3,12,100,100]"]);
        assert_eq!(
            case("5").infer_error(&["f32[3,12,100,100]", "f32[12]", "f32[12]"]),
            "attribute `num_groups`: `num_groups` is 5, which does not divide 12 channels"
        );
    }

    #[test]
    fn groups_are_normalised_apart() {
        let data = tensor(&[1f32, 3.0, 10.0, 30.0, 5.0, 9.0, 0.0, 2.0], [2, 4, 1]);
        let (scale, bias) = (tensor(&[1f32, 2.0, 3.0, 4.0], [4]), tensor(&[0f32, 0.0, 0.0, 1.0], [4]));
        let output = case("2").run(&[data, scale, bias]).unwrap();
        assert_eq!(output[0], tensor(&[-1f32, 2.0, -3.0, 5.0, -1.0, 2.0, -3.0, 5.0], [2, 4, 1]));
    }

    #[test]
    fn inference_is_monotone() {
        case("4").assert_monotone(&["f32[3,12,5]", "f32[12]", "f32[12]"]);
    }
}
