//! # Append, FromRows and RowsShape
//! What grows row by row in a variable, with its rows outermost, so that new ones go behind the others. Optimisation makes
//! these layers; they are never in a file.
//!
//! Keys and values of an attention are `[batch, heads, rows, columns]`; "rows first" is `[rows, batch, heads, columns]`.
//!
//! | layer | in 0 | in 1 | in 2 | out 0 |
//! |---|---|---|---|---|
//! | Append | rows first | new rows `[batch, heads, rows, columns]` | which image of in 0 each image continues (optional) | rows first |
//! | FromRows | rows first | | | `[batch, heads, rows, columns]` |
//! | RowsShape | rows first | which images are meant (optional) | | the shape `[batch, heads, rows, columns]` |
//!
//! Append is `Concat(Gather(state, images, 0), new, axis 2)`.

use ovir_tensor::{Bounds, Dim, ElementType, PartialShape, Shape, SmallVec, Tensor, TensorError, Value};

use crate::movement::gather::out_of_range;
use crate::shape::shape_of::write_sizes;
use crate::{Blame, EvaluateContext, InferContext, OpError, OpResult, Operation};

/// Where batch, heads, rows and columns are among the axes of what has its rows first.
pub const ROWS_FIRST: [usize; 4] = [1, 2, 0, 3];

/// Puts new rows behind those of a variable.
#[derive(Debug)]
pub struct Append {
    /// The version of the Gather that picks the images: before 8 an index out of range is an error, later it means zeros.
    pub gather_version: u8,
}

/// From rows first to `[batch, heads, rows, columns]`.
#[derive(Debug)]
pub struct FromRows;

/// The shape of what FromRows would give.
#[derive(Debug)]
pub struct RowsShape {
    /// i32 or i64.
    pub output_type: ElementType,
}

/// The image that each image continues; `None` where it continues zeros.
pub type Images = SmallVec<[Option<usize>; 8]>;

/// The shape with rows first of a shape `[batch, heads, rows, columns]`.
pub fn rows_first(shape: &PartialShape) -> PartialShape {
    match shape.dims() {
        Some([batch, heads, rows, columns]) => PartialShape::from_dims([*rows, *batch, *heads, *columns]),
        _ => shape.clone(),
    }
}

/// The shape `[batch, heads, rows, columns]` of one with rows first.
pub fn rows_inside(shape: &PartialShape) -> PartialShape {
    match shape.dims() {
        Some(dims) if dims.len() == 4 => PartialShape::from_dims(ROWS_FIRST.map(|axis| dims[axis])),
        _ => shape.clone(),
    }
}

/// A tensor `[batch, heads, rows, columns]` with rows first.
///
/// # Errors
/// When the rank is not 4, or memory cannot be had.
pub fn to_rows(tensor: &Tensor) -> OpResult<Tensor> {
    let [batch, heads, rows, columns] = four(tensor.shape(), Blame::Node)?;
    let shape = Shape::from([rows, batch, heads, columns]);
    let mut moved = Tensor::zeros(tensor.element_type(), shape)?;
    let width = columns.saturating_mul(width_of(tensor.element_type())?);
    add_rows(tensor.bytes(), [batch, heads, rows, width], moved.bytes_mut()?);
    Ok(moved)
}

/// A tensor with rows first as `[batch, heads, rows, columns]`.
///
/// # Errors
/// When the rank is not 4, or memory cannot be had.
pub fn from_rows(tensor: &Tensor) -> OpResult<Tensor> {
    let [rows, batch, heads, columns] = four(tensor.shape(), Blame::Node)?;
    let mut moved = Tensor::zeros(tensor.element_type(), Shape::from([batch, heads, rows, columns]))?;
    let width = columns.saturating_mul(width_of(tensor.element_type())?);
    take_rows(tensor.bytes(), [batch, heads, rows, width], moved.bytes_mut()?);
    Ok(moved)
}

/// Writes rows `[batch, heads, rows]` of so many bytes with the rows first.
pub fn add_rows(new: &[u8], [batch, heads, rows, width]: [usize; 4], output: &mut [u8]) {
    for_each_row([batch, heads, rows, width], |inside, first| output[first].copy_from_slice(&new[inside]));
}

fn take_rows(first_rows: &[u8], sizes: [usize; 4], output: &mut [u8]) {
    for_each_row(sizes, |inside, first| output[inside].copy_from_slice(&first_rows[first]));
}

/// Calls `move_row` with the place of each row in `[batch, heads, rows]` and in `[rows, batch, heads]`.
fn for_each_row(
    [batch, heads, rows, width]: [usize; 4],
    mut move_row: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>),
) {
    // Without rows there may be any number of heads.
    if rows == 0 || width == 0 {
        return;
    }
    for image in 0..batch {
        for head in 0..heads {
            for row in 0..rows {
                let inside = ((image * heads + head) * rows + row) * width;
                let first = ((row * batch + image) * heads + head) * width;
                move_row(inside..inside + width, first..first + width);
            }
        }
    }
}

