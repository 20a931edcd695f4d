//! One macro that turns an element type into a Rust type.
//!
//! ```
//! use ovir_tensor::{Tensor, dispatch};
//! let tensor = Tensor::from_slice(&[3i64, -4], [2])?;
//! let sum = dispatch!(tensor.element_type(), T in [numeric] => {
//!     tensor.slice::<T>()?.iter().map(|v| f64::from_element(*v)).sum::<f64>()
//! } else { 0.0 });
//! assert_eq!(sum, -1.0);
//! # use ovir_tensor::dispatch::FromElement;
//! # Ok::<(), ovir_tensor::TensorError>(())
//! ```

use half::{bf16, f16};

/// Runs a block with `T` bound to the Rust type of an element type, for the element types of one class, and another
/// expression for all others.
///
/// Classes: `float` (f16 bf16 f32 f64), `integer` (i8-i64 u8-u64), `numeric` (both), `native` (numeric, and boolean as
/// `u8`), `index` (i32 i64), `width` (the unsigned integer of the same byte width, for moving elements of every
/// whole-byte type).
#[macro_export]
macro_rules! dispatch {
    ($element_type:expr, $t:ident in [float] => $body:block else $other:block) => {
        $crate::dispatch!(@ $element_type, $t, $body, $other,
            F16 => $crate::f16, Bf16 => $crate::bf16, F32 => f32, F64 => f64)
    };
    ($element_type:expr, $t:ident in [integer] => $body:block else $other:block) => {
        $crate::dispatch!(@ $element_type, $t, $body, $other,
            U8 => u8, U16 => u16, U32 => u32, U64 => u64, I8 => i8, I16 => i16, I32 => i32, I64 => i64)
    };
    ($element_type:expr, $t:ident in [numeric] => $body:block else $other:block) => {
        $crate::dispatch!(@ $element_type, $t, $body, $other,
            U8 => u8, U16 => u16, U32 => u32, U64 => u64, I8 => i8, I16 => i16, I32 => i32, I64 => i64,
            F16 => $crate::f16, Bf16 => $crate::bf16, F32 => f32, F64 => f64)
    };
    ($element_type:expr, $t:ident in [native] => $body:block else $other:block) => {
        $crate::dispatch!(@ $element_type, $t, $body, $other, Boolean => u8,
            U8 => u8, U16 => u16, U32 => u32, U64 => u64, I8 => i8, I16 => i16, I32 => i32, I64 => i64,
            F16 => $crate::f16, Bf16 => $crate::bf16, F32 => f32, F64 => f64)
    };
    ($element_type:expr, $t:ident in [index] => $body:block else $other:block) => {
        $crate::dispatch!(@ $element_type, $t, $body, $other, I32 => i32, I64 => i64)
    };
    (@ $element_type:expr, $t:ident, $body:block, $other:block, $($variant:ident => $rust:ty),*) => {
        match $element_type {
            $($crate::ElementType::$variant => {
                #[allow(dead_code)]
                type $t = $rust;
                $body
            })*
            _ => $other,
        }
    };
}

/// Conversion of an element to a wide type, exact where the type is wide enough.
pub trait FromElement<T> {
    /// The value of the element.
    fn from_element(value: T) -> Self;
}

macro_rules! widen {
    ($($from:ty),*) => {
        $(impl FromElement<$from> for f64 { fn from_element(value: $from) -> f64 { value as f64 } }
          impl FromElement<$from> for f32 { fn from_element(value: $from) -> f32 { value as f32 } }
          impl FromElement<$from> for i128 { fn from_element(value: $from) -> i128 { value as i128 } })*
    };
}
widen!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

macro_rules! widen_half {
    ($($from:ty),*) => {
        $(impl FromElement<$from> for f64 { fn from_element(value: $from) -> f64 { value.to_f64() } }
          impl FromElement<$from> for f32 { fn from_element(value: $from) -> f32 { value.to_f32() } }
          impl FromElement<$from> for i128 { fn from_element(value: $from) -> i128 { value.to_f64() as i128 } })*
    };
}
widen_half!(f16, bf16);
