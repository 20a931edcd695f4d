//! Conversion between YUV images with halved chroma (NV12, I420) and RGB images.

use ovir_tensor::{Dim, ElementClass, ElementType, INFINITE, PartialShape, Shape, TensorView, dispatch};

use super::elementwise::unsupported;
use super::number::Number;
use crate::{Blame, EvaluateContext, InferContext, OpError, OpResult};

/// How the chroma of an image lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chroma {
    /// NV12: one plane of pairs U, V.
    Interleaved,
    /// I420: a plane of U, then one of V.
    Planar,
}

/// The order of the channels of an RGB image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChannelOrder {
    /// Red, green, blue.
    Rgb,
    /// Blue, green, red.
    Bgr,
}

impl ChannelOrder {
    /// Red, green and blue in this order, or the channels of this order as red, green and blue.
    fn arrange<T>(self, [first, second, third]: [T; 3]) -> [T; 3] {
        match self {
            ChannelOrder::Rgb => [first, second, third],
            ChannelOrder::Bgr => [third, second, first],
        }
    }
}

/// Element type and shape of the RGB image that an image in one plane, or in one plane each of luma and chroma, gives.
///
/// # Errors
/// The rule that the inputs violate.
pub(crate) fn infer_to_rgb(context: &mut InferContext<'_>, chroma: Chroma) -> OpResult {
    let planes = context.input_count();
    let channels: &[usize] = match (chroma, planes) {
        (_, 1) => &[1],
        (Chroma::Interleaved, 2) => &[1, 2],
        (Chroma::Planar, 3) => &[1, 1, 1],
        (Chroma::Interleaved, _) => return Err(wrong_planes(planes, "1 or 2 (Y and UV)")),
        (Chroma::Planar, _) => return Err(wrong_planes(planes, "1 or 3 (Y, U and V)")),
    };
    let mut element_type = ElementType::Dynamic;
    let mut image = [Dim::DYNAMIC; 3];
    for (port, channels) in channels.iter().enumerate() {
        element_type = merge_type(context, port, element_type)?;
        let [batch, height, width, depth] = image_dims(context, port)?;
        if !depth.contains(*channels) {
            let message = format!("shape {} has {depth} channels; it must have {channels}", context.shape(port));
            return Err(OpError::shape(Blame::Input(port), message));
        }
        let (height, width) = match port {
            0 if planes == 1 => (two_thirds(height), even(width)),
            0 => (even(height), even(width)),
            _ => (Some(doubled(height)), Some(doubled(width))),
        };
        let sizes = [Some(batch), height, width];
        for (axis, (known, size)) in image.iter_mut().zip(sizes).enumerate() {
            let rule = ["", "the image's height", "the image's width"][axis];
            let size = size.ok_or_else(|| indivisible(context, port, axis, planes))?;
            let Some(merged) = known.merge(size) else {
                let name = if axis == 0 { "the batch" } else { rule };
                let message = format!("shape {} makes {name} {size}, input 0 {known}", context.shape(port));
                return Err(OpError::shape(Blame::Input(port), message));
            };
            *known = merged;
        }
    }
    let [batch, height, width] = image;
    context.set_output(0, element_type, PartialShape::from_dims([batch, height, width, Dim::fixed(3)]));
    Ok(())
}