/// Writes the rows of the images that are continued, of so many images, rows and bytes an image.
pub fn continue_images(state: &[u8], images: &Images, [batch, rows, width]: [usize; 3], output: &mut [u8]) {
    // Without images there may be any number of rows.
    if output.is_empty() {
        return;
    }
    let mut slots = output.chunks_exact_mut(width.max(1));
    for row in 0..rows {
        for (image, slot) in images.iter().zip(&mut slots) {
            match image {
                Some(image) => slot.copy_from_slice(&state[(row * batch + image) * width..][..width]),
                None => slot.fill(0),
            }
        }
    }
}

fn width_of(element_type: ElementType) -> OpResult<usize> {
    element_type.byte_width().ok_or_else(|| OpError::unsupported("rows of whole bytes are expected"))
}

fn four(shape: &Shape, blame: Blame) -> OpResult<[usize; 4]> {
    let fits = <[usize; 4]>::try_from(&shape[..]);
    fits.map_err(|_| OpError::shape(blame, format!("shape {shape} has another rank than 4")))
}

/// The sizes of an Append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendSizes {
    /// Images and rows of the state.
    pub state: [usize; 2],
    /// Images, heads, rows and bytes of a row of what is new.
    pub new: [usize; 4],
    /// Which image each image continues.
    pub images: Images,
}

impl AppendSizes {
    /// Whether the rows of the state stay where they are.
    #[must_use]
    pub fn keeps_state(&self) -> bool {
        self.images.len() == self.state[0] && self.images.iter().enumerate().all(|(at, image)| *image == Some(at))
    }

    /// The shape of the result, of the shape of what is new.
    #[must_use]
    pub fn shape(&self, new: &Shape) -> Shape {
        let columns = new.last().copied().unwrap_or(0);
        Shape::from([self.state[1].saturating_add(self.new[2]), self.images.len(), self.new[1], columns])
    }

    /// The rows that were there and the new ones, of the bytes of the result.
    pub fn parts<'a>(&self, result: &'a mut [u8]) -> (&'a mut [u8], &'a mut [u8]) {
        let new = self.new.iter().fold(1usize, |bytes, size| bytes.saturating_mul(*size));
        result.split_at_mut(result.len().saturating_sub(new))
    }

    /// The bytes of the rows of an image at one place.
    #[must_use]
    pub fn image_bytes(&self) -> usize {
        self.new[1].saturating_mul(self.new[3])
    }
}

impl Append {
    /// The sizes for these shapes and indices.
    ///
    /// # Errors
    /// When they do not fit each other.
    pub fn sizes(
        &self,
        element_type: ElementType,
        state: &Shape,
        new: &Shape,
        images: Option<&[i64]>,
    ) -> OpResult<AppendSizes> {
        let ([rows, batch, heads, columns], sizes) = (four(state, Blame::Input(0))?, four(new, Blame::Input(1))?);
        let images = self.images(images, batch)?;
        if images.len() != sizes[0] || [heads, columns] != [sizes[1], sizes[3]] {
            let (count, plain) = (images.len(), Shape::from([batch, heads, rows, columns]));
            let message =
                format!("shape {new} does not continue the {count} images that are picked of a state {plain}");
            return Err(OpError::shape(Blame::Input(1), message));
        }
        let width = columns
            .checked_mul(width_of(element_type)?)
            .ok_or_else(|| OpError::from(TensorError::TooLarge { element_type, shape: new.clone() }))?;
        Ok(AppendSizes { state: [batch, rows], new: [sizes[0], heads, sizes[2], width], images })
    }

    fn images(&self, images: Option<&[i64]>, batch: usize) -> OpResult<Images> {
        let Some(images) = images else { return Ok((0..batch).map(Some).collect()) };
        let found = |(position, index): (usize, &i64)| {
            let wrapped = if *index < 0 { index.saturating_add(batch as i64) } else { *index };
            let image = usize::try_from(wrapped).ok().filter(|image| *image < batch);
            match image {
                None if self.gather_version < 8 => Err(out_of_range(*index, position, batch as i64)),
                image => Ok(image),
            }
        };
        images.iter().enumerate().map(found).collect()
    }
}

