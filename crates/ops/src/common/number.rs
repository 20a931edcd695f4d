//! Exact widening of elements and rounding back.

use half::{bf16, f16};
use ovir_tensor::NativeElement;

/// An element that the reference computes with: it widens exactly and is rounded once at the end.
pub(crate) trait Number: NativeElement {
    /// Whether the type is a floating-point type.
    const IS_FLOAT: bool;
    /// The value as f64; exact for floating-point types and integers up to 53 bits.
    fn to_f64(self) -> f64;
    /// The nearest element to `value`; integers truncate towards zero and saturate.
    fn from_f64(value: f64) -> Self;
    /// The value as i128; exact for integers.
    fn to_i128(self) -> i128;
    /// The element equal to `value` modulo its width.
    fn from_i128(value: i128) -> Self;
}

macro_rules! integer_number {
    ($($rust:ty),*) => {
        $(impl Number for $rust {
            const IS_FLOAT: bool = false;
            #[inline]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline]
            fn from_f64(value: f64) -> Self { value as $rust }
            #[inline]
            fn to_i128(self) -> i128 { i128::from(self) }
            #[inline]
            fn from_i128(value: i128) -> Self { value as $rust }
        })*
    };
}
integer_number!(u8, u16, u32, u64, i8, i16, i32, i64);

impl Number for f64 {
    const IS_FLOAT: bool = true;
    #[inline]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline]
    fn from_f64(value: f64) -> f64 {
        value
    }
    #[inline]
    fn to_i128(self) -> i128 {
        self as i128
    }
    #[inline]
    fn from_i128(value: i128) -> f64 {
        value as f64
    }
}

impl Number for f32 {
    const IS_FLOAT: bool = true;
    #[inline]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline]
    fn from_f64(value: f64) -> f32 {
        value as f32
    }
    #[inline]
    fn to_i128(self) -> i128 {
        self as i128
    }
    #[inline]
    fn from_i128(value: i128) -> f32 {
        value as f32
    }
}

macro_rules! half_number {
    ($($rust:ty),*) => {
        $(impl Number for $rust {
            const IS_FLOAT: bool = true;
            #[inline]
            fn to_f64(self) -> f64 { <$rust>::to_f64(self) }
            #[inline]
            fn from_f64(value: f64) -> Self { <$rust>::from_f64(value) }
            #[inline]
            fn to_i128(self) -> i128 { self.to_f64() as i128 }
            #[inline]
            fn from_i128(value: i128) -> Self { <$rust>::from_f64(value as f64) }
        })*
    };
}
half_number!(f16, bf16);

/// A number that is ordered as elements of some types are.
pub(crate) trait Key: Copy + Ord + Default {
    /// The key of a floating-point number, or of an integer as such. NaN is above everything, and zeros are equal.
    fn of_float(value: f64) -> Self;
    /// The key of an integer.
    fn of_integer(value: i128) -> Self;
}

macro_rules! keys {
    ($($key:ident: $float:ty),*) => {
        $(impl Key for $key {
            #[inline]
            fn of_float(value: f64) -> Self {
                let bits = (value as $float + 0.0).to_bits() as $key;
                let ordered = bits ^ ((bits >> ($key::BITS - 1)) & $key::MAX);
                if value.is_nan() { $key::MAX } else { ordered }
            }
            #[inline]
            fn of_integer(value: i128) -> Self { value as $key }
        })*
    };
}
keys!(i32: f32, i64: f64);

impl Key for i128 {
    #[inline]
    fn of_float(value: f64) -> Self {
        i64::of_float(value).into()
    }
    #[inline]
    fn of_integer(value: i128) -> Self {
        value
    }
}
