//! # ExtractImagePatches
//! Patches of an image, each laid out along the channels.
//!
//! Specification: `movement/extract-image-patches-3`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | `[N, C, H, W]` |
//! | out 0 | | that of `data` | `[N, sizes[0] * sizes[1] * C, rows of patches, columns of patches]` |
//!
//! The channel of the output is `(row within the patch * sizes[1] + column within the patch) * C + channel`. What lies
//! outside of the image is zero.

use std::sync::Arc;

use ovir_tensor::{Dim, INFINITE, PartialShape, SmallVec};

use super::space_to_batch::grid_range;
use crate::common::movement::{Cell, Strided, copy_strided, dispatch_cell, exact_shape};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

crate::attribute_enum! {
    /// Whether the image is padded.
    pub enum PatchPadding {
        /// It is not.
        #[default]
        Valid = "valid",
        /// So that there is a patch for every step; an odd pad is larger at the end.
        SameUpper = "same_upper",
        /// So that there is a patch for every step; an odd pad is larger at the beginning.
        SameLower = "same_lower",
    }
}

crate::attributes! {
    /// The attributes of ExtractImagePatches.
    pub struct ExtractImagePatchesAttributes {
        /// Height and width of a patch.
        sizes: Vec<i64> = "sizes", required true;
        /// The distances between patches.
        strides: Vec<i64> = "strides", required true;
        /// The distances between elements of a patch.
        rates: Vec<i64> = "rates", required true;
        /// Whether the image is padded.
        auto_pad: PatchPadding = "auto_pad", required true;
    }
}

/// The definition of ExtractImagePatches.
pub static EXTRACT_IMAGE_PATCHES: OpDef = OpDef {
    type_name: "ExtractImagePatches",
    category: Category::Movement,
    versions: &[OpVersion::new(3, (3, 16), (1, 1), (1, 1))],
    attributes: ExtractImagePatchesAttributes::DEFINITIONS,
    build,
};

/// An ExtractImagePatches layer.
#[derive(Debug)]
pub struct ExtractImagePatches {
    /// The attributes.
    pub attributes: ExtractImagePatchesAttributes,
}

impl Operation for ExtractImagePatches {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_rank(0, 4..=4)?;
        let (element_type, shape) = (context.element_type(0), self.output_shape(context.shape(0)));
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let input = data.shape();
        let shape = exact_shape(&self.output_shape(&PartialShape::from(input)))?;
        let mut output = context.output(0, &shape)?;
        let attributes = &self.attributes;
        let (from, to) = (Strided::dense(input).strides, Strided::dense(&shape).strides);
        dispatch_cell!(data.element_type(), C => {
            let target = C::target(&mut output);
            target.fill(C::default());
            if target.is_empty() {
                return Ok(());
            }
            let inside = |axis: usize, place: i64| {
                let shift = self.pad(axis, input[axis + 2]) - place * attributes.rates[axis];
                let size = input[axis + 2] as i64;
                (shift, grid_range(shift, attributes.strides[axis], size, shape[axis + 2] as i64))
            };
            for row in 0..attributes.sizes[0] {
                for column in 0..attributes.sizes[1] {
                    let ((y, rows), (x, columns)) = (inside(0, row), inside(1, column));
                    if rows.0 >= rows.1 || columns.0 >= columns.1 {
                        continue;
                    }
                    let part = [input[0], input[1], (rows.1 - rows.0) as usize, (columns.1 - columns.0) as usize];
                    let first_row = rows.0 * attributes.strides[0] - y;
                    let first_column = columns.0 * attributes.strides[1] - x;
                    let place = (row * attributes.sizes[1] + column) as usize * input[1];
                    let source = Strided {
                        offset: first_row as usize * from[2] as usize + first_column as usize,
                        strides: SmallVec::from_slice(&[
                            from[0],
                            from[1],
                            from[2] * attributes.strides[0] as isize,
                            attributes.strides[1] as isize,
                        ]),
                    };
                    let offset = place * to[1] as usize + rows.0 as usize * to[2] as usize + columns.0 as usize;
                    copy_strided(&part, C::source(&data), &source, target, &Strided { offset, strides: to.clone() });
                }
            }
            Ok(())
        })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(3)
    }
}

