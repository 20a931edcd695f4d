//! # GroupConvolutionBackpropData
//! Transposed convolutions of groups of channels, each with filters of its own; 1D, 2D or 3D.
//!
//! Specification: `convolution/group-convolution-backprop-data-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | `[batch, channels, spatial...]`, rank 3 to 5 |
//! | in 1 | filter | that of `data` | `[groups, input channels, output channels, spatial...]` |
//! | in 2 | output_shape (optional) | any integer type | one size for each spatial axis |
//! | out 0 | | that of `data` | `[batch, groups * output channels, spatial...]` |
//!
//! Departures from the page, as in OpenVINO: with `output_shape` and explicit pads the pads of the attributes hold, and
//! with `valid` there are none; elements of the output that the data do not reach are 0. Integers are summed modulo
//! their width, floating-point types in f64 and rounded once.

use std::sync::Arc;

use ovir_tensor::Shape;

use crate::common::convolution::{ConvolutionGeometry, TransposedAttributes, evaluate_transposed, infer_transposed};
use crate::common::window::check_range;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of GroupConvolutionBackpropData.
pub static GROUP_CONVOLUTION_BACKPROP_DATA: OpDef = OpDef {
    type_name: "GroupConvolutionBackpropData",
    category: Category::Convolution,
    versions: &[OpVersion::new(1, (1, 16), (2, 3), (1, 1))],
    attributes: TransposedAttributes::DEFINITIONS,
    build,
};

/// A GroupConvolutionBackpropData layer.
#[derive(Debug)]
pub struct GroupConvolutionBackpropData {
    /// Strides, dilations and pads.
    pub attributes: TransposedAttributes,
}

impl GroupConvolutionBackpropData {
    /// The geometry for known shapes of data and filter and the values of the third input.
    ///
    /// # Errors
    /// A shape mismatch when the filter does not fit the data.
    pub fn geometry(
        &self,
        data: &Shape,
        filter: &Shape,
        output_shape: Option<&[i64]>,
    ) -> OpResult<ConvolutionGeometry> {
        self.attributes.geometry(data, filter, true, output_shape)
    }
}

impl Operation for GroupConvolutionBackpropData {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_transposed(context, &self.attributes, true)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_transposed(context, &self.attributes, true)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = TransposedAttributes::read(context.attributes);
    attributes.lists().check(context.attributes);
    check_range(context.attributes, "output_padding", &attributes.output_padding, 0);
    Arc::new(GroupConvolutionBackpropData { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(strides: &str, begin: &str, end: &str, output_padding: &str) -> Case {
        Case::new("GroupConvolutionBackpropData", "opset1")
            .attribute("strides", strides)
            .attribute("dilations", if begin.contains(',') { "1,1" } else { "1" })
            .attribute("pads_begin", begin)
            .attribute("pads_end", end)
            .attribute("output_padding", output_padding)
    }

    #[test]
    fn groups_do_not_mix() {
        let data = tensor(&[1f32, 2.0, 10.0, 20.0], [1, 2, 2]);
        let filter = tensor(&[1f32, 1.0, 2.0, 0.0], [2, 1, 1, 2]);
        let case = case("1", "0", "0", "");
        assert_eq!(case.run(&[data, filter]).unwrap()[0], tensor(&[1f32, 3.0, 2.0, 20.0, 40.0, 0.0], [1, 2, 3]));
    }

    #[test]
    fn the_examples_of_the_specification() {
        let one = case("2,2", "1,1", "1,1", "");
        assert_eq!(one.infer(&["f32[1,20,224,224]", "f32[4,5,2,3,3]"]), ["f32[1,8,447,447]"]);
        let two = case("3,3", "0,0", "0,0", "2,2");
        assert_eq!(two.infer(&["f32[1,20,2,2]", "f32[4,5,2,3,3]"]), ["f32[1,8,8,8]"]);
        let three = case("1,1", "1,1", "1,1", "").attribute("auto_pad", "valid");
        assert_eq!(three.infer(&["f32[1,20,224,224]", "f32[4,5,2,3,3]", "i64[2]=450,450"]), ["f32[1,8,450,450]"]);
    }
}
