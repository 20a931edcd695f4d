//! Interpolate of f32, u8 and i8: along two neighbouring axes with at most two taps a coordinate by tables, otherwise along
//! one axis after the other.

use std::sync::{Arc, Mutex, PoisonError};

use ovir_graph::Node;
use ovir_kernels::blocked::BLOCK;
use ovir_kernels::interpolate::{
    InterpolationTable, interpolate, interpolate_lanes, interpolate_nearest, interpolate_scratch_len,
};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::map::{ConvertTo, convert};
use ovir_kernels::resample::{Element, Float, ResamplePlanes, ResampleTaps, resample, round_to_range};
use ovir_ops::common::interpolation::{AxisTaps, InterpolateMode};
use ovir_ops::image::interpolate::{Interpolate, InterpolatePlan, InterpolateTarget, ShapeCalculationMode, pass_order};
use ovir_ops::{Blame, OpError, OpResult, Operation, ValueFacts};
use ovir_tensor::{ElementType, NativeElement, Shape, SmallVec};

use super::layout::{around, axis_of};
use super::parts::{floats, kernel_error, scratch_f32};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct InterpolateKernel {
    isa: Isa,
    element_type: ElementType,
    operation: Arc<dyn Operation>,
    /// The factors, where they say the sizes; otherwise the shape of the output does.
    scales: Option<SmallVec<[f32; 8]>>,
    axes: Option<SmallVec<[i64; 8]>>,
    /// Whether the data lies in blocks of channels.
    is_blocked: bool,
    /// The tables of the shapes that came last: they are made when shapes change only.
    last: Mutex<Option<Arc<Tables>>>,
    /// The same of layers that no tables do.
    last_passes: Mutex<Option<Arc<Passes>>>,
}

/// Resizing by any taps.
struct Passes {
    data: Shape,
    output: Shape,
    way: Way,
}

/// How a layer is resized: f32 in f32, integers in f64, so that they round as the reference does.
enum Way {
    /// f32 along one axis after the other.
    Floats(Vec<Pass<f32>>),
    /// Integers along one axis after the other.
    Doubles(Vec<Pass<f64>>),
    /// f32 along two neighbouring axes.
    FloatPlanes(ResamplePlanes<f32>),
    /// Integers along two neighbouring axes.
    DoublePlanes(ResamplePlanes<f64>),
}

/// Resizing along one axis.
struct Pass<F> {
    axis: usize,
    outer: usize,
    inner: usize,
    taps: ResampleTaps<F>,
}

impl<F: Float> Pass<F> {
    fn output_len(&self) -> usize {
        self.outer * self.inner * self.taps.output()
    }
}

/// The tables of one pair of shapes.
struct Tables {
    data: Shape,
    output: Shape,
    planes: usize,
    /// Elements that lie side by side at one position: channels of a block, or those of axes behind the two.
    lanes: usize,
    rows: InterpolationTable,
    columns: InterpolationTable,
}

/// Claims Interpolate with constant axes and, where they are given, constant factors.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    claim_with(context, false)
}

/// Claims Interpolate on blocks of channels.
pub(crate) fn claim_blocked(context: &mut ClaimContext<'_>) -> Option<Claim> {
    claim_with(context, true)
}

/// Whether a layer takes nearest elements.
pub(crate) fn takes_nearest(node: &Node) -> bool {
    let found = node.operation.downcast_ref::<Interpolate>();
    found.is_some_and(|found| found.attributes.mode == InterpolateMode::Nearest)
}

