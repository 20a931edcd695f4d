//! Convolutions and transposed convolutions: attributes, inference and loops.

use ovir_tensor::{Dim, ElementClass, INFINITE, PartialShape, Shape, SmallVec, dispatch};

use super::accumulate::Accumulate;
use super::elementwise::unsupported;
use super::window::{AutoPad, RoundingType, WindowAxis, WindowLists, check_items, spatial, split_pads, three_axes};
use crate::{Blame, EvaluateContext, InferContext, OpError, OpResult};

crate::attributes! {
    /// Attributes of Convolution and GroupConvolution.
    pub struct ConvolutionAttributes {
        /// The distance between windows, one item a spatial axis.
        strides: Vec<i64> = "strides", required true;
        /// The distance between the elements of the filter, one item a spatial axis.
        dilations: Vec<i64> = "dilations", required true;
        /// The zeros before the data, one item a spatial axis; used with `auto_pad="explicit"`.
        pads_begin: Vec<i64> = "pads_begin", required true;
        /// The zeros after the data, one item a spatial axis; used with `auto_pad="explicit"`.
        pads_end: Vec<i64> = "pads_end", required true;
        /// How pads are found.
        auto_pad: AutoPad = "auto_pad", default "explicit";
    }
}

crate::attributes! {
    /// Attributes of ConvolutionBackpropData and GroupConvolutionBackpropData.
    pub struct TransposedAttributes {
        /// The distance between the windows of the output, one item a spatial axis.
        strides: Vec<i64> = "strides", required true;
        /// The distance between the elements of the filter, one item a spatial axis.
        dilations: Vec<i64> = "dilations", required true;
        /// The elements cut off before the output, one item a spatial axis; used with `auto_pad="explicit"`.
        pads_begin: Vec<i64> = "pads_begin", required true;
        /// The elements cut off after the output, one item a spatial axis; used with `auto_pad="explicit"`.
        pads_end: Vec<i64> = "pads_end", required true;
        /// How pads are found.
        auto_pad: AutoPad = "auto_pad", default "explicit";
        /// The elements added at the end of the output, one item a spatial axis.
        output_padding: Vec<i64> = "output_padding", default "";
    }
}

/// The geometry of a convolution, or of a transposed one, when all shapes are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvolutionGeometry {
    /// The number of images.
    pub batch: usize,
    /// The number of groups; 1 for the ungrouped operations.
    pub groups: usize,
    /// The input channels of a group.
    pub input_channels: usize,
    /// The output channels of a group.
    pub output_channels: usize,
    /// The spatial axes. For a transposed convolution `input` is the size of its output and `output` that of its data.
    pub axes: SmallVec<[WindowAxis; 3]>,
    /// The shape of the output.
    pub output_shape: Shape,
}

impl ConvolutionAttributes {
    /// Whether a filter of one element stands for a factor: windows follow each other, and there is no padding.
    #[must_use]
    pub fn is_neutral(&self) -> bool {
        let all = |list: &[i64], value: i64| list.iter().all(|item| *item == value);
        let has_pads = self.auto_pad == AutoPad::Explicit && !(all(&self.pads_begin, 0) && all(&self.pads_end, 0));
        all(&self.strides, 1) && !has_pads
    }

    pub(crate) fn lists(&self) -> WindowLists<'_> {
        WindowLists {
            strides: &self.strides,
            dilations: &self.dilations,
            pads_begin: &self.pads_begin,
            pads_end: &self.pads_end,
            auto_pad: self.auto_pad,
            rounding: RoundingType::Floor,
        }
    }

    /// The geometry for known shapes.
    ///
    /// # Errors
    /// A shape mismatch.
    pub fn geometry(&self, data: &Shape, filter: &Shape, grouped: bool) -> OpResult<ConvolutionGeometry> {
        let leading = 2 + usize::from(grouped);
        check_ranks(data, filter, leading)?;
        let groups = if grouped { filter[0] } else { 1 };
        let (output_channels, input_channels) = (filter[leading - 2], filter[leading - 1]);
        check_channels(data[1], groups, input_channels)?;
        let axes = self.lists().geometry(spatial(data, 2), spatial(filter, leading))?;
        let channels = groups.saturating_mul(output_channels);
        let output_shape = [data[0], channels].into_iter().chain(axes.iter().map(|a| a.output)).collect();
        Ok(ConvolutionGeometry { batch: data[0], groups, input_channels, output_channels, axes, output_shape })
    }
}

