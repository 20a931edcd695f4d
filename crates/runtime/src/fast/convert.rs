//! Convert between the native types that models convert between.

use half::slice::HalfFloatSliceExt;
use ovir_kernels::parallel::{nanoseconds_for_bytes, parallel_chunks_mut};
use ovir_ops::r#type::convert::Convert;
use ovir_ops::{OpError, OpResult};
use ovir_tensor::{ElementType, NativeElement, SmallVec, TensorView, TensorViewMut, f16};

use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// Elements that a parallel chunk covers.
const CHUNK: usize = 1 << 14;

type Conversion = fn(&TensorView<'_>, &mut TensorViewMut<'_>) -> OpResult;

struct ConvertKernel {
    conversion: Conversion,
    /// The bytes of an element before and after.
    bytes: usize,
}

/// Claims conversions of common pairs.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let convert = context.node.operation.downcast_ref::<Convert>()?;
    let (from, to) = (context.inputs.first()?.element_type, convert.attributes.destination_type);
    let conversion = conversion(from, to)?;
    let kernel = ConvertKernel { conversion, bytes: from.byte_width()? + to.byte_width()? };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

fn conversion(from: ElementType, to: ElementType) -> Option<Conversion> {
    use ElementType::{Boolean, F16, F32, I8, I32, I64, U8};
    Some(match (from, to) {
        (F16, F32) => {
            |source, target| chunks::<f16, f32>(source, target, |source, target| source.convert_to_f32_slice(target))
        }
        (F32, F16) => {
            |source, target| chunks::<f32, f16>(source, target, |source, target| target.convert_from_f32_slice(source))
        }
        (F32, I32) => |source, target| each::<f32, i32>(source, target, truncate_to_i32),
        (F32, I64) => |source, target| each::<f32, i64>(source, target, truncate_to_i64),
        (F32, U8) => |source, target| each::<f32, u8>(source, target, |x| truncate_to_i32(x) as u8),
        (F32, I8) => |source, target| each::<f32, i8>(source, target, |x| truncate_to_i32(x) as i8),
        (F32, Boolean) => |source, target| each::<f32, u8>(source, target, |x| u8::from(x != 0.0)),
        (I64, I32) => |source, target| each::<i64, i32>(source, target, |x| x as i32),
        (I64, F32) => |source, target| each::<i64, f32>(source, target, |x| x as f32),
        (I64, Boolean) => |source, target| each::<i64, u8>(source, target, |x| u8::from(x != 0)),
        (I32, I64) => |source, target| each::<i32, i64>(source, target, i64::from),
        (I32, F32) => |source, target| each::<i32, f32>(source, target, |x| x as f32),
        (I32, Boolean) => |source, target| each::<i32, u8>(source, target, |x| u8::from(x != 0)),
        (U8, F32) => |source, target| each::<u8, f32>(source, target, f32::from),
        (U8, Boolean) => |source, target| each::<u8, u8>(source, target, |x| u8::from(x != 0)),
        (I8, F32) => |source, target| each::<i8, f32>(source, target, f32::from),
        (Boolean, F32) => |source, target| each::<u8, f32>(source, target, |x| f32::from(u8::from(x != 0))),
        (Boolean, I32) => |source, target| each::<u8, i32>(source, target, |x| i32::from(x != 0)),
        (Boolean, I64) => |source, target| each::<u8, i64>(source, target, |x| i64::from(x != 0)),
        (Boolean, U8) => |source, target| each::<u8, u8>(source, target, |x| u8::from(x != 0)),
        _ => return None,
    })
}

/// Converts chunk by chunk.
fn chunks<S: NativeElement, T: NativeElement>(
    source: &TensorView<'_>,
    target: &mut TensorViewMut<'_>,
    convert: impl Fn(&[S], &mut [T]) + Sync,
) -> OpResult {
    let (source, target) = (source.slice::<S>()?, target.slice_mut::<T>()?);
    if source.len() != target.len() {
        return Err(OpError::unsupported("the output has another size than the input"));
    }
    let work = nanoseconds_for_bytes(source.len().saturating_mul(size_of::<S>() + size_of::<T>()));
    parallel_chunks_mut(target, CHUNK, work, |index, target| {
        convert(&source[index * CHUNK..][..target.len()], target);
    });
    Ok(())
}

/// Converts element by element.
fn each<S: NativeElement, T: NativeElement>(
    source: &TensorView<'_>,
    target: &mut TensorViewMut<'_>,
    convert: impl Fn(S) -> T + Sync,
) -> OpResult {
    chunks::<S, T>(source, target, |source, target| {
        target.iter_mut().zip(source).for_each(|(target, source)| *target = convert(*source));
    })
}

/// The conversion of x86: what does not fit becomes the smallest i32.
fn truncate_to_i32(value: f32) -> i32 {
    const LIMIT: f32 = 2_147_483_648.0;
    if (-LIMIT..LIMIT).contains(&value) { value as i32 } else { i32::MIN }
}

/// The conversion of x86: what does not fit becomes the smallest i64.
fn truncate_to_i64(value: f32) -> i64 {
    const LIMIT: f32 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&value) { value as i64 } else { i64::MIN }
}

impl Kernel for ConvertKernel {
    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| nanoseconds_for_bytes(s.elements().saturating_mul(self.bytes))).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        (self.conversion)(&io.inputs[0], output)
    }
}
