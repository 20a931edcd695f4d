//! Conversion between element types, element by element.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use ovir_tensor::{ElementType, TensorError, TensorView, TensorViewMut, dispatch, packed};

use super::elementwise::unsupported;
use super::number::Number;
use crate::OpResult;

/// The number of elements converted at once. Packed types start a new byte (or group of bytes) at each multiple.
const CHUNK: usize = 256;

/// Wide copies of some elements. They live on the stack for the time of one chunk, so their size costs nothing.
#[allow(clippy::large_enum_variant)]
enum Wide {
    /// Floating-point elements, widened exactly.
    Float([f64; CHUNK]),
    /// Integers and booleans.
    Integer([i128; CHUNK]),
}

/// Converts all elements of `source` to the type of `target`, which has the same shape.
///
/// Floating-point types are rounded once, to nearest, ties to even. Integers wrap. A floating-point number becomes an
/// integer by truncation; where it does not fit (or is NaN), the result is that of the x86 instructions that OpenVINO
/// compiles to: types of up to 32 bits take the low bits of an i32, u32 those of an i64, and a number beyond that
/// becomes the smallest i32 or i64. Every number but 0 becomes true; NaN does, too.
///
/// # Errors
/// When one of the types is `string`.
pub(crate) fn convert(source: TensorView<'_>, target: &mut TensorViewMut<'_>) -> OpResult {
    if source.element_type() == target.element_type() {
        return copy(source, target);
    }
    // Constants of compressed models are widened whenever a model is compiled, and every f16 and bf16 is an f32 too.
    match (source.element_type(), target.element_type()) {
        (ElementType::F16, ElementType::F32) => {
            source.slice::<f16>()?.convert_to_f32_slice(target.slice_mut::<f32>()?);
            return Ok(());
        }
        (ElementType::Bf16, ElementType::F32) => {
            source.slice::<bf16>()?.convert_to_f32_slice(target.slice_mut::<f32>()?);
            return Ok(());
        }
        _ => {}
    }
    let elements = source.elements();
    for start in (0..elements).step_by(CHUNK) {
        let length = CHUNK.min(elements - start);
        let wide = read(source, start, length)?;
        write(&wide, target, start, length)?;
    }
    Ok(())
}

fn copy(source: TensorView<'_>, target: &mut TensorViewMut<'_>) -> OpResult {
    if let (Some(target), Some(source)) = (target.strings_mut(), source.strings()) {
        target.clone_from_slice(source);
        return Ok(());
    }
    target.bytes_mut().copy_from_slice(source.bytes());
    Ok(())
}

fn read(source: TensorView<'_>, start: usize, length: usize) -> OpResult<Wide> {
    let element_type = source.element_type();
    dispatch!(element_type, T in [native] => {
        let values = &source.slice::<T>()?[start..start + length];
        if <T as Number>::IS_FLOAT {
            let mut wide = [0.0; CHUNK];
            wide.iter_mut().zip(values).for_each(|(w, v)| *w = Number::to_f64(*v));
            return Ok(Wide::Float(wide));
        }
        let mut wide = [0; CHUNK];
        wide.iter_mut().zip(values).for_each(|(w, v)| *w = v.to_i128());
        if element_type == ElementType::Boolean {
            wide.iter_mut().for_each(|w| *w = i128::from(*w != 0));
        }
        Ok(Wide::Integer(wide))
    } else {
        let mut codes = [0u8; CHUNK];
        packed::unpack_codes(element_type, packed_part(element_type, source.bytes(), start, length)?, &mut codes[..length])?;
        let decoded = codes.map(|code| f64::from(packed::decode(element_type, code)));
        Ok(if is_packed_integer(element_type) { Wide::Integer(decoded.map(|v| v as i128)) } else { Wide::Float(decoded) })
    })
}

