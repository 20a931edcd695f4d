//! # Col2Im
//! An image from sliding blocks, whose overlapping elements are added.
//!
//! Specification: `movement/col2im-15`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | `[N, C * product of kernel_size, L]` or without `N` |
//! | in 1 | output_size | i32, i64 | `[2]` |
//! | in 2 | kernel_size | i32, i64 | `[2]` |
//! | out 0 | | that of `data` | `[N, C, output_size[0], output_size[1]]` or without `N` |
//!
//! `L` is the number of blocks that fit. Sums are computed wide and rounded once; integers wrap.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, INFINITE, PartialShape, SmallVec, Value, dispatch};

use super::space_to_batch::divide;
use crate::common::elementwise::unsupported;
use crate::common::movement::exact_shape;
use crate::common::number::Number;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// Far above any image; products of two such numbers stay within i64.
const LARGEST: i64 = 1 << 24;

crate::attributes! {
    /// The attributes of Col2Im.
    pub struct Col2ImAttributes {
        /// The distances between blocks.
        strides: Vec<i64> = "strides", default "1,1";
        /// The distances between elements of a block.
        dilations: Vec<i64> = "dilations", default "1,1";
        /// Rows above and columns left of the image.
        pads_begin: Vec<i64> = "pads_begin", default "0,0";
        /// Rows below and columns right of the image.
        pads_end: Vec<i64> = "pads_end", default "0,0";
    }
}

/// The definition of Col2Im.
pub static COL2IM: OpDef = OpDef {
    type_name: "Col2Im",
    category: Category::Movement,
    versions: &[OpVersion::new(15, (15, 16), (3, 3), (1, 1))],
    attributes: Col2ImAttributes::DEFINITIONS,
    build,
};

/// A Col2Im layer.
#[derive(Debug)]
pub struct Col2Im {
    /// The attributes.
    pub attributes: Col2ImAttributes,
}

impl Operation for Col2Im {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Numeric)?;
        context.require_rank(0, 2..=3)?;
        let mut pairs = [[Value::UNKNOWN; 2]; 2];
        for (port, pair) in (1..=2).zip(&mut pairs) {
            context.require_class(port, ElementClass::Index)?;
            context.require_rank(port, 1..=1)?;
            let length = context.shape(port).dim(0);
            if !length.contains(2) {
                let message = format!("{length} elements are given; two are needed");
                return Err(OpError::shape(Blame::Input(port), message));
            }
            if let Some(&[rows, columns]) = context.bounds(port).map(|b| &b.values[..]) {
                *pair = [rows, columns];
            }
        }
        let shape = self.output_shape(context.shape(0), pairs[0], pairs[1])?;
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let pair = |port: usize| match context.integers(port)?[..] {
            [rows, columns] => Ok([rows, columns]),
            _ => Err(OpError::shape(Blame::Input(port), "two elements are needed")),
        };
        let (size, kernel) = (pair(1)?, pair(2)?);
        let input = PartialShape::from(data.shape());
        let shape = self.output_shape(&input, size.map(Value::known), kernel.map(Value::known))?;
        let shape = exact_shape(&shape)?;
        let blocks = [self.blocks(0, size[0], kernel[0]), self.blocks(1, size[1], kernel[1])];
        let planes: usize = shape[..shape.rank() - 2].iter().product();
        let mut output = context.output(0, &shape)?;
        dispatch!(data.element_type(), T in [numeric] => {
            let (source, target) = (data.slice::<T>()?, output.slice_mut::<T>()?);
            if target.is_empty() {
                return Ok(());
            }
            let mut cells = target.iter_mut();
            for plane in 0..planes {
                for y in 0..size[0] {
                    for x in 0..size[1] {
                        let (mut float, mut integer) = (0f64, 0i128);
                        for row in 0..kernel[0] {
                            let Some(block_row) = self.block(0, y, row, blocks[0]) else { continue };
                            for column in 0..kernel[1] {
                                let Some(block_column) = self.block(1, x, column, blocks[1]) else { continue };
                                let channel = plane as i64 * kernel[0] * kernel[1] + row * kernel[1] + column;
                                let place = channel * blocks[0] * blocks[1] + block_row * blocks[1] + block_column;
                                let value = source[place as usize];
                                float += Number::to_f64(value);
                                integer = integer.wrapping_add(value.to_i128());
                            }
                        }
                        let sum = if <T as Number>::IS_FLOAT { T::from_f64(float) } else { T::from_i128(integer) };
                        if let Some(cell) = cells.next() {
                            *cell = sum;
                        }
                    }
                }
            }
            Ok(())
        } else { Err(unsupported(data.element_type())) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(15)
    }
}