impl TransposedAttributes {
    pub(crate) fn lists(&self) -> WindowLists<'_> {
        WindowLists {
            strides: &self.strides,
            dilations: &self.dilations,
            pads_begin: &self.pads_begin,
            pads_end: &self.pads_end,
            auto_pad: self.auto_pad,
            rounding: RoundingType::Floor,
        }
    }

    /// The geometry for known shapes; `output_spatial` is the third input.
    ///
    /// # Errors
    /// A shape mismatch.
    pub(crate) fn geometry(
        &self,
        data: &Shape,
        filter: &Shape,
        grouped: bool,
        output_spatial: Option<&[i64]>,
    ) -> OpResult<ConvolutionGeometry> {
        let leading = 2 + usize::from(grouped);
        check_ranks(data, filter, leading)?;
        let groups = if grouped { filter[0] } else { 1 };
        let (input_channels, output_channels) = (filter[leading - 2], filter[leading - 1]);
        check_channels(data[1], groups, input_channels)?;
        let (sizes, kernels) = (spatial(data, 2), spatial(filter, leading));
        self.check_rank(sizes.len())?;
        let axes: SmallVec<[WindowAxis; 3]> = (0..sizes.len())
            .map(|i| self.axis(i, sizes[i], kernels[i], output_spatial.map(|o| o.get(i).copied().unwrap_or(0))))
            .collect::<OpResult<_>>()?;
        let channels = groups.saturating_mul(output_channels);
        let output_shape = [data[0], channels].into_iter().chain(axes.iter().map(|a| a.input)).collect();
        Ok(ConvolutionGeometry { batch: data[0], groups, input_channels, output_channels, axes, output_shape })
    }

    fn check_rank(&self, spatial_rank: usize) -> OpResult {
        self.lists().check_rank(spatial_rank)?;
        check_items("output_padding", &self.output_padding, spatial_rank)
    }

    fn output_padding(&self, axis: usize) -> i64 {
        self.output_padding.get(axis).copied().unwrap_or(0).max(0)
    }

    /// The size of the output without any pads.
    fn full_size(&self, axis: usize, input: i64, kernel: i64) -> i128 {
        let rule = self.lists().rule(axis);
        let extent = (i128::from(kernel) - 1) * i128::from(rule.dilation) + 1;
        (i128::from(input) - 1) * i128::from(rule.stride) + extent + i128::from(self.output_padding(axis))
    }

    /// The size of the output under the attributes alone.
    fn attribute_size(&self, axis: usize, input: i64, kernel: i64) -> i128 {
        let rule = self.lists().rule(axis);
        let pads = if self.auto_pad == AutoPad::Explicit { rule.pad_begin + rule.pad_end } else { 0 };
        self.full_size(axis, input, kernel) - i128::from(pads)
    }

    fn axis(&self, axis: usize, input: usize, kernel: usize, wanted: Option<i64>) -> OpResult<WindowAxis> {
        let rule = self.lists().rule(axis);
        let (x, k) = (input as i64, kernel as i64);
        let size = match wanted {
            Some(wanted) => i128::from(wanted),
            None => self.attribute_size(axis, x, k),
        };
        let size = usize::try_from(size).map_err(|_| negative_size(axis, size, wanted.is_some()))?;
        let (pad_begin, pad_end) = match self.auto_pad {
            AutoPad::Explicit => (rule.pad_begin, rule.pad_end),
            AutoPad::SameUpper | AutoPad::SameLower if wanted.is_some() => {
                let total = (self.full_size(axis, x, k) - size as i128).clamp(0, i128::from(i64::MAX)) as i64;
                let (small, large) = split_pads(total, AutoPad::SameUpper);
                // What is cut off is split the other way round than what a convolution adds.
                if self.auto_pad == AutoPad::SameUpper { (large, small) } else { (small, large) }
            }
            _ => (0, 0),
        };
        let (stride, dilation) = (rule.stride as usize, rule.dilation as usize);
        Ok(WindowAxis { input: size, output: input, kernel, stride, dilation, pad_begin, pad_end })
    }

    fn infer_axis(&self, axis: usize, input: Dim, kernel: Dim) -> OpResult<Dim> {
        let bound = |x: i64, k: i64| match (x, k) {
            (INFINITE, _) | (_, INFINITE) => i128::from(INFINITE),
            _ => self.attribute_size(axis, x, k).min(i128::from(INFINITE - 1)),
        };
        let (min, max) = (bound(input.min(), kernel.min()), bound(input.max(), kernel.max()));
        if max < 0 {
            return Err(negative_size(axis, max, false));
        }
        Ok(Dim::interval(min.max(0) as i64, max as i64))
    }
}

