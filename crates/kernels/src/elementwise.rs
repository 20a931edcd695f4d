//! Functions of two operands with broadcasting.

mod bytes;

use std::any::TypeId;
use std::mem::MaybeUninit;

use bytes::Division;

use crate::error::{KernelError, check_exact, check_len, product};
use crate::isa::Isa;
use crate::movement::{Axis, Cursor};
use crate::parallel::{nanoseconds_for_bytes, parallel_for};
use crate::simd::{Kernel, MOST_LANES, Simd, dispatch};

/// The most axes a collapsed geometry keeps.
const MOST_AXES: usize = 8;

/// Elements a parallel chunk covers.
const CHUNK: usize = 1 << 14;

/// A function of two values of one type.
///
/// Integers wrap on overflow; an integer division or remainder by zero gives zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryOp {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`; integers towards zero.
    Div,
    /// The quotient rounded down.
    FloorDiv,
    /// The greater; NaN if either is.
    Max,
    /// The lesser; NaN if either is.
    Min,
    /// `a ^ b`; of integers with a negative exponent the truncated value.
    Power,
    /// `(a - b)^2`
    SquaredDifference,
    /// The remainder with the sign of `a`.
    Mod,
    /// The remainder with the sign of `b`.
    FloorMod,
    /// `a < 0 ? a * b : a`, thus PReLU with slopes `b`.
    PRelu,
}

/// A comparison, false on NaN except `NotEqual`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompareOp {
    /// `a == b`
    Equal,
    /// `a != b`
    NotEqual,
    /// `a < b`
    Less,
    /// `a <= b`
    LessEqual,
    /// `a > b`
    Greater,
    /// `a >= b`
    GreaterEqual,
    /// Both are nonzero.
    And,
    /// One at least is nonzero.
    Or,
    /// Exactly one is nonzero.
    Xor,
}

/// How two operands spread over a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BroadcastGeometry {
    /// Size and the operands' strides of each axis, outermost first; neighbours that allow it are one axis.
    axes: [(usize, usize, usize); MOST_AXES],
    rank: usize,
    len: usize,
    a_len: usize,
    b_len: usize,
}

impl BroadcastGeometry {
    /// The geometry of two dense operands under numpy's rule: shapes align at their ends, and an axis of size 1 (or a
    /// missing one) repeats. Unidirectional and explicit broadcasting come down to it by reshaping.
    ///
    /// # Errors
    /// Sizes differ where neither is 1, overflow, or leave more than eight axes after collapsing.
    pub fn new(a_shape: &[usize], b_shape: &[usize]) -> Result<Self, KernelError> {
        let rank = a_shape.len().max(b_shape.len());
        let (a_len, b_len) = (product("a_shape", a_shape)?, product("b_shape", b_shape)?);
        let mut geometry = Self { axes: [(1, 0, 0); MOST_AXES], rank: 0, len: 1, a_len, b_len };
        // From the innermost axis outwards, so that dense strides accumulate.
        let (mut a_stride, mut b_stride) = (1usize, 1usize);
        for back in 0..rank {
            let size = |shape: &[usize]| shape.len().checked_sub(back + 1).map_or(1, |axis| shape[axis]);
            let (a_size, b_size) = (size(a_shape), size(b_shape));
            if a_size != b_size && a_size != 1 && b_size != 1 {
                return Err(KernelError::invalid("b_shape", "does not broadcast with the other shape"));
            }
            let out = if a_size == 1 { b_size } else { a_size };
            geometry.len = product("output", &[geometry.len, out])?;
            if out != 1 {
                let a = if a_size == 1 { 0 } else { a_stride };
                let b = if b_size == 1 { 0 } else { b_stride };
                geometry.push_outer(out, a, b)?;
            }
            a_stride = a_stride.saturating_mul(a_size);
            b_stride = b_stride.saturating_mul(b_size);
        }
        geometry.axes[..geometry.rank].reverse();
        if geometry.rank == 0 {
            geometry.rank = 1;
        }
        Ok(geometry)
    }

    /// Elements of the result.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.len
    }

    /// Whether an operand (the first or the second) has the result's size, so that the result may replace it.
    #[must_use]
    pub fn covers(&self, first: bool) -> bool {
        (if first { self.a_len } else { self.b_len }) == self.len
    }

    /// Adds an axis outside the ones so far, or widens the last.
    fn push_outer(&mut self, size: usize, a: usize, b: usize) -> Result<(), KernelError> {
        let last = self.rank.checked_sub(1).map(|last| self.axes[last]);
        let extends = |(inner, a_inner, b_inner): &(usize, usize, usize)| {
            a == a_inner.saturating_mul(*inner) && b == b_inner.saturating_mul(*inner)
        };
        if let Some((inner, ..)) = last.filter(extends) {
            self.axes[self.rank - 1].0 = inner.saturating_mul(size);
            return Ok(());
        }
        if self.rank == MOST_AXES {
            return Err(KernelError::invalid("shape", "too many axes"));
        }
        self.axes[self.rank] = (size, a, b);
        self.rank += 1;
        Ok(())
    }

    pub(crate) fn check(&self, a: usize, b: usize, output: usize) -> Result<(), KernelError> {
        check_len("a", a, self.a_len)?;
        check_len("b", b, self.b_len)?;
        check_exact("output", output, self.len)
    }
}

/// An element type with arithmetic.
pub trait Number: Copy + PartialEq + PartialOrd + Send + Sync + Default + 'static {
    /// One.
    const ONE: Self;
    /// Whether the value is not zero.
    #[inline(always)]
    fn truth(self) -> bool {
        self != Self::default()
    }
    /// See [`BinaryOp::Add`].
    fn plus(self, other: Self) -> Self;
    /// See [`BinaryOp::Sub`].
    fn minus(self, other: Self) -> Self;
    /// See [`BinaryOp::Mul`].
    fn times(self, other: Self) -> Self;
    /// See [`BinaryOp::Div`].
    fn over(self, other: Self) -> Self;
    /// See [`BinaryOp::FloorDiv`].
    fn floor_over(self, other: Self) -> Self;
    /// See [`BinaryOp::Max`].
    fn greater(self, other: Self) -> Self;
    /// See [`BinaryOp::Min`].
    fn lesser(self, other: Self) -> Self;
    /// See [`BinaryOp::Power`].
    fn power(self, other: Self) -> Self;
    /// See [`BinaryOp::Mod`].
    fn remainder(self, other: Self) -> Self;
    /// See [`BinaryOp::FloorMod`].
    fn floor_remainder(self, other: Self) -> Self;
}

macro_rules! floats {
    ($($type:ty: $remainder:expr),*) => {
        $(impl Number for $type {
            const ONE: Self = 1.0;
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn minus(self, other: Self) -> Self { self - other }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self * other }
            #[inline(always)]
            fn over(self, other: Self) -> Self { self / other }
            #[inline(always)]
            fn floor_over(self, other: Self) -> Self { (self / other).floor() }
            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                let greater = if other > self { other } else { self };
                if other.is_nan() { self + other } else { greater }
            }
            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                let lesser = if other < self { other } else { self };
                if other.is_nan() { self + other } else { lesser }
            }
            #[inline(always)]
            fn power(self, other: Self) -> Self { self.powf(other) }
            #[inline(always)]
            fn remainder(self, other: Self) -> Self { $remainder(self, other) }
            #[inline(always)]
            fn floor_remainder(self, other: Self) -> Self {
                let rest = self.remainder(other);
                if rest == 0.0 {
                    return Self::default().copysign(other);
                }
                let moved = rest + other;
                if (rest < 0.0) != (other < 0.0) { moved } else { rest }
            }
        })*
    };
}

/// The remainder of f32, exact: in f64, quotients below 2^28 are cut rightly, and their products with the divisor are
/// exact.
#[inline(always)]
fn remainder_f32(a: f32, b: f32) -> f32 {
    let (wide, divisor) = (f64::from(a), f64::from(b));
    let quotient = (wide / divisor).trunc();
    if quotient.abs() < 268_435_456.0 {
        // What is smaller than the divisor stays as it is, infinite divisors included. This is a choice of values, no
        // branch: which quotients are zero cannot be foretold.
        let rest = wide - quotient * divisor;
        return if quotient == 0.0 { a } else { (rest as f32).copysign(a) };
    }
    far_remainder(a, b)
}

