//! One dimension of a partial shape: an interval with an optional symbol.

use std::fmt;
use std::num::NonZeroU32;

/// The upper bound of a dimension that has none.
pub const INFINITE: i64 = i64::MAX;

/// The identity of an unknown number: two dimensions that carry the same symbol are equal, whatever they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(pub NonZeroU32);

/// A dimension: the interval `min..=max` of the sizes it may have, and the symbol of its unknown value.
///
/// It is static when `min == max`; a static dimension carries no symbol. Arithmetic saturates at [`INFINITE`] and is
/// monotone: a wider operand gives a wider result.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dim {
    min: i64,
    max: i64,
    symbol: Option<Symbol>,
}

impl Dim {
    /// The dimension of which nothing is known: `?`.
    pub const DYNAMIC: Dim = Dim { min: 0, max: INFINITE, symbol: None };

    /// A dimension of exactly `size`. Sizes beyond `INFINITE - 1` are clamped to it.
    pub const fn fixed(size: usize) -> Dim {
        let size = if size >= INFINITE as usize { INFINITE - 1 } else { size as i64 };
        Dim { min: size, max: size, symbol: None }
    }

    /// The interval `min..=max`; a negative `min` becomes 0, and a `max` below `min` becomes `min`.
    pub const fn interval(min: i64, max: i64) -> Dim {
        let min = if min < 0 {
            0
        } else if min == INFINITE {
            INFINITE - 1
        } else {
            min
        };
        let max = if max < min { min } else { max };
        Dim { min, max, symbol: None }
    }

    /// The same interval carrying `symbol`; a static dimension stays without.
    pub const fn with_symbol(self, symbol: Option<Symbol>) -> Dim {
        if self.min == self.max { self } else { Dim { symbol, ..self } }
    }

    /// The smallest size.
    pub const fn min(self) -> i64 {
        self.min
    }

    /// The largest size, [`INFINITE`] if there is no bound.
    pub const fn max(self) -> i64 {
        self.max
    }

    /// The symbol of the unknown size.
    pub const fn symbol(self) -> Option<Symbol> {
        self.symbol
    }

    /// Whether the size is known.
    pub const fn is_static(self) -> bool {
        self.min == self.max
    }

    /// The size, if known.
    pub const fn get(self) -> Option<usize> {
        if self.min == self.max { Some(self.min as usize) } else { None }
    }

    /// Whether `size` lies in the interval.
    pub const fn contains(self, size: usize) -> bool {
        (size as u64) >= self.min as u64 && (size as u64) <= self.max as u64
    }

    /// Whether every size of `other` is a size of `self`.
    pub const fn includes(self, other: Dim) -> bool {
        self.min <= other.min && other.max <= self.max
    }

    /// Whether both can be the same size.
    pub fn compatible(self, other: Dim) -> bool {
        self.min <= other.max && other.min <= self.max
    }

    /// Whether both are certainly the same size: both static and equal, or the same symbol.
    pub fn is_same(self, other: Dim) -> bool {
        match (self.symbol, other.symbol) {
            (Some(a), Some(b)) if a == b => true,
            _ => self.is_static() && self.min == other.min && self.max == other.max,
        }
    }

    /// The sizes that both can have; `None` if there is none. The symbol of either is kept.
    pub fn merge(self, other: Dim) -> Option<Dim> {
        let (min, max) = (self.min.max(other.min), self.max.min(other.max));
        if min > max {
            return None;
        }
        Some(Dim { min, max, symbol: None }.with_symbol(self.symbol.or(other.symbol)))
    }

    /// The smallest interval that holds both.
    pub fn union(self, other: Dim) -> Dim {
        let symbol = if self.symbol == other.symbol { self.symbol } else { None };
        Dim { min: self.min.min(other.min), max: self.max.max(other.max), symbol: None }.with_symbol(symbol)
    }

    /// The dimension that broadcasting both yields under NumPy's rule; `None` if they cannot be broadcast.
    pub fn broadcast(self, other: Dim) -> Option<Dim> {
        if self.get() == Some(1) {
            return Some(other);
        }
        if other.get() == Some(1) || self.is_same(other) {
            return Some(self);
        }
        match (self.min > 1, other.min > 1) {
            (true, true) => self.merge(other),
            // One side is certainly not 1, so it is the result; the other must be 1 or equal to it.
            (true, false) => {
                if other.contains(1) {
                    Some(self)
                } else {
                    self.merge(other)
                }
            }
            (false, true) => other.broadcast(self),
            (false, false) => self.broadcast_uncertain(other),
        }
    }

    /// Both may be 0 or 1: the result lies between what either allows.
    fn broadcast_uncertain(self, other: Dim) -> Option<Dim> {
        let merged = self.merge(other);
        let mut result: Option<Dim> = merged.map(|d| Dim { symbol: None, ..d });
        if self.contains(1) {
            result = Some(result.map_or(other, |r| r.union(other)));
        }
        if other.contains(1) {
            result = Some(result.map_or(self, |r| r.union(self)));
        }
        result.map(|d| Dim { min: d.min, max: d.max, symbol: None })
    }

