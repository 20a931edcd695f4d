//! Static and partial shapes.

use smallvec::SmallVec;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;

use crate::{Dim, INFINITE, TensorError};

/// The largest rank that a shape may have. OpenVINO's kernels stop at 8 to 12; the limit keeps damaged files from
/// asking for absurd work.
pub const MAX_RANK: usize = 32;

/// A static shape: the sizes of all dimensions, outermost first. A scalar has none.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(SmallVec<[usize; 8]>);

impl Shape {
    /// A shape of the given sizes.
    pub fn from_slice(sizes: &[usize]) -> Shape {
        Shape(SmallVec::from_slice(sizes))
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The number of elements; `None` when it overflows `usize`.
    pub fn checked_elements(&self) -> Option<usize> {
        if self.0.contains(&0) {
            return Some(0);
        }
        self.0.iter().try_fold(1usize, |product, size| product.checked_mul(*size))
    }

    /// The number of elements, `usize::MAX` when it overflows.
    pub fn elements(&self) -> usize {
        self.checked_elements().unwrap_or(usize::MAX)
    }

    /// Row-major strides in elements.
    pub fn strides(&self) -> SmallVec<[usize; 8]> {
        let mut strides = SmallVec::from_elem(1, self.0.len());
        for i in (1..self.0.len()).rev() {
            strides[i - 1] = self.0[i].saturating_mul(strides[i]);
        }
        strides
    }

    /// Adds a dimension at the end.
    pub fn push(&mut self, size: usize) {
        self.0.push(size);
    }

    /// Adds a dimension before position `index`.
    pub fn insert(&mut self, index: usize, size: usize) {
        self.0.insert(index, size);
    }

    /// Removes the dimension at position `index`.
    pub fn remove(&mut self, index: usize) -> usize {
        self.0.remove(index)
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl DerefMut for Shape {
    fn deref_mut(&mut self) -> &mut [usize] {
        &mut self.0
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(sizes: I) -> Shape {
        Shape(sizes.into_iter().collect())
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(sizes: [usize; N]) -> Shape {
        Shape::from_slice(&sizes)
    }
}

impl From<&[usize]> for Shape {
    fn from(sizes: &[usize]) -> Shape {
        Shape::from_slice(sizes)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, self.0.iter())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A shape whose rank may be unknown and whose dimensions may be intervals.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PartialShape {
    dims: Option<SmallVec<[Dim; 8]>>,
}

impl PartialShape {
    /// The shape of which nothing is known: `...`.
    pub const DYNAMIC: PartialShape = PartialShape { dims: None };

    /// A shape of known rank.
    pub fn from_dims(dims: impl IntoIterator<Item = Dim>) -> PartialShape {
        PartialShape { dims: Some(dims.into_iter().collect()) }
    }

    /// A shape of known rank without any known dimension.
    pub fn of_rank(rank: usize) -> PartialShape {
        PartialShape { dims: Some(SmallVec::from_elem(Dim::DYNAMIC, rank)) }
    }

    /// A shape with no dimensions.
    pub fn scalar() -> PartialShape {
        PartialShape { dims: Some(SmallVec::new()) }
    }

    /// The dimensions, if the rank is known.
    pub fn dims(&self) -> Option<&[Dim]> {
        self.dims.as_deref()
    }

    /// The dimensions to change, if the rank is known.
    pub fn dims_mut(&mut self) -> Option<&mut SmallVec<[Dim; 8]>> {
        self.dims.as_mut()
    }

    /// The rank, if known.
    pub fn rank(&self) -> Option<usize> {
        self.dims.as_ref().map(|d| d.len())
    }

    /// The dimension at `index`; the dynamic dimension when the rank is unknown or `index` is beyond it.
    pub fn dim(&self, index: usize) -> Dim {
        self.dims.as_ref().and_then(|d| d.get(index)).copied().unwrap_or(Dim::DYNAMIC)
    }

    /// Whether all dimensions are known.
    pub fn is_static(&self) -> bool {
        self.dims.as_ref().is_some_and(|dims| dims.iter().all(|d| d.is_static()))
    }

    /// The static shape, if all dimensions are known.
    pub fn to_shape(&self) -> Option<Shape> {
        self.dims.as_ref()?.iter().map(|d| d.get()).collect()
    }

    /// The number of elements as an interval.
    pub fn elements(&self) -> Dim {
        match &self.dims {
            None => Dim::DYNAMIC,
            Some(dims) => dims.iter().fold(Dim::fixed(1), |product, d| product * *d),
        }
    }

    /// Whether both can be the same shape.
    pub fn compatible(&self, other: &PartialShape) -> bool {
        match (&self.dims, &other.dims) {
            (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.compatible(*y)),
            _ => true,
        }
    }

    /// Whether every shape of `other` is a shape of `self`.
    pub fn includes(&self, other: &PartialShape) -> bool {
        match (&self.dims, &other.dims) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.includes(*y)),
        }
    }

    /// Whether `shape` is one of the shapes described.
    pub fn contains(&self, shape: &[usize]) -> bool {
        match &self.dims {
            None => true,
            Some(dims) => dims.len() == shape.len() && dims.iter().zip(shape).all(|(d, s)| d.contains(*s)),
        }
    }

    /// The shapes that both describe; `None` if there is none.
    pub fn merge(&self, other: &PartialShape) -> Option<PartialShape> {
        match (&self.dims, &other.dims) {
            (None, _) => Some(other.clone()),
            (_, None) => Some(self.clone()),
            (Some(a), Some(b)) if a.len() == b.len() => {
                let dims: Option<_> = a.iter().zip(b).map(|(x, y)| x.merge(*y)).collect();
                Some(PartialShape { dims: Some(dims?) })
            }
            _ => None,
        }
    }

    /// The smallest description that holds both.
    pub fn union(&self, other: &PartialShape) -> PartialShape {
        match (&self.dims, &other.dims) {
            (Some(a), Some(b)) if a.len() == b.len() => {
                PartialShape::from_dims(a.iter().zip(b).map(|(x, y)| x.union(*y)))
            }
            _ => PartialShape::DYNAMIC,
        }
    }

    /// The shape that broadcasting both by NumPy's rule yields. On failure, the two positions (counted in each
    /// shape) that disagree.
    ///
    /// # Errors
    /// The indices of the two dimensions that cannot be broadcast.
    pub fn broadcast(&self, other: &PartialShape) -> Result<PartialShape, (usize, usize)> {
        let (Some(a), Some(b)) = (&self.dims, &other.dims) else {
            return Ok(PartialShape::DYNAMIC);
        };
        let rank = a.len().max(b.len());
        let mut dims = SmallVec::with_capacity(rank);
        for i in 0..rank {
            let x = (i + a.len()).checked_sub(rank);
            let y = (i + b.len()).checked_sub(rank);
            let dim = match (x, y) {
                (Some(x), Some(y)) => a[x].broadcast(b[y]).ok_or((x, y))?,
                (Some(x), None) => a[x],
                (None, Some(y)) => b[y],
                (None, None) => Dim::fixed(1),
            };
            dims.push(dim);
        }
        Ok(PartialShape { dims: Some(dims) })
    }
}

impl From<&Shape> for PartialShape {
    fn from(shape: &Shape) -> PartialShape {
        PartialShape::from_dims(shape.iter().map(|s| Dim::fixed(*s)))
    }
}

impl From<Shape> for PartialShape {
    fn from(shape: Shape) -> PartialShape {
        PartialShape::from(&shape)
    }
}

impl<const N: usize> From<[usize; N]> for PartialShape {
    fn from(sizes: [usize; N]) -> PartialShape {
        PartialShape::from_dims(sizes.into_iter().map(Dim::fixed))
    }
}

impl fmt::Display for PartialShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.dims {
            None => f.write_str("[...]"),
            Some(dims) => write_list(f, dims.iter()),
        }
    }
}

impl fmt::Debug for PartialShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.dims {
            None => f.write_str("[...]"),
            Some(dims) => f.debug_list().entries(dims).finish(),
        }
    }
}