impl Operation for Append {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let (state, new) = (context.shape(0).clone(), context.shape(1).clone());
        let element_type = context.element_type(0);
        let (Some([rows, batch, heads, columns]), Some([images, new_heads, new_rows, new_columns])) =
            (state.dims(), new.dims())
        else {
            context.set_output(0, element_type, PartialShape::of_rank(4));
            return Ok(());
        };
        let continued = if context.input_count() > 2 { context.shape(2).dim(0) } else { *batch };
        let merged = |a: Dim, b: Dim| {
            let plain = rows_inside(&state);
            let message =
                || format!("shape {new} does not continue the {continued} images that are picked of a state {plain}");
            a.merge(b).ok_or_else(|| OpError::shape(Blame::Input(1), message()))
        };
        let dims = [
            *rows + *new_rows,
            merged(continued, *images)?,
            merged(*heads, *new_heads)?,
            merged(*columns, *new_columns)?,
        ];
        context.set_output(0, element_type, PartialShape::from_dims(dims));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (state, new) = (context.input(0)?, context.input(1)?);
        let images = if context.input_count() > 2 { Some(context.integers(2)?) } else { None };
        let sizes = self.sizes(state.element_type(), state.shape(), new.shape(), images.as_deref())?;
        let [batch, rows] = sizes.state;
        let mut output = context.output(0, &sizes.shape(new.shape()))?;
        let (old, added) = sizes.parts(output.bytes_mut());
        continue_images(state.bytes(), &sizes.images, [batch, rows, sizes.image_bytes()], old);
        add_rows(new.bytes(), sizes.new, added);
        Ok(())
    }
}

impl Operation for FromRows {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let (element_type, shape) = (context.element_type(0), rows_inside(context.shape(0)));
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let view = context.input(0)?;
        let [rows, batch, heads, columns] = four(view.shape(), Blame::Input(0))?;
        let sizes = [batch, heads, rows, columns.saturating_mul(width_of(view.element_type())?)];
        let mut output = context.output(0, &Shape::from([batch, heads, rows, columns]))?;
        take_rows(view.bytes(), sizes, output.bytes_mut());
        Ok(())
    }
}

impl Operation for RowsShape {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let shape = rows_inside(context.shape(0));
        let images = (context.input_count() > 1).then(|| context.shape(1).dim(0));
        context.set_output(0, self.output_type, PartialShape::from_dims([Dim::fixed(4)]));
        if let Some(dims) = shape.dims() {
            let dims = dims.iter().enumerate().map(|(axis, dim)| images.filter(|_| axis == 0).unwrap_or(*dim));
            context.set_bounds(0, Bounds::vector(dims.map(Value::from)));
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let [rows, batch, heads, columns] = four(context.input(0)?.shape(), Blame::Input(0))?;
        let images = match context.input_count() > 1 {
            true => context.input(1)?.elements(),
            false => batch,
        };
        write_sizes(context, &[images, heads, rows, columns], self.output_type)
    }

    fn takes_packed(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn rows_are_moved_and_moved_back() {
        let values: Vec<i32> = (0..2 * 3 * 4 * 5).collect();
        let tensor = Tensor::from_slice(&values, [2, 3, 4, 5]).unwrap();
        let rows = to_rows(&tensor).unwrap();
        assert_eq!(rows.shape(), &Shape::from([4, 2, 3, 5]));
        // Row 1 of head 2 of image 1.
        assert_eq!(rows.slice::<i32>().unwrap()[((2 + 1) * 3 + 2) * 5], ((3 + 2) * 4 + 1) * 5);
        assert_eq!(from_rows(&rows).unwrap(), tensor);
        assert!(to_rows(&Tensor::scalar(1).unwrap()).is_err());
    }

    /// A tensor without elements may have axes of any size.
    #[test]
    fn nothing_is_moved_at_once() {
        for shape in [[1, usize::MAX / 2, 0, 8], [0, 3, usize::MAX / 2, 8], [usize::MAX / 2, 7, 9, 0]] {
            let rows = to_rows(&Tensor::zeros(ElementType::F32, shape).unwrap()).unwrap();
            assert_eq!(from_rows(&rows).unwrap().shape()[..], shape);
            let sizes = Append { gather_version: 8 }
                .sizes(ElementType::F32, rows.shape(), &Shape::from([0, shape[1], 1, shape[3]]), Some(&[]))
                .unwrap();
            continue_images(&[], &sizes.images, [shape[0], shape[2], sizes.image_bytes()], &mut []);
        }
    }

    #[test]
    fn images_are_continued() {
        let append = Append { gather_version: 8 };
        let (state, new) = (Shape::from([2, 3, 1, 1]), Shape::from([2, 1, 1, 1]));
        let sizes = append.sizes(ElementType::U8, &state, &new, Some(&[-1, 7])).unwrap();
        assert_eq!(sizes.images[..], [Some(2), None]);
        let mut output = [9; 4];
        continue_images(&[1, 2, 3, 4, 5, 6], &sizes.images, [3, 2, 1], &mut output);
        assert_eq!(output, [3, 0, 6, 0]);
        assert!(!sizes.keeps_state());
        assert!(Append { gather_version: 7 }.sizes(ElementType::U8, &state, &new, Some(&[-1, 7])).is_err());
        assert!(append.sizes(ElementType::U8, &state, &new, None).is_err());
        let new = Shape::from([3, 1, 4, 1]);
        assert!(append.sizes(ElementType::U8, &state, &new, Some(&[0, 1, -1])).unwrap().keeps_state());
    }
}