/// Whether a layer resizes the last two of four axes, as far as shapes tell, with two taps a coordinate.
pub(crate) fn keeps_channels(
    node: &Node,
    inputs: &[&ValueFacts],
    output: &ValueFacts,
    is_constant: &dyn Fn(usize) -> bool,
) -> bool {
    let Some(found) = node.operation.downcast_ref::<Interpolate>() else { return false };
    let attributes = &found.attributes;
    let axes: Option<SmallVec<[i64; 8]>> = match (found.class_version, inputs) {
        (1, _) => Some(attributes.axes.iter().copied().collect()),
        (4, [_, _, _, axes, ..]) | (11, [_, _, axes, ..]) => axes.integers(),
        // All axes are named, of which those keep their sizes that are still.
        (4 | 11, [data, ..]) => match (data.shape.dims(), output.shape.dims()) {
            (Some([n, c, ..]), Some([m, d, ..])) => {
                (n.is_same(*m) && c.is_same(*d)).then(|| SmallVec::from_slice(&[2, 3]))
            }
            _ => None,
        },
        _ => None,
    };
    let is_plane = |axis: &i64| matches!(axis_of(*axis, 4), Some(2 | 3));
    let is_simple =
        matches!(attributes.mode, InterpolateMode::Nearest | InterpolateMode::Linear | InterpolateMode::LinearOnnx);
    inputs.first().is_some_and(|data| data.shape.rank() == Some(4))
        && axes.is_some_and(|axes| axes.iter().all(is_plane))
        && is_simple
        && !attributes.antialias
        && attributes.pads_begin.iter().chain(&attributes.pads_end).all(|pad| *pad == 0)
        && (attributes.shape_calculation_mode == ShapeCalculationMode::Sizes || (1..inputs.len()).all(is_constant))
}