/// Writes the RGB image.
///
/// # Errors
/// When memory cannot be had or shapes do not fit together.
pub(crate) fn evaluate_to_rgb(context: &mut EvaluateContext<'_>, chroma: Chroma, order: ChannelOrder) -> OpResult {
    let luma = context.input(0)?;
    let planes = context.input_count();
    let [batch, rows, width, _] = sizes(luma)?;
    let height = if planes == 1 { rows / 3 * 2 } else { rows };
    let (pixels, quarter) = (height * width, height / 2 * (width / 2));
    let element_type = luma.element_type();
    let others = (1..planes).map(|port| context.input(port)).collect::<OpResult<ovir_tensor::SmallVec<[_; 2]>>>()?;
    let mut output = context.output(0, &Shape::from([batch, height, width, 3]))?;
    dispatch!(element_type, T in [numeric] => {
        let target = output.slice_mut::<T>()?;
        let all = luma.slice::<T>()?;
        for n in 0..batch {
            // Luma, then what holds the chroma of this image: pairs, or U and V.
            let (y, u, v): (&[T], &[T], &[T]) = match others.as_slice() {
                [] => {
                    let image = &all[n * (pixels + 2 * quarter)..][..pixels + 2 * quarter];
                    (&image[..pixels], &image[pixels..], &image[pixels + quarter..])
                }
                [pairs] => (&all[n * pixels..], &pairs.slice::<T>()?[n * 2 * quarter..], &[]),
                [u, v, ..] => (&all[n * pixels..], &u.slice::<T>()?[n * quarter..], &v.slice::<T>()?[n * quarter..]),
            };
            for row in 0..height {
                let line = &mut target[(n * height + row) * width * 3..][..width * 3];
                let (lumas, start) = (&y[row * width..][..width], row / 2 * (width / 2));
                for (column, (pixel, luma)) in line.chunks_exact_mut(3).zip(lumas).enumerate() {
                    let place = start + column / 2;
                    let (u, v) = match chroma {
                        Chroma::Interleaved => (u[2 * place], u[2 * place + 1]),
                        Chroma::Planar => (u[place], v[place]),
                    };
                    let rgb = match T::IS_FLOAT {
                        true => rgb_of(luma.to_f64(), u.to_f64(), v.to_f64()).map(clipped),
                        false => rgb_of_bytes(luma.to_f64(), u.to_f64(), v.to_f64()).map(T::from_f64),
                    };
                    pixel.copy_from_slice(&order.arrange(rgb));
                }
            }
        }
        Ok(())
    } else { Err(unsupported(element_type)) })
}

/// Element types and shapes of the NV12 image that an RGB image gives: one plane, or luma and chroma apart.
///
/// # Errors
/// The rule that the inputs violate.
pub(crate) fn infer_to_nv12(context: &mut InferContext<'_>, single_plane: bool) -> OpResult {
    let element_type = merge_type(context, 0, ElementType::Dynamic)?;
    let [batch, height, width, depth] = image_dims(context, 0)?;
    if !depth.contains(3) {
        let message = format!("shape {} has {depth} channels; it must have 3", context.shape(0));
        return Err(OpError::shape(Blame::Input(0), message));
    }
    let (Some(height), Some(width)) = (even(height), even(width)) else {
        let message = format!("shape {} has an odd height or width; both must be even", context.shape(0));
        return Err(OpError::shape(Blame::Input(0), message));
    };
    let planes = if single_plane { 1 } else { 2 };
    if context.output_count() > planes {
        let message = format!(
            "`single_plane` is {single_plane}, which yields {planes} outputs; the layer has {}",
            context.output_count()
        );
        return Err(OpError::new(ovir_diagnostics::Code::PortCount, Blame::Node, message));
    }
    if single_plane {
        let rows = Dim::interval(height.min() / 2 * 3, scaled(height.max(), 3, 2));
        context.set_output(0, element_type, PartialShape::from_dims([batch, rows, width, Dim::fixed(1)]));
        return Ok(());
    }
    let half = [batch, height.div_floor(2), width.div_floor(2), Dim::fixed(2)];
    context.set_output(0, element_type, PartialShape::from_dims([batch, height, width, Dim::fixed(1)]));
    context.set_output(1, element_type, PartialShape::from_dims(half));
    Ok(())
}

