//! # Interpolate
//! Resizes a tensor along chosen axes.
//!
//! Specification: `image/interpolate-1`, `image/interpolate-4`, `image/interpolate-11`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | any |
//! | in 1 | target_spatial_shape (1), sizes (4), scales_or_sizes (11) | integer; floating-point for scales (11) | one item an axis |
//! | in 2 | scales (4), axes (11, optional) | floating-point; integer | one item an axis |
//! | in 3 | axes (4, optional) | integer | one item an axis |
//! | out 0 | | that of `data` | that of `data` with the axes resized |
//!
//! Version 4 moves axes and scales to inputs and adds coordinate transformations, nearest modes and `linear_onnx`;
//! version 11 joins sizes and scales and adds the modes of Pillow. Without the input `axes` all axes are resized.
//!
//! Departures from the pages, all as in OpenVINO: an axis whose scale is 1, or whose size does not change, keeps its
//! coordinates; a size is `floor(size * (scale + 1e-6))` in f32 for scales other than 1; `linear` of version 1 is
//! `linear_onnx` up to rank 4. Beyond OpenVINO, `linear_onnx` takes any axes, and integers are rounded to the nearest.
//! `area` of version 1 has no definition and is refused.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, ElementType, INFINITE, PartialShape, Shape, SmallVec, dispatch};

use crate::common::elementwise::unsupported;
use crate::common::interpolation::{
    AxisRule, AxisSizes, AxisTaps, CoordinateTransformationMode, InterpolateMode, NearestMode,
};
use crate::common::memory::{filled, widened_view, write_rounded};
use crate::common::window::check_range;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of Interpolate.
pub static INTERPOLATE: OpDef = OpDef {
    type_name: "Interpolate",
    category: Category::Image,
    versions: &[
        OpVersion::new(1, (1, 3), (2, 2), (1, 1)),
        OpVersion::new(4, (4, 10), (3, 4), (1, 1)),
        OpVersion::new(11, (11, 16), (2, 3), (1, 1)),
    ],
    attributes: InterpolateAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// What says the sizes of the output.
    pub enum ShapeCalculationMode {
        /// The sizes themselves.
        #[default]
        Sizes = "sizes",
        /// Factors of the sizes of the data.
        Scales = "scales",
    }
}

crate::attributes! {
    /// Attributes of Interpolate.
    pub struct InterpolateAttributes {
        /// The resized axes.
        axes: Vec<i64> = "axes", required true, until 1;
        /// How values between elements are found.
        mode: InterpolateMode = "mode", required true;
        /// What says the sizes of the output.
        shape_calculation_mode: ShapeCalculationMode = "shape_calculation_mode", required true, since 4;
        /// How a coordinate of the output becomes one of the input.
        coordinate_transformation_mode: CoordinateTransformationMode = "coordinate_transformation_mode", default "half_pixel", since 4;
        /// Which element is the nearest.
        nearest_mode: NearestMode = "nearest_mode", default "round_prefer_floor", since 4;
        /// Whether the first and last elements meet.
        align_corners: bool = "align_corners", default "true", until 1;
        /// Whether `linear` takes more elements where an axis shrinks.
        antialias: bool = "antialias", default "false";
        /// The zeros added before the data, one item an axis; missing items are 0.
        pads_begin: Vec<i64> = "pads_begin", default "0";
        /// The zeros added after the data, one item an axis; missing items are 0.
        pads_end: Vec<i64> = "pads_end", default "0";
        /// The parameter of the cubic filters.
        cube_coeff: f64 = "cube_coeff", default "-0.75", since 4;
    }
}

/// An Interpolate layer.
#[derive(Debug)]
pub struct Interpolate {
    /// Modes and pads.
    pub attributes: InterpolateAttributes,
    /// The class version: 1, 4 or 11.
    pub class_version: u8,
}

/// The values of the inputs that say what to resize to.
#[derive(Debug, Clone, PartialEq)]
pub enum InterpolateTarget {
    /// One size an axis.
    Sizes(SmallVec<[i64; 8]>),
    /// One factor an axis.
    Scales(SmallVec<[f32; 8]>),
}

/// What the resizing of known shapes does along each axis of the data.
#[derive(Debug, Clone, PartialEq)]
pub struct InterpolatePlan {
    /// The shape of the output.
    pub output_shape: Shape,
    /// The resized axes in the order of the layer.
    pub axes: SmallVec<[usize; 8]>,
    /// The taps of every axis of the data.
    pub taps: Vec<AxisTaps>,
}