fn claim_with(context: &mut ClaimContext<'_>, is_blocked: bool) -> Option<Claim> {
    let operation = Arc::clone(&context.node.operation);
    let found = operation.downcast_ref::<Interpolate>()?;
    let element_type = context.inputs.first()?.element_type;
    let can_be_general = matches!(element_type, ElementType::F32 | ElementType::U8 | ElementType::I8);
    let can_be_blocked =
        element_type == ElementType::F32 || element_type == ElementType::U8 && takes_nearest(context.node);
    if !can_be_general || is_blocked && !can_be_blocked {
        return None;
    }
    let uses_scales =
        found.class_version > 1 && found.attributes.shape_calculation_mode == ShapeCalculationMode::Scales;
    let (target_port, axes_port) = match found.class_version {
        1 => (1, None),
        4 => (if uses_scales { 2 } else { 1 }, Some(3)),
        _ => (1, Some(2)),
    };
    let scales = match uses_scales {
        true => Some(SmallVec::from_vec(floats(&(context.constant)(target_port)?)?)),
        false => None,
    };
    let axes = match axes_port.and_then(|port| context.inputs.get(port)) {
        Some(facts) => Some(facts.integers()?),
        None => None,
    };
    let kernel = InterpolateKernel {
        isa: isa::detect(),
        element_type,
        operation,
        scales,
        axes,
        is_blocked,
        last: Mutex::new(None),
        last_passes: Mutex::new(None),
    };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

impl InterpolateKernel {
    /// The tables for the shapes at hand; `None` if the kernel does not do them.
    fn tables(&self, data: &Shape, output: &Shape) -> Option<Arc<Tables>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tables) = last.as_ref().filter(|tables| tables.data == *data && tables.output == *output) {
            return Some(Arc::clone(tables));
        }
        let tables = Arc::new(self.make_tables(data, output)?);
        *last = Some(Arc::clone(&tables));
        Some(tables)
    }

    /// The passes for the shapes at hand; `None` if the kernel does not do them.
    fn passes(&self, data: &Shape, output: &Shape) -> Option<Arc<Passes>> {
        let mut last = self.last_passes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(passes) = last.as_ref().filter(|passes| passes.data == *data && passes.output == *output) {
            return Some(Arc::clone(passes));
        }
        let passes = Arc::new(self.make_passes(data, output)?);
        *last = Some(Arc::clone(&passes));
        Some(passes)
    }

    fn make_passes(&self, data: &Shape, output: &Shape) -> Option<Passes> {
        let operation = self.operation.downcast_ref::<Interpolate>()?;
        let plan = self.plan(operation, data, output)?;
        if self.is_blocked {
            return None;
        }
        let order = pass_order(&plan, data, operation.is_pillow());
        let way = match self.element_type {
            ElementType::F32 => {
                let passes = passes_of(&plan, data, &order, Evens::Divided)?;
                planes_of(passes).map_or_else(Way::Floats, Way::FloatPlanes)
            }
            // Sums of integers are finite, so that an element without weight adds nothing to them.
            _ if !operation.is_pillow() => {
                let passes = passes_of(&plan, data, &order, Evens::WithoutWeight)?;
                planes_of(passes).map_or_else(Way::Doubles, Way::DoublePlanes)
            }
            _ => Way::Doubles(passes_of(&plan, data, &order, Evens::No)?),
        };
        Some(Passes { data: data.clone(), output: output.clone(), way })
    }

    /// What the layer does along each axis.
    fn plan(&self, operation: &Interpolate, data: &Shape, output: &Shape) -> Option<InterpolatePlan> {
        if output.rank() != data.rank() || output.elements() == 0 || data.elements() == 0 {
            return None;
        }
        let target = match &self.scales {
            Some(scales) => InterpolateTarget::Scales(scales.clone()),
            None => InterpolateTarget::Sizes(self.sizes(operation, output)?),
        };
        let plan = operation.plan(data, &target, self.axes.as_deref()).ok()?;
        (plan.output_shape == *output).then_some(plan)
    }

    /// Takes the nearest elements of integers.
    fn run_nearest(&self, tables: &Tables, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let Tables { planes, lanes, rows, columns, .. } = tables;
        let (values, target) = (io.inputs[0].bytes(), output.bytes_mut());
        interpolate_nearest(*planes, *lanes, rows, columns, values, target).map_err(kernel_error)
    }

    fn run_floats(&self, passes: &[Pass<f32>], io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let (values, target) = (io.inputs[0].slice::<f32>()?, output.slice_mut::<f32>()?);
        let mut rest = scratch_f32(io.scratch);
        let mut held: &[f32] = values;
        let Some((last, before)) = passes.split_last() else { return Ok(()) };
        for pass in before {
            let (next, free) = rest.split_at_mut(pass.output_len());
            resample(self.isa, [pass.outer, pass.inner], &pass.taps, held, next).map_err(kernel_error)?;
            (held, rest) = (next, free);
        }
        resample(self.isa, [last.outer, last.inner], &last.taps, held, target).map_err(kernel_error)
    }

    fn run_integers<T>(&self, passes: &[Pass<f64>], io: StepIo<'_, '_>, (low, high): (T, T)) -> OpResult
    where
        T: NativeElement + ConvertTo<f64>,
        f64: ConvertTo<T>,
    {
        let [output] = io.outputs else { return Ok(()) };
        let (low, high) = (low.convert_to(), high.convert_to());
        let is_rounded_between = self.operation.downcast_ref::<Interpolate>().is_some_and(Interpolate::is_pillow);
        let values = io.inputs[0].slice::<T>()?;
        let rest: &mut [f64] = ovir_tensor::cast_mut(io.scratch);
        let (held, mut rest) = rest.split_at_mut(values.len());
        convert(self.isa, values, held).map_err(kernel_error)?;
        let mut held: &[f64] = held;
        for (index, pass) in passes.iter().enumerate() {
            let (next, free) = rest.split_at_mut(pass.output_len());
            resample(self.isa, [pass.outer, pass.inner], &pass.taps, held, next).map_err(kernel_error)?;
            if is_rounded_between || index + 1 == passes.len() {
                round_to_range(self.isa, low, high, next);
            }
            (held, rest) = (next, free);
        }
        convert(self.isa, held, output.slice_mut::<T>()?).map_err(kernel_error)
    }

    fn run_planes<T, F>(&self, planes: &ResamplePlanes<F>, io: StepIo<'_, '_>) -> OpResult
    where
        T: NativeElement + Element<F>,
        F: Float + Element<F> + NativeElement,
    {
        let [output] = io.outputs else { return Ok(()) };
        let (values, target) = (io.inputs[0].slice::<T>()?, output.slice_mut::<T>()?);
        planes.run(self.isa, values, target, ovir_tensor::cast_mut(io.scratch)).map_err(kernel_error)
    }

    fn make_tables(&self, data: &Shape, output: &Shape) -> Option<Tables> {
        let operation = self.operation.downcast_ref::<Interpolate>()?;
        let plan = self.plan(operation, data, output)?;
        let is_nearest = operation.attributes.mode == InterpolateMode::Nearest;
        if data.rank() < 2 || (self.element_type != ElementType::F32 && !is_nearest) {
            return None;
        }
        let is_still = |axis: usize| plan.taps[axis].is_identity(data[axis]);
        // The two axes are the last ones unless further axes, such as the channels of an image, stand still behind them.
        let moving = if self.is_blocked { None } else { (0..data.rank()).rposition(|axis| !is_still(axis)) };
        let first = moving.unwrap_or(data.rank() - 1).max(1).checked_sub(1)?;
        let others = (0..data.rank()).filter(|axis| *axis != first && *axis != first + 1);
        if !others.into_iter().all(is_still) {
            return None;
        }
        let (planes, lanes) = match self.is_blocked {
            true => (data.first()? * data.get(1)?.div_ceil(BLOCK), BLOCK),
            false => (data.get(..first)?.iter().product(), data.get(first + 2..)?.iter().product()),
        };
        let (rows, columns) = (table(&plan.taps[first], data[first])?, table(&plan.taps[first + 1], data[first + 1])?);
        Some(Tables { data: data.clone(), output: output.clone(), planes, lanes, rows, columns })
    }

    /// The sizes that the layer was given: those of the output along its axes.
    fn sizes(&self, operation: &Interpolate, output: &Shape) -> Option<SmallVec<[i64; 8]>> {
        let size = |axis: usize| output.get(axis).and_then(|size| i64::try_from(*size).ok());
        let axes = match operation.class_version {
            1 => Some(&operation.attributes.axes[..]),
            _ => self.axes.as_deref(),
        };
        match axes {
            Some(axes) => axes.iter().map(|axis| size(axis_of(*axis, output.rank())?)).collect(),
            None => (0..output.rank()).map(size).collect(),
        }
    }
}