/// The remainder of a quotient that f64 does not hold exactly, of NaN and of infinity. A call, because compilers compute
/// remainders beforehand where they stand.
#[cold]
#[inline(never)]
fn far_remainder(a: f32, b: f32) -> f32 {
    a % b
}

/// The quotient of integers that a wider float holds exactly, towards zero: rounding does not lift a quotient over an
/// integer, because it is at least one part in the divisor away from it.
macro_rules! quotient {
    ($type:ty, $float:ty, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        let divisor = if b == 0 { 1.0 } else { b as $float };
        let quotient = a as $float / divisor;
        // The smallest integer by -1 is the only quotient that does not fit. It wraps.
        let quotient = if quotient >= <$type>::MAX as $float + 1.0 { <$type>::MIN as $float } else { quotient };
        // SAFETY: the quotient lies in the range of the type and is no NaN.
        let quotient: $type = unsafe { quotient.to_int_unchecked() };
        if b == 0 { 0 } else { quotient }
    }};
    (i64, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        // Floats divide several times faster than wide integers do.
        let is_narrow = a.unsigned_abs() | b.unsigned_abs() < 1 << 31;
        if b == 0 {
            0
        } else if is_narrow {
            // SAFETY: the quotient of narrow integers is one.
            unsafe { (a as f64 / b as f64).to_int_unchecked::<i64>() }
        } else {
            a.wrapping_div(b)
        }
    }};
}

macro_rules! integers {
    ($($type:ty: |$a:ident, $b:ident| $quotient:expr;)*) => {
        $(impl Number for $type {
            const ONE: Self = 1;
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn minus(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn over(self, other: Self) -> Self { let ($a, $b) = (self, other); $quotient }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn floor_over(self, other: Self) -> Self {
                let quotient = self.over(other);
                let rest = self.wrapping_sub(quotient.wrapping_mul(other));
                let is_above = (other != 0) & (rest != 0) & ((rest < 0) != (other < 0));
                quotient.wrapping_sub(Self::from(is_above))
            }
            #[inline(always)]
            fn greater(self, other: Self) -> Self { self.max(other) }
            #[inline(always)]
            fn lesser(self, other: Self) -> Self { self.min(other) }
            #[inline(always)]
            fn power(self, other: Self) -> Self {
                match u32::try_from(other) {
                    Ok(exponent) => self.wrapping_pow(exponent),
                    // Beyond u32 or negative: only 0, 1 and -1 have powers that are not zero here.
                    Err(_) if self == 1 => 1,
                    Err(_) if self.wrapping_add(1) == 0 && Self::MIN != 0 => if other % 2 == 0 { 1 } else { self },
                    Err(_) => 0,
                }
            }
            #[inline(always)]
            fn remainder(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_sub(self.over(other).wrapping_mul(other)) }
            }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn floor_remainder(self, other: Self) -> Self {
                let rest = self.remainder(other);
                let is_other_sign = (rest != 0) & ((rest < 0) != (other < 0));
                let moved = rest.wrapping_add(other);
                if is_other_sign { moved } else { rest }
            }
        })*
    };
}

floats!(f32: remainder_f32, f64: |a: f64, b: f64| a % b);
integers! {
    i8: |a, b| quotient!(i8, f32, a, b);
    u8: |a, b| quotient!(u8, f32, a, b);
    i32: |a, b| quotient!(i32, f64, a, b);
    i64: |a, b| quotient!(i64, a, b);
}

/// Writes `op(a, b)` elementwise.
///
/// # Errors
/// A slice does not fit the geometry.
pub fn binary<T: Number>(
    isa: Isa,
    op: BinaryOp,
    geometry: &BroadcastGeometry,
    a: &[T],
    b: &[T],
    output: &mut [T],
) -> Result<(), KernelError> {
    geometry.check(a.len(), b.len(), output.len())?;
    // SAFETY: the lengths were checked.
    unsafe { binary_raw(isa, op, geometry, a.as_ptr(), b.as_ptr(), output.as_mut_ptr()) };
    Ok(())
}

/// Replaces an operand by the result: `data = op(data, other)` where `data_first`, else `data = op(other, data)`. The
/// geometry lists the first operand first.
///
/// # Errors
/// A slice does not fit the geometry, or the result is larger than `data`.
pub fn binary_in_place<T: Number>(
    isa: Isa,
    op: BinaryOp,
    geometry: &BroadcastGeometry,
    data: &mut [T],
    other: &[T],
    data_first: bool,
) -> Result<(), KernelError> {
    if !geometry.covers(data_first) {
        return Err(KernelError::invalid("data", "is broadcast and cannot hold the result"));
    }
    let pointer = data.as_mut_ptr();
    if data_first {
        geometry.check(data.len(), other.len(), data.len())?;
        // SAFETY: the lengths were checked; each element is read before its place is written, and only there.
        unsafe { binary_raw(isa, op, geometry, pointer, other.as_ptr(), pointer) };
    } else {
        geometry.check(other.len(), data.len(), data.len())?;
        // SAFETY: as above.
        unsafe { binary_raw(isa, op, geometry, other.as_ptr(), pointer, pointer) };
    }
    Ok(())
}

/// Writes whether the comparison holds, as 0 or 1.
///
/// # Errors
/// A slice does not fit the geometry.
pub fn compare<T: Number>(
    isa: Isa,
    op: CompareOp,
    geometry: &BroadcastGeometry,
    a: &[T],
    b: &[T],
    output: &mut [u8],
) -> Result<(), KernelError> {
    geometry.check(a.len(), b.len(), output.len())?;
    let (a, b, output) = (a.as_ptr(), b.as_ptr(), output.as_mut_ptr());
    macro_rules! run {
        ($($name:ident)*) => {
            match op {
                // SAFETY: the lengths were checked.
                $(CompareOp::$name => unsafe { rows(isa, compare_functions::$name, geometry, a, b, output) },)*
            }
        };
    }
    run!(Equal NotEqual Less LessEqual Greater GreaterEqual And Or Xor);
    Ok(())
}

/// The place of the first zero.
#[must_use]
pub fn first_zero<T: Number>(isa: Isa, values: &[T]) -> Option<usize> {
    // Nearly always there is none, which is found out without a branch for each.
    let (chunk, values) = values.chunks(CHUNK).enumerate().find(|(_, values)| dispatch(isa, HasZero(values)))?;
    Some(chunk * CHUNK + values.iter().position(|value| !value.truth())?)
}

/// Whether any value is zero.
struct HasZero<'a, T>(&'a [T]);

impl<T: Number> Kernel for HasZero<'_, T> {
    type Output = bool;
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> bool {
        self.0.iter().fold(false, |any, value| any | !value.truth())
    }
}

/// Writes `condition != 0 ? a : b` for operands of the output's size.
///
/// # Errors
/// The slices differ in length.
pub fn select<T: Copy + Send + Sync>(condition: &[u8], a: &[T], b: &[T], output: &mut [T]) -> Result<(), KernelError> {
    check_exact("condition", condition.len(), output.len())?;
    check_exact("a", a.len(), output.len())?;
    check_exact("b", b.len(), output.len())?;
    let work = nanoseconds_for_bytes(output.len().saturating_mul(4 * size_of::<T>()));
    crate::parallel::parallel_chunks_mut(output, CHUNK, work, |index, output| {
        let start = index * CHUNK;
        let operands = a[start..].iter().zip(&b[start..]).zip(&condition[start..]);
        for (place, ((a, b), condition)) in output.iter_mut().zip(operands) {
            *place = if *condition != 0 { *a } else { *b };
        }
    });
    Ok(())
}

/// The bytes of an element.
pub trait ElementBytes: Copy {
    /// `condition != 0 ? yes : no`
    fn pick(condition: u8, yes: Self, no: Self) -> Self;
}

