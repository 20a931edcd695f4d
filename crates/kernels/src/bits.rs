//! Functions of the bits of two integers with broadcasting.

use crate::elementwise::{BroadcastGeometry, Function, Number, rows};
use crate::error::KernelError;
use crate::isa::Isa;

/// A function of the bits of two integers of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitOp {
    /// Bits of both.
    And,
    /// Bits of one at least.
    Or,
    /// Bits of exactly one.
    Xor,
    /// Towards the upper end; 0 for a shift that is negative or as wide as the type.
    ShiftLeft,
    /// Towards the lower end with copies of the sign; those alone for a shift that is negative or as wide as the type.
    ShiftRight,
}

/// An integer of a native type.
pub trait Bits: Number {
    /// See [`BitOp::And`].
    fn and(self, other: Self) -> Self;
    /// See [`BitOp::Or`].
    fn or(self, other: Self) -> Self;
    /// See [`BitOp::Xor`].
    fn xor(self, other: Self) -> Self;
    /// See [`BitOp::ShiftLeft`].
    fn left(self, other: Self) -> Self;
    /// See [`BitOp::ShiftRight`].
    fn right(self, other: Self) -> Self;
}

macro_rules! bits {
    ($($type:ty),*) => {
        $(impl Bits for $type {
            #[inline(always)]
            fn and(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn xor(self, other: Self) -> Self { self ^ other }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn left(self, other: Self) -> Self {
                const WIDTH: $type = <$type>::BITS as $type;
                if (0..WIDTH).contains(&other) { self.wrapping_shl(other as u32) } else { 0 }
            }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn right(self, other: Self) -> Self {
                const WIDTH: $type = <$type>::BITS as $type;
                let signs = if self < 0 { !0 } else { 0 };
                if (0..WIDTH).contains(&other) { self.wrapping_shr(other as u32) } else { signs }
            }
        })*
    };
}

bits!(i8, u8, i32, i64);

macro_rules! functions {
    ($($name:ident $method:ident),*) => {
        $(#[derive(Clone, Copy)]
        struct $name;
        impl<T: Bits> Function<T, T> for $name {
            #[inline(always)]
            fn apply(self, a: T, b: T) -> T { a.$method(b) }
        })*
    };
}

functions!(And and, Or or, Xor xor, ShiftLeft left, ShiftRight right);

/// Writes `op(a, b)` elementwise.
///
/// # Errors
/// A slice does not fit the geometry.
pub fn bitwise<T: Bits>(
    isa: Isa,
    op: BitOp,
    geometry: &BroadcastGeometry,
    a: &[T],
    b: &[T],
    output: &mut [T],
) -> Result<(), KernelError> {
    geometry.check(a.len(), b.len(), output.len())?;
    let (a, b, output) = (a.as_ptr(), b.as_ptr(), output.as_mut_ptr());
    // SAFETY: the lengths were checked.
    unsafe {
        match op {
            BitOp::And => rows(isa, And, geometry, a, b, output),
            BitOp::Or => rows(isa, Or, geometry, a, b, output),
            BitOp::Xor => rows(isa, Xor, geometry, a, b, output),
            BitOp::ShiftLeft => rows(isa, ShiftLeft, geometry, a, b, output),
            BitOp::ShiftRight => rows(isa, ShiftRight, geometry, a, b, output),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use pretty_assertions::assert_eq;

    fn check<T: Bits + std::fmt::Debug>(make: impl Fn(u64) -> T, wide: impl Fn(T) -> i128, width: i128) {
        let mut random = Random::new(5);
        for (rows, columns) in [(1, 1), (3, 70), (2, 20_000)] {
            let a: Vec<T> = (0..rows * columns).map(|_| make(random.next())).collect();
            let b: Vec<T> = (0..columns).map(|_| make(random.next() % 80)).collect();
            let geometry = BroadcastGeometry::new(&[rows, columns], &[columns]).unwrap();
            for isa in Isa::available() {
                for op in [BitOp::And, BitOp::Or, BitOp::Xor, BitOp::ShiftLeft, BitOp::ShiftRight] {
                    let mut output = a.clone();
                    bitwise(isa, op, &geometry, &a, &b, &mut output).unwrap();
                    for (index, result) in output.iter().enumerate() {
                        let (x, y) = (wide(a[index]), wide(b[index % columns]));
                        let fits = (0..width).contains(&y);
                        let expected = match op {
                            BitOp::And => x & y,
                            BitOp::Or => x | y,
                            BitOp::Xor => x ^ y,
                            BitOp::ShiftLeft => {
                                if fits {
                                    x << y
                                } else {
                                    0
                                }
                            }
                            BitOp::ShiftRight => x >> if fits { y } else { 127 },
                        };
                        assert_eq!(wide(*result) & ((1 << width) - 1), expected & ((1 << width) - 1), "{op:?} {x} {y}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_type_and_operation() {
        check(|x| x as i8, i128::from, 8);
        check(|x| x as u8, i128::from, 8);
        check(|x| x as i32, i128::from, 32);
        check(|x| (x as i64).wrapping_mul(0x1_0000_0001), i128::from, 64);
    }
}
