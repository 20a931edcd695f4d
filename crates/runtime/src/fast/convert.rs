//! Convert and its kind between native types.

use ovir_kernels::isa::{self, Isa};
use ovir_kernels::map::{self, ConvertTo};
use ovir_kernels::movement::copy;
use ovir_kernels::parallel::nanoseconds_for_bytes;
use ovir_ops::OpResult;
use ovir_ops::r#type::convert::Convert;
use ovir_ops::r#type::convert_like::ConvertLike;
use ovir_ops::r#type::convert_promote_types::ConvertPromoteTypes;
use ovir_tensor::{ElementType, NativeElement, SmallVec, TensorView, TensorViewMut, f16};

use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// Both inputs of a ConvertPromoteTypes; what has the type already is copied.
struct PromoteKernel {
    isa: Isa,
    conversions: [Option<Conversion>; 2],
    /// The bytes of an element after.
    bytes: usize,
}

type Conversion = fn(Isa, &TensorView<'_>, &mut TensorViewMut<'_>) -> OpResult;

struct ConvertKernel {
    isa: Isa,
    conversion: Conversion,
    /// The bytes of an element before and after.
    bytes: usize,
}

/// Claims conversions between native types.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = &context.node.operation;
    if operation.downcast_ref::<ConvertPromoteTypes>().is_some() {
        return claim_promotion(context);
    }
    let from = context.inputs.first()?.element_type;
    let to = match (operation.downcast_ref::<Convert>(), operation.downcast_ref::<ConvertLike>()) {
        (Some(convert), _) => convert.attributes.destination_type,
        (_, Some(_)) => context.inputs.get(1)?.element_type,
        _ => return None,
    };
    let conversion = conversion(from, to)?;
    let kernel = ConvertKernel { isa: isa::detect(), conversion, bytes: from.byte_width()? + to.byte_width()? };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

fn claim_promotion(context: &ClaimContext<'_>) -> Option<Claim> {
    let ([a, b], [output, _]) = (context.inputs, context.outputs) else { return None };
    let to = output.element_type;
    let of = |from: ElementType| match from == to {
        true => Some(None),
        false => conversion(from, to).map(Some),
    };
    let conversions = [of(a.element_type)?, of(b.element_type)?];
    let kernel = PromoteKernel { isa: isa::detect(), conversions, bytes: to.byte_width()? };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

/// The expression with the native type of the element type `$chosen` for `$type`.
macro_rules! by_number {
    ($chosen:expr, |$type:ident| $conversion:expr) => {
        match $chosen {
            ElementType::I8 => {
                type $type = i8;
                $conversion
            }
            ElementType::U8 => {
                type $type = u8;
                $conversion
            }
            ElementType::I32 => {
                type $type = i32;
                $conversion
            }
            ElementType::I64 => {
                type $type = i64;
                $conversion
            }
            ElementType::F32 => {
                type $type = f32;
                $conversion
            }
            ElementType::F64 => {
                type $type = f64;
                $conversion
            }
            _ => return None,
        }
    };
}

fn conversion(from: ElementType, to: ElementType) -> Option<Conversion> {
    use ElementType::{Boolean, F16, F32, F64, I16, U16, U32, U64};
    if from == to {
        return None;
    }
    Some(match (from, to) {
        // Through f32, it would be rounded twice.
        (F64, F16) => return None,
        (F16, Boolean) => |isa, source, target| {
            map::truths_of_halves(isa, source.slice::<f16>()?, target.slice_mut::<u8>()?).map_err(kernel_error)
        },
        (Boolean, F16) => |isa, source, target| {
            map::convert_truths_to_halves(isa, source.slice::<u8>()?, target.slice_mut::<f16>()?).map_err(kernel_error)
        },
        (Boolean, _) => by_number!(to, |T| |isa, source, target| {
            map::convert_truths(isa, source.slice::<u8>()?, target.slice_mut::<T>()?).map_err(kernel_error)
        }),
        (_, Boolean) => by_number!(from, |S| |isa, source, target| {
            map::truths(isa, source.slice::<S>()?, target.slice_mut::<u8>()?).map_err(kernel_error)
        }),
        (F16, _) => by_number!(to, |T| |isa, source, target| {
            map::convert_from_halves(isa, source.slice::<f16>()?, target.slice_mut::<T>()?).map_err(kernel_error)
        }),
        (_, F16) => by_number!(from, |S| |isa, source, target| {
            map::convert_to_halves(isa, source.slice::<S>()?, target.slice_mut::<f16>()?).map_err(kernel_error)
        }),
        (I16, F32) => |isa, source, target| numbers::<i16, f32>(isa, source, target),
        (U16, F32) => |isa, source, target| numbers::<u16, f32>(isa, source, target),
        (U32, F32) => |isa, source, target| numbers::<u32, f32>(isa, source, target),
        (U64, F32) => |isa, source, target| numbers::<u64, f32>(isa, source, target),
        (F32, I16) => |isa, source, target| numbers::<f32, i16>(isa, source, target),
        (F32, U16) => |isa, source, target| numbers::<f32, u16>(isa, source, target),
        (F32, U32) => |isa, source, target| numbers::<f32, u32>(isa, source, target),
        (F32, U64) => |isa, source, target| numbers::<f32, u64>(isa, source, target),
        _ => by_number!(from, |S| by_number!(to, |T| |isa, source, target| numbers::<S, T>(isa, source, target))),
    })
}

fn numbers<S: NativeElement + ConvertTo<T>, T: NativeElement>(
    isa: Isa,
    source: &TensorView<'_>,
    target: &mut TensorViewMut<'_>,
) -> OpResult {
    map::convert(isa, source.slice::<S>()?, target.slice_mut::<T>()?).map_err(kernel_error)
}

impl Kernel for ConvertKernel {
    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| nanoseconds_for_bytes(s.elements().saturating_mul(self.bytes))).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        (self.conversion)(self.isa, &io.inputs[0], output)
    }
}

impl Kernel for PromoteKernel {
    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| nanoseconds_for_bytes(s.elements().saturating_mul(2 * self.bytes))).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        for ((conversion, input), output) in self.conversions.iter().zip(io.inputs).zip(io.outputs) {
            match conversion {
                Some(conversion) => conversion(self.isa, input, output)?,
                None => copy(input.bytes(), output.bytes_mut()).map_err(kernel_error)?,
            }
        }
        Ok(())
    }
}