macro_rules! element_bytes {
    ($($width:literal: $number:ty),*) => {
        $(impl ElementBytes for [u8; $width] {
            // As numbers, since compilers use no vectors for arrays.
            #[inline(always)]
            fn pick(condition: u8, yes: Self, no: Self) -> Self {
                let mask = <$number>::from(condition != 0).wrapping_neg();
                ((<$number>::from_ne_bytes(yes) & mask) | (<$number>::from_ne_bytes(no) & !mask)).to_ne_bytes()
            }
        })*
    };
}
element_bytes!(1: u8, 2: u16, 4: u32, 8: u64);

/// Writes `condition != 0 ? yes : no` along a line. An operand that `repeats` is one element for the whole line.
///
/// # Errors
/// An operand has another length than the line, or is empty.
pub fn select_line<T: ElementBytes>(
    isa: Isa,
    (condition, yes, no): (&[u8], &[T], &[T]),
    repeats: [bool; 3],
    output: &mut [T],
) -> Result<(), KernelError> {
    let needed = |repeats: bool| if repeats { 1.min(output.len()) } else { output.len() };
    check_len("condition", condition.len(), needed(repeats[0]))?;
    check_len("yes", yes.len(), needed(repeats[1]))?;
    check_len("no", no.len(), needed(repeats[2]))?;
    dispatch(isa, SelectLine { condition, yes, no, repeats, output });
    Ok(())
}

struct SelectLine<'a, T> {
    condition: &'a [u8],
    yes: &'a [T],
    no: &'a [T],
    repeats: [bool; 3],
    output: &'a mut [T],
}

impl<T: ElementBytes> Kernel for SelectLine<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Self { condition, yes, no, repeats, output } = self;
        let len = output.len();
        if len == 0 {
            return;
        }
        match repeats {
            [true, ..] if condition[0] != 0 => copy_or_fill(yes, repeats[1], output),
            [true, ..] => copy_or_fill(no, repeats[2], output),
            [_, false, false] => {
                for ((place, condition), (yes, no)) in output.iter_mut().zip(condition).zip(yes[..len].iter().zip(no)) {
                    *place = T::pick(*condition, *yes, *no);
                }
            }
            [_, true, false] => {
                let yes = yes[0];
                for ((place, condition), no) in output.iter_mut().zip(condition).zip(no) {
                    *place = T::pick(*condition, yes, *no);
                }
            }
            [_, false, true] => {
                let no = no[0];
                for ((place, condition), yes) in output.iter_mut().zip(condition).zip(yes) {
                    *place = T::pick(*condition, *yes, no);
                }
            }
            [_, true, true] => {
                let (yes, no) = (yes[0], no[0]);
                for (place, condition) in output.iter_mut().zip(condition) {
                    *place = T::pick(*condition, yes, no);
                }
            }
        }
    }
}

/// Fills a line that is not empty with an element, or copies it.
#[inline(always)]
fn copy_or_fill<T: Copy>(from: &[T], repeats: bool, output: &mut [T]) {
    match repeats {
        true => output.fill(from[0]),
        false => output.copy_from_slice(&from[..output.len()]),
    }
}

/// A function of two values.
pub(crate) trait Function<T, U>: Copy + Sync {
    fn apply(self, a: T, b: T) -> U;

    /// Computes as much of a line as the function has vectors for, from its beginning on: how many values. An operand that
    /// is not contiguous is a single value.
    ///
    /// # Safety
    /// As of [`line`].
    #[inline(always)]
    unsafe fn vectors<S: Simd, const A: bool, const B: bool>(
        self,
        _s: S,
        _a: *const T,
        _b: *const T,
        _output: *mut U,
        _len: usize,
    ) -> usize {
        0
    }
}

/// The remainder in vectors, with the sign of the first operand, or of the second one where it is `FLOOR`.
#[derive(Clone, Copy)]
struct Remainder<const FLOOR: bool>;

/// An element of 32 bits whose remainders f32 can compute.
trait InF32: Number {
    /// As many zeros as a vector has lanes at most, and as many ones behind them.
    const ONES_BEHIND: [Self; 2 * MOST_LANES];

    /// All lanes equal to the element's bits.
    fn splat<S: Simd>(self, s: S) -> S::F;
    /// The numbers whose bits these are, and where f32 does not hold them exactly.
    fn number<S: Simd>(s: S, bits: S::F) -> (S::F, Option<S::M>);
    /// The bits of whole numbers, or of any numbers.
    fn bits<S: Simd>(s: S, number: S::F) -> S::F;
}

/// Zeros, and as many ones behind them.
const fn behind_zeros<T: Copy>(zero: T, one: T) -> [T; 2 * MOST_LANES] {
    let mut values = [zero; 2 * MOST_LANES];
    let mut lane = MOST_LANES;
    while lane < values.len() {
        values[lane] = one;
        lane += 1;
    }
    values
}

impl InF32 for f32 {
    const ONES_BEHIND: [f32; 2 * MOST_LANES] = behind_zeros(0.0, 1.0);

    #[inline(always)]
    fn splat<S: Simd>(self, s: S) -> S::F {
        s.splat(self)
    }
    #[inline(always)]
    fn number<S: Simd>(_s: S, bits: S::F) -> (S::F, Option<S::M>) {
        (bits, None)
    }
    #[inline(always)]
    fn bits<S: Simd>(_s: S, number: S::F) -> S::F {
        number
    }
}

impl InF32 for i32 {
    const ONES_BEHIND: [i32; 2 * MOST_LANES] = behind_zeros(0, 1);

    #[inline(always)]
    fn splat<S: Simd>(self, s: S) -> S::F {
        s.from_bits(s.splat_i(self))
    }
    #[inline(always)]
    fn number<S: Simd>(s: S, bits: S::F) -> (S::F, Option<S::M>) {
        let number = s.from_i(s.bits(bits));
        // The integer above the largest exact one is rounded to it.
        (number, Some(s.le(s.splat(LARGEST_EXACT), s.abs(number))))
    }
    #[inline(always)]
    fn bits<S: Simd>(s: S, number: S::F) -> S::F {
        s.from_bits(s.to_i(number))
    }
}

impl<T: InF32, const FLOOR: bool> Function<T, T> for Remainder<FLOOR> {
    #[inline(always)]
    fn apply(self, a: T, b: T) -> T {
        if FLOOR { a.floor_remainder(b) } else { a.remainder(b) }
    }

    #[inline(always)]
    unsafe fn vectors<S: Simd, const A: bool, const B: bool>(
        self,
        s: S,
        a: *const T,
        b: *const T,
        output: *mut T,
        len: usize,
    ) -> usize {
        if !S::FUSED {
            return 0;
        }
        let (whole, rest) = (len - len % S::LANES, len % S::LANES);
        // SAFETY: the caller's promise, and elements have the bytes of an f32; each vector is read before its place is
        // written.
        unsafe {
            let (a_bits, b_bits) = ((*a).splat(s), (*b).splat(s));
            macro_rules! write {
                ($x:expr, $y:expr, $to:expr, $count:expr, |$result:ident| $store:expr) => {
                    let (x_bits, y_bits) = ($x, $y);
                    let ((x, x_is_wide), (y, y_is_wide)) = (T::number(s, x_bits), T::number(s, y_bits));
                    let (left, is_far) = remainder(s, x, y);
                    let is_wide =
                        x_is_wide.is_some_and(|mask| s.any(mask)) || y_is_wide.is_some_and(|mask| s.any(mask));
                    if is_wide || s.any(is_far) {
                        self.apply_far(s, [x_bits, y_bits], $to, $count);
                    } else {
                        let left = if FLOOR { floored(s, left, y) } else { left };
                        let $result = T::bits(s, left);
                        $store;
                    }
                };
            }
            for index in (0..whole).step_by(S::LANES) {
                let x = if A { s.load(a.add(index).cast()) } else { a_bits };
                let y = if B { s.load(b.add(index).cast()) } else { b_bits };
                let to = output.add(index);
                write!(x, y, to, S::LANES, |result| s.store(to.cast(), result));
            }
            if rest > 0 {
                let x = if A { s.load_partial(a.add(whole).cast(), rest) } else { a_bits };
                let y = match B {
                    true => {
                        // Divisors beyond the line are one.
                        let ones = s.load(T::ONES_BEHIND[MOST_LANES - rest..].as_ptr().cast());
                        let y = s.load_partial(b.add(whole).cast(), rest);
                        s.from_bits(s.xor_i(s.bits(y), s.bits(ones)))
                    }
                    false => b_bits,
                };
                let to = output.add(whole);
                write!(x, y, to, rest, |result| s.store_partial(to.cast(), result, rest));
            }
        }
        len
    }
}

