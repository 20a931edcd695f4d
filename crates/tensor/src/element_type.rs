//! The element types of OpenVINO IR.

use half::{bf16, f16};
use std::fmt;
use std::str::FromStr;

use crate::TensorError;

/// An element type of a tensor, spelt as in IR (`f32`, `i64`, `boolean`...).
///
/// `Dynamic` is the element type that is not known yet; no tensor has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[allow(missing_docs)]
pub enum ElementType {
    /// Not known yet.
    #[default]
    Dynamic,
    Boolean,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
    String,
    U1,
    U2,
    U3,
    U4,
    U6,
    I4,
    Nf4,
    F4e2m1,
    F8e4m3,
    F8e5m2,
    F8e8m0,
}

/// A class of element types that specifications name in their type constraints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementClass {
    /// Every element type.
    Any,
    /// Floating-point types with arithmetic: f16, bf16, f32, f64.
    Float,
    /// Integers with arithmetic: i8 to i64 and u8 to u64 (no boolean).
    Integer,
    /// Signed integers with arithmetic: i8 to i64.
    SignedInteger,
    /// Float or Integer (no boolean).
    Numeric,
    /// Numeric or boolean: all thirteen native types.
    Native,
    /// boolean alone.
    Boolean,
    /// i32 or i64, the usual index types.
    Index,
}

impl ElementType {
    /// All twenty-five element types that a tensor can have, in the order of declaration.
    pub const ALL: [ElementType; 25] = [
        ElementType::Boolean,
        ElementType::U8,
        ElementType::U16,
        ElementType::U32,
        ElementType::U64,
        ElementType::I8,
        ElementType::I16,
        ElementType::I32,
        ElementType::I64,
        ElementType::F16,
        ElementType::Bf16,
        ElementType::F32,
        ElementType::F64,
        ElementType::String,
        ElementType::U1,
        ElementType::U2,
        ElementType::U3,
        ElementType::U4,
        ElementType::U6,
        ElementType::I4,
        ElementType::Nf4,
        ElementType::F4e2m1,
        ElementType::F8e4m3,
        ElementType::F8e5m2,
        ElementType::F8e8m0,
    ];