/// The most taps of a coordinate that are made as many as those of the others.
const FEW: usize = 4;

/// How coordinates with few taps get as many as the others.
#[derive(Clone, Copy, PartialEq)]
enum Evens {
    No,
    /// By taps without weight, which are for finite values.
    WithoutWeight,
    /// By the last tap in parts, whose sums are exact.
    Divided,
}

/// Resizing along each axis that does not stand still, in an order; `None` if none moves.
fn passes_of<F: Float>(plan: &InterpolatePlan, data: &Shape, order: &[usize], evens: Evens) -> Option<Vec<Pass<F>>> {
    let (mut passes, mut shape) = (Vec::new(), data.clone());
    for &axis in order {
        let taps = &plan.taps[axis];
        if !taps.is_identity(shape[axis]) {
            passes.push(pass(&shape, axis, taps, evens)?);
            shape[axis] = taps.len();
        }
    }
    (!passes.is_empty()).then_some(passes)
}

/// Resizing a shape along an axis.
fn pass<F: Float>(shape: &Shape, axis: usize, taps: &AxisTaps, evens: Evens) -> Option<Pass<F>> {
    let [outer, size, inner] = around(shape, axis)?;
    let mut copied = ResampleTaps::new(size).ok()?;
    let most = (0..taps.len()).map(|x| taps.of(x).0.len()).max().unwrap_or(0);
    // A coordinate that takes nothing has no tap to divide.
    let is_any_without = (0..taps.len()).any(|x| taps.of(x).0.is_empty());
    let can_be_even = match evens {
        Evens::No => false,
        Evens::WithoutWeight => true,
        Evens::Divided => !is_any_without,
    };
    let least = if can_be_even && most <= FEW { most } else { 0 };
    for x in 0..taps.len() {
        let (positions, weights) = taps.of(x);
        let (mut positions, mut weights) = (positions.to_vec(), weights.to_vec());
        let last = positions.last().copied().unwrap_or(0);
        positions.resize(positions.len().max(least), last);
        if evens == Evens::Divided
            && let Some(last) = weights.pop()
        {
            // Halves, of which the first is halved again: each sum of parts from the first on is the part that follows.
            let parts = positions.len() - weights.len();
            let halves = (0..parts).map(|part| last / f64::from(1u32 << (parts - part.max(1))));
            weights.extend(halves);
        }
        weights.resize(positions.len(), 0.0);
        copied.push(&positions, &weights).ok()?;
    }
    Some(Pass { axis, outer, inner, taps: copied })
}

/// Two passes along neighbouring axes as one; otherwise the passes.
fn planes_of<F: Float>(passes: Vec<Pass<F>>) -> Result<ResamplePlanes<F>, Vec<Pass<F>>> {
    let [first, second] = &passes[..] else { return Err(passes) };
    if first.axis.abs_diff(second.axis) != 1 {
        return Err(passes);
    }
    let columns_first = first.axis > second.axis;
    let (rows, columns) = if columns_first { (second, first) } else { (first, second) };
    let made = ResamplePlanes::new(rows.outer, columns.inner, rows.taps.clone(), columns.taps.clone(), columns_first);
    made.ok_or(passes)
}