impl<const FLOOR: bool> Remainder<FLOOR> {
    /// The first `count` remainders of a vector that f32 does not compute, one by one.
    ///
    /// # Safety
    /// The output has so many places.
    #[inline(always)]
    unsafe fn apply_far<S: Simd, T: InF32>(self, s: S, [x, y]: [S::F; 2], output: *mut T, count: usize) {
        let (mut xs, mut ys) = ([T::default(); MOST_LANES], [T::default(); MOST_LANES]);
        // SAFETY: no tier has more lanes than there is room for; the rest is the caller's promise.
        unsafe {
            s.store(xs.as_mut_ptr().cast(), x);
            s.store(ys.as_mut_ptr().cast(), y);
            for (lane, (x, y)) in xs.into_iter().zip(ys).enumerate().take(count) {
                *output.add(lane) = self.apply(x, y);
            }
        }
    }
}

/// Up to here integers are exact in f32.
const LARGEST_EXACT: f32 = 16_777_216.0;

/// The remainder of fused tiers, exact where the mask is not set. Where it is, the quotient is too large, or no number.
#[inline(always)]
fn remainder<S: Simd>(s: S, a: S::F, b: S::F) -> (S::F, S::M) {
    let quotient = s.trunc(s.div(a, b));
    // As long as integers are exact, the rounded quotient is not below the integer part of the true one, and above it by one at
    // most. What is left is a multiple of the last place of both operands and no larger than the divisor: exact.
    let is_near = s.le(s.abs(quotient), s.splat(LARGEST_EXACT));
    let rest = s.fma(s.neg(quotient), b, a);
    let magnitude = s.from_bits(s.xor_i(s.bits(rest), s.and_i(s.bits(a), s.splat_i(i32::MIN))));
    let is_over = s.lt(magnitude, s.splat(0.0));
    let magnitude = s.add(magnitude, s.select(is_over, s.abs(b), s.splat(0.0)));
    // What is smaller than the divisor stays as it is, also where that is infinite.
    let rest = s.select(s.eq(quotient, s.splat(0.0)), a, s.copysign(magnitude, a));
    let far = s.select(is_near, s.splat(0.0), s.splat(1.0));
    (rest, s.eq(far, s.splat(1.0)))
}

/// The remainder of the quotient rounded down.
#[inline(always)]
fn floored<S: Simd>(s: S, rest: S::F, divisor: S::F) -> S::F {
    let signs = s.xor_i(s.bits(rest), s.bits(divisor));
    let is_other = s.lt(s.copysign(s.splat(1.0), s.from_bits(signs)), s.splat(0.0));
    let moved = s.select(is_other, s.add(rest, divisor), rest);
    s.select(s.eq(rest, s.splat(0.0)), s.copysign(s.splat(0.0), divisor), moved)
}

macro_rules! functions {
    ($module:ident, $result:ty, $($name:ident => |$a:ident, $b:ident| $body:expr;)*) => {
        /// One type for each function, so that each loop is compiled for its own.
        mod $module {
            use super::{Function, Number};
            $(#[derive(Clone, Copy)]
            pub(super) struct $name;
            impl<T: Number> Function<T, $result> for $name {
                #[inline(always)]
                fn apply(self, $a: T, $b: T) -> $result { $body }
            })*
        }
    };
}

// Where the result replaces an operand, compilers make of a choice between the operand and another value a store of some lanes
// only, with which a PReLU took Zen 3 thirteen cycles a vector. So what is chosen last is never the operand itself.
functions! { binary_functions, T,
    Add => |a, b| a.plus(b);
    Sub => |a, b| a.minus(b);
    Mul => |a, b| a.times(b);
    Div => |a, b| a.over(b);
    FloorDiv => |a, b| a.floor_over(b);
    Max => |a, b| a.greater(b);
    Min => |a, b| a.lesser(b);
    Power => |a, b| a.power(b);
    SquaredDifference => |a, b| { let d = a.minus(b); d.times(d) };
    Mod => |a, b| a.remainder(b);
    FloorMod => |a, b| a.floor_remainder(b);
    PRelu => |a, b| a.times(if a < T::default() { b } else { T::ONE });
}

functions! { compare_functions, u8,
    Equal => |a, b| u8::from(a == b);
    NotEqual => |a, b| u8::from(a != b);
    Less => |a, b| u8::from(a < b);
    LessEqual => |a, b| u8::from(a <= b);
    Greater => |a, b| u8::from(a > b);
    GreaterEqual => |a, b| u8::from(a >= b);
    And => |a, b| u8::from(a.truth() & b.truth());
    Or => |a, b| u8::from(a.truth() | b.truth());
    Xor => |a, b| u8::from(a.truth() ^ b.truth());
}

/// Runs over raw operands, one of which may be the output.
///
/// # Safety
/// The operands and the output have the geometry's lengths; an operand that overlaps the output equals it.
unsafe fn binary_raw<T: Number>(
    isa: Isa,
    op: BinaryOp,
    geometry: &BroadcastGeometry,
    a: *const T,
    b: *const T,
    output: *mut T,
) {
    macro_rules! run {
        ($($name:ident)*) => {
            match op {
                // SAFETY: the caller's promise.
                $(BinaryOp::$name => unsafe { rows(isa, binary_functions::$name, geometry, a, b, output) },)*
            }
        };
    }
    macro_rules! remainders {
        ($type:ty) => {
            if TypeId::of::<T>() == TypeId::of::<$type>() {
                let (a, b, output) = (a.cast::<$type>(), b.cast::<$type>(), output.cast::<$type>());
                match op {
                    // SAFETY: the caller's promise, and the elements are of this type.
                    BinaryOp::Mod => return unsafe { rows(isa, Remainder::<false>, geometry, a, b, output) },
                    // SAFETY: as above.
                    BinaryOp::FloorMod => return unsafe { rows(isa, Remainder::<true>, geometry, a, b, output) },
                    _ => {}
                }
            }
        };
    }
    macro_rules! bytes {
        ($type:ty) => {
            if TypeId::of::<T>() == TypeId::of::<$type>() {
                let (a, b, output) = (a.cast::<$type>(), b.cast::<$type>(), output.cast::<$type>());
                match op {
                    // SAFETY: the caller's promise, and the elements are of this type.
                    BinaryOp::Div => return unsafe { rows(isa, Division::<false, false>, geometry, a, b, output) },
                    // SAFETY: as above.
                    BinaryOp::FloorDiv => return unsafe { rows(isa, Division::<false, true>, geometry, a, b, output) },
                    // SAFETY: as above.
                    BinaryOp::Mod => return unsafe { rows(isa, Division::<true, false>, geometry, a, b, output) },
                    // SAFETY: as above.
                    BinaryOp::FloorMod => return unsafe { rows(isa, Division::<true, true>, geometry, a, b, output) },
                    _ => {}
                }
            }
        };
    }
    remainders!(f32);
    remainders!(i32);
    bytes!(u8);
    bytes!(i8);
    run!(Add Sub Mul Div FloorDiv Max Min Power SquaredDifference Mod FloorMod PRelu);
}