/// Writes the NV12 image. Chroma is the mean of the four clipped (and for u8 rounded) values of a block.
///
/// # Errors
/// When memory cannot be had.
pub(crate) fn evaluate_to_nv12(context: &mut EvaluateContext<'_>, single_plane: bool, order: ChannelOrder) -> OpResult {
    let image = context.input(0)?;
    let [batch, height, width, _] = sizes(image)?;
    let (pixels, half) = (height * width, height * width / 2);
    let shapes = if single_plane {
        [Shape::from([batch, height / 2 * 3, width, 1]), Shape::default()]
    } else {
        [Shape::from([batch, height, width, 1]), Shape::from([batch, height / 2, width / 2, 2])]
    };
    let mut outputs = context.all_outputs(&shapes)?;
    let element_type = image.element_type();
    dispatch!(element_type, T in [numeric] => {
        let source = image.slice::<T>()?;
        let (first, second) = outputs.split_at_mut(1);
        let Some(first) = first.first_mut() else { return Ok(()) };
        let (first, mut second) = (first.slice_mut::<T>()?, match second.first_mut() {
            Some(second) if !single_plane => Some(second.slice_mut::<T>()?),
            _ => None,
        });
        let stride = if single_plane { pixels + half } else { pixels };
        for n in 0..batch {
            let (luma, rest) = first[n * stride..][..stride].split_at_mut(pixels);
            let chroma: &mut [T] = match &mut second {
                Some(second) => &mut second[n * half..][..half],
                None => rest,
            };
            nv12_of(&source[n * pixels * 3..][..pixels * 3], (height, width), order, luma, chroma);
        }
        Ok(())
    } else { Err(unsupported(element_type)) })
}

fn nv12_of<T: Number>(
    image: &[T],
    (height, width): (usize, usize),
    order: ChannelOrder,
    luma: &mut [T],
    chroma: &mut [T],
) {
    let yuv_at = |position: usize| {
        let pixel = [0, 1, 2].map(|channel| image[position * 3 + channel].to_f64());
        yuv_of(order.arrange(pixel))
    };
    for (position, y) in luma.iter_mut().enumerate() {
        *y = clipped(yuv_at(position)[0]);
    }
    // A layer need not declare the output of the chroma.
    if chroma.is_empty() {
        return;
    }
    for row in (0..height).step_by(2) {
        for column in (0..width).step_by(2) {
            let corner = row * width + column;
            let block = [corner, corner + 1, corner + width, corner + width + 1].map(yuv_at);
            let mean = |part: usize| {
                let sum: f64 = block.iter().map(|yuv| clipped_value::<T>(yuv[part])).sum();
                clipped::<T>(sum / 4.0)
            };
            let place = row / 2 * width + column;
            (chroma[place], chroma[place + 1]) = (mean(1), mean(2));
        }
    }
}

/// Red, green and blue, not clipped.
fn rgb_of(y: f64, u: f64, v: f64) -> [f64; 3] {
    let (luma, u, v) = (1.164 * (y - 16.0), u - 128.0, v - 128.0);
    [luma + 1.596 * v, luma - 0.813 * v - 0.391 * u, luma + 2.018 * u]
}

/// As [`rgb_of`], clipped and rounded to bytes, in f32 and in the order of sums of OpenVINO's plugin: which integer is nearest
/// to what is 100.5 by the page's factors hangs on both.
fn rgb_of_bytes(y: f64, u: f64, v: f64) -> [f64; 3] {
    let [y, u, v] = [y, u, v].map(|value| value as f32);
    let (luma, u, v) = (1.164 * (y - 16.0), u - 128.0, v - 128.0);
    [luma + 1.596 * v, luma - 0.391 * u - 0.813 * v, luma + 2.018 * u].map(|value| f64::from(nearest_byte(value)))
}

/// The value in 0 to 255, rounded, ties to even. From 2^23 on f32 holds integers only, so that the sum rounds; `round_ties_even`
/// is a call where the processor has no instruction for it.
fn nearest_byte(value: f32) -> f32 {
    const INTEGERS: f32 = (1 << 23) as f32;
    (value.clamp(0.0, 255.0) + INTEGERS) - INTEGERS
}