impl FromStr for PartialShape {
    type Err = TensorError;

    /// Reads `1,3,?,..5,7..,1..10`, `...` and the empty text (a scalar), with or without brackets and spaces; `-1` is
    /// `?`.
    fn from_str(text: &str) -> Result<PartialShape, TensorError> {
        let inner = text.trim();
        let inner = inner.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(inner).trim();
        if inner == "..." {
            return Ok(PartialShape::DYNAMIC);
        }
        if inner.is_empty() {
            return Ok(PartialShape::scalar());
        }
        let invalid = |reason: String| TensorError::InvalidShape { text: text.to_owned(), reason };
        let dims: SmallVec<[Dim; 8]> =
            inner.split(',').map(|part| parse_dim(part.trim())).collect::<Result<_, _>>().map_err(invalid)?;
        if dims.len() > MAX_RANK {
            return Err(invalid(format!("rank {} is above the limit of {MAX_RANK}", dims.len())));
        }
        Ok(PartialShape { dims: Some(dims) })
    }
}

fn parse_dim(text: &str) -> Result<Dim, String> {
    if text == "?" || text == "-1" {
        return Ok(Dim::DYNAMIC);
    }
    let number = |t: &str| -> Result<i64, String> {
        let t = t.trim();
        let all_digits = !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
        match t.parse::<i64>() {
            Ok(value) if all_digits && value < INFINITE => Ok(value),
            _ => Err(format!("`{t}` is not a dimension; write a number, `?`, or an interval such as `1..10`")),
        }
    };
    let Some((low, high)) = text.split_once("..") else {
        let size = number(text)?;
        return Ok(Dim::interval(size, size));
    };
    let min = if low.trim().is_empty() { 0 } else { number(low)? };
    let max = if high.trim().is_empty() { INFINITE } else { number(high)? };
    if max < min {
        return Err(format!("the interval `{text}` is empty"));
    }
    Ok(Dim::interval(min, max))
}

fn write_list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = T>) -> fmt::Result {
    f.write_str("[")?;
    for (i, item) in items.enumerate() {
        if i > 0 {
            f.write_str(",")?;
        }
        write!(f, "{item}")?;
    }
    f.write_str("]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn shapes_read_back() {
        for text in ["[1,3,224,224]", "[?,3,..5,7..,1..10]", "[...]", "[]"] {
            assert_eq!(text.parse::<PartialShape>().unwrap().to_string(), text);
        }
        assert_eq!("".parse::<PartialShape>().unwrap(), PartialShape::scalar());
        assert_eq!("-1, 3".parse::<PartialShape>().unwrap().to_string(), "[?,3]");
        for text in ["1,-7", "1,,2", "5..3", "99999999999999999999", "a"] {
            assert!(text.parse::<PartialShape>().is_err(), "{text}");
        }
    }

    #[test]
    fn broadcast_names_the_guilty_dims() {
        let a: PartialShape = "2,3,4".parse().unwrap();
        let b: PartialShape = "5,4".parse().unwrap();
        assert_eq!(a.broadcast(&b), Err((1, 0)));
        let c: PartialShape = "?,1".parse().unwrap();
        assert_eq!(a.broadcast(&c).unwrap().to_string(), "[2,3,4]");
    }
}
