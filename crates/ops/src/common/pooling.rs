//! Poolings: inference and the walk over windows.

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, SmallVec};

use super::convolution::requested_sizes;
use super::window::{WindowAxis, WindowLists, check_items, spatial, three_axes};
use crate::{Blame, InferContext, OpError, OpResult};

/// The shape of a pooling's output.
pub(crate) fn infer_pooling(
    context: &mut InferContext<'_>,
    lists: &WindowLists<'_>,
    kernel: &[i64],
) -> OpResult<PartialShape> {
    context.require_rank(0, 3..=5)?;
    let data = context.shape(0);
    let spatial_rank = data.rank().map_or(kernel.len(), |rank| rank - 2);
    check_items("kernel", kernel, spatial_rank)?;
    let size = |i: usize| Dim::fixed(kernel.get(i).copied().unwrap_or(1).max(1) as usize);
    let sizes = lists.infer(context.symbols(), spatial_rank, |i| (data.dim(2 + i), size(i)))?;
    Ok(PartialShape::from_dims([data.dim(0), data.dim(1)].into_iter().chain(sizes)))
}

/// The geometry and the output's shape of a pooling of known shape.
pub(crate) fn pooling_geometry(
    data: &Shape,
    lists: &WindowLists<'_>,
    kernel: &[i64],
) -> OpResult<(SmallVec<[WindowAxis; 3]>, Shape)> {
    let sizes = spatial(data, 2);
    check_items("kernel", kernel, sizes.len())?;
    let kernel: SmallVec<[usize; 3]> =
        (0..sizes.len()).map(|i| kernel.get(i).copied().unwrap_or(1).max(1) as usize).collect();
    let axes = lists.geometry(sizes, &kernel)?;
    let shape = data[..2].iter().copied().chain(axes.iter().map(|a| a.output)).collect();
    Ok((axes, shape))
}

/// One window of a pooling.
pub(crate) struct Window<'a> {
    axes: &'a [WindowAxis; 3],
    position: [usize; 3],
}

impl Window<'_> {
    /// Visits the offsets, within the plane, of the elements that lie inside of the input.
    pub fn for_each(&self, mut visit: impl FnMut(usize)) {
        let [za, ya, xa] = self.axes;
        let [z, y, x] = self.position;
        let columns = xa.elements_inside(x);
        for kz in za.elements_inside(z) {
            let pz = za.position(z, kz) as usize;
            for ky in ya.elements_inside(y) {
                let row = (pz * ya.input + ya.position(y, ky) as usize) * xa.input;
                for kx in columns.clone() {
                    visit(row + xa.position(x, kx) as usize);
                }
            }
        }
    }

    /// The number of elements that lie inside of the input or its pads.
    pub fn padded_elements(&self) -> usize {
        self.axes.iter().zip(self.position).map(|(axis, w)| axis.padded_elements(w)).product()
    }
}

/// Visits all windows: the index of the output element, the offset of the input plane, and the window.
pub(crate) fn for_each_window(planes: usize, axes: &[WindowAxis], mut visit: impl FnMut(usize, usize, &Window<'_>)) {
    let axes = three_axes(axes);
    let input_plane: usize = axes.iter().map(|a| a.input).product();
    let mut index = 0;
    for plane in 0..planes {
        for z in 0..axes[0].output {
            for y in 0..axes[1].output {
                for x in 0..axes[2].output {
                    visit(index, plane * input_plane, &Window { axes: &axes, position: [z, y, x] });
                    index += 1;
                }
            }
        }
    }
}

/// The geometry of an adaptive pooling of known shape.
pub(crate) struct AdaptiveGeometry {
    /// The shape of the output.
    pub shape: Shape,
    planes: usize,
    input: [usize; 3],
    output: [usize; 3],
}

/// The shape of an adaptive pooling's output; input 1 says the spatial sizes.
pub(crate) fn infer_adaptive(context: &mut InferContext<'_>) -> OpResult<PartialShape> {
    context.require_rank(0, 3..=5)?;
    context.require_rank(1, 1..=1)?;
    context.require_class(1, ElementClass::Integer)?;
    let data = context.shape(0);
    let items = context.shape(1).dims().and_then(|d| d.first()?.get());
    let Some(spatial_rank) = data.rank().map(|rank| rank - 2).or(items) else {
        return Ok(PartialShape::DYNAMIC);
    };
    if !(1..=3).contains(&spatial_rank) {
        let message = format!("shape {} must be [1] to [3]: one size for each spatial axis", context.shape(1));
        return Err(OpError::shape(Blame::Input(1), message));
    }
    let sizes = requested_sizes(context, 1, spatial_rank)?;
    Ok(PartialShape::from_dims([data.dim(0), data.dim(1)].into_iter().chain(sizes)))
}

/// The geometry of an adaptive pooling.
///
/// # Errors
/// When the sizes do not fit the data, or parts would be empty.
pub(crate) fn adaptive_geometry(data: &Shape, sizes: &[i64]) -> OpResult<AdaptiveGeometry> {
    let spatial = spatial(data, 2);
    if spatial.len() != sizes.len() || spatial.len() > 3 {
        let message = format!("{} sizes are given for {} spatial axes", sizes.len(), spatial.len());
        return Err(OpError::shape(Blame::Input(1), message));
    }
    let (mut input, mut output) = ([1; 3], [1; 3]);
    for (i, (x, size)) in spatial.iter().zip(sizes).enumerate() {
        let fits = usize::try_from(*size).ok().filter(|n| *n == 0 || *x > 0);
        let at = 3 - spatial.len() + i;
        input[at] = *x;
        output[at] = fits.ok_or_else(|| {
            OpError::value(Blame::Input(1), format!("size {size} of spatial axis {i} does not fit {x} elements"))
        })?;
    }
    let shape = data[..2].iter().copied().chain(output[3 - sizes.len()..].iter().copied()).collect();
    Ok(AdaptiveGeometry { shape, planes: data[0] * data[1], input, output })
}

/// Visits all parts: the index of the output element, the offset of the input plane, and the offsets in the plane.
pub(crate) fn for_each_part(
    geometry: &AdaptiveGeometry,
    mut visit: impl FnMut(usize, usize, &mut dyn Iterator<Item = usize>),
) {
    let ([depth, height, width], output) = (geometry.input, geometry.output);
    let part = |i: usize, axis: usize| {
        let (x, n) = (geometry.input[axis], output[axis]);
        i * x / n..((i + 1) * x).div_ceil(n)
    };
    let mut index = 0;
    for plane in 0..geometry.planes {
        for z in 0..output[0] {
            for y in 0..output[1] {
                for x in 0..output[2] {
                    let (zs, ys, xs) = (part(z, 0), part(y, 1), part(x, 2));
                    let mut positions = zs.flat_map(|z| {
                        let xs = xs.clone();
                        ys.clone().flat_map(move |y| xs.clone().map(move |x| (z * height + y) * width + x))
                    });
                    visit(index, plane * depth * height * width, &mut positions);
                    index += 1;
                }
            }
        }
    }
}

/// The largest of some elements and where it is: the first of equal ones; NaN wins over numbers.
pub(crate) fn maximum_of<T: Copy + PartialOrd>(elements: impl Iterator<Item = (T, usize)>) -> Option<(T, usize)> {
    elements.fold(None, |best, (value, position)| match best {
        Some((b, _)) if !(value > b || (is_nan(value) && !is_nan(b))) => best,
        _ => Some((value, position)),
    })
}

/// Whether a value differs from itself.
#[allow(clippy::eq_op)]
pub(crate) fn is_nan<T: Copy + PartialOrd>(value: T) -> bool {
    value != value
}