/// Lines of f32 on the caller's thread.
///
/// # Safety
/// Each has `len` values that are readable (one, where an operand is not dense) and writable; an operand that overlaps the output
/// equals it.
pub(crate) unsafe fn lines_f32(isa: Isa, op: BinaryOp, lines: Lines<f32, f32>) {
    macro_rules! run {
        ($($name:ident => $function:expr),*) => {
            match op {
                // SAFETY: the caller's promise.
                $(BinaryOp::$name => unsafe { compute(isa, $function, lines) },)*
            }
        };
    }
    use binary_functions::{Add, Div, FloorDiv, Max, Min, Mul, PRelu, Power, SquaredDifference, Sub};
    run!(Add => Add, Sub => Sub, Mul => Mul, Div => Div, FloorDiv => FloorDiv, Max => Max, Min => Min, Power => Power,
        SquaredDifference => SquaredDifference, Mod => Remainder::<false>, FloorMod => Remainder::<true>, PRelu => PRelu);
}

/// The truth of a comparison of lines of f32 on the caller's thread, as 0 or 1.
///
/// # Safety
/// As of [`lines_f32`].
pub(crate) unsafe fn lines_truth_f32(isa: Isa, op: CompareOp, lines: Lines<f32, f32>) {
    macro_rules! run {
        ($($name:ident)*) => {
            match op {
                // SAFETY: the caller's promise.
                $(CompareOp::$name => unsafe { compute(isa, Truth(compare_functions::$name), lines) },)*
            }
        };
    }
    run!(Equal NotEqual Less LessEqual Greater GreaterEqual And Or Xor);
}

/// A function of lines of f32.
///
/// # Safety
/// As of [`lines_f32`].
unsafe fn compute(isa: Isa, function: impl Function<f32, f32>, lines: Lines<f32, f32>) {
    match lines.count {
        1 => dispatch(isa, ComputeOne { function, line: lines }),
        _ => dispatch(isa, Compute { function, lines }),
    }
}

/// A comparison whose truth is a number.
#[derive(Clone, Copy)]
struct Truth<F>(F);

impl<F: Function<f32, u8>> Function<f32, f32> for Truth<F> {
    #[inline(always)]
    fn apply(self, a: f32, b: f32) -> f32 {
        if self.0.apply(a, b) == 0 { 0.0 } else { 1.0 }
    }
}

/// `condition != 0 ? yes : no` along one line of f32 on the caller's thread; an operand that is not contiguous is a single
/// value.
///
/// # Safety
/// `len` values are readable (one, where not contiguous) and writable; an operand that overlaps the output equals it.
pub(crate) unsafe fn line_select_f32(isa: Isa, operands: [(*const f32, bool); 3], output: *mut f32, len: usize) {
    dispatch(isa, Choice { operands, output, len });
}

struct Choice {
    /// The condition and both choices, and whether they are contiguous.
    operands: [(*const f32, bool); 3],
    output: *mut f32,
    len: usize,
}

impl Kernel for Choice {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: `line_select_f32` was promised what a line needs.
        unsafe {
            match self.operands.map(|(_, is_contiguous)| is_contiguous) {
                [true, true, true] => self.line::<S, true, true>(s),
                [true, true, false] => self.line::<S, true, false>(s),
                [true, false, true] => self.line::<S, false, true>(s),
                [true, false, false] => self.line::<S, false, false>(s),
                [false, yes, no] => {
                    let [(condition, _), (yes_values, _), (no_values, _)] = self.operands;
                    let (values, is_contiguous) =
                        if (*condition).truth() { (yes_values, yes) } else { (no_values, no) };
                    match is_contiguous {
                        true => std::ptr::copy(values, self.output, self.len),
                        false => {
                            let value = *values;
                            std::slice::from_raw_parts_mut(self.output, self.len).fill(value);
                        }
                    }
                }
            }
        }
    }
}

impl Choice {
    /// A line whose condition is contiguous. Each vector is read before its place is written, and single values before any.
    ///
    /// # Safety
    /// As of [`line_select_f32`].
    #[inline(always)]
    unsafe fn line<S: Simd, const YES: bool, const NO: bool>(self, s: S) {
        let Self { operands: [(condition, _), (yes, _), (no, _)], output, len } = self;
        // SAFETY: the caller's promise.
        unsafe {
            let (yes_value, no_value) = (s.splat(*yes), s.splat(*no));
            let whole = len - len % S::LANES;
            for index in (0..whole).step_by(S::LANES) {
                let is_false = s.eq(s.load(condition.add(index)), s.splat(0.0));
                let yes = if YES { s.load(yes.add(index)) } else { yes_value };
                let no = if NO { s.load(no.add(index)) } else { no_value };
                s.store(output.add(index), s.select(is_false, no, yes));
            }
            for index in whole..len {
                let yes = if YES { yes.add(index) } else { yes };
                let no = if NO { no.add(index) } else { no };
                *output.add(index) = if (*condition.add(index)).truth() { *yes } else { *no };
            }
        }
    }
}

/// An operand of lines: its first element, whether a line is dense and not a single value, and the places from one line to the next.
pub(crate) type Found<T> = (*const T, bool, usize);

/// The elements of a line and the number of lines: one, if each operand goes on from line to line as it does along a line.
pub(crate) fn joined<T>(operands: &[Found<T>], [len, count]: [usize; 2]) -> [usize; 2] {
    let goes_on = |(_, is_dense, step): &Found<T>| *step == if *is_dense { len } else { 0 };
    if operands.iter().all(goes_on) { [len * count, 1] } else { [len, count] }
}

/// Lines of two operands that lie equally far apart.
#[derive(Clone, Copy)]
pub(crate) struct Lines<T, U> {
    operands: [*const T; 2],
    /// Whether a line of an operand is contiguous, and not a single value.
    are_dense: [bool; 2],
    /// The places from one line of an operand to the next; lines of the output are contiguous.
    steps: [usize; 2],
    output: *mut U,
    len: usize,
    count: usize,
}

impl<T, U> Lines<T, U> {
    /// A single line of operands that are contiguous or single values.
    pub(crate) fn one([a, b]: [(*const T, bool); 2], output: *mut U, len: usize) -> Self {
        Self { operands: [a.0, b.0], are_dense: [a.1, b.1], steps: [0; 2], output, len, count: 1 }
    }

    /// So many lines of operands that are contiguous or single values along each, with the places from one to the next.
    pub(crate) fn some(operands: [Found<T>; 2], output: *mut U, sizes: [usize; 2]) -> Self {
        let ([len, count], [a, b]) = (joined(&operands, sizes), operands);
        Self { operands: [a.0, b.0], are_dense: [a.1, b.1], steps: [a.2, b.2], output, len, count }
    }
}

/// A function of lines.
struct Compute<T, U, F> {
    function: F,
    lines: Lines<T, U>,
}

impl<T: Number, U: Copy, F: Function<T, U>> Kernel for Compute<T, U, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { function, lines } = self;
        for index in 0..lines.count {
            let [a, b] = [0, 1].map(|operand| lines.operands[operand].wrapping_add(index * lines.steps[operand]));
            let line = Lines { operands: [a, b], output: lines.output.wrapping_add(index * lines.len), ..lines };
            ComputeOne { function, line }.run(s);
        }
    }
}

/// A function of one line: what finds the line of several takes as long as a few vectors.
struct ComputeOne<T, U, F> {
    function: F,
    line: Lines<T, U>,
}

impl<T: Number, U: Copy, F: Function<T, U>> Kernel for ComputeOne<T, U, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { function, line: Lines { operands: [a, b], are_dense, output, len, .. } } = self;
        // SAFETY: who makes lines promises what each needs.
        unsafe {
            match are_dense {
                [true, true] => line::<S, T, U, F, true, true>(s, function, a, b, output, len),
                [true, false] => line::<S, T, U, F, true, false>(s, function, a, b, output, len),
                [false, true] => line::<S, T, U, F, false, true>(s, function, a, b, output, len),
                [false, false] => line::<S, T, U, F, false, false>(s, function, a, b, output, len),
            }
        }
    }
}

/// Pointers that chunks share.
#[derive(Clone, Copy)]
struct Shared<P>(P);
// SAFETY: chunks write disjoint parts and read what no chunk writes elsewhere.
unsafe impl<P> Send for Shared<P> {}
// SAFETY: as above.
unsafe impl<P> Sync for Shared<P> {}

