//! # Convolution
//! Slides filters over the spatial axes of the data and sums the products; 1D, 2D or 3D.
//!
//! Specification: `convolution/convolution-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | `[batch, channels, spatial...]`, rank 3 to 5 |
//! | in 1 | filter | that of `data` | `[output channels, input channels, spatial...]` |
//! | out 0 | | that of `data` | `[batch, output channels, windows...]` |
//!
//! Integers are summed modulo their width, floating-point types in f64 and rounded once. An empty list of an attribute
//! stands for its neutral value on every axis, as in OpenVINO.

use std::sync::Arc;

use ovir_tensor::Shape;

use crate::common::convolution::{ConvolutionAttributes, ConvolutionGeometry, evaluate_convolution, infer_convolution};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Convolution.
pub static CONVOLUTION: OpDef = OpDef {
    type_name: "Convolution",
    category: Category::Convolution,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: ConvolutionAttributes::DEFINITIONS,
    build,
};

/// A Convolution layer.
#[derive(Debug)]
pub struct Convolution {
    /// Strides, dilations and pads.
    pub attributes: ConvolutionAttributes,
}

impl Convolution {
    /// The geometry for known shapes of data and filter.
    ///
    /// # Errors
    /// A shape mismatch when the filter does not fit the data.
    pub fn geometry(&self, data: &Shape, filter: &Shape) -> OpResult<ConvolutionGeometry> {
        self.attributes.geometry(data, filter, false)
    }
}

impl Operation for Convolution {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_convolution(context, &self.attributes, false)
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
    Arc::new(Convolution { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(begin: &str, end: &str) -> Case {
        let ones = if begin.contains(',') { "1,1" } else { "1" };
        Case::new("Convolution", "opset1")
            .attribute("strides", ones)
            .attribute("dilations", ones)
            .attribute("pads_begin", begin)
            .attribute("pads_end", end)
    }

    #[test]
    fn the_examples_of_the_specification() {
        let one = case("0", "0");
        assert_eq!(one.infer(&["f32[1,5,128]", "f32[16,5,4]"]), ["f32[1,16,125]"]);
        let two = case("2,2", "2,2");
        assert_eq!(two.infer(&["f32[1,3,224,224]", "f32[64,3,5,5]"]), ["f32[1,64,224,224]"]);
        let three = Case::new("Convolution", "opset1")
            .attribute("dilations", "2,2,2")
            .attribute("pads_begin", "0,0,0")
            .attribute("pads_end", "0,0,0")
            .attribute("strides", "3,3,3")
            .attribute("auto_pad", "explicit");
        assert_eq!(three.infer(&["f32[1,7,320,320,320]", "f32[32,7,3,3,3]"]), ["f32[1,32,106,106,106]"]);
    }

    #[test]
    fn sums_products_of_windows() {
        let data = tensor(&[1f32, 2.0, 3.0, 4.0], [1, 1, 4]);
        let filter = tensor(&[1f32, 10.0, 100.0], [1, 1, 3]);
        assert_eq!(case("1", "1").run(&[data, filter]).unwrap()[0], tensor(&[210f32, 321.0, 432.0, 43.0], [1, 1, 4]));
        let data = tensor(&[200u8, 100], [1, 1, 2]);
        assert_eq!(case("0", "0").run(&[data, tensor(&[1u8, 2], [1, 1, 2])]).unwrap()[0], tensor(&[144u8], [1, 1, 1]));
    }

    #[test]
    fn unknown_sizes_stay_intervals() {
        assert_eq!(case("1", "1").infer(&["f32[?,3,5..9]", "f32[8,3,3]"]), ["f32[?,8,5..9]"]);
        assert_eq!(case("1", "1").infer(&["f32[...]", "f32[8,3,3]"]), ["f32[?,8,1..]"]);
        assert_eq!(case("1", "1").infer(&["f32[...]", "f32[...]"]), ["f32[?,?,1..]"]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        assert_eq!(
            case("1", "0").infer_error(&["f32[1,3,2]", "f32[8,3,5]"]),
            "input 0: at spatial axis 0, a kernel of size 5 does not fit into 2 elements with pads 1 and 0"
        );
        assert_eq!(
            case("1,1", "0").infer_error(&["f32[1,3,8]", "f32[8,3,5]"]),
            "attribute `strides`: `strides` has 2 items for 1 spatial axes"
        );
        assert!(case("0", "0").attribute("auto_pad", "some").attribute_errors(2)[0].contains("auto_pad"));
        assert!(case("-1", "0").attribute_errors(2)[0].contains("out of range"));
    }
}
