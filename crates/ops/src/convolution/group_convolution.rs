//! # GroupConvolution
//! Convolutions of groups of channels, each with filters of its own; 1D, 2D or 3D.
//!
//! Specification: `convolution/group-convolution-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | `[batch, channels, spatial...]`, rank 3 to 5 |
//! | in 1 | filter | that of `data` | `[groups, output channels, input channels, spatial...]` |
//! | out 0 | | that of `data` | `[batch, groups * output channels, windows...]` |
//!
//! Integers are summed modulo their width, floating-point types in f64 and rounded once. An empty list of an attribute
//! stands for its neutral value on every axis, as in OpenVINO.

use std::sync::Arc;

use ovir_tensor::Shape;

use crate::common::convolution::{ConvolutionAttributes, ConvolutionGeometry, evaluate_convolution, infer_convolution};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of GroupConvolution.
pub static GROUP_CONVOLUTION: OpDef = OpDef {
    type_name: "GroupConvolution",
    category: Category::Convolution,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: ConvolutionAttributes::DEFINITIONS,
    build,
};

/// A GroupConvolution layer.
#[derive(Debug)]
pub struct GroupConvolution {
    /// Strides, dilations and pads.
    pub attributes: ConvolutionAttributes,
}

impl GroupConvolution {
    /// The geometry for known shapes of data and filter.
    ///
    /// # Errors
    /// A shape mismatch when the filter does not fit the data.
    pub fn geometry(&self, data: &Shape, filter: &Shape) -> OpResult<ConvolutionGeometry> {
        self.attributes.geometry(data, filter, true)
    }
}

impl Operation for GroupConvolution {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_convolution(context, &self.attributes, true)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let geometry = self.geometry(context.input(0)?.shape(), context.input(1)?.shape())?;
        evaluate_convolution(context, &geometry)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ConvolutionAttributes::read(context.attributes);
    attributes.lists().check(context.attributes);
    Arc::new(GroupConvolution { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(begin: &str, end: &str) -> Case {
        let ones = if begin.contains(',') { "1,1" } else { "1" };
        Case::new("GroupConvolution", "opset1")
            .attribute("strides", ones)
            .attribute("dilations", ones)
            .attribute("pads_begin", begin)
            .attribute("pads_end", end)
    }

    #[test]
    fn groups_do_not_mix() {
        let data = tensor(&[1f32, 2.0, 3.0, 10.0, 20.0, 30.0], [1, 2, 3]);
        let filter = tensor(&[1f32, 1.0, 2.0, 0.0], [2, 1, 1, 2]);
        assert_eq!(case("0", "0").run(&[data, filter]).unwrap()[0], tensor(&[3f32, 5.0, 20.0, 40.0], [1, 2, 2]));
    }

    #[test]
    fn the_example_of_the_specification() {
        let case = case("1,1", "1,1");
        assert_eq!(case.infer(&["f32[1,12,224,224]", "f32[4,1,3,5,5]"]), ["f32[1,4,222,222]"]);
    }

    #[test]
    fn channels_must_divide_into_the_groups() {
        assert_eq!(
            case("0", "0").infer_error(&["f32[1,5,9]", "f32[2,4,2,3]"]),
            "input 1: the filter of shape [2,4,2,3] takes 4 channels, but the data of shape [1,5,9] have 5"
        );
        assert_eq!(case("0", "0").infer(&["f32[?,?,9]", "f32[?,4,2,3]"]), ["f32[?,?,7]"]);
    }
}