impl Interpolate {
    /// What to do along each axis, for known shapes and values. `axes` of version 1 are an attribute.
    ///
    /// # Errors
    /// When the axes are not axes of the data, or the sizes or scales do not fit.
    pub fn plan(&self, data: &Shape, target: &InterpolateTarget, axes: Option<&[i64]>) -> OpResult<InterpolatePlan> {
        let axes = self.resolve_axes(axes, data.rank())?;
        let mut scales: SmallVec<[f32; 8]> = SmallVec::from_elem(1.0, data.rank());
        let mut output_shape: Shape = (0..data.rank()).map(|i| self.padded(i, data[i], axes.contains(&i))).collect();
        self.check_count(target.len(), axes.len())?;
        for (i, axis) in axes.iter().copied().enumerate() {
            let padded = output_shape[axis];
            match target {
                InterpolateTarget::Sizes(sizes) => {
                    output_shape[axis] = usize::try_from(sizes[i]).map_err(|_| self.negative_size(i, sizes[i]))?;
                    scales[axis] = output_shape[axis] as f32 / padded.max(1) as f32;
                }
                InterpolateTarget::Scales(factors) => {
                    scales[axis] = self.check_scale(i, factors[i])?;
                    output_shape[axis] = scaled(padded as i64, scales[axis]) as usize;
                }
            }
        }
        let shrinks = axes.iter().any(|axis| scales[*axis] < 1.0);
        let taps = (0..data.rank())
            .map(|axis| {
                let is_resized = axes.contains(&axis);
                let (pad_begin, pad_end) = self.pads(axis, is_resized);
                let sizes =
                    AxisSizes { data: data[axis], pad_begin, pad_end, output: output_shape[axis], scale: scales[axis] };
                AxisTaps::new(&self.rule(data.rank(), &axes, scales[axis], is_resized, shrinks), &sizes)
            })
            .collect::<OpResult<_>>()?;
        Ok(InterpolatePlan { output_shape, axes, taps })
    }

    fn rule(&self, rank: usize, axes: &[usize], scale: f32, is_resized: bool, shrinks: bool) -> AxisRule {
        let attributes = &self.attributes;
        let mut rule = AxisRule {
            mode: if is_resized { attributes.mode } else { InterpolateMode::Nearest },
            transformation: attributes.coordinate_transformation_mode,
            nearest_mode: attributes.nearest_mode,
            antialias: if attributes.antialias && shrinks { scale } else { 1.0 },
            cube_coefficient: attributes.cube_coeff,
        };
        if self.class_version == 1 {
            self.adapt_version_1(&mut rule, rank, axes);
        }
        rule
    }

    /// Says the modes that version 1 implies.
    fn adapt_version_1(&self, rule: &mut AxisRule, rank: usize, axes: &[usize]) {
        rule.nearest_mode = NearestMode::Simple;
        let is_linear = matches!(self.attributes.mode, InterpolateMode::Linear | InterpolateMode::LinearOnnx);
        if rule.mode == InterpolateMode::Linear && rank < 5 {
            rule.mode = InterpolateMode::LinearOnnx;
        }
        let has_pads = [&self.attributes.pads_begin, &self.attributes.pads_end].into_iter().flatten().any(|p| *p != 0);
        let is_image = rank == 4 && axes.len() == 2 && axes.contains(&2) && axes.contains(&3);
        rule.transformation = if self.attributes.align_corners {
            CoordinateTransformationMode::AlignCorners
        } else if is_linear && !has_pads && !is_image {
            CoordinateTransformationMode::HalfPixel
        } else {
            CoordinateTransformationMode::Asymmetric
        };
    }

    fn pads(&self, axis: usize, is_resized: bool) -> (usize, usize) {
        // The pads of version 1 are those of the spatial axes alone.
        if self.class_version == 1 && !is_resized {
            return (0, 0);
        }
        let at = |list: &[i64]| list.get(axis).map_or(0, |p| usize::try_from(*p).unwrap_or(0));
        (at(&self.attributes.pads_begin), at(&self.attributes.pads_end))
    }

    fn padded(&self, axis: usize, size: usize, is_resized: bool) -> usize {
        let (begin, end) = self.pads(axis, is_resized);
        size.saturating_add(begin).saturating_add(end)
    }

    fn axes_port(&self) -> Option<usize> {
        match self.class_version {
            1 => None,
            4 => Some(3),
            _ => Some(2),
        }
    }

    fn uses_scales(&self) -> bool {
        self.class_version > 1 && self.attributes.shape_calculation_mode == ShapeCalculationMode::Scales
    }

    /// The input that says the sizes.
    fn target_port(&self) -> usize {
        if self.class_version == 4 && self.uses_scales() { 2 } else { 1 }
    }