/// Computes all of a result.
///
/// # Safety
/// As of [`binary_raw`].
pub(crate) unsafe fn rows<T: Number, U: Copy, F: Function<T, U>>(
    isa: Isa,
    function: F,
    geometry: &BroadcastGeometry,
    a: *const T,
    b: *const T,
    output: *mut U,
) {
    // SAFETY: the caller's promise.
    unsafe { cut(geometry, [a, b], output, &|lines| dispatch(isa, Compute { function, lines })) };
}

/// Cuts a result into chunks of rows or of pieces of a row. This is compiled once for elements of each type, not for each function
/// of them and each tier.
///
/// # Safety
/// As of [`binary_raw`].
unsafe fn cut<T: Copy, U>(
    geometry: &BroadcastGeometry,
    operands: [*const T; 2],
    output: *mut U,
    compute: &(dyn Fn(Lines<T, U>) + Sync),
) {
    if geometry.len == 0 {
        return;
    }
    let (inner, a_stride, b_stride) = geometry.axes[geometry.rank - 1];
    if geometry.rank == 1 && inner <= CHUNK {
        let [a, b] = operands;
        return compute(Lines::one([(a, a_stride == 1), (b, b_stride == 1)], output, inner));
    }
    let pieces = inner.div_ceil(CHUNK);
    let outer = geometry.len / inner;
    let work = nanoseconds_for_bytes(geometry.len.saturating_mul(3 * size_of::<T>()));
    let shared = Shared((operands, output));
    parallel_for(outer * pieces, (CHUNK / inner).max(1), work, |range| {
        let Shared((operands, output)) = { shared };
        let rows = Rows { geometry, operands, output, first: range.start, last: range.end, pieces };
        // SAFETY: the caller's promise; the ranges lie in the result.
        unsafe { rows.compute(compute) };
    });
}

struct Rows<'a, T, U> {
    geometry: &'a BroadcastGeometry,
    operands: [*const T; 2],
    output: *mut U,
    first: usize,
    last: usize,
    pieces: usize,
}

impl<T: Copy, U> Rows<'_, T, U> {
    /// # Safety
    /// As of [`cut`], and the rows or pieces lie in the result.
    unsafe fn compute(self, compute: &dyn Fn(Lines<T, U>)) {
        let rank = self.geometry.rank;
        let axes = &self.geometry.axes[..rank];
        let (inner, a_stride, b_stride) = axes[rank - 1];
        let are_dense = [a_stride == 1, b_stride == 1];
        // Its positions in input and output are those in both operands. Rows are counted on, since divisions take longer than
        // short rows.
        let outer = self.geometry.axes.map(|(size, a, b)| Axis { size, input: a as isize, output: b as isize });
        let outer = &outer[..rank - 1];
        let mut cursor = Cursor::new(outer, self.first / self.pieces);
        let (mut row, mut piece) = (self.first / self.pieces, self.first % self.pieces);
        // Short rows are computed some at a time, with operands that are not dense along them written out; others of the innermost
        // axis around them one after the other.
        let around = outer.last().copied().unwrap_or(Axis { size: 1, input: 0, output: 0 });
        let are_short = !outer.is_empty() && inner * size_of::<T>() <= SHORT_ROW;
        let joined = if are_short { WRITTEN_OUT / size_of::<T>() / inner } else { usize::MAX };
        let steps = [around.input as usize, around.output as usize];
        let mut a_rows = WrittenOut::new([inner, steps[0], a_stride]);
        let mut b_rows = WrittenOut::new([inner, steps[1], b_stride]);
        let mut at = self.first;
        while at < self.last {
            let start = piece * CHUNK;
            let len = if self.pieces == 1 { inner } else { CHUNK.min(inner - start) };
            let rows = match self.pieces {
                1 => joined.min(around.size - row % around.size).min(self.last - at),
                _ => 1,
            };
            // SAFETY: offsets stay within the operands, whose lengths were checked against the geometry, and so many rows
            // lie in the innermost axis around them.
            unsafe {
                let (a, b) = (self.operands[0].offset(cursor.input), self.operands[1].offset(cursor.output));
                let operands = [a.add(start * a_stride), b.add(start * b_stride)];
                let output = self.output.add(row * inner + start);
                compute(match are_short && rows > 1 {
                    true => {
                        let operands = [(a_rows.of(operands[0], rows), true), (b_rows.of(operands[1], rows), true)];
                        Lines::one(operands, output, rows * inner)
                    }
                    false => Lines { operands, are_dense, steps, output, len, count: rows },
                });
            }
            piece += 1;
            at += rows;
            if piece < self.pieces {
                continue;
            }
            (row, piece) = (row + rows, 0);
            cursor.skip(rows);
        }
    }
}

/// The bytes of the longest rows of which some are computed at a time, and of those together.
const SHORT_ROW: usize = 96;
const WRITTEN_OUT: usize = 1 << 10;

/// Short rows of an operand, one after the other.
struct WrittenOut<T> {
    /// The elements of a row, and the places from one row and from one element to the next.
    geometry: [usize; 3],
    values: MaybeUninit<[u64; WRITTEN_OUT / size_of::<u64>()]>,
    /// Where the rows are from, and how many they are.
    written: (*const T, usize),
}

impl<T: Copy> WrittenOut<T> {
    #[inline(always)]
    fn new(geometry: [usize; 3]) -> Self {
        Self { geometry, values: MaybeUninit::uninit(), written: (std::ptr::null(), 0) }
    }

    /// So many rows, the first of which begins at `from`: the operand itself where they are dense.
    ///
    /// # Safety
    /// The operand has the rows, they fit into [`WRITTEN_OUT`] bytes, and nobody writes the operand between calls if its rows
    /// are not dense.
    #[inline(always)]
    unsafe fn of(&mut self, from: *const T, rows: usize) -> *const T {
        let [inner, step, stride] = self.geometry;
        if stride == 1 && step == inner {
            return from;
        }
        let values = self.values.as_mut_ptr().cast::<T>();
        if self.written.0 == from && rows <= self.written.1 {
            return values;
        }
        for row in 0..rows {
            // SAFETY: the caller's promise; the memory is aligned for every element.
            unsafe {
                let (from, to) = (from.add(row * step), values.add(row * inner));
                if stride == 0 {
                    let value = *from;
                    (0..inner).for_each(|column| to.add(column).write(value));
                } else {
                    std::ptr::copy_nonoverlapping(from, to, inner);
                }
            }
        }
        self.written = (from, rows);
        values
    }
}

