//! # BinaryConvolution
//! A 2D convolution of bits: the agreements of data and filter minus their disagreements.
//!
//! Specification: `convolution/binary-convolution-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | `[N, C, H, W]` of zeros and ones |
//! | in 1 | filter | u1 | `[outputs, C, kernel height, kernel width]` |
//! | out 0 | | that of `data` | `[N, outputs, H_out, W_out]` |
//!
//! An element agrees when it equals the bit of the filter, where `pad_value` stands around the data. The first element of the
//! filter is the top bit of its first byte.

use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType, PartialShape, Shape};

use crate::common::memory::{filled, widened_view, write_rounded};
use crate::common::window::{AutoPad, RoundingType, WindowLists};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of BinaryConvolution.
pub static BINARY_CONVOLUTION: OpDef = OpDef {
    type_name: "BinaryConvolution",
    category: Category::Convolution,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: BinaryConvolutionAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// How data and filter are compared.
    pub enum BinaryConvolutionMode {
        /// Equal bits count 1, others -1.
        #[default]
        XnorPopcount = "xnor-popcount",
    }
}

crate::attributes! {
    /// Attributes of BinaryConvolution.
    pub struct BinaryConvolutionAttributes {
        /// The distance between windows, one item a spatial axis.
        strides: Vec<i64> = "strides", required true;
        /// The distance between the elements of the filter, one item a spatial axis.
        dilations: Vec<i64> = "dilations", required true;
        /// The elements added before the data, one item a spatial axis; used with `auto_pad="explicit"`.
        pads_begin: Vec<i64> = "pads_begin", required true;
        /// The elements added after the data, one item a spatial axis; used with `auto_pad="explicit"`.
        pads_end: Vec<i64> = "pads_end", required true;
        /// How pads are found.
        auto_pad: AutoPad = "auto_pad", default "explicit";
        /// How data and filter are compared.
        mode: BinaryConvolutionMode = "mode", required true;
        /// What stands around the data.
        pad_value: f32 = "pad_value", required true;
    }
}

/// A BinaryConvolution layer.
#[derive(Debug)]
pub struct BinaryConvolution {
    /// The attributes.
    pub attributes: BinaryConvolutionAttributes,
}

impl BinaryConvolution {
    fn lists(&self) -> WindowLists<'_> {
        let a = &self.attributes;
        WindowLists {
            strides: &a.strides,
            dilations: &a.dilations,
            pads_begin: &a.pads_begin,
            pads_end: &a.pads_end,
            auto_pad: a.auto_pad,
            rounding: RoundingType::Floor,
        }
    }
}

impl Operation for BinaryConvolution {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Numeric)?;
        context.require_rank(0, 4..=4)?;
        context.require_rank(1, 4..=4)?;
        let (data, filter, bits) = (context.shape(0), context.shape(1), context.element_type(1));
        if bits.is_known() && bits != ElementType::U1 {
            return Err(OpError::element_type(Blame::Input(1), format!("element type {bits} must be u1")));
        }
        if !data.dim(1).compatible(filter.dim(1)) {
            let message = format!("the filter of shape {filter} does not fit {} channels", data.dim(1));
            return Err(OpError::shape(Blame::Input(1), message));
        }
        let sizes = self.lists().infer(context.symbols(), 2, |i| (data.dim(2 + i), filter.dim(2 + i)))?;
        let dims = [data.dim(0), filter.dim(0)].into_iter().chain(sizes);
        context.set_output(0, element_type, PartialShape::from_dims(dims));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (data, filter) = (context.input(0)?, context.input(1)?);
        let (sizes, kernel) = (data.shape(), filter.shape());
        let axes = self.lists().geometry(&sizes[2..], &kernel[2..])?;
        let (ya, xa) = (axes[0], axes[1]);
        if sizes[1] != kernel[1] {
            return Err(OpError::shape(Blame::Input(1), format!("filter {kernel} does not fit data {sizes}")));
        }
        let shape = Shape::from([sizes[0], kernel[0], ya.output, xa.output]);
        context.output(0, &shape)?;
        let (values, bits) = (widened_view(data)?, filter.bytes());
        let mut result = filled::<f64>(shape.elements())?;
        let (plane, windows, area) = (ya.input * xa.input, ya.output * xa.output, ya.kernel * xa.kernel);
        for (i, target) in result.iter_mut().enumerate() {
            let (n, o, window) = (i / (kernel[0] * windows), i / windows % kernel[0], i % windows);
            for element in 0..kernel[1] * area {
                let (c, k) = (element / area, element % area);
                let y = ya.position(window / xa.output, k / xa.kernel);
                let x = xa.position(window % xa.output, k % xa.kernel);
                let is_inside = y >= 0 && x >= 0 && y < ya.input as i64 && x < xa.input as i64;
                let value = match is_inside {
                    true => values[(n * sizes[1] + c) * plane + y as usize * xa.input + x as usize],
                    false => f64::from(self.attributes.pad_value),
                };
                let position = o * kernel[1] * area + element;
                let bit = bits[position / 8] >> (7 - position % 8) & 1;
                *target += if value == f64::from(bit) { 1.0 } else { -1.0 };
            }
        }
        write_rounded(context.output(0, &shape)?, &result)
    }

    fn takes_packed(&self) -> bool {
        true
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = BinaryConvolutionAttributes::read(context.attributes);
    let operation = BinaryConvolution { attributes };
    operation.lists().check(context.attributes);
    Arc::new(operation)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::{ElementType, Tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn agreements_minus_disagreements() {
        let case = Case::new("BinaryConvolution", "opset1")
            .attribute("strides", "1,1")
            .attribute("dilations", "1,1")
            .attribute("pads_begin", "0,0")
            .attribute("pads_end", "0,1")
            .attribute("mode", "xnor-popcount")
            .attribute("pad_value", "0");
        let data = tensor(&[1f32, 0.0, 1.0], [1, 1, 1, 3]);
        let filter = Tensor::from_bytes(ElementType::U1, [1, 1, 1, 2], &[0b1000_0000]).unwrap();
        assert_eq!(case.run(&[data, filter]).unwrap()[0], tensor(&[2f32, -2.0, 2.0], [1, 1, 1, 3]));
    }
}