/// Luma and both chroma values, not clipped.
fn yuv_of([r, g, b]: [f64; 3]) -> [f64; 3] {
    [
        0.257 * r + 0.504 * g + 0.098 * b + 16.0,
        -0.148 * r - 0.291 * g + 0.439 * b + 128.0,
        0.439 * r - 0.368 * g - 0.071 * b + 128.0,
    ]
}

fn clipped<T: Number>(value: f64) -> T {
    T::from_f64(clipped_value::<T>(value))
}

/// The value in 0 to 255, an integer where the type is one, ties to even; NaN stays.
fn clipped_value<T: Number>(value: f64) -> f64 {
    let value = super::unary::clamp(value, 0.0, 255.0);
    if T::IS_FLOAT { value } else { value.round_ties_even() }
}

fn merge_type(context: &InferContext<'_>, port: usize, known: ElementType) -> OpResult<ElementType> {
    let element_type = context.element_type(port);
    if element_type != ElementType::U8 && !element_type.is(ElementClass::Float) {
        let message = format!("element type {element_type} must be u8 or a floating-point type (f16, bf16, f32, f64)");
        return Err(OpError::element_type(Blame::Input(port), message));
    }
    known.merge(element_type).ok_or_else(|| {
        let message = format!("element type {element_type} differs from {known} of input 0; all planes must have one");
        OpError::element_type(Blame::Input(port), message)
    })
}

/// The dimensions batch, height, width and channels of an input.
fn image_dims(context: &InferContext<'_>, port: usize) -> OpResult<[Dim; 4]> {
    context.require_rank(port, 4..=4)?;
    let shape = context.shape(port);
    Ok(std::array::from_fn(|axis| if shape.rank().is_some() { shape.dim(axis) } else { Dim::DYNAMIC }))
}

fn sizes(view: TensorView<'_>) -> OpResult<[usize; 4]> {
    view.shape()[..]
        .try_into()
        .map_err(|_| OpError::shape(Blame::Input(0), format!("shape {} must have rank 4: N, H, W, C", view.shape())))
}

/// The multiples of `divisor` in a dimension; `None` where there are none.
fn multiples(dim: Dim, divisor: i64) -> Option<Dim> {
    let min = dim.min().checked_add(divisor - 1)? / divisor * divisor;
    let max = if dim.max() == INFINITE { INFINITE } else { dim.max() / divisor * divisor };
    (min <= max).then(|| if dim.is_static() { dim } else { Dim::interval(min, max).with_symbol(dim.symbol()) })
}

fn even(dim: Dim) -> Option<Dim> {
    multiples(dim, 2)
}

/// The height of an image whose planes are stacked.
fn two_thirds(dim: Dim) -> Option<Dim> {
    let rows = multiples(dim, 3)?;
    Some(Dim::interval(rows.min() / 3 * 2, scaled(rows.max(), 2, 3)))
}

fn doubled(dim: Dim) -> Dim {
    Dim::interval(dim.min().saturating_mul(2), scaled(dim.max(), 2, 1))
}

fn scaled(max: i64, factor: i64, divisor: i64) -> i64 {
    if max == INFINITE { INFINITE } else { (max / divisor).saturating_mul(factor) }
}

fn indivisible(context: &InferContext<'_>, port: usize, axis: usize, planes: usize) -> OpError {
    let shape = context.shape(port);
    let message = match (axis, planes) {
        (1, 1) => format!("the height of shape {shape} must be divisible by 3: it is 1.5 times that of the image"),
        (1, _) => format!("the height of shape {shape} must be even"),
        _ => format!("the width of shape {shape} must be even"),
    };
    OpError::shape(Blame::Input(port), message)
}

fn wrong_planes(given: usize, expected: &str) -> OpError {
    let message = format!("the image comes in {given} inputs; it must be {expected}");
    OpError::new(ovir_diagnostics::Code::PortCount, Blame::Node, message)
}