impl Col2Im {
    fn output_shape(&self, data: &PartialShape, size: [Value; 2], kernel: [Value; 2]) -> OpResult<PartialShape> {
        for (port, pair, least) in [(1, size, 0), (2, kernel, 1)] {
            for value in pair {
                if value.max < least || value.min > LARGEST {
                    let message = format!("{value:?} must be in [{least}, {LARGEST}]");
                    return Err(OpError::value(Blame::Input(port), message));
                }
            }
        }
        let Some(dims) = data.dims() else { return Ok(PartialShape::DYNAMIC) };
        let (channels, length) = (dims[dims.len() - 2], dims[dims.len() - 1]);
        let area = kernel.into_iter().fold(Dim::fixed(1), |p, k| p * Dim::interval(k.min.max(1), k.max));
        let planes = divide(channels, area, || {
            let message =
                format!("{channels} channels of shape {data} are not divisible by the kernel of {area} elements");
            OpError::shape(Blame::Input(0), message)
        })?;
        if let ([Some(h), Some(w)], [Some(kh), Some(kw)]) = (size.map(Value::get), kernel.map(Value::get)) {
            let blocks = self.blocks(0, h, kh).saturating_mul(self.blocks(1, w, kw));
            if !length.contains(blocks as usize) {
                let message = format!("shape {data} holds {length} blocks; {blocks} fit the output");
                return Err(OpError::shape(Blame::Input(0), message));
            }
        }
        let mut output: SmallVec<[Dim; 8]> = SmallVec::from_slice(&dims[..dims.len() - 2]);
        output.push(planes);
        output.extend(size.map(|v| if v.max == i64::MAX { Dim::interval(v.min, INFINITE) } else { v.to_dim() }));
        Ok(PartialShape::from_dims(output))
    }

    /// The number of blocks along an axis.
    fn blocks(&self, axis: usize, size: i64, kernel: i64) -> i64 {
        let attributes = &self.attributes;
        let padded = size + attributes.pads_begin[axis] + attributes.pads_end[axis];
        let room = padded - attributes.dilations[axis] * (kernel - 1) - 1;
        if room < 0 { 0 } else { room / attributes.strides[axis] + 1 }
    }

    /// The block in which an element of the image is the element `offset` of the kernel.
    fn block(&self, axis: usize, position: i64, offset: i64, blocks: i64) -> Option<i64> {
        let attributes = &self.attributes;
        let start = position + attributes.pads_begin[axis] - offset * attributes.dilations[axis];
        let stride = attributes.strides[axis];
        (start >= 0 && start % stride == 0 && start / stride < blocks).then(|| start / stride)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let mut attributes = Col2ImAttributes::read(context.attributes);
    let lists = [
        ("strides", &mut attributes.strides, 1),
        ("dilations", &mut attributes.dilations, 1),
        ("pads_begin", &mut attributes.pads_begin, 0),
        ("pads_end", &mut attributes.pads_end, 0),
    ];
    for (name, list, least) in lists {
        if list.len() == 2 && list.iter().all(|v| (least..=LARGEST).contains(v)) {
            continue;
        }
        let message = format!("{list:?} must be two numbers in [{least}, {LARGEST}]");
        context.attributes.report(OpError::attribute(name, message));
        *list = vec![least, least];
    }
    Arc::new(Col2Im { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        Case::new("Col2Im", "opset15")
    }

    #[test]
    fn examples_of_the_specification() {
        assert_eq!(case().infer(&["i32[3,12,225]", "i64[2]=16,16", "i64[2]=2,2"]), ["i32[3,3,16,16]"]);
        let wide = |c: Case, pad: &str| {
            c.attribute("dilations", "2,2").attribute("pads_begin", pad).attribute("pads_end", pad)
        };
        let second = wide(case(), "1,1").attribute("strides", "2,2");
        assert_eq!(second.infer(&["i32[1,27,49]", "i64[2]=16,16", "i64[2]=3,3"]), ["i32[1,3,16,16]"]);
        assert_eq!(wide(case(), "3,3").infer(&["i32[12,12,1296]", "i64[2]=32,32", "i64[2]=2,2"]), ["i32[12,3,32,32]"]);
    }

    #[test]
    fn overlaps_add_up() {
        let data = tensor(&(1..=16).map(|v| v as f32).collect::<Vec<_>>(), [1, 4, 4]);
        let two = |v: i64| tensor(&[v, v], [2]);
        let output = case().run(&[data, two(3), two(2)]).unwrap();
        assert_eq!(output[0], tensor(&[1f32, 7.0, 6.0, 12.0, 34.0, 22.0, 11.0, 27.0, 16.0], [1, 1, 3, 3]));
        let data = tensor(&[200u8, 100, 1, 2], [4, 1]);
        let output = case().run(&[data, two(2), two(2)]).unwrap();
        assert_eq!(output[0], tensor(&[200u8, 100, 1, 2], [1, 2, 2]));
    }

    #[test]
    fn violations() {
        assert_eq!(
            case().infer_error(&["i32[3,12,224]", "i64[2]=16,16", "i64[2]=2,2"]),
            "input 0: shape [3,12,224] holds 224 blocks; 225 fit the output"
        );
        assert_eq!(
            case().infer_error(&["i32[3,10,225]", "i64[2]=16,16", "i64[2]=2,2"]),
            "input 0: 10 channels of shape [3,10,225] are not divisible by the kernel of 4 elements"
        );
        assert_eq!(case().infer(&["f32[?,12,?]", "i64[2]", "i64[2]"]), ["f32[?,1..12,?,?]"]);
    }
}