/// One line, each operand of which is contiguous or a single value. Where the output is an operand, that is read through
/// the output's pointer, so that the compiler sees that each element is read before its place is written and uses
/// vectors.
///
/// # Safety
/// `len` values are readable (one, where not contiguous) and writable; an operand that overlaps the output equals it and
/// has elements of the same size.
#[inline(always)]
unsafe fn line<S: Simd, T: Number, U: Copy, F: Function<T, U>, const A: bool, const B: bool>(
    s: S,
    function: F,
    a: *const T,
    b: *const T,
    output: *mut U,
    len: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let (a_value, b_value) = (*a, *b);
        if !A && !B {
            std::slice::from_raw_parts_mut(output, len).fill(function.apply(a_value, b_value));
            return;
        }
        let done = function.vectors::<S, A, B>(s, a, b, output, len);
        let (a, b) = (if A { a.add(done) } else { a }, if B { b.add(done) } else { b });
        let (output, len) = (output.add(done), len - done);
        let data = output.cast::<T>();
        // Tiers without fused operations have few vectors to win.
        match (S::FUSED && A && std::ptr::eq(a, data), S::FUSED && B && std::ptr::eq(b, data)) {
            (true, true) => {
                for index in 0..len {
                    let value = *data.add(index);
                    *output.add(index) = function.apply(value, value);
                }
            }
            (true, false) => {
                for index in 0..len {
                    let other = if B { *b.add(index) } else { b_value };
                    *output.add(index) = function.apply(*data.add(index), other);
                }
            }
            (false, true) => {
                for index in 0..len {
                    let other = if A { *a.add(index) } else { a_value };
                    *output.add(index) = function.apply(other, *data.add(index));
                }
            }
            (false, false) => {
                for index in 0..len {
                    let x = if A { *a.add(index) } else { a_value };
                    let y = if B { *b.add(index) } else { b_value };
                    *output.add(index) = function.apply(x, y);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    fn expected<T: Number, U>(
        a_shape: &[usize],
        b_shape: &[usize],
        out: &[usize],
        a: &[T],
        b: &[T],
        f: impl Fn(T, T) -> U,
    ) -> Vec<U> {
        let at = |shape: &[usize], index: usize| {
            let (mut rest, mut offset, mut stride) = (index, 0, 1);
            for back in 0..out.len() {
                let here = rest % out[out.len() - 1 - back];
                rest /= out[out.len() - 1 - back];
                if back < shape.len() {
                    let size = shape[shape.len() - 1 - back];
                    offset += if size == 1 { 0 } else { here * stride };
                    stride *= size;
                }
            }
            offset
        };
        (0..out.iter().product()).map(|index| f(a[at(a_shape, index)], b[at(b_shape, index)])).collect()
    }

    #[test]
    fn remainders_of_floats_are_exact() {
        let mut random = Random::new(17);
        for round in 0..200_000 {
            let (a, b) = (f32::from_bits(random.next() as u32), f32::from_bits(random.next() as u32));
            let (a, b) = if round % 2 == 0 { (a, b) } else { (random.value() * 1e6, random.value()) };
            let (found, expected) = (remainder_f32(a, b), a % b);
            assert!(
                found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan()),
                "{a} % {b}: {found}"
            );
        }
    }

    /// Values with many quotients near integers, and those that are special.
    fn operands(random: &mut Random, count: usize) -> Vec<f32> {
        let special =
            [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45, f32::MIN_POSITIVE, f32::MAX, 1.0, -3.0, 0.1];
        let value = |random: &mut Random| match random.between(0, 9) {
            0 => special[random.between(0, special.len() - 1)],
            1 => f32::from_bits(random.next() as u32),
            2 => random.value() * 1e6,
            3..=5 => (random.value() * 100.0).round() * 0.1,
            _ => random.value() * 3.0,
        };
        (0..count).map(|_| value(random)).collect()
    }

    #[test]
    fn vectors_of_remainders_are_exact() {
        let floor_modulo = |a: f32, b: f32| {
            let rest = f64::from(a) % f64::from(b);
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
                return (rest + f64::from(b)) as f32;
            }
            if rest == 0.0 { 0f32.copysign(b) } else { rest as f32 }
        };
        let mut random = Random::new(23);
        for len in [1, 15, 16, 17, 100, 20_000] {
            let (a, b) = (operands(&mut random, len), operands(&mut random, len));
            let near: Vec<f32> = b.iter().map(|b| b * random.between(0, 1 << 24) as f32).collect();
            for (a, b) in [(&a[..], &b[..]), (&near, &b), (&a[..1], &b), (&a, &b[..1])] {
                let geometry = BroadcastGeometry::new(&[a.len()], &[b.len()]).unwrap();
                for (op, function) in [
                    (BinaryOp::Mod, &(|a: f32, b: f32| a % b) as &dyn Fn(f32, f32) -> f32),
                    (BinaryOp::FloorMod, &floor_modulo),
                ] {
                    for isa in Isa::available() {
                        let mut output = vec![9.0; len];
                        binary(isa, op, &geometry, a, b, &mut output).unwrap();
                        let mut single = vec![9.0; len];
                        let contiguous = (a.len() == len, b.len() == len);
                        // SAFETY: the slices have a line of values, or one.
                        unsafe {
                            let (a, b) = ((a.as_ptr(), contiguous.0), (b.as_ptr(), contiguous.1));
                            lines_f32(isa, op, Lines::one([a, b], single.as_mut_ptr(), len));
                        }
                        for index in 0..len {
                            let (x, y) = (a[index % a.len()], b[index % b.len()]);
                            let expected = function(x, y);
                            for found in [output[index], single[index]] {
                                let is_same =
                                    found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
                                assert!(is_same, "{isa} {op:?}: {x:e} and {y:e} give {found:e} for {expected:e}");
                            }
                        }
                        if a.len() == len {
                            let mut data = a.to_vec();
                            binary_in_place(isa, op, &geometry, &mut data, b, true).unwrap();
                            assert!(data.iter().zip(&output).all(|(x, y)| x.to_bits() == y.to_bits() || x.is_nan()));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn selected_lines() {
        let mut random = Random::new(12);
        for len in [0, 1, 5, 33, 100] {
            let condition: Vec<u8> = (0..len.max(1)).map(|_| (random.next() % 2) as u8).collect();
            fn bytes<const WIDTH: usize>(random: &mut Random, len: usize) -> Vec<[u8; WIDTH]> {
                (0..len.max(1)).map(|_| std::array::from_fn(|_| random.next() as u8)).collect()
            }
            check_selected(&condition, &bytes::<1>(&mut random, len), &bytes(&mut random, len), len);
            check_selected(&condition, &bytes::<2>(&mut random, len), &bytes(&mut random, len), len);
            check_selected(&condition, &bytes::<4>(&mut random, len), &bytes(&mut random, len), len);
            check_selected(&condition, &bytes::<8>(&mut random, len), &bytes(&mut random, len), len);
        }
        let result = select_line(Isa::portable(), (&[1], &[[1u8]; 2], &[[1]]), [true, false, false], &mut [[0]; 2]);
        assert!(result.is_err());
    }

    #[test]
    fn zeros_are_found() {
        for len in [0, 1, 40, CHUNK, 2 * CHUNK + 77] {
            for zero in [0, 1, 39, CHUNK, len.saturating_sub(1)] {
                let mut values = vec![3i32; len];
                let found = (zero < len).then_some(zero);
                values.iter_mut().skip(zero).step_by(20).for_each(|value| *value = 0);
                let bytes: Vec<u8> = values.iter().map(|value| *value as u8).collect();
                for isa in Isa::available() {
                    assert_eq!((first_zero(isa, &values), first_zero(isa, &bytes)), (found, found));
                }
            }
        }
    }

    #[test]
    fn vectors_of_remainders_of_integers() {
        let mut random = Random::new(31);
        let special = [0, 1, -1, 7, i32::MAX, i32::MIN, 1 << 24, (1 << 24) + 1, -(1 << 24)];
        for len in [1, 15, 16, 17, 100, 20_000] {
            for rare in [2, 2000] {
                let mut values = || -> Vec<i32> {
                    let value = |random: &mut Random| match random.between(0, rare) {
                        0 => special[random.between(0, special.len() - 1)],
                        1 => random.next() as i32,
                        _ => (random.value() * 1000.0) as i32,
                    };
                    (0..len).map(|_| value(&mut random)).collect()
                };
                let (a, b) = (values(), values());
                for (a, b) in [(&a[..], &b[..]), (&a[..1], &b), (&a, &b[..1])] {
                    let geometry = BroadcastGeometry::new(&[a.len()], &[b.len()]).unwrap();
                    for isa in Isa::available() {
                        let mut output = vec![9; len];
                        binary(isa, BinaryOp::Mod, &geometry, a, b, &mut output).unwrap();
                        let pairs = || (0..len).map(|index| (a[index % a.len()], b[index % b.len()]));
                        let rest = |(x, y): (i32, i32)| if y == 0 { 0 } else { x.wrapping_rem(y) };
                        assert!(pairs().map(rest).eq(output.iter().copied()), "{isa}");
                        binary(isa, BinaryOp::FloorMod, &geometry, a, b, &mut output).unwrap();
                        let floored = |(x, y): (i32, i32)| {
                            let rest = rest((x, y));
                            if rest != 0 && (rest < 0) != (y < 0) { rest.wrapping_add(y) } else { rest }
                        };
                        assert!(pairs().map(floored).eq(output.iter().copied()), "{isa}");
                    }
                }
            }
        }
    }

    fn check_selected<T: ElementBytes + Default + PartialEq + std::fmt::Debug>(
        condition: &[u8],
        yes: &[T],
        no: &[T],
        len: usize,
    ) {
        for mask in 0..8 {
            let repeats = [mask & 1 != 0, mask & 2 != 0, mask & 4 != 0];
            let at = |place: usize, repeats: bool| if repeats { 0 } else { place };
            for isa in Isa::available() {
                let mut output = vec![T::default(); len];
                select_line(isa, (condition, yes, no), repeats, &mut output).unwrap();
                for (place, value) in output.iter().enumerate() {
                    let is_yes = condition[at(place, repeats[0])] != 0;
                    let expected = if is_yes { yes[at(place, repeats[1])] } else { no[at(place, repeats[2])] };
                    assert_eq!(*value, expected);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_broadcast(rank in 0usize..5, seed: u64) {
            let mut random = Random::new(seed);
            let out: Vec<usize> = (0..rank).map(|_| random.between(0, 6).max(random.between(0, 1)) * [1, 1, 1, 7][random.between(0, 3)]).collect();
            let thin = |random: &mut Random| -> Vec<usize> {
                out.iter().map(|&size| if random.between(0, 2) == 0 { 1 } else { size }).collect()
            };
            let (a_shape, b_shape) = (thin(&mut random), thin(&mut random));
            let drop = random.between(0, rank);
            let b_shape = if b_shape[..drop].iter().all(|&size| size == 1) { b_shape[drop..].to_vec() } else { b_shape };
            let out: Vec<usize> = (0..rank).map(|axis| {
                let b = (axis + b_shape.len()).checked_sub(rank).map_or(1, |axis| b_shape[axis]);
                if a_shape[axis] == 1 { b } else { a_shape[axis] }
            }).collect();
            let geometry = BroadcastGeometry::new(&a_shape, &b_shape).unwrap();
            prop_assert_eq!(geometry.output_len(), out.iter().product::<usize>());
            let a = random.values(a_shape.iter().product());
            let b = random.values(b_shape.iter().product());
            for isa in Isa::available() {
                let mut output = vec![f32::NAN; geometry.output_len()];
                binary(isa, BinaryOp::Sub, &geometry, &a, &b, &mut output).unwrap();
                prop_assert_eq!(&output, &expected(&a_shape, &b_shape, &out, &a, &b, |x, y| x - y));
                let mut truth = vec![9; geometry.output_len()];
                compare(isa, CompareOp::Less, &geometry, &a, &b, &mut truth).unwrap();
                prop_assert_eq!(&truth, &expected(&a_shape, &b_shape, &out, &a, &b, |x, y| u8::from(x < y)));
                if geometry.covers(true) {
                    let mut data = a.clone();
                    binary_in_place(isa, BinaryOp::Sub, &geometry, &mut data, &b, true).unwrap();
                    prop_assert_eq!(&data, &output);
                }
                if geometry.covers(false) {
                    let mut data = b.clone();
                    binary_in_place(isa, BinaryOp::Sub, &geometry, &mut data, &a, false).unwrap();
                    prop_assert_eq!(&data, &output);
                }
            }
        }
    }

    fn pairs<T: Number>(op: BinaryOp, a: &[T], b: &[T]) -> Vec<T> {
        let geometry = BroadcastGeometry::new(&[a.len()], &[b.len()]).unwrap();
        let results: Vec<Vec<T>> = Isa::available()
            .map(|isa| {
                let mut output = vec![T::default(); geometry.output_len()];
                binary(isa, op, &geometry, a, b, &mut output).unwrap();
                output
            })
            .collect();
        results.into_iter().next().unwrap()
    }

    #[test]
    fn floating_point_edges() {
        let nan = f32::NAN;
        for op in [BinaryOp::Max, BinaryOp::Min, BinaryOp::Add, BinaryOp::Mod, BinaryOp::FloorMod] {
            assert!(pairs(op, &[nan, 1.0], &[1.0, nan]).iter().all(|value| value.is_nan()), "{op:?}");
        }
        assert_eq!(pairs(BinaryOp::Mod, &[-7.0, 7.0], &[3.0, -3.0]), [-1.0, 1.0]);
        assert_eq!(pairs(BinaryOp::FloorMod, &[-7.0, 7.0], &[3.0, -3.0]), [2.0, -2.0]);
        assert_eq!(pairs(BinaryOp::Div, &[1.0, -1.0], &[0.0, 0.0]), [f32::INFINITY, f32::NEG_INFINITY]);
        assert_eq!(pairs(BinaryOp::SquaredDifference, &[1.0, 5.0], &[3.0]), [4.0, 4.0]);
        assert_eq!(pairs(BinaryOp::PRelu, &[1.0, -2.0], &[0.5]), [1.0, -1.0]);
        assert_eq!(pairs(BinaryOp::Power, &[2.0, 9.0], &[3.0, 0.5]), [8.0, 3.0]);
    }

    #[test]
    fn integer_edges() {
        assert_eq!(pairs(BinaryOp::Div, &[i32::MIN, 7, -7], &[-1, 0, 2]), [i32::MIN, 0, -3]);
        assert_eq!(pairs(BinaryOp::FloorDiv, &[-7i64, 7, -6], &[2, -2, 2]), [-4, -4, -3]);
        assert_eq!(pairs(BinaryOp::FloorMod, &[-7i64, 7, i64::MIN], &[2, -2, -1]), [1, -1, 0]);
        assert_eq!(pairs(BinaryOp::Mod, &[-7i64, 7], &[0, -2]), [0, 1]);
        assert_eq!(pairs(BinaryOp::Power, &[2i32, -1, 1, 3], &[5, -3, -9, -1]), [32, -1, 1, 0]);
        assert_eq!(pairs(BinaryOp::Power, &[255u8, 2], &[2, 8]), [1, 0]);
        assert_eq!(pairs(BinaryOp::Add, &[i32::MAX], &[1]), [i32::MIN]);
    }

    #[test]
    fn comparisons_and_logic() {
        let geometry = BroadcastGeometry::new(&[3], &[3]).unwrap();
        let run = |op| {
            let mut output = [7; 3];
            compare(Isa::portable(), op, &geometry, &[1.0f32, f32::NAN, 0.0], &[1.0, f32::NAN, 2.0], &mut output)
                .unwrap();
            output
        };
        assert_eq!(run(CompareOp::Equal), [1, 0, 0]);
        assert_eq!(run(CompareOp::NotEqual), [0, 1, 1]);
        assert_eq!(run(CompareOp::LessEqual), [1, 0, 1]);
        assert_eq!(run(CompareOp::GreaterEqual), [1, 0, 0]);
        assert_eq!(run(CompareOp::And), [1, 1, 0]);
        assert_eq!(run(CompareOp::Xor), [0, 0, 1]);
        let mut output = [0; 2];
        select(&[2, 0], &[1, 2], &[3, 4], &mut output).unwrap();
        assert_eq!(output, [1, 4]);
    }

    #[test]
    fn long_rows_are_cut_and_shapes_checked() {
        let mut random = Random::new(1);
        let (a, b) = (random.values(2 * 40_000), random.values(40_000));
        let geometry = BroadcastGeometry::new(&[2, 40_000], &[40_000]).unwrap();
        let run = || {
            let mut output = vec![0.0; a.len()];
            binary(crate::isa::detect(), BinaryOp::Add, &geometry, &a, &b, &mut output).unwrap();
            output
        };
        let output = run();
        assert_eq!(output, in_pool(2, run));
        assert!(output.iter().enumerate().all(|(index, &sum)| sum == a[index] + b[index % 40_000]));
        assert!(BroadcastGeometry::new(&[2], &[3]).is_err());
        assert!(binary(Isa::portable(), BinaryOp::Add, &geometry, &a, &b[1..], &mut vec![0.0; a.len()]).is_err());
    }
}
