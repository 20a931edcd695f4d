//! Poolings: inference and the walk over windows.

use ovir_tensor::{Dim, PartialShape, Shape, SmallVec};

use super::window::{WindowAxis, WindowLists, check_items, spatial, three_axes};
use crate::{InferContext, OpResult};

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
    let sizes = lists.infer(spatial_rank, |i| (data.dim(2 + i), size(i)))?;
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