    fn axes_blame(&self) -> Blame {
        self.axes_port().map_or(Blame::attribute("axes"), Blame::Input)
    }

    fn resolve_axes(&self, axes: Option<&[i64]>, rank: usize) -> OpResult<SmallVec<[usize; 8]>> {
        let given = if self.class_version == 1 { Some(&self.attributes.axes[..]) } else { axes };
        let Some(given) = given else { return Ok((0..rank).collect()) };
        let mut resolved: SmallVec<[usize; 8]> = SmallVec::new();
        for axis in given {
            let index = usize::try_from(*axis).ok().filter(|a| *a < rank).ok_or_else(|| {
                let message = format!("axis {axis} is out of range [0, {}]", rank as i64 - 1);
                OpError::value(self.axes_blame(), message)
            })?;
            if resolved.contains(&index) {
                return Err(OpError::value(self.axes_blame(), format!("axis {axis} appears twice")));
            }
            resolved.push(index);
        }
        if self.is_pillow() && resolved.len() != 2 {
            let message = format!("the modes of Pillow resize exactly 2 axes, not {}", resolved.len());
            return Err(OpError::value(self.axes_blame(), message));
        }
        Ok(resolved)
    }

    /// Whether the mode is one of Pillow's, which rounds integers after each axis.
    pub fn is_pillow(&self) -> bool {
        matches!(self.attributes.mode, InterpolateMode::BilinearPillow | InterpolateMode::BicubicPillow)
    }

    fn check_count(&self, items: usize, axes: usize) -> OpResult {
        if items == axes {
            return Ok(());
        }
        let message = format!("{items} items are given for {axes} axes");
        Err(OpError::shape(Blame::Input(self.target_port()), message))
    }

    fn check_scale(&self, item: usize, scale: f32) -> OpResult<f32> {
        if scale.is_finite() && scale > 0.0 {
            return Ok(scale);
        }
        let message = format!("scale {scale} at position {item} must be a positive number");
        Err(OpError::value(Blame::Input(self.target_port()), message))
    }

    fn negative_size(&self, item: usize, size: i64) -> OpError {
        let message = format!("size {size} at position {item} is negative");
        OpError::value(Blame::Input(self.target_port()), message)
    }

    fn check_inputs(&self, context: &InferContext<'_>) -> OpResult<ElementType> {
        let element_type = context.require_class(0, ElementClass::Numeric)?;
        for port in 1..context.input_count() {
            context.require_rank(port, 1..=1)?;
            let is_scales = match self.class_version {
                4 => port == 2,
                11 => port == 1 && self.uses_scales(),
                _ => false,
            };
            let class = if is_scales { ElementClass::Float } else { ElementClass::Integer };
            context.require_class(port, class)?;
        }
        Ok(element_type)
    }

    fn infer_axis(&self, context: &mut InferContext<'_>, item: usize, padded: Dim) -> OpResult<Dim> {
        let port = self.target_port();
        if self.uses_scales() {
            let Some(scales) = context.constant(port).and_then(|t| scales_of(t.view()).ok()) else {
                return Ok(context.new_dim(0, INFINITE));
            };
            let scale = self.check_scale(item, scales.get(item).copied().unwrap_or(1.0))?;
            if scale == 1.0 {
                return Ok(padded);
            }
            let max = if padded.max() == INFINITE { INFINITE } else { scaled(padded.max(), scale) };
            return Ok(Dim::interval(scaled(padded.min(), scale), max));
        }
        match context.bounds(port).and_then(|b| b.values.get(item)) {
            Some(value) if value.max < 0 => Err(self.negative_size(item, value.max)),
            Some(value) => Ok(value.to_dim()),
            None => Ok(context.new_dim(0, INFINITE)),
        }
    }
}

impl InterpolateTarget {
    fn len(&self) -> usize {
        match self {
            InterpolateTarget::Sizes(sizes) => sizes.len(),
            InterpolateTarget::Scales(scales) => scales.len(),
        }
    }
}