/// The table of an axis whose coordinates mix two elements at most, with weights that sum up to 1.
fn table(taps: &AxisTaps, data: usize) -> Option<InterpolationTable> {
    let mut entries = Vec::with_capacity(taps.len());
    for x in 0..taps.len() {
        let (positions, weights) = taps.of(x);
        if (weights.iter().sum::<f64>() - 1.0).abs() > 1e-6 {
            return None;
        }
        entries.push(match (positions, weights) {
            ([only], _) => (*only, *only, 0.0),
            ([first, second], [_, weight]) => (*first, *second, *weight as f32),
            _ => return None,
        });
    }
    InterpolationTable::new(data, &entries).ok()
}

impl Kernel for InterpolateKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let ([data, ..], [output]) = (shapes.inputs, shapes.outputs) else { return false };
        self.tables(data, output).is_some() || self.passes(data, output).is_some()
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let ([data, ..], [output]) = (shapes.inputs, shapes.outputs) else { return 0 };
        match (self.tables(data, output), self.element_type) {
            (Some(t), ElementType::F32) if t.lanes == 1 => {
                interpolate_scratch_len(t.planes, &t.rows, &t.columns).saturating_mul(4)
            }
            (Some(_), _) => 0,
            (None, _) => self.passes(data, output).map_or(0, |passes| match &passes.way {
                Way::Floats(passes) => {
                    let before = passes.split_last().map_or(&[][..], |(_, before)| before);
                    before.iter().map(Pass::output_len).sum::<usize>().saturating_mul(4)
                }
                Way::Doubles(passes) => {
                    let results: usize = passes.iter().map(Pass::output_len).sum();
                    data.elements().saturating_add(results).saturating_mul(8)
                }
                Way::FloatPlanes(planes) => planes.scratch_len().saturating_mul(4),
                Way::DoublePlanes(planes) => planes.scratch_len().saturating_mul(8),
            }),
        }
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let ([data, ..], [output]) = (shapes.inputs, shapes.outputs) else { return 0 };
        let passes = if self.tables(data, output).is_some() { None } else { self.passes(data, output) };
        match passes.as_ref().map(|passes| &passes.way) {
            Some(Way::FloatPlanes(planes)) => planes.nanoseconds(),
            Some(Way::DoublePlanes(planes)) => planes.nanoseconds(),
            _ => output.elements() as u64,
        }
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let ([data, ..], [output]) = (io.inputs, &*io.outputs) else { return Ok(()) };
        let Some(tables) = self.tables(data.shape(), output.shape()) else {
            let passes = self.passes(data.shape(), output.shape());
            let passes = passes.ok_or_else(|| OpError::shape(Blame::Input(0), "the kernel does not fit the data"))?;
            let is_signed = self.element_type == ElementType::I8;
            return match &passes.way {
                Way::Floats(passes) => self.run_floats(passes, io),
                Way::Doubles(passes) if is_signed => self.run_integers::<i8>(passes, io, (i8::MIN, i8::MAX)),
                Way::Doubles(passes) => self.run_integers::<u8>(passes, io, (u8::MIN, u8::MAX)),
                Way::FloatPlanes(planes) => self.run_planes::<f32, f32>(planes, io),
                Way::DoublePlanes(planes) if is_signed => self.run_planes::<i8, f64>(planes, io),
                Way::DoublePlanes(planes) => self.run_planes::<u8, f64>(planes, io),
            };
        };
        if self.element_type != ElementType::F32 {
            return self.run_nearest(&tables, io);
        }
        let [output] = io.outputs else { return Ok(()) };
        let (values, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
        let Tables { planes, lanes, rows, columns, .. } = &*tables;
        if *lanes > 1 {
            return interpolate_lanes(self.isa, *planes, *lanes, rows, columns, values, target).map_err(kernel_error);
        }
        interpolate(self.isa, *planes, rows, columns, values, target, scratch_f32(io.scratch)).map_err(kernel_error)
    }
}
