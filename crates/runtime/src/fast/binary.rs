//! Functions and comparisons of two broadcast inputs.

use std::borrow::Cow;

use ovir_kernels::KernelError;
use ovir_kernels::bits::{BitOp, Bits, bitwise};
use ovir_kernels::elementwise::{
    BinaryOp, BroadcastGeometry, CompareOp, Number, binary, binary_in_place, compare, first_zero,
};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::nanoseconds_for_bytes;
use ovir_kernels::unary::{UnaryOp, unary_f32, unary_f32_in_place};
use ovir_ops::activation::prelu::{Prelu, aligned_slope};
use ovir_ops::arithmetic::{
    add::Add, divide::Divide, floor_mod::FloorMod, maximum::Maximum, minimum::Minimum, modulo::Mod, multiply::Multiply,
    power::Power, squared_difference::SquaredDifference, subtract::Subtract,
};
use ovir_ops::bitwise::{
    bitwise_and::BitwiseAnd, bitwise_left_shift::BitwiseLeftShift, bitwise_or::BitwiseOr,
    bitwise_right_shift::BitwiseRightShift, bitwise_xor::BitwiseXor,
};
use ovir_ops::common::broadcast::{AutoBroadcast, BroadcastAttributes};
use ovir_ops::comparison::{
    equal::Equal, greater::Greater, greater_equal::GreaterEqual, less::Less, less_equal::LessEqual, not_equal::NotEqual,
};
use ovir_ops::logical::{logical_and::LogicalAnd, logical_or::LogicalOr, logical_xor::LogicalXor, xor::Xor};
use ovir_ops::{Blame, OpError, OpResult, Operation};
use ovir_tensor::{ElementType, NativeElement, Shape, SmallVec};

use super::parts::kernel_error;
use super::settled::Settled;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// How the second shape is aligned with the first.
enum Alignment {
    Broadcast(BroadcastAttributes),
    Slope,
}

impl Alignment {
    fn second(&self, a: &Shape, b: &Shape) -> Shape {
        match self {
            Alignment::Broadcast(attributes) => attributes.aligned_second(a, b),
            Alignment::Slope => aligned_slope(a, b),
        }
    }

    fn geometry(&self, a: &Shape, b: &Shape) -> Result<BroadcastGeometry, KernelError> {
        BroadcastGeometry::new(a, &self.second(a, b))
    }
}

/// Two broadcast inputs of one type.
struct Operands {
    isa: Isa,
    alignment: Alignment,
    element_type: ElementType,
    settled: Settled<BroadcastGeometry>,
}

/// A function of two values.
struct BinaryKernel {
    op: BinaryOp,
    operands: Operands,
}

/// A comparison, or a truth function.
struct CompareKernel {
    op: CompareOp,
    operands: Operands,
}

/// A function of the bits of two integers.
struct BitsKernel {
    op: BitOp,
    operands: Operands,
}

/// Claims functions of two inputs.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = &*context.node.operation;
    let element_type = context.inputs.first()?.element_type;
    if context.inputs.len() != 2 || context.inputs[1].element_type != element_type {
        return None;
    }
    let kernel: Box<dyn Kernel> = if let Some((op, alignment)) = arithmetic(operation, element_type) {
        is_arithmetic_type(op, element_type).then_some(())?;
        Box::new(BinaryKernel { op, operands: Operands::of(context, alignment) })
    } else if let Some((op, attributes)) = bit_function(operation).filter(|_| is_integer(element_type)) {
        Box::new(BitsKernel { op, operands: Operands::of(context, Alignment::Broadcast(attributes)) })
    } else {
        let (op, attributes) = comparison(operation)?;
        is_comparable_type(element_type).then_some(())?;
        Box::new(CompareKernel { op, operands: Operands::of(context, Alignment::Broadcast(attributes)) })
    };
    Some(Claim { kernel, packed_inputs: SmallVec::new() })
}

/// The f32 function of a layer that broadcasts as numpy does.
pub(crate) fn numpy_function(operation: &dyn Operation) -> Option<BinaryOp> {
    match arithmetic(operation, ElementType::F32)? {
        (op, Alignment::Broadcast(attributes)) if attributes.auto_broadcast == AutoBroadcast::Numpy => Some(op),
        _ => None,
    }
}

fn arithmetic(operation: &dyn Operation, element_type: ElementType) -> Option<(BinaryOp, Alignment)> {
    let found = |op, attributes: &BroadcastAttributes| Some((op, Alignment::Broadcast(attributes.clone())));
    if let Some(divide) = operation.downcast_ref::<Divide>() {
        // A quotient of floating-point numbers is never rounded to an integer.
        let rounds_down = divide.floor && element_type.is_integer();
        return found(if rounds_down { BinaryOp::FloorDiv } else { BinaryOp::Div }, &divide.attributes);
    }
    if operation.downcast_ref::<Prelu>().is_some() {
        return Some((BinaryOp::PRelu, Alignment::Slope));
    }
    macro_rules! table {
        ($($operation:ident => $op:ident),*) => {
            $(if let Some(found_operation) = operation.downcast_ref::<$operation>() {
                return found(BinaryOp::$op, &found_operation.attributes);
            })*
        };
    }
    table!(Add => Add, Subtract => Sub, Multiply => Mul, Maximum => Max, Minimum => Min, Power => Power,
        SquaredDifference => SquaredDifference, Mod => Mod, FloorMod => FloorMod);
    None
}