    /// The spelling used in IR attributes (`element_type="f32"`).
    pub const fn name(self) -> &'static str {
        match self {
            ElementType::Dynamic => "dynamic",
            ElementType::Boolean => "boolean",
            ElementType::U8 => "u8",
            ElementType::U16 => "u16",
            ElementType::U32 => "u32",
            ElementType::U64 => "u64",
            ElementType::I8 => "i8",
            ElementType::I16 => "i16",
            ElementType::I32 => "i32",
            ElementType::I64 => "i64",
            ElementType::F16 => "f16",
            ElementType::Bf16 => "bf16",
            ElementType::F32 => "f32",
            ElementType::F64 => "f64",
            ElementType::String => "string",
            ElementType::U1 => "u1",
            ElementType::U2 => "u2",
            ElementType::U3 => "u3",
            ElementType::U4 => "u4",
            ElementType::U6 => "u6",
            ElementType::I4 => "i4",
            ElementType::Nf4 => "nf4",
            ElementType::F4e2m1 => "f4e2m1",
            ElementType::F8e4m3 => "f8e4m3",
            ElementType::F8e5m2 => "f8e5m2",
            ElementType::F8e8m0 => "f8e8m0",
        }
    }

    /// The spelling used in the `precision` attribute of ports (`FP32`, `BOOL`...).
    pub const fn precision_name(self) -> &'static str {
        match self {
            ElementType::Dynamic => "dynamic",
            ElementType::Boolean => "BOOL",
            ElementType::U8 => "U8",
            ElementType::U16 => "U16",
            ElementType::U32 => "U32",
            ElementType::U64 => "U64",
            ElementType::I8 => "I8",
            ElementType::I16 => "I16",
            ElementType::I32 => "I32",
            ElementType::I64 => "I64",
            ElementType::F16 => "FP16",
            ElementType::Bf16 => "BF16",
            ElementType::F32 => "FP32",
            ElementType::F64 => "FP64",
            ElementType::String => "STRING",
            ElementType::U1 => "BIN",
            ElementType::U2 => "U2",
            ElementType::U3 => "U3",
            ElementType::U4 => "U4",
            ElementType::U6 => "U6",
            ElementType::I4 => "I4",
            ElementType::Nf4 => "NF4",
            ElementType::F4e2m1 => "F4E2M1",
            ElementType::F8e4m3 => "F8E4M3",
            ElementType::F8e5m2 => "F8E5M2",
            ElementType::F8e8m0 => "F8E8M0",
        }
    }

    /// The number of bits an element takes in packed storage; 0 for `string` and `dynamic`, which have no fixed width.
    pub const fn bits(self) -> usize {
        match self {
            ElementType::Dynamic | ElementType::String => 0,
            ElementType::U1 => 1,
            ElementType::U2 => 2,
            ElementType::U3 => 3,
            ElementType::U4 | ElementType::I4 | ElementType::Nf4 | ElementType::F4e2m1 => 4,
            ElementType::U6 => 6,
            ElementType::Boolean
            | ElementType::U8
            | ElementType::I8
            | ElementType::F8e4m3
            | ElementType::F8e5m2
            | ElementType::F8e8m0 => 8,
            ElementType::U16 | ElementType::I16 | ElementType::F16 | ElementType::Bf16 => 16,
            ElementType::U32 | ElementType::I32 | ElementType::F32 => 32,
            ElementType::U64 | ElementType::I64 | ElementType::F64 => 64,
        }
    }

    /// The width in bytes of an element that occupies whole bytes; `None` for sub-byte types, `string` and `dynamic`.
    pub const fn byte_width(self) -> Option<usize> {
        match self.bits() {
            8 => Some(1),
            16 => Some(2),
            32 => Some(4),
            64 => Some(8),
            _ => None,
        }
    }

    /// The number of bytes that `elements` elements take in packed storage, `None` on overflow and for types without
    /// a fixed width. u3 and u6 are stored in groups of three bytes (8 and 4 elements).
    pub fn storage_bytes(self, elements: usize) -> Option<usize> {
        match self {
            ElementType::Dynamic | ElementType::String => None,
            ElementType::U3 => elements.div_ceil(8).checked_mul(3),
            ElementType::U6 => elements.div_ceil(4).checked_mul(3),
            _ => match self.byte_width() {
                Some(width) => elements.checked_mul(width),
                None => Some(elements.checked_mul(self.bits())?.div_ceil(8)),
            },
        }
    }

    /// Whether the type belongs to `class`. `Dynamic` belongs to every class, since it may turn out to.
    pub const fn is(self, class: ElementClass) -> bool {
        if matches!(self, ElementType::Dynamic) {
            return true;
        }
        match class {
            ElementClass::Any => true,
            ElementClass::Float => self.is_float(),
            ElementClass::Integer => self.is_integer(),
            ElementClass::SignedInteger => {
                matches!(self, ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64)
            }
            ElementClass::Numeric => self.is_float() || self.is_integer(),
            ElementClass::Native => self.is_native(),
            ElementClass::Boolean => matches!(self, ElementType::Boolean),
            ElementClass::Index => matches!(self, ElementType::I32 | ElementType::I64),
        }
    }

    /// Whether this is f16, bf16, f32 or f64.
    pub const fn is_float(self) -> bool {
        matches!(self, ElementType::F16 | ElementType::Bf16 | ElementType::F32 | ElementType::F64)
    }

    /// Whether this is i8 to i64 or u8 to u64; boolean and sub-byte types are not.
    pub const fn is_integer(self) -> bool {
        matches!(
            self,
            ElementType::U8
                | ElementType::U16
                | ElementType::U32
                | ElementType::U64
                | ElementType::I8
                | ElementType::I16
                | ElementType::I32
                | ElementType::I64
        )
    }

    /// Whether this is one of the thirteen types that operations compute in.
    pub const fn is_native(self) -> bool {
        self.is_float() || self.is_integer() || matches!(self, ElementType::Boolean)
    }

    /// Whether the type is not `Dynamic`.
    pub const fn is_known(self) -> bool {
        !matches!(self, ElementType::Dynamic)
    }

    /// The common type of two declarations of one value: equal types, or the known one where one is `Dynamic`.
    /// `None` when they disagree.
    pub fn merge(self, other: ElementType) -> Option<ElementType> {
        match (self, other) {
            (ElementType::Dynamic, known) | (known, ElementType::Dynamic) => Some(known),
            (a, b) if a == b => Some(a),
            _ => None,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ElementType {
    type Err = TensorError;

    /// Reads every spelling in use: IR (`f32`), port precisions (`FP32`, `BOOL`), NumPy (`float32`).
    fn from_str(text: &str) -> Result<Self, TensorError> {
        let lower = text.trim().to_ascii_lowercase();
        let by_name =
            ElementType::ALL.into_iter().find(|t| lower == t.name() || t.precision_name().eq_ignore_ascii_case(&lower));
        if let Some(element_type) = by_name {
            return Ok(element_type);
        }
        Ok(match lower.as_str() {
            "dynamic" | "undefined" | "unspecified" => ElementType::Dynamic,
            "bool" | "bool_" => ElementType::Boolean,
            "float16" | "half" => ElementType::F16,
            "bfloat16" => ElementType::Bf16,
            "float32" | "float" | "single" => ElementType::F32,
            "float64" | "double" => ElementType::F64,
            "int8" => ElementType::I8,
            "int16" => ElementType::I16,
            "int32" | "int" => ElementType::I32,
            "int64" | "long" => ElementType::I64,
            "uint8" => ElementType::U8,
            "uint16" => ElementType::U16,
            "uint32" => ElementType::U32,
            "uint64" => ElementType::U64,
            "int4" => ElementType::I4,
            "uint4" => ElementType::U4,
            "bin" | "uint1" => ElementType::U1,
            "str" => ElementType::String,
            _ => return Err(TensorError::UnknownElementType { text: text.to_owned() }),
        })
    }
}

/// A Rust type that stores one element of a native element type.
///
/// boolean is stored as one byte, 0 or 1, and is read through `u8`; the Rust type `bool` is deliberately not an
/// element, because a byte of a file need not be 0 or 1.
pub trait NativeElement: bytemuck::Pod + PartialOrd + Send + Sync + fmt::Debug + 'static {
    /// The element type that this Rust type stores.
    const ELEMENT_TYPE: ElementType;

    /// Whether a tensor of `element_type` may be viewed as a slice of this Rust type.
    fn stores(element_type: ElementType) -> bool {
        element_type == Self::ELEMENT_TYPE
    }
}

macro_rules! native {
    ($($rust:ty => $element:ident),*) => {
        $(impl NativeElement for $rust { const ELEMENT_TYPE: ElementType = ElementType::$element; })*
    };
}
native!(u16 => U16, u32 => U32, u64 => U64, i8 => I8, i16 => I16, i32 => I32, i64 => I64,
        f16 => F16, bf16 => Bf16, f32 => F32, f64 => F64);

impl NativeElement for u8 {
    const ELEMENT_TYPE: ElementType = ElementType::U8;

    /// `u8` also stores booleans and the three 8-bit floating-point storage types.
    fn stores(element_type: ElementType) -> bool {
        matches!(
            element_type,
            ElementType::U8 | ElementType::Boolean | ElementType::F8e4m3 | ElementType::F8e5m2 | ElementType::F8e8m0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn every_name_reads_back() {
        for element_type in ElementType::ALL {
            assert_eq!(element_type.name().parse::<ElementType>().unwrap(), element_type);
            assert_eq!(element_type.precision_name().parse::<ElementType>().unwrap(), element_type);
        }
        assert!("f31".parse::<ElementType>().is_err());
    }

    #[test]
    fn storage_of_sub_byte_types() {
        assert_eq!(ElementType::U1.storage_bytes(9), Some(2));
        assert_eq!(ElementType::U3.storage_bytes(9), Some(6));
        assert_eq!(ElementType::U6.storage_bytes(5), Some(6));
        assert_eq!(ElementType::I4.storage_bytes(3), Some(2));
        assert_eq!(ElementType::F64.storage_bytes(usize::MAX), None);
    }
}