/// Infers Convolution (`grouped` false) and GroupConvolution.
pub(crate) fn infer_convolution(
    context: &mut InferContext<'_>,
    attributes: &ConvolutionAttributes,
    grouped: bool,
) -> OpResult {
    let leading = 2 + usize::from(grouped);
    let lists = attributes.lists();
    let Some(spatial_rank) = prepare(context, &lists, leading)? else { return Ok(()) };
    let (data, filter) = (context.shape(0), context.shape(1));
    let groups = if grouped { filter.dim(0) } else { Dim::fixed(1) };
    infer_channels(context, groups, filter.dim(leading - 1))?;
    let sizes = lists.infer(context.symbols(), spatial_rank, |i| (data.dim(2 + i), filter.dim(leading + i)))?;
    let channels = groups * filter.dim(leading - 2);
    let shape = PartialShape::from_dims([data.dim(0), channels].into_iter().chain(sizes));
    context.set_output(0, context.require_same_type(&[0, 1])?, shape);
    Ok(())
}

/// Infers ConvolutionBackpropData (`grouped` false) and GroupConvolutionBackpropData.
pub(crate) fn infer_transposed(
    context: &mut InferContext<'_>,
    attributes: &TransposedAttributes,
    grouped: bool,
) -> OpResult {
    let leading = 2 + usize::from(grouped);
    let lists = attributes.lists();
    if context.input_count() > 2 {
        context.require_class(2, ElementClass::Integer)?;
        context.require_rank(2, 1..=1)?;
    }
    let Some(spatial_rank) = prepare(context, &lists, leading)? else { return Ok(()) };
    attributes.check_rank(spatial_rank)?;
    let (data, filter) = (context.shape(0), context.shape(1));
    let groups = if grouped { filter.dim(0) } else { Dim::fixed(1) };
    infer_channels(context, groups, filter.dim(leading - 2))?;
    let channels = groups * filter.dim(leading - 1);
    let sizes: SmallVec<[Dim; 3]> = if context.input_count() > 2 {
        requested_sizes(context, 2, spatial_rank)?
    } else {
        (0..spatial_rank)
            .map(|i| attributes.infer_axis(i, data.dim(2 + i), filter.dim(leading + i)))
            .collect::<OpResult<_>>()?
    };
    let shape = PartialShape::from_dims([data.dim(0), channels].into_iter().chain(sizes));
    context.set_output(0, context.require_same_type(&[0, 1])?, shape);
    Ok(())
}

/// The spatial sizes that input `port` asks for.
///
/// # Errors
/// When the input has another number of elements than there are spatial axes, or a negative size.
pub(crate) fn requested_sizes(
    context: &mut InferContext<'_>,
    port: usize,
    spatial_rank: usize,
) -> OpResult<SmallVec<[Dim; 3]>> {
    let shape = context.shape(port);
    if shape.rank() == Some(1) && !shape.dim(0).contains(spatial_rank) {
        let message = format!("shape {shape} must be [{spatial_rank}]: one size for each spatial axis");
        return Err(OpError::shape(Blame::Input(port), message));
    }
    let Some(bounds) = context.bounds(port) else {
        return Ok((0..spatial_rank).map(|_| context.new_dim(0, INFINITE)).collect());
    };
    if let Some((i, value)) = bounds.values.iter().enumerate().find(|(_, v)| v.max < 0) {
        let message = format!("size {} of spatial axis {i} is negative", value.max);
        return Err(OpError::value(Blame::Input(port), message));
    }
    let missing = spatial_rank.saturating_sub(bounds.values.len());
    Ok(bounds
        .values
        .iter()
        .take(spatial_rank)
        .map(|v| v.to_dim())
        .chain(std::iter::repeat_n(Dim::DYNAMIC, missing))
        .collect())
}

/// Evaluates Convolution and GroupConvolution.
pub(crate) fn evaluate_convolution(context: &mut EvaluateContext<'_>, geometry: &ConvolutionGeometry) -> OpResult {
    let (data, filter) = (context.input(0)?, context.input(1)?);
    let mut output = context.output(0, &geometry.output_shape)?;
    let element_type = data.element_type();
    dispatch!(element_type, T in [numeric] => {
        convolve(geometry, data.slice::<T>()?, filter.slice::<T>()?, output.slice_mut::<T>()?);
        Ok(())
    } else { Err(unsupported(element_type)) })
}