fn write(wide: &Wide, target: &mut TensorViewMut<'_>, start: usize, length: usize) -> OpResult {
    let element_type = target.element_type();
    if element_type == ElementType::Boolean {
        let values = &mut target.slice_mut::<u8>()?[start..start + length];
        match wide {
            Wide::Float(wide) => values.iter_mut().zip(wide).for_each(|(v, w)| *v = u8::from(*w != 0.0)),
            Wide::Integer(wide) => values.iter_mut().zip(wide).for_each(|(v, w)| *v = u8::from(*w != 0)),
        }
        return Ok(());
    }
    dispatch!(element_type, T in [numeric] => {
        let values = &mut target.slice_mut::<T>()?[start..start + length];
        match wide {
            Wide::Float(wide) => values.iter_mut().zip(wide).for_each(|(v, w)| *v = <T as FromFloat>::from_float(*w)),
            Wide::Integer(wide) => values.iter_mut().zip(wide).for_each(|(v, w)| *v = T::from_i128(*w)),
        }
        Ok(())
    } else {
        let mut codes = [0u8; CHUNK];
        match wide {
            Wide::Float(wide) if is_packed_integer(element_type) => {
                codes.iter_mut().zip(wide).for_each(|(c, w)| *c = truncate_to_i64(*w) as u8);
            }
            Wide::Float(wide) => codes.iter_mut().zip(wide).for_each(|(c, w)| *c = packed::encode(element_type, *w as f32)),
            Wide::Integer(wide) if is_packed_integer(element_type) => {
                codes.iter_mut().zip(wide).for_each(|(c, w)| *c = *w as u8);
            }
            Wide::Integer(wide) => codes.iter_mut().zip(wide).for_each(|(c, w)| *c = packed::encode(element_type, *w as f32)),
        }
        let bytes = packed_range(element_type, start, length)?;
        let Some(bytes) = target.bytes_mut().get_mut(bytes) else { return Err(unsupported(element_type)) };
        Ok(packed::pack_codes(element_type, &codes[..length], bytes)?)
    })
}

/// Where a chunk of a packed type lies. `start` is a multiple of [`CHUNK`], hence of every group.
fn packed_range(element_type: ElementType, start: usize, length: usize) -> OpResult<std::ops::Range<usize>> {
    let bytes = |elements: usize| element_type.storage_bytes(elements).ok_or_else(|| unsupported(element_type));
    let first = bytes(start)?;
    Ok(first..first + bytes(length)?)
}

fn packed_part(element_type: ElementType, bytes: &[u8], start: usize, length: usize) -> OpResult<&[u8]> {
    let range = packed_range(element_type, start, length)?;
    let missing = || TensorError::Format(format!("the bytes of a {element_type} tensor are incomplete"));
    Ok(bytes.get(range).ok_or_else(missing)?)
}

fn is_packed_integer(element_type: ElementType) -> bool {
    matches!(
        element_type,
        ElementType::U1 | ElementType::U2 | ElementType::U3 | ElementType::U4 | ElementType::U6 | ElementType::I4
    )
}

/// A number made from a floating-point number.
trait FromFloat {
    fn from_float(value: f64) -> Self;
}

macro_rules! from_float {
    (rounded: $($float:ty),*; through_i32: $($narrow:ty),*) => {
        $(impl FromFloat for $float {
            fn from_float(value: f64) -> Self { Number::from_f64(value) }
        })*
        $(impl FromFloat for $narrow {
            fn from_float(value: f64) -> Self { truncate_to_i32(value) as $narrow }
        })*
    };
}
from_float!(rounded: f16, bf16, f32, f64; through_i32: u8, u16, i8, i16, i32);

impl FromFloat for u32 {
    fn from_float(value: f64) -> u32 {
        truncate_to_i64(value) as u32
    }
}

impl FromFloat for i64 {
    fn from_float(value: f64) -> i64 {
        truncate_to_i64(value)
    }
}

impl FromFloat for u64 {
    fn from_float(value: f64) -> u64 {
        const HALF: f64 = 9_223_372_036_854_775_808.0;
        if value >= HALF {
            return truncate_to_i64(value - HALF) as u64 ^ (1 << 63);
        }
        truncate_to_i64(value) as u64
    }
}

/// The conversion of x86: what does not fit becomes the smallest i32.
fn truncate_to_i32(value: f64) -> i32 {
    let truncated = value.trunc();
    if truncated >= f64::from(i32::MIN) && truncated <= f64::from(i32::MAX) { truncated as i32 } else { i32::MIN }
}

/// The conversion of x86: what does not fit becomes the smallest i64.
fn truncate_to_i64(value: f64) -> i64 {
    let limit = 9_223_372_036_854_775_808.0;
    if value >= -limit && value < limit { value as i64 } else { i64::MIN }
}
