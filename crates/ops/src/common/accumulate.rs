//! Sums of products in a type wide enough for the reference.

use std::ops::{AddAssign, Mul};

use half::{bf16, f16};

use super::number::Number;

/// A number that sums of products can be made of.
pub(crate) trait Sum: Copy + Default + PartialOrd + AddAssign + Mul<Output = Self> {}

impl Sum for f64 {}
impl Sum for Wrapping {}

/// A 64-bit integer that wraps: sums of products modulo the width of every integer type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Wrapping(pub i64);

impl AddAssign for Wrapping {
    fn add_assign(&mut self, other: Wrapping) {
        self.0 = self.0.wrapping_add(other.0);
    }
}

impl Mul for Wrapping {
    type Output = Wrapping;
    fn mul(self, other: Wrapping) -> Wrapping {
        Wrapping(self.0.wrapping_mul(other.0))
    }
}

/// An element with the type in which its sums are made: f64 for floating-point types, rounded once; 64 bits modulo the
/// width for integers.
pub(crate) trait Accumulate: Number {
    /// The type of sums.
    type Sum: Sum;
    /// The element as a sum of one.
    fn widen(self) -> Self::Sum;
    /// The element nearest to a sum.
    fn narrow(sum: Self::Sum) -> Self;
    /// The element nearest to `sum / count`; integers round halves to even.
    fn mean(sum: Self::Sum, count: usize) -> Self;
}

macro_rules! float_sum {
    ($($rust:ty),*) => {
        $(impl Accumulate for $rust {
            type Sum = f64;
            fn widen(self) -> f64 { Number::to_f64(self) }
            fn narrow(sum: f64) -> Self { Number::from_f64(sum) }
            fn mean(sum: f64, count: usize) -> Self { Number::from_f64(sum / count as f64) }
        })*
    };
}
float_sum!(f16, bf16, f32, f64);

macro_rules! integer_sum {
    ($($rust:ty),*) => {
        $(impl Accumulate for $rust {
            type Sum = Wrapping;
            fn widen(self) -> Wrapping { Wrapping(self as i64) }
            fn narrow(sum: Wrapping) -> Self { sum.0 as $rust }
            fn mean(sum: Wrapping, count: usize) -> Self { divide_to_even(i128::from(sum.0), count.max(1) as i128) as $rust }
        })*
    };
}
integer_sum!(u8, u16, u32, u64, i8, i16, i32, i64);

/// The quotient rounded to the nearest, halves to even.
pub(crate) fn divide_to_even(value: i128, divisor: i128) -> i128 {
    let (quotient, rest) = (value.div_euclid(divisor), value.rem_euclid(divisor));
    match (rest * 2).cmp(&divisor) {
        std::cmp::Ordering::Less => quotient,
        std::cmp::Ordering::Greater => quotient + 1,
        std::cmp::Ordering::Equal => quotient + (quotient & 1),
    }
}