/// The comparison or function of truth values that a layer of these is.
pub(crate) fn comparison(operation: &dyn Operation) -> Option<(CompareOp, BroadcastAttributes)> {
    macro_rules! table {
        ($($operation:ident => $op:ident),*) => {
            $(if let Some(found) = operation.downcast_ref::<$operation>() {
                return Some((CompareOp::$op, found.attributes.clone()));
            })*
        };
    }
    table!(Equal => Equal, NotEqual => NotEqual, Less => Less, LessEqual => LessEqual, Greater => Greater,
        GreaterEqual => GreaterEqual, LogicalAnd => And, LogicalOr => Or, LogicalXor => Xor, Xor => Xor);
    // Bits of booleans are truth values.
    let (op, attributes) = bit_function(operation)?;
    let op = match op {
        BitOp::And => CompareOp::And,
        BitOp::Or => CompareOp::Or,
        BitOp::Xor => CompareOp::Xor,
        BitOp::ShiftLeft | BitOp::ShiftRight => return None,
    };
    Some((op, attributes))
}

fn bit_function(operation: &dyn Operation) -> Option<(BitOp, BroadcastAttributes)> {
    macro_rules! table {
        ($($operation:ident => $op:ident),*) => {
            $(if let Some(found) = operation.downcast_ref::<$operation>() {
                return Some((BitOp::$op, found.attributes.clone()));
            })*
        };
    }
    table!(BitwiseAnd => And, BitwiseOr => Or, BitwiseXor => Xor, BitwiseLeftShift => ShiftLeft,
        BitwiseRightShift => ShiftRight);
    None
}

fn is_integer(element_type: ElementType) -> bool {
    matches!(element_type, ElementType::I8 | ElementType::U8 | ElementType::I32 | ElementType::I64)
}

/// The types that the kernels compute as the reference does. The reference has further types, and its own rules for
/// powers of integers.
fn is_arithmetic_type(op: BinaryOp, element_type: ElementType) -> bool {
    match element_type {
        ElementType::F32 | ElementType::F64 => true,
        _ => op != BinaryOp::Power && is_integer(element_type),
    }
}

fn is_comparable_type(element_type: ElementType) -> bool {
    matches!(element_type, ElementType::Boolean | ElementType::F32 | ElementType::F64) || is_integer(element_type)
}

impl Operands {
    /// The operands of a layer of two inputs of one type.
    fn of(context: &ClaimContext<'_>, alignment: Alignment) -> Operands {
        let settled = Settled::new(context, 2, |shapes| match shapes.inputs {
            [a, b] => alignment.geometry(a, b).ok(),
            _ => None,
        });
        let element_type = context.inputs.first().map_or(ElementType::F32, |facts| facts.element_type);
        Operands { isa: isa::detect(), alignment, element_type, settled }
    }

    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let ([a, b], [output]) = (shapes.inputs, shapes.outputs) else { return false };
        self.alignment.geometry(a, b).is_ok_and(|g| g.output_len() == output.elements())
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let elements = shapes.outputs.first().map_or(0, |s| s.elements());
        nanoseconds_for_bytes(elements.saturating_mul(3 * self.element_type.byte_width().unwrap_or(4)))
    }

    fn geometry(&self, io: &StepIo<'_, '_>) -> OpResult<Cow<'_, BroadcastGeometry>> {
        match self.settled.get(io.inputs) {
            Some(geometry) => Ok(Cow::Borrowed(geometry)),
            None => {
                let geometry = self.alignment.geometry(io.inputs[0].shape(), io.inputs[1].shape());
                geometry.map(Cow::Owned).map_err(kernel_error)
            }
        }
    }
}

impl BinaryKernel {
    fn apply<T: Number + NativeElement>(&self, io: StepIo<'_, '_>) -> OpResult {
        let geometry = self.operands.geometry(&io)?;
        let [output] = io.outputs else { return Ok(()) };
        let (a, b) = (&io.inputs[0], &io.inputs[1]);
        let isa = self.operands.isa;
        let target = output.slice_mut::<T>()?;
        let is_division = matches!(self.op, BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Mod | BinaryOp::FloorMod);
        if is_division && self.operands.element_type.is_integer() && !target.is_empty() {
            let divisors = if io.in_place == Some(1) { &*target } else { b.slice::<T>()? };
            check_divisors(isa, divisors)?;
        }
        let result = match io.in_place {
            Some(0) => binary_in_place(isa, self.op, &geometry, target, b.slice::<T>()?, true),
            Some(_) => binary_in_place(isa, self.op, &geometry, target, a.slice::<T>()?, false),
            None => binary(isa, self.op, &geometry, a.slice::<T>()?, b.slice::<T>()?, target),
        };
        result.map_err(kernel_error)
    }