/// Evaluates ConvolutionBackpropData and GroupConvolutionBackpropData.
pub(crate) fn evaluate_transposed(
    context: &mut EvaluateContext<'_>,
    attributes: &TransposedAttributes,
    grouped: bool,
) -> OpResult {
    let (data, filter) = (context.input(0)?, context.input(1)?);
    let wanted = if context.input_count() > 2 { Some(context.integers(2)?) } else { None };
    let geometry = attributes.geometry(data.shape(), filter.shape(), grouped, wanted.as_deref())?;
    let mut output = context.output(0, &geometry.output_shape)?;
    let element_type = data.element_type();
    dispatch!(element_type, T in [numeric] => {
        convolve_transposed(&geometry, data.slice::<T>()?, filter.slice::<T>()?, output.slice_mut::<T>()?);
        Ok(())
    } else { Err(unsupported(element_type)) })
}

fn convolve<T: Accumulate>(geometry: &ConvolutionGeometry, data: &[T], filter: &[T], output: &mut [T]) {
    let axes = three_axes(&geometry.axes);
    let (input_plane, output_plane, kernel) = planes(&axes);
    if output_plane == 0 {
        return;
    }
    let (groups, inputs, outputs) = (geometry.groups, geometry.input_channels, geometry.output_channels);
    let mut sums = vec![T::Sum::default(); output_plane];
    for (index, target) in output.chunks_exact_mut(output_plane).enumerate() {
        let (image, channel) = (index / (groups * outputs), index % (groups * outputs));
        let group = channel / outputs;
        sums.fill(T::Sum::default());
        for i in 0..inputs {
            let plane = &data[((image * groups + group) * inputs + i) * input_plane..][..input_plane];
            let weights = &filter[(channel * inputs + i) * kernel..][..kernel];
            add_plane(&axes, plane, weights, &mut sums);
        }
        for (t, sum) in target.iter_mut().zip(&sums) {
            *t = T::narrow(*sum);
        }
    }
}

/// Adds the products of one input plane with the filter of one channel.
fn add_plane<T: Accumulate>(axes: &[WindowAxis; 3], plane: &[T], weights: &[T], sums: &mut [T::Sum]) {
    for_each_row(axes, |k, window_row, position_row, x| {
        let weight = weights[k].widen();
        let first = (window_row * axes[2].output + x.start, x.len());
        let source = &plane[position_row * axes[2].input + first_position(&axes[2], k, x.start)..];
        let target = &mut sums[first.0..first.0 + first.1];
        for (sum, value) in target.iter_mut().zip(source.iter().step_by(axes[2].stride)) {
            *sum += value.widen() * weight;
        }
    });
}

fn convolve_transposed<T: Accumulate>(geometry: &ConvolutionGeometry, data: &[T], filter: &[T], output: &mut [T]) {
    let axes = three_axes(&geometry.axes);
    let (output_plane, input_plane, kernel) = planes(&axes);
    if output_plane == 0 {
        return;
    }
    let (groups, inputs, outputs) = (geometry.groups, geometry.input_channels, geometry.output_channels);
    let mut sums = vec![T::Sum::default(); output_plane];
    for (index, target) in output.chunks_exact_mut(output_plane).enumerate() {
        let (image, channel) = (index / (groups * outputs), index % (groups * outputs));
        let (group, o) = (channel / outputs, channel % outputs);
        sums.fill(T::Sum::default());
        for i in 0..inputs {
            let plane = &data[((image * groups + group) * inputs + i) * input_plane..][..input_plane];
            let weights = &filter[((group * inputs + i) * outputs + o) * kernel..][..kernel];
            scatter_plane(&axes, plane, weights, &mut sums);
        }
        for (t, sum) in target.iter_mut().zip(&sums) {
            *t = T::narrow(*sum);
        }
    }
}

