//! Functions of one input of integers, booleans or f64, and what floats are asked for.

use ovir_kernels::isa::{self, Isa};
use ovir_kernels::map::{DoubleOp, FloatTest, Integer, IntegerOp, doubles, integers, test_floats};
use ovir_kernels::parallel::nanoseconds_for_bytes;
use ovir_kernels::unary::UnaryOp;
use ovir_ops::activation::{clamp::Clamp, relu::Relu};
use ovir_ops::arithmetic::{abs::Abs, ceiling::Ceiling, floor::Floor, negative::Negative, round::Round, sign::Sign};
use ovir_ops::bitwise::bitwise_not::BitwiseNot;
use ovir_ops::comparison::{is_finite::IsFinite, is_inf::IsInf, is_nan::IsNaN};
use ovir_ops::logical::logical_not::LogicalNot;
use ovir_ops::{OpResult, Operation};
use ovir_tensor::{ElementType, NativeElement, SmallVec};

use super::parts::{kernel_error, unary_op};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct IntegerKernel {
    isa: Isa,
    /// Its limits are numbers still: they are brought into the range of the type.
    function: IntegerOp<f64>,
    element_type: ElementType,
}

struct DoubleKernel {
    isa: Isa,
    function: DoubleOp,
}

struct TestKernel {
    isa: Isa,
    test: FloatTest,
}

/// Claims functions of one input.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    use ElementType::{Boolean, F32, F64, I8, I32, I64, U8};
    let operation = &*context.node.operation;
    let element_type = context.inputs.first()?.element_type;
    let isa = isa::detect();
    let kernel: Box<dyn Kernel> = match element_type {
        F32 => Box::new(TestKernel { isa, test: float_test(operation)? }),
        F64 => Box::new(DoubleKernel { isa, function: double_function(operation)? }),
        Boolean => {
            let is_not =
                operation.downcast_ref::<LogicalNot>().is_some() || operation.downcast_ref::<BitwiseNot>().is_some();
            is_not.then_some(())?;
            Box::new(IntegerKernel { isa, function: IntegerOp::IsZero, element_type })
        }
        I8 | U8 | I32 | I64 => Box::new(IntegerKernel { isa, function: integer_function(operation)?, element_type }),
        _ => return None,
    };
    Some(Claim { kernel, packed_inputs: SmallVec::new() })
}

fn float_test(operation: &dyn Operation) -> Option<FloatTest> {
    if let Some(found) = operation.downcast_ref::<IsInf>() {
        let (negative, positive) = (found.attributes.detect_negative, found.attributes.detect_positive);
        return Some(FloatTest::IsInf { negative, positive });
    }
    let is_nan = operation.downcast_ref::<IsNaN>().map(|_| FloatTest::IsNaN);
    is_nan.or_else(|| operation.downcast_ref::<IsFinite>().map(|_| FloatTest::IsFinite))
}

fn double_function(operation: &dyn Operation) -> Option<DoubleOp> {
    // The limits of the function of f32 are rounded.
    if let Some(clamp) = operation.downcast_ref::<Clamp>() {
        return Some(DoubleOp::Clamp { low: clamp.attributes.min, high: clamp.attributes.max });
    }
    Some(match unary_op(operation, &[])? {
        UnaryOp::Abs => DoubleOp::Abs,
        UnaryOp::Neg => DoubleOp::Negative,
        UnaryOp::Sign => DoubleOp::Sign,
        UnaryOp::Floor => DoubleOp::Floor,
        UnaryOp::Ceil => DoubleOp::Ceiling,
        UnaryOp::RoundHalfEven => DoubleOp::RoundHalfEven,
        UnaryOp::RoundHalfAway => DoubleOp::RoundHalfAway,
        UnaryOp::Sqrt => DoubleOp::Sqrt,
        UnaryOp::Relu => DoubleOp::Relu,
        _ => return None,
    })
}

fn integer_function(operation: &dyn Operation) -> Option<IntegerOp<f64>> {
    if let Some(clamp) = operation.downcast_ref::<Clamp>() {
        return Some(IntegerOp::Clamp { low: clamp.attributes.min.ceil(), high: clamp.attributes.max.floor() });
    }
    let table = [
        (operation.downcast_ref::<Abs>().is_some(), IntegerOp::Abs),
        (operation.downcast_ref::<Negative>().is_some(), IntegerOp::Negative),
        (operation.downcast_ref::<Sign>().is_some(), IntegerOp::Sign),
        (operation.downcast_ref::<BitwiseNot>().is_some(), IntegerOp::Not),
        (operation.downcast_ref::<Relu>().is_some(), IntegerOp::Clamp { low: 0.0, high: f64::INFINITY }),
        (operation.downcast_ref::<Floor>().is_some(), IntegerOp::Same),
        (operation.downcast_ref::<Ceiling>().is_some(), IntegerOp::Same),
        (operation.downcast_ref::<Round>().is_some(), IntegerOp::Same),
    ];
    table.into_iter().find(|(found, _)| *found).map(|(_, function)| function)
}

impl IntegerKernel {
    /// `cast` brings a number into the range of the type.
    fn apply<T: Integer + NativeElement>(&self, io: StepIo<'_, '_>, cast: fn(f64) -> T) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let op = self.function.map_limits(cast);
        integers(self.isa, op, io.inputs[0].slice::<T>()?, output.slice_mut::<T>()?).map_err(kernel_error)
    }
}

impl Kernel for IntegerKernel {
    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let bytes = 2 * self.element_type.byte_width().unwrap_or(8);
        shapes.outputs.iter().map(|s| nanoseconds_for_bytes(s.elements().saturating_mul(bytes))).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        match self.element_type {
            ElementType::I8 => self.apply(io, |x| x as i8),
            ElementType::I32 => self.apply(io, |x| x as i32),
            ElementType::I64 => self.apply(io, |x| x as i64),
            _ => self.apply(io, |x| x as u8),
        }
    }
}

impl Kernel for DoubleKernel {
    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| nanoseconds_for_bytes(s.elements().saturating_mul(16))).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        doubles(self.isa, self.function, io.inputs[0].slice::<f64>()?, output.slice_mut::<f64>()?).map_err(kernel_error)
    }
}

impl Kernel for TestKernel {
    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| nanoseconds_for_bytes(s.elements().saturating_mul(5))).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        test_floats(self.isa, self.test, io.inputs[0].slice::<f32>()?, output.slice_mut::<u8>()?).map_err(kernel_error)
    }
}