impl Operation for Interpolate {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = self.check_inputs(context)?;
        let data = context.shape(0);
        let Some(rank) = data.rank() else {
            context.set_output(0, element_type, PartialShape::DYNAMIC);
            return Ok(());
        };
        let axes_port = self.axes_port().filter(|port| *port < context.input_count());
        let given = axes_port.and_then(|port| context.integers(port));
        if axes_port.is_some() && given.is_none() {
            context.set_output(0, element_type, PartialShape::of_rank(rank));
            return Ok(());
        }
        let axes = self.resolve_axes(given.as_deref(), rank)?;
        if let Some(items) = context.shape(self.target_port()).dims().and_then(|d| d.first()?.get()) {
            self.check_count(items, axes.len())?;
        }
        let mut dims: SmallVec<[Dim; 8]> = (0..rank)
            .map(|i| {
                let (begin, end) = self.pads(i, axes.contains(&i));
                data.dim(i).offset(begin.saturating_add(end).min(i64::MAX as usize) as i64)
            })
            .collect();
        for (item, axis) in axes.iter().enumerate() {
            dims[*axis] = self.infer_axis(context, item, dims[*axis])?;
        }
        context.set_output(0, element_type, PartialShape::from_dims(dims));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let port = self.target_port();
        let target = if self.uses_scales() {
            InterpolateTarget::Scales(scales_of(context.input(port)?)?)
        } else {
            InterpolateTarget::Sizes(context.integers(port)?)
        };
        let axes = match self.axes_port().filter(|port| *port < context.input_count()) {
            Some(port) => Some(context.integers(port)?),
            None => None,
        };
        let plan = self.plan(data.shape(), &target, axes.as_deref())?;
        if self.attributes.mode == InterpolateMode::Nearest {
            return evaluate_nearest(context, &plan);
        }
        let is_rounded_between = self.is_pillow() && !data.element_type().is_float();
        context.output(0, &plan.output_shape)?;
        let mut shape = data.shape().clone();
        let mut values = widened_view(data)?;
        for axis in pass_order(&plan, &shape, self.is_pillow()) {
            if plan.taps[axis].is_identity(shape[axis]) {
                continue;
            }
            values = apply(&values, &mut shape, axis, &plan.taps[axis])?;
            if is_rounded_between {
                round_to(data.element_type(), &mut values);
            }
        }
        write_rounded(context.output(0, &plan.output_shape)?, &values)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

/// Every element of the output is one of the data, or zero where padding is the nearest.
fn evaluate_nearest(context: &mut EvaluateContext<'_>, plan: &InterpolatePlan) -> OpResult {
    let data = context.input(0)?;
    let strides = data.shape().strides();
    let element_type = data.element_type();
    let mut output = context.output(0, &plan.output_shape)?;
    dispatch!(element_type, T in [native] => {
        let (source, target) = (data.slice::<T>()?, output.slice_mut::<T>()?);
        let mut index: SmallVec<[usize; 8]> = SmallVec::from_elem(0, plan.output_shape.rank());
        for value in target.iter_mut() {
            let mut offset = Some(0);
            for (axis, x) in index.iter().enumerate() {
                offset = match (offset, plan.taps[axis].of(*x).0.first()) {
                    (Some(offset), Some(i)) => Some(offset + i * strides[axis]),
                    _ => None,
                };
            }
            *value = offset.map_or(T::default(), |offset| source[offset]);
            advance(&mut index, &plan.output_shape);
        }
        Ok(())
    } else { Err(unsupported(element_type)) })
}

fn advance(index: &mut [usize], shape: &[usize]) {
    for axis in (0..index.len()).rev() {
        index[axis] += 1;
        if index[axis] < shape[axis] {
            return;
        }
        index[axis] = 0;
    }
}

/// The order of the axes: those that shrink most first, so that no intermediate tensor exceeds both data and output.
/// Pillow goes along the second of its axes first.
pub fn pass_order(plan: &InterpolatePlan, data: &Shape, is_pillow: bool) -> SmallVec<[usize; 8]> {
    let mut order: SmallVec<[usize; 8]> = (0..data.rank()).collect();
    let ratio = |axis: usize| plan.output_shape[axis] as f64 / data[axis].max(1) as f64;
    order.sort_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
    if is_pillow {
        order.retain(|axis| !plan.axes.contains(axis));
        order.extend(plan.axes.iter().rev().copied());
    }
    order
}

/// Interpolates along one axis; `shape` becomes that of the result.
fn apply(values: &[f64], shape: &mut Shape, axis: usize, taps: &AxisTaps) -> OpResult<Vec<f64>> {
    let inner: usize = shape[axis + 1..].iter().product();
    let size = shape[axis];
    shape[axis] = taps.len();
    let mut result = filled::<f64>(shape.elements())?;
    if result.is_empty() {
        return Ok(result);
    }
    for (i, target) in result.chunks_exact_mut(inner).enumerate() {
        let (outer, x) = (i / taps.len(), i % taps.len());
        let (indices, weights) = taps.of(x);
        for (index, weight) in indices.iter().zip(weights) {
            let source = &values[(outer * size + index) * inner..][..inner];
            for (t, s) in target.iter_mut().zip(source) {
                *t += s * weight;
            }
        }
    }
    Ok(result)
}

/// Rounds to the integers that an element type can hold.
fn round_to(element_type: ElementType, values: &mut [f64]) {
    dispatch!(element_type, T in [integer] => {
        for value in values {
            *value = value.round().clamp(T::MIN as f64, T::MAX as f64);
        }
    } else {});
}

/// The size that a scale gives.
fn scaled(size: i64, scale: f32) -> i64 {
    if scale == 1.0 {
        return size;
    }
    // Beyond the added epsilon, the conversion saturates at both ends.
    ((size as f32 * (scale + 1e-6)) as i64).clamp(0, INFINITE - 1)
}

fn scales_of(view: ovir_tensor::TensorView<'_>) -> OpResult<SmallVec<[f32; 8]>> {
    Ok(widened_view(view)?.into_iter().map(|v| v as f32).collect())
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = InterpolateAttributes::read(context.attributes);
    check_range(context.attributes, "pads_begin", &attributes.pads_begin, 0);
    check_range(context.attributes, "pads_end", &attributes.pads_end, 0);
    let is_known = match attributes.mode {
        InterpolateMode::Nearest | InterpolateMode::Linear | InterpolateMode::Cubic => true,
        // OpenVINO reads `linear_onnx` in version 1 too.
        InterpolateMode::LinearOnnx => true,
        InterpolateMode::BilinearPillow | InterpolateMode::BicubicPillow => context.class_version >= 11,
        InterpolateMode::Area => false,
    };
    if !is_known {
        let message = format!("mode {:?} cannot be computed in version {}", attributes.mode, context.class_version);
        context.attributes.report(OpError::attribute("mode", message));
    }
    Arc::new(Interpolate { attributes, class_version: context.class_version })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(mode: &str, calculation: &str) -> Case {
        Case::new("Interpolate", "opset11").attribute("mode", mode).attribute("shape_calculation_mode", calculation)
    }

    #[test]
    fn the_example_of_the_specification() {
        let pillow = case("bicubic_pillow", "sizes").attribute("pads_begin", "0").attribute("pads_end", "0");
        assert_eq!(pillow.infer(&["f32[1,2,48,80]", "i64[2]=24,160", "i64[2]=2,3"]), ["f32[1,2,24,160]"]);
        let old = Case::new("Interpolate", "opset1").attribute("axes", "2,3").attribute("align_corners", "0");
        let old = old.attribute("mode", "linear");
        assert_eq!(old.infer(&["f32[1,2,48,80]", "i64[2]=50,60"]), ["f32[1,2,50,60]"]);
    }

    #[test]
    fn nearest_and_linear() {
        let data = tensor(&[1f32, 2.0, 3.0], [3]);
        let run = |case: Case| case.run(&[data.clone(), tensor(&[6i64], [1])]).unwrap().remove(0);
        assert_eq!(run(case("nearest", "sizes")), tensor(&[1f32, 1.0, 2.0, 2.0, 3.0, 3.0], [6]));
        assert_eq!(run(case("linear_onnx", "sizes")), tensor(&[1f32, 1.25, 1.75, 2.25, 2.75, 3.0], [6]));
        let corners = case("linear", "sizes").attribute("coordinate_transformation_mode", "align_corners");
        assert_eq!(run(corners), tensor(&[1f32, 1.4, 1.8, 2.2, 2.6, 3.0], [6]));
    }

    #[test]
    fn pads_are_zeros() {
        let padded = case("nearest", "scales").attribute("pads_begin", "1").attribute("pads_end", "1");
        let inputs = [tensor(&[5i32, 6], [2]), tensor(&[2f32], [1])];
        assert_eq!(padded.run(&inputs).unwrap()[0], tensor(&[0i32, 0, 5, 5, 6, 6, 0, 0], [8]));
    }

    #[test]
    fn unknown_sizes_stay_intervals() {
        let sizes = case("nearest", "sizes");
        assert_eq!(sizes.infer(&["f32[1,2,?,4]", "i64[2]=5..7,9", "i64[2]=3,2"]), ["f32[1,2,9,5..7]"]);
        assert_eq!(sizes.infer(&["f32[1,2,?,4]", "i64[?]", "i64[?]"]), ["f32[?,?,?,?]"]);
        assert_eq!(sizes.infer(&["f32[...]", "i64[?]"]), ["f32[...]"]);
        assert_eq!(sizes.infer_error(&["f32[1,2]", "i64[1]=4", "i64[1]=2"]), "input 2: axis 2 is out of range [0, 1]");
        assert_eq!(sizes.infer_error(&["f32[1,2]", "i64[1]=4"]), "input 1: 1 items are given for 2 axes");
    }
}