    /// Powers with one exponent for all elements.
    fn apply_simple_power(&self, io: &mut StepIo<'_, '_>) -> OpResult<bool> {
        if self.op != BinaryOp::Power || self.operands.element_type != ElementType::F32 || io.in_place == Some(1) {
            return Ok(false);
        }
        let [exponent] = io.inputs[1].slice::<f32>()? else { return Ok(false) };
        let [output] = &mut *io.outputs else { return Ok(false) };
        if output.shape() != io.inputs[0].shape() {
            return Ok(false);
        }
        let op = UnaryOp::Power { exponent: *exponent };
        let target = output.slice_mut::<f32>()?;
        match io.in_place {
            Some(_) => unary_f32_in_place(self.operands.isa, op, target),
            None => unary_f32(self.operands.isa, op, io.inputs[0].slice::<f32>()?, target).map_err(kernel_error)?,
        }
        Ok(true)
    }
}

fn check_divisors<T: Number>(isa: Isa, divisors: &[T]) -> OpResult {
    let Some(place) = first_zero(isa, divisors) else { return Ok(()) };
    let message = format!("element {place} is 0: division by zero has no integer result");
    Err(OpError::value(Blame::Input(1), message))
}

impl Kernel for BinaryKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        self.operands.accepts(shapes)
    }

    fn in_place_inputs(&self, shapes: &StepShapes<'_>) -> SmallVec<[usize; 2]> {
        let is_output = |port: &usize| shapes.inputs.get(*port) == shapes.outputs.first();
        (0..2).filter(is_output).collect()
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        match (self.op, self.operands.element_type) {
            // There are vectors for the remainders of these.
            (
                BinaryOp::Mod | BinaryOp::FloorMod,
                ElementType::F32 | ElementType::I32 | ElementType::I8 | ElementType::U8,
            ) => self.operands.work_nanoseconds(shapes),
            (BinaryOp::Power | BinaryOp::Mod | BinaryOp::FloorMod, _) => {
                shapes.outputs.first().map_or(0, |s| s.elements() as u64 * 5)
            }
            _ => self.operands.work_nanoseconds(shapes),
        }
    }

    fn run(&self, mut io: StepIo<'_, '_>) -> OpResult {
        if self.apply_simple_power(&mut io)? {
            return Ok(());
        }
        match self.operands.element_type {
            ElementType::F32 => self.apply::<f32>(io),
            ElementType::F64 => self.apply::<f64>(io),
            ElementType::I8 => self.apply::<i8>(io),
            ElementType::U8 => self.apply::<u8>(io),
            ElementType::I32 => self.apply::<i32>(io),
            _ => self.apply::<i64>(io),
        }
    }
}

impl BitsKernel {
    fn apply<T: Bits + NativeElement>(&self, io: StepIo<'_, '_>) -> OpResult {
        let geometry = self.operands.geometry(&io)?;
        let [output] = io.outputs else { return Ok(()) };
        let (a, b) = (io.inputs[0].slice::<T>()?, io.inputs[1].slice::<T>()?);
        bitwise(self.operands.isa, self.op, &geometry, a, b, output.slice_mut::<T>()?).map_err(kernel_error)
    }
}

impl Kernel for BitsKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        self.operands.accepts(shapes)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        self.operands.work_nanoseconds(shapes)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        match self.operands.element_type {
            ElementType::I8 => self.apply::<i8>(io),
            ElementType::U8 => self.apply::<u8>(io),
            ElementType::I32 => self.apply::<i32>(io),
            _ => self.apply::<i64>(io),
        }
    }
}

impl CompareKernel {
    fn apply<T: Number + NativeElement>(&self, io: StepIo<'_, '_>) -> OpResult {
        let geometry = self.operands.geometry(&io)?;
        let [output] = io.outputs else { return Ok(()) };
        let (a, b) = (io.inputs[0].slice::<T>()?, io.inputs[1].slice::<T>()?);
        compare(self.operands.isa, self.op, &geometry, a, b, output.slice_mut::<u8>()?).map_err(kernel_error)
    }
}

impl Kernel for CompareKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        self.operands.accepts(shapes)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        self.operands.work_nanoseconds(shapes)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        match self.operands.element_type {
            ElementType::F32 => self.apply::<f32>(io),
            ElementType::F64 => self.apply::<f64>(io),
            ElementType::I8 => self.apply::<i8>(io),
            ElementType::Boolean | ElementType::U8 => self.apply::<u8>(io),
            ElementType::I32 => self.apply::<i32>(io),
            _ => self.apply::<i64>(io),
        }
    }
}
