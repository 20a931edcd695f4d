//! # ConvolutionBackpropData
//! Transposed convolution: spreads every element of the data by the filters; 1D, 2D or 3D.
//!
//! Specification: `convolution/convolution-backprop-data-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | `[batch, channels, spatial...]`, rank 3 to 5 |
//! | in 1 | filter | that of `data` | `[input channels, output channels, spatial...]` |
//! | in 2 | output_shape (optional) | any integer type | one size for each spatial axis |
//! | out 0 | | that of `data` | `[batch, output channels, spatial...]` |
//!
//! Departures from the page, as in OpenVINO: with `output_shape` and explicit pads the pads of the attributes hold, and
//! with `valid` there are none; elements of the output that the data do not reach are 0. Integers are summed modulo
//! their width, floating-point types in f64 and rounded once.

use std::sync::Arc;

use ovir_tensor::Shape;

use crate::common::convolution::{ConvolutionGeometry, TransposedAttributes, evaluate_transposed, infer_transposed};
use crate::common::window::check_range;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of ConvolutionBackpropData.
pub static CONVOLUTION_BACKPROP_DATA: OpDef = OpDef {
    type_name: "ConvolutionBackpropData",
    category: Category::Convolution,
    versions: &[OpVersion::new(1, (1, 16), (2, 3), (1, 1))],
    attributes: TransposedAttributes::DEFINITIONS,
    build,
};

/// A ConvolutionBackpropData layer.
#[derive(Debug)]
pub struct ConvolutionBackpropData {
    /// Strides, dilations and pads.
    pub attributes: TransposedAttributes,
}

impl ConvolutionBackpropData {
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
        self.attributes.geometry(data, filter, false, output_shape)
    }
}

impl Operation for ConvolutionBackpropData {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_transposed(context, &self.attributes, false)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_transposed(context, &self.attributes, false)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = TransposedAttributes::read(context.attributes);
    attributes.lists().check(context.attributes);
    check_range(context.attributes, "output_padding", &attributes.output_padding, 0);
    Arc::new(ConvolutionBackpropData { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(strides: &str, begin: &str, end: &str, output_padding: &str) -> Case {
        Case::new("ConvolutionBackpropData", "opset1")
            .attribute("strides", strides)
            .attribute("dilations", if begin.contains(',') { "1,1" } else { "1" })
            .attribute("pads_begin", begin)
            .attribute("pads_end", end)
            .attribute("output_padding", output_padding)
    }

    #[test]
    fn the_examples_of_the_specification() {
        let one = case("2,2", "1,1", "1,1", "");
        assert_eq!(one.infer(&["f32[1,20,224,224]", "f32[20,10,3,3]"]), ["f32[1,10,447,447]"]);
        let two = case("3,3", "0,0", "0,0", "2,2");
        assert_eq!(two.infer(&["f32[1,20,2,2]", "f32[20,10,3,3]"]), ["f32[1,10,8,8]"]);
        let three = case("1,1", "1,1", "1,1", "").attribute("auto_pad", "valid");
        assert_eq!(three.infer(&["f32[1,20,224,224]", "f32[20,10,3,3]", "i64[2]=450,450"]), ["f32[1,10,450,450]"]);
    }

    #[test]
    fn spreads_by_stride() {
        let (data, filter) = (tensor(&[1f32, 2.0], [1, 1, 2]), tensor(&[1f32, 10.0, 100.0], [1, 1, 3]));
        let full = case("2", "0", "0", "").run(&[data.clone(), filter.clone()]).unwrap();
        assert_eq!(full[0], tensor(&[1f32, 10.0, 102.0, 20.0, 200.0], [1, 1, 5]));
        let cut = case("2", "1", "1", "1").run(&[data.clone(), filter.clone()]).unwrap();
        assert_eq!(cut[0], tensor(&[10f32, 102.0, 20.0, 200.0], [1, 1, 4]));
        let sized = case("2", "0", "0", "").run(&[data, filter, tensor(&[7i64], [1])]).unwrap();
        assert_eq!(sized[0], tensor(&[1f32, 10.0, 102.0, 20.0, 200.0, 0.0, 0.0], [1, 1, 7]));
    }

    #[test]
    fn unknown_sizes_stay_intervals() {
        let case = case("2", "1", "1", "");
        assert_eq!(case.infer(&["f32[?,3,2..4]", "f32[3,8,3]"]), ["f32[?,8,3..7]"]);
        assert_eq!(case.infer(&["f32[...]", "f32[3,8,3]", "i64[1]=5..6"]), ["f32[?,8,5..6]"]);
        assert_eq!(case.infer(&["f32[1,3,9]", "f32[...]", "i64[1]"]), ["f32[1,?,?]"]);
        assert_eq!(
            case.infer_error(&["f32[1,3,9]", "f32[3,8,3]", "i64[2]"]),
            "input 2: shape [2] must be [1]: one size for each spatial axis"
        );
    }
}
