//! Interpolate along two neighbouring axes with at most two taps a coordinate, f32.

use std::sync::{Arc, Mutex, PoisonError};

use ovir_graph::Node;
use ovir_kernels::blocked::BLOCK;
use ovir_kernels::interpolate::{InterpolationTable, interpolate, interpolate_lanes, interpolate_scratch_len};
use ovir_kernels::isa::{self, Isa};
use ovir_ops::common::interpolation::{AxisTaps, InterpolateMode};
use ovir_ops::image::interpolate::{Interpolate, InterpolateTarget, ShapeCalculationMode};
use ovir_ops::{Blame, OpError, OpResult, Operation, ValueFacts};
use ovir_tensor::{ElementType, Shape, SmallVec};

use super::layout::axis_of;
use super::parts::{floats, kernel_error, scratch_f32};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct InterpolateKernel {
    isa: Isa,
    operation: Arc<dyn Operation>,
    /// The factors, where they say the sizes; otherwise the shape of the output does.
    scales: Option<SmallVec<[f32; 8]>>,
    axes: Option<SmallVec<[i64; 8]>>,
    /// Whether the data lies in blocks of channels.
    is_blocked: bool,
    /// The tables of the shapes that came last: they are made when shapes change only.
    last: Mutex<Option<Arc<Tables>>>,
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

/// Claims Interpolate of f32 with constant axes and, where they are given, constant factors.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    claim_with(context, false)
}

/// Claims Interpolate on blocks of channels.
pub(crate) fn claim_blocked(context: &mut ClaimContext<'_>) -> Option<Claim> {
    claim_with(context, true)
}

/// Whether a layer resizes the last two of four axes, as far as shapes tell, with two taps a coordinate.
pub(crate) fn keeps_channels(node: &Node, inputs: &[&ValueFacts], is_constant: &dyn Fn(usize) -> bool) -> bool {
    let Some(found) = node.operation.downcast_ref::<Interpolate>() else { return false };
    let attributes = &found.attributes;
    let axes: Option<SmallVec<[i64; 8]>> = match (found.class_version, inputs) {
        (1, _) => Some(attributes.axes.iter().copied().collect()),
        (4, [_, _, _, axes, ..]) | (11, [_, _, axes, ..]) => axes.integers(),
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
    if context.inputs.first()?.element_type != ElementType::F32 {
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
    let kernel = InterpolateKernel { isa: isa::detect(), operation, scales, axes, is_blocked, last: Mutex::new(None) };
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

    fn make_tables(&self, data: &Shape, output: &Shape) -> Option<Tables> {
        let operation = self.operation.downcast_ref::<Interpolate>()?;
        if output.rank() != data.rank() || output.elements() == 0 || data.elements() == 0 {
            return None;
        }
        let target = match &self.scales {
            Some(scales) => InterpolateTarget::Scales(scales.clone()),
            None => InterpolateTarget::Sizes(self.sizes(operation, output)?),
        };
        let plan = operation.plan(data, &target, self.axes.as_deref()).ok()?;
        if data.rank() < 2 || plan.output_shape != *output {
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
        self.tables(data, output).is_some()
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let ([data, ..], [output]) = (shapes.inputs, shapes.outputs) else { return 0 };
        let tables = self.tables(data, output).filter(|tables| tables.lanes == 1);
        tables.map_or(0, |t| interpolate_scratch_len(t.planes, &t.rows, &t.columns).saturating_mul(4))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = &io.inputs[0];
        let tables = self.tables(data.shape(), output.shape());
        let tables = tables.ok_or_else(|| OpError::shape(Blame::Input(0), "the kernel does not fit the data"))?;
        let (values, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
        let Tables { planes, lanes, rows, columns, .. } = &*tables;
        if *lanes > 1 {
            return interpolate_lanes(self.isa, *planes, *lanes, rows, columns, values, target).map_err(kernel_error);
        }
        interpolate(self.isa, *planes, rows, columns, values, target, scratch_f32(io.scratch)).map_err(kernel_error)
    }
}
