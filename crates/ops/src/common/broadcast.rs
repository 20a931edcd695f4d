//! Broadcasting of two or more tensors: NumPy's rule and PaddlePaddle's.

use ovir_tensor::{Dim, PartialShape, Shape, SmallVec};

use crate::{Blame, InferContext, OpError, OpResult};

crate::attribute_enum! {
    /// How inputs of different shapes are brought together.
    pub enum AutoBroadcast {
        /// Shapes must be equal.
        None = "none",
        /// Shapes are aligned at the last dimension, and dimensions of size 1 are repeated.
        #[default]
        Numpy = "numpy",
        /// The second shape is laid into the first from an axis on, and repeated.
        Pdpd = "pdpd",
    }
}

crate::attributes! {
    /// Attributes of operations of two inputs.
    pub struct BroadcastAttributes {
        /// The rule.
        auto_broadcast: AutoBroadcast = "auto_broadcast", default "numpy";
        /// Where the second shape starts in the first under `pdpd`; -1 aligns the ends.
        axis: i64 = "auto_broadcast.auto_broadcast_axis", default "-1";
    }
}

impl BroadcastAttributes {
    /// The attributes as written to IR: the axis only where it has a meaning.
    pub(crate) fn printed(&self, class_version: u8) -> Vec<(&'static str, String)> {
        let mut written = self.print(class_version);
        if self.auto_broadcast != AutoBroadcast::Pdpd {
            written.retain(|(name, _)| *name != "auto_broadcast.auto_broadcast_axis");
        }
        written
    }

    /// The shape that the two inputs at `ports` have after broadcasting.
    ///
    /// # Errors
    /// A shape mismatch that names both shapes and the dimensions that disagree.
    pub(crate) fn infer(&self, context: &InferContext<'_>, ports: (usize, usize)) -> OpResult<PartialShape> {
        let (a, b) = (context.shape(ports.0), context.shape(ports.1));
        match self.auto_broadcast {
            AutoBroadcast::Numpy => a.broadcast(b).map_err(|(i, j)| numpy_mismatch(a, b, i, j, ports)),
            AutoBroadcast::None => a.merge(b).ok_or_else(|| {
                let message = format!("shape {b} must equal shape {a} of input {} (auto_broadcast is none)", ports.0);
                OpError::shape(Blame::Input(ports.1), message)
            }),
            AutoBroadcast::Pdpd => self.infer_pdpd(a, b, ports),
        }
    }

    fn infer_pdpd(&self, a: &PartialShape, b: &PartialShape, ports: (usize, usize)) -> OpResult<PartialShape> {
        let (Some(left), Some(right)) = (a.dims(), b.dims()) else {
            return Ok(a.clone());
        };
        let mismatch = |detail: String| {
            OpError::shape(Blame::Input(ports.1), format!("shape {b} cannot be laid into shape {a}: {detail}"))
        };
        let aligned = left.len().checked_sub(right.len());
        let right = trim_ones(right);
        let axis = match self.axis {
            -1 => aligned,
            axis => usize::try_from(axis).ok().filter(|axis| axis + right.len() <= left.len()),
        };
        let axis = axis.ok_or_else(|| mismatch(format!("it does not fit from axis {} on", self.axis)))?;
        let mut dims: SmallVec<[Dim; 8]> = SmallVec::from_slice(left);
        for (i, dim) in right.iter().enumerate() {
            // A dimension that may be 1 is repeated then, and says nothing of the first shape.
            if dim.contains(1) {
                continue;
            }
            dims[axis + i] = left[axis + i]
                .merge(*dim)
                .ok_or_else(|| mismatch(format!("dimension {dim} meets {}", left[axis + i])))?;
        }
        Ok(PartialShape::from_dims(dims))
    }

    /// The second shape as NumPy would need it to give the same result.
    #[must_use]
    pub fn aligned_second(&self, a: &Shape, b: &Shape) -> Shape {
        if self.auto_broadcast != AutoBroadcast::Pdpd || self.axis < 0 {
            return b.clone();
        }
        let mut sizes = b.clone();
        while sizes.last() == Some(&1) {
            sizes.remove(sizes.rank() - 1);
        }
        let axis = usize::try_from(self.axis).unwrap_or(0);
        while axis + sizes.rank() < a.rank() {
            sizes.push(1);
        }
        sizes
    }
}

/// The error of two shapes that NumPy's rule cannot bring together.
pub(crate) fn numpy_mismatch(a: &PartialShape, b: &PartialShape, i: usize, j: usize, ports: (usize, usize)) -> OpError {
    let message = format!(
        "shape {b} cannot be broadcast with shape {a} of input {}: dimension {} at axis {j} meets {} at axis {i}",
        ports.0,
        b.dim(j),
        a.dim(i)
    );
    OpError::shape(Blame::Input(ports.1), message).note("equal dimensions and 1 can be broadcast")
}

/// The static shape of broadcasting by NumPy's rule.
pub(crate) fn broadcast_shapes(a: &[usize], b: &[usize]) -> Option<Shape> {
    let rank = a.len().max(b.len());
    (0..rank)
        .map(|i| {
            let x = (i + a.len()).checked_sub(rank).map_or(1, |k| a[k]);
            let y = (i + b.len()).checked_sub(rank).map_or(1, |k| b[k]);
            match (x, y) {
                (x, y) if x == y => Some(x),
                (1, y) => Some(y),
                (x, 1) => Some(x),
                _ => None,
            }
        })
        .collect()
}

/// The strides, in elements, with which a dense tensor of `shape` is read while walking `output` in row-major order;
/// repeated dimensions have stride 0.
pub(crate) fn broadcast_strides(shape: &[usize], output: &[usize]) -> SmallVec<[usize; 8]> {
    let mut strides = SmallVec::from_elem(0, output.len());
    let mut step = 1usize;
    for i in 0..shape.len().min(output.len()) {
        let (from, to) = (shape.len() - 1 - i, output.len() - 1 - i);
        if shape[from] != 1 {
            strides[to] = step;
        }
        step = step.saturating_mul(shape[from]);
    }
    strides
}

/// Walks all positions of `shape` in row-major order and gives the offsets that several sets of strides yield.
pub(crate) fn for_each_offset<const N: usize>(
    shape: &[usize],
    strides: [&[usize]; N],
    mut visit: impl FnMut([usize; N]),
) {
    if shape.contains(&0) {
        return;
    }
    let mut index: SmallVec<[usize; 8]> = SmallVec::from_elem(0, shape.len());
    let mut offsets = [0usize; N];
    loop {
        visit(offsets);
        let mut axis = shape.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            for (offset, stride) in offsets.iter_mut().zip(strides) {
                *offset += stride[axis];
            }
            if index[axis] < shape[axis] {
                break;
            }
            for (offset, stride) in offsets.iter_mut().zip(strides) {
                *offset -= stride[axis] * shape[axis];
            }
            index[axis] = 0;
        }
    }
}

/// Without the trailing dimensions that may be 1.
fn trim_ones(dims: &[Dim]) -> &[Dim] {
    let kept = dims.iter().rposition(|d| !d.contains(1)).map_or(0, |i| i + 1);
    &dims[..kept]
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn offsets_walk_in_row_major_order() {
        let strides = broadcast_strides(&[3, 1], &[2, 3, 2]);
        let mut seen = Vec::new();
        for_each_offset(&[2, 3, 2], [&strides], |[o]| seen.push(o));
        assert_eq!(seen, [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]);
        let mut count = 0;
        for_each_offset(&[], [&[]], |[_]| count += 1);
        assert_eq!(count, 1);
    }
}
