//! Small integer tensors known as intervals: what shape inference carries through `ShapeOf` subgraphs.

use smallvec::SmallVec;
use std::fmt;

use crate::{Dim, INFINITE, Shape, Symbol};

/// The most elements a tensor may have for its values to be followed. Shapes, axes, pads and begin/end lists are far
/// below it.
pub const MAX_BOUNDS_ELEMENTS: usize = 256;

/// An integer known to lie in `min..=max`, with the symbol of the unknown dimension it equals, if it equals one.
///
/// `i64::MIN` and `i64::MAX` stand for "no bound". Arithmetic saturates.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Value {
    /// The smallest number it may be.
    pub min: i64,
    /// The largest number it may be.
    pub max: i64,
    /// The dimension it equals.
    pub symbol: Option<Symbol>,
}

impl Value {
    /// The integer of which nothing is known.
    pub const UNKNOWN: Value = Value { min: i64::MIN, max: i64::MAX, symbol: None };

    /// A known integer.
    pub const fn known(value: i64) -> Value {
        Value { min: value, max: value, symbol: None }
    }

    /// The interval `min..=max`.
    pub const fn interval(min: i64, max: i64) -> Value {
        Value { min, max, symbol: None }
    }

    /// The integer, if it is known.
    pub const fn get(self) -> Option<i64> {
        if self.min == self.max { Some(self.min) } else { None }
    }

    /// The value as a dimension: negative numbers are cut off, the symbol is kept.
    pub fn to_dim(self) -> Dim {
        Dim::interval(self.min, self.max).with_symbol(self.symbol)
    }

    /// The smallest interval that holds both.
    pub fn union(self, other: Value) -> Value {
        let symbol = if self.symbol == other.symbol { self.symbol } else { None };
        Value { min: self.min.min(other.min), max: self.max.max(other.max), symbol }
    }

    /// The larger of both.
    pub fn maximum(self, other: Value) -> Value {
        if self.min >= other.max {
            return self;
        }
        if other.min >= self.max {
            return other;
        }
        Value::interval(self.min.max(other.min), self.max.max(other.max))
    }

    /// The smaller of both.
    pub fn minimum(self, other: Value) -> Value {
        if self.max <= other.min {
            return self;
        }
        if other.max <= self.min {
            return other;
        }
        Value::interval(self.min.min(other.min), self.max.min(other.max))
    }
}

impl std::ops::Add for Value {
    type Output = Value;
    /// The sum, saturating.
    fn add(self, other: Value) -> Value {
        match (self.get(), other.get()) {
            (Some(0), _) => other,
            (_, Some(0)) => self,
            _ => Value::interval(add(self.min, other.min), add(self.max, other.max)),
        }
    }
}

impl std::ops::Sub for Value {
    type Output = Value;
    /// The difference, saturating.
    fn sub(self, other: Value) -> Value {
        if other.get() == Some(0) {
            return self;
        }
        Value::interval(add(self.min, negate(other.max)), add(self.max, negate(other.min)))
    }
}

impl std::ops::Mul for Value {
    type Output = Value;
    /// The product, saturating.
    fn mul(self, other: Value) -> Value {
        match (self.get(), other.get()) {
            (Some(1), _) => return other,
            (_, Some(1)) => return self,
            _ => {}
        }
        let corners =
            [mul(self.min, other.min), mul(self.min, other.max), mul(self.max, other.min), mul(self.max, other.max)];
        Value::interval(corners.into_iter().fold(i64::MAX, i64::min), corners.into_iter().fold(i64::MIN, i64::max))
    }
}

impl From<Dim> for Value {
    fn from(dim: Dim) -> Value {
        let max = if dim.max() == INFINITE { i64::MAX } else { dim.max() };
        Value { min: dim.min(), max, symbol: dim.symbol() }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(value) => write!(f, "{value}"),
            None => write!(f, "{}..={}", self.min, self.max),
        }
    }
}

/// The known or bounded values of an integer tensor of at most [`MAX_BOUNDS_ELEMENTS`] elements, row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// The shape of the tensor.
    pub shape: Shape,
    /// One value an element, row-major.
    pub values: SmallVec<[Value; 8]>,
}

impl Bounds {
    /// A one-dimensional tensor of values.
    pub fn vector(values: impl IntoIterator<Item = Value>) -> Bounds {
        let values: SmallVec<[Value; 8]> = values.into_iter().collect();
        Bounds { shape: Shape::from_slice(&[values.len()]), values }
    }

    /// A scalar.
    pub fn scalar(value: Value) -> Bounds {
        Bounds { shape: Shape::default(), values: SmallVec::from_slice(&[value]) }
    }

    /// The integers, if all are known.
    pub fn known(&self) -> Option<SmallVec<[i64; 8]>> {
        self.values.iter().map(|v| v.get()).collect()
    }
}

fn add(a: i64, b: i64) -> i64 {
    if a == i64::MAX || b == i64::MAX {
        i64::MAX
    } else if a == i64::MIN || b == i64::MIN {
        i64::MIN
    } else {
        a.saturating_add(b)
    }
}

fn negate(a: i64) -> i64 {
    match a {
        i64::MIN => i64::MAX,
        i64::MAX => i64::MIN,
        a => -a,
    }
}

fn mul(a: i64, b: i64) -> i64 {
    a.saturating_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn arithmetic_holds_the_true_result() {
        let a = Value::interval(-2, 3);
        let b = Value::interval(-1, 4);
        assert_eq!(a + b, Value::interval(-3, 7));
        assert_eq!(a - b, Value::interval(-6, 4));
        assert_eq!(a * b, Value::interval(-8, 12));
        assert_eq!(a.maximum(b), Value::interval(-1, 4));
        assert_eq!(a.minimum(b), Value::interval(-2, 3));
        assert_eq!(Value::UNKNOWN - Value::UNKNOWN, Value::UNKNOWN);
    }
}