impl ExtractImagePatches {
    fn output_shape(&self, input: &PartialShape) -> PartialShape {
        let attributes = &self.attributes;
        let area = attributes.sizes[0].saturating_mul(attributes.sizes[1]);
        let count = |axis: usize| {
            let dim = input.dim(axis + 2);
            let max = if dim.max() == INFINITE { INFINITE } else { self.count(axis, dim.max()) };
            Dim::interval(self.count(axis, dim.min()), max)
        };
        PartialShape::from_dims([input.dim(0), input.dim(1) * Dim::interval(area, area), count(0), count(1)])
    }

    /// The number of patches along an axis of `size`.
    fn count(&self, axis: usize, size: i64) -> i64 {
        let (extent, stride) = (self.extent(axis), self.attributes.strides[axis]);
        match self.attributes.auto_pad {
            PatchPadding::Valid if size < extent => 0,
            PatchPadding::Valid => (size - extent) / stride + 1,
            _ => size / stride + i64::from(size % stride != 0),
        }
    }

    /// The size of a patch in the image.
    fn extent(&self, axis: usize) -> i64 {
        (self.attributes.sizes[axis] - 1).saturating_mul(self.attributes.rates[axis]).saturating_add(1)
    }

    /// The padding at the beginning of an axis of `size`.
    fn pad(&self, axis: usize, size: usize) -> i64 {
        let size = size as i64;
        let reach = (self.count(axis, size) - 1) * self.attributes.strides[axis] + self.extent(axis);
        let total = (reach - size).max(0);
        match self.attributes.auto_pad {
            PatchPadding::Valid => 0,
            PatchPadding::SameUpper => total / 2,
            PatchPadding::SameLower => total - total / 2,
        }
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    /// Far above any image; products of two such numbers stay within i64.
    const LARGEST: i64 = 1 << 24;
    let mut attributes = ExtractImagePatchesAttributes::read(context.attributes);
    let lists =
        [("sizes", &mut attributes.sizes), ("strides", &mut attributes.strides), ("rates", &mut attributes.rates)];
    for (name, list) in lists {
        if list.len() == 2 && list.iter().all(|v| (1..=LARGEST).contains(v)) {
            continue;
        }
        if context.attributes.text(name).is_some() {
            let message = format!("{list:?} must be two positive numbers up to {LARGEST}");
            context.attributes.report(OpError::attribute(name, message));
        }
        *list = vec![1, 1];
    }
    Arc::new(ExtractImagePatches { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(rates: &str, auto_pad: &str) -> Case {
        Case::new("ExtractImagePatches", "opset3")
            .attribute("sizes", "3,2")
            .attribute("strides", "2,2")
            .attribute("rates", rates)
            .attribute("auto_pad", auto_pad)
    }

    #[test]
    fn patches_as_openvino_gives_them() {
        let data = tensor(&(0..24).collect::<Vec<u8>>(), [1, 2, 4, 3]);
        let valid = case("1,2", "valid").run(std::slice::from_ref(&data)).unwrap();
        assert_eq!(valid[0], tensor(&[0u8, 12, 2, 14, 3, 15, 5, 17, 6, 18, 8, 20], [1, 12, 1, 1]));
        let upper = case("1,1", "same_upper").run(std::slice::from_ref(&data)).unwrap();
        assert_eq!(upper[0].slice::<u8>().unwrap()[..16], [0, 2, 6, 8, 12, 14, 18, 20, 1, 0, 7, 0, 13, 0, 19, 0]);
        let lower = case("1,1", "same_lower").run(&[data]).unwrap();
        assert_eq!(lower[0].slice::<u8>().unwrap()[..16], [0, 0, 0, 4, 0, 0, 0, 16, 0, 0, 3, 5, 0, 0, 15, 17]);
    }

    #[test]
    fn shapes() {
        assert_eq!(case("1,1", "valid").infer(&["f32[?,3,10,2..7]"]), ["f32[?,18,4,1..3]"]);
        assert_eq!(case("1,1", "same_upper").infer(&["f32[1,3,10,?]"]), ["f32[1,18,5,?]"]);
        assert_eq!(case("1,1", "valid").infer(&["f32[1,3,2,7]"]), ["f32[1,18,0,3]"]);
        assert_eq!(
            case("0,1", "valid").attribute_errors(1),
            ["attribute `rates`: [0, 1] must be two positive numbers up to 16777216"]
        );
    }
}
