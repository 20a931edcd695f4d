//! Quotients and remainders of bytes.

use super::{Function, Number};
use crate::simd::Simd;

/// An integer of one byte.
pub(super) trait Byte: Number {
    /// Whether it has a sign.
    const SIGNED: bool;
}

impl Byte for u8 {
    const SIGNED: bool = false;
}

impl Byte for i8 {
    const SIGNED: bool = true;
}

/// The quotient, or the remainder where it is `REST`, of division towards zero, or downwards where it is `FLOOR`.
#[derive(Clone, Copy)]
pub(super) struct Division<const REST: bool, const FLOOR: bool>;

/// Numbers from bytes.
///
/// # Safety
/// As many bytes as there are lanes are readable.
#[inline(always)]
unsafe fn load<S: Simd, T: Byte>(s: S, pointer: *const T) -> S::F {
    // SAFETY: the caller's promise, and elements have one byte.
    let bits = unsafe { s.load_u8(pointer.cast()) };
    s.from_i(if T::SIGNED { s.shr::<24>(s.shl::<24>(bits)) } else { bits })
}

impl<const REST: bool, const FLOOR: bool> Division<REST, FLOOR> {
    /// The results of whole numbers whose magnitudes are at most 255. With a half more, the quotient of magnitudes is at
    /// least half the divisor's inverse away from both integers around it. The estimated inverse is wrong by at most
    /// 1 / 2048 of itself, thus the quotient by less than 256 / 2048 of the divisor's inverse: cutting it gives the
    /// integer part.
    #[inline(always)]
    fn of<S: Simd, const SIGNED: bool>(self, s: S, a: S::F, b: S::F) -> S::F {
        let zero = s.splat(0.0);
        let half = if SIGNED { s.copysign(s.splat(0.5), a) } else { s.splat(0.5) };
        let quotient = s.trunc(s.mul(s.add(a, half), s.inverse_estimate(b)));
        let is_lowered = FLOOR && SIGNED;
        if !(REST || is_lowered) {
            return s.select(s.eq(b, zero), zero, quotient);
        }
        let rest = s.fma(s.neg(quotient), b, a);
        let result = match (REST, is_lowered) {
            (true, true) => super::floored(s, rest, b),
            (true, false) => rest,
            (false, _) => {
                // A rest of the other sign than the divisor's, which has no zeros.
                let is_above = s.lt(s.mul(rest, b), zero);
                s.sub(quotient, s.select(is_above, s.splat(1.0), zero))
            }
        };
        s.select(s.eq(b, zero), zero, result)
    }
}

impl<T: Byte, const REST: bool, const FLOOR: bool> Function<T, T> for Division<REST, FLOOR> {
    #[inline(always)]
    fn apply(self, a: T, b: T) -> T {
        match (REST, FLOOR) {
            (false, false) => a.over(b),
            (false, true) => a.floor_over(b),
            (true, false) => a.remainder(b),
            (true, true) => a.floor_remainder(b),
        }
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
        let whole = len - len % S::LANES;
        // SAFETY: the caller's promise, and elements have one byte; each vector is read before its place is written.
        unsafe {
            let one = |pointer: *const T| {
                let bytes = [*pointer; crate::simd::MOST_LANES];
                load(s, bytes.as_ptr())
            };
            let (one_a, one_b) = (one(a), one(b));
            for index in (0..whole).step_by(S::LANES) {
                let x = if A { load(s, a.add(index)) } else { one_a };
                let y = if B { load(s, b.add(index)) } else { one_b };
                let result = match T::SIGNED {
                    true => self.of::<S, true>(s, x, y),
                    false => self.of::<S, false>(s, x, y),
                };
                let result = s.to_i(result);
                let byte = if T::SIGNED { s.and_i(result, s.splat_i(255)) } else { result };
                s.store_u8(output.add(index).cast(), byte);
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::Number;
    use crate::elementwise::{BinaryOp, BroadcastGeometry, binary};
    use crate::isa::Isa;

    /// All pairs of bytes, and each byte with one for all.
    fn check<T: Number + std::fmt::Debug>(bytes: &[T], expected: fn(BinaryOp, T, T) -> T) {
        let (a, b): (Vec<T>, Vec<T>) = bytes.iter().flat_map(|a| bytes.iter().map(move |b| (*a, *b))).unzip();
        for isa in Isa::available() {
            for op in [BinaryOp::Div, BinaryOp::FloorDiv, BinaryOp::Mod, BinaryOp::FloorMod] {
                let run = |a: &[T], b: &[T]| {
                    let geometry = BroadcastGeometry::new(&[a.len()], &[b.len()]).unwrap();
                    let mut output = vec![T::default(); geometry.output_len()];
                    binary(isa, op, &geometry, a, b, &mut output).unwrap();
                    output
                };
                for ((result, a), b) in run(&a, &b).into_iter().zip(&a).zip(&b) {
                    assert_eq!(result, expected(op, *a, *b), "{isa} {op:?} of {a:?} and {b:?}");
                }
                for one in bytes {
                    let results = run(bytes, &[*one]).into_iter().zip(run(&[*one], bytes)).zip(bytes);
                    for ((first, second), byte) in results {
                        assert_eq!(first, expected(op, *byte, *one), "{isa} {op:?} of {byte:?} and {one:?}");
                        assert_eq!(second, expected(op, *one, *byte), "{isa} {op:?} of {one:?} and {byte:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn quotients_and_remainders_of_all_bytes() {
        let unsigned: Vec<u8> = (0..=u8::MAX).collect();
        check(&unsigned, |op, a, b| match op {
            _ if b == 0 => 0,
            BinaryOp::Div | BinaryOp::FloorDiv => a / b,
            _ => a % b,
        });
        let signed: Vec<i8> = (i8::MIN..=i8::MAX).collect();
        check(&signed, |op, a, b| {
            let (x, y) = (i32::from(a), i32::from(b));
            let result = match op {
                _ if b == 0 => 0,
                BinaryOp::Div => x / y,
                BinaryOp::FloorDiv => (f64::from(x) / f64::from(y)).floor() as i32,
                BinaryOp::Mod => x % y,
                _ => x - y * (f64::from(x) / f64::from(y)).floor() as i32,
            };
            result as i8
        });
    }
}