    /// The sum with a signed number, at least 0, saturating.
    pub fn offset(self, delta: i64) -> Dim {
        if delta == 0 {
            return self;
        }
        Dim::interval(saturating_add(self.min, delta).max(0), saturating_add(self.max, delta).max(0))
    }

    /// The quotient rounded down. Division by 0 gives the dynamic dimension.
    pub fn div_floor(self, divisor: i64) -> Dim {
        self.map_bounds(divisor, |v, d| v / d)
    }

    /// The quotient rounded up. Division by 0 gives the dynamic dimension.
    pub fn div_ceil(self, divisor: i64) -> Dim {
        self.map_bounds(divisor, |v, d| v / d + i64::from(v % d != 0))
    }

    fn map_bounds(self, divisor: i64, f: impl Fn(i64, i64) -> i64) -> Dim {
        if divisor == 1 {
            return self;
        }
        if divisor <= 0 {
            return Dim::DYNAMIC;
        }
        let max = if self.max == INFINITE { INFINITE } else { f(self.max, divisor) };
        Dim::interval(f(self.min, divisor), max)
    }
}

impl std::ops::Add for Dim {
    type Output = Dim;
    /// The sum, saturating.
    fn add(self, other: Dim) -> Dim {
        if other.get() == Some(0) {
            return self;
        }
        if self.get() == Some(0) {
            return other;
        }
        Dim::interval(saturating_add(self.min, other.min), saturating_add(self.max, other.max))
    }
}

impl std::ops::Mul for Dim {
    type Output = Dim;
    /// The product, saturating.
    fn mul(self, other: Dim) -> Dim {
        if other.get() == Some(1) {
            return self;
        }
        if self.get() == Some(1) {
            return other;
        }
        Dim::interval(saturating_mul(self.min, other.min), saturating_mul(self.max, other.max))
    }
}

impl From<usize> for Dim {
    fn from(size: usize) -> Dim {
        Dim::fixed(size)
    }
}

impl fmt::Display for Dim {
    /// As IR spells it: `3`, `?`, `1..10`, `..5`, `7..`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (a, b) if a == b => write!(f, "{a}"),
            (0, INFINITE) => f.write_str("?"),
            (0, b) => write!(f, "..{b}"),
            (a, INFINITE) => write!(f, "{a}.."),
            (a, b) => write!(f, "{a}..{b}"),
        }
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        match self.symbol {
            Some(symbol) => write!(f, "#{}", symbol.0),
            None => Ok(()),
        }
    }
}

fn saturating_add(a: i64, b: i64) -> i64 {
    if a == INFINITE || b == INFINITE { INFINITE } else { a.saturating_add(b) }
}

fn saturating_mul(a: i64, b: i64) -> i64 {
    if a == 0 || b == 0 { 0 } else { a.saturating_mul(b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn display_reads_as_ir() {
        let shown: Vec<String> =
            [Dim::fixed(3), Dim::DYNAMIC, Dim::interval(1, 10), Dim::interval(0, 5), Dim::interval(7, INFINITE)]
                .iter()
                .map(Dim::to_string)
                .collect();
        assert_eq!(shown, ["3", "?", "1..10", "..5", "7.."]);
    }

    #[test]
    fn broadcast_follows_numpy_for_every_small_interval() {
        let intervals: Vec<Dim> = (0..4).flat_map(|a| (a..4).map(move |b| Dim::interval(a, b))).collect();
        for a in &intervals {
            for b in &intervals {
                let mut reachable = Vec::new();
                for x in a.min()..=a.max() {
                    for y in b.min()..=b.max() {
                        match (x, y) {
                            (x, y) if x == y => reachable.push(x),
                            (1, y) => reachable.push(y),
                            (x, 1) => reachable.push(x),
                            _ => {}
                        }
                    }
                }
                match a.broadcast(*b) {
                    Some(result) => {
                        for size in &reachable {
                            assert!(result.contains(*size as usize), "{a} x {b} = {result} lacks {size}");
                        }
                    }
                    None => assert!(reachable.is_empty(), "{a} x {b} refused"),
                }
            }
        }
    }

    #[test]
    fn arithmetic_saturates() {
        let open = Dim::interval(2, INFINITE);
        assert_eq!(open * Dim::fixed(3), Dim::interval(6, INFINITE));
        assert_eq!(open + Dim::fixed(1), Dim::interval(3, INFINITE));
        assert_eq!(open.offset(-5), Dim::interval(0, INFINITE));
        assert_eq!(Dim::interval(3, 9).div_ceil(2), Dim::interval(2, 5));
    }
}