/// Adds one data plane, spread by the filter of one channel, to the output plane.
fn scatter_plane<T: Accumulate>(axes: &[WindowAxis; 3], plane: &[T], weights: &[T], sums: &mut [T::Sum]) {
    for_each_row(axes, |k, window_row, position_row, x| {
        let weight = weights[k].widen();
        let start = window_row * axes[2].output + x.start;
        let source = &plane[start..start + x.len()];
        let target = &mut sums[position_row * axes[2].input + first_position(&axes[2], k, x.start)..];
        for (sum, value) in target.iter_mut().step_by(axes[2].stride).zip(source) {
            *sum += value.widen() * weight;
        }
    });
}

/// Visits, for every element `k` of the filter and every row of windows, the row of positions that it meets and the
/// range of windows along the last axis that meet it.
fn for_each_row(axes: &[WindowAxis; 3], mut visit: impl FnMut(usize, usize, usize, std::ops::Range<usize>)) {
    let [za, ya, xa] = axes;
    for k in 0..za.kernel * ya.kernel * xa.kernel {
        let (kz, ky, kx) = (k / (ya.kernel * xa.kernel), k / xa.kernel % ya.kernel, k % xa.kernel);
        let x = xa.windows_inside(kx);
        if x.is_empty() {
            continue;
        }
        for z in za.windows_inside(kz) {
            let pz = za.position(z, kz) as usize;
            for y in ya.windows_inside(ky) {
                let py = ya.position(y, ky) as usize;
                visit(k, z * ya.output + y, pz * ya.input + py, x.clone());
            }
        }
    }
}

/// The position along the last axis that filter element `k` of window `window` meets.
fn first_position(axis: &WindowAxis, k: usize, window: usize) -> usize {
    axis.position(window, k % axis.kernel) as usize
}

/// The elements of a plane of positions, of a plane of windows, and of a filter.
fn planes(axes: &[WindowAxis; 3]) -> (usize, usize, usize) {
    axes.iter().fold((1, 1, 1), |(i, o, k), axis| (i * axis.input, o * axis.output, k * axis.kernel))
}

/// Checks types and ranks; the number of spatial axes if anything says it. Otherwise the output is set.
fn prepare(context: &mut InferContext<'_>, lists: &WindowLists<'_>, leading: usize) -> OpResult<Option<usize>> {
    context.require_class(0, ElementClass::Numeric)?;
    context.require_class(1, ElementClass::Numeric)?;
    let element_type = context.require_same_type(&[0, 1])?;
    let data = context.require_rank(0, 3..=5)?;
    let filter = context.require_rank(1, leading + 1..=leading + 3)?;
    if let (Some(data), Some(filter)) = (data, filter)
        && data - 2 != filter - leading
    {
        let message = format!(
            "shape {} has {} spatial axes, but shape {} of input 0 has {}",
            context.shape(1),
            filter - leading,
            context.shape(0),
            data - 2
        );
        return Err(OpError::shape(Blame::Input(1), message));
    }
    let rank = data.map(|r| r - 2).or(filter.map(|r| r - leading)).or(lists.spatial_rank());
    if rank.is_none() {
        context.set_output(0, element_type, PartialShape::DYNAMIC);
    }
    Ok(rank)
}

fn infer_channels(context: &InferContext<'_>, groups: Dim, filter_channels: Dim) -> OpResult {
    let channels = context.shape(0).dim(1);
    let expected = groups * filter_channels;
    if channels.compatible(expected) {
        return Ok(());
    }
    let message = format!(
        "the filter of shape {} takes {expected} channels, but the data of shape {} have {channels}",
        context.shape(1),
        context.shape(0)
    );
    Err(OpError::shape(Blame::Input(1), message))
}

fn check_ranks(data: &Shape, filter: &Shape, leading: usize) -> OpResult {
    if (3..=5).contains(&data.rank()) && data.rank() - 2 + leading == filter.rank() {
        return Ok(());
    }
    let message = format!("a filter of shape {filter} does not fit data of shape {data}");
    Err(OpError::shape(Blame::Input(1), message))
}

fn check_channels(channels: usize, groups: usize, filter_channels: usize) -> OpResult {
    if groups.checked_mul(filter_channels) == Some(channels) {
        return Ok(());
    }
    let message = format!("the filter takes {groups} x {filter_channels} channels, but the data have {channels}");
    Err(OpError::shape(Blame::Input(1), message))
}

fn negative_size(axis: usize, size: i128, requested: bool) -> OpError {
    let blame = Blame::Input(if requested { 2 } else { 0 });
    let message = format!("the output would have size {size} along spatial axis {axis}");
    if requested { OpError::value(blame, message) } else { OpError::shape(blame, message) }
}
