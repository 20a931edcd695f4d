//! What the scatter operations share: where updates go, and how they meet what is there.
//!
//! Order is part of the meaning: updates are applied in row-major order, so the last one wins where several go to one
//! place, and sums are the same for any number of threads. Every index is checked before anything is written, because
//! an output that is written in place is the caller's state.

use std::ops::Range;

use ovir_tensor::{
    Bounds, ElementType, MAX_BOUNDS_ELEMENTS, NativeElement, Shape, SmallVec, Tensor, TensorView, TensorViewMut, Value,
    bf16, dispatch, f16,
};

use super::index::{IndexRange, Indices, coordinates};
use super::movement::{Cell, View, copy_all, dispatch_cell, unmovable};
use crate::infer::integer_range;
use crate::{Blame, EvaluateContext, InferContext, OpError, OpResult};

/// How an update meets the value that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Combine {
    /// It replaces it.
    Replace,
    /// Sum; OR of booleans.
    Sum,
    /// Difference; XOR of booleans.
    Sub,
    /// Product; AND of booleans.
    Prod,
    /// The smaller one, NaN if either is; AND of booleans.
    Min,
    /// The larger one, NaN if either is; OR of booleans.
    Max,
    /// The mean of all that meet, rounded down for integers.
    Mean,
}

/// How updates are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reduction {
    /// The function.
    pub combine: Combine,
    /// Whether the value of the data takes part.
    pub use_init: bool,
}

impl Reduction {
    /// Updates replace values.
    pub(crate) const NONE: Reduction = Reduction { combine: Combine::Replace, use_init: true };

    /// Whether a place needs a count of the updates that it got.
    fn counts(self) -> bool {
        self.combine == Combine::Mean || !self.use_init
    }
}

/// Where updates go in a tensor of data.
pub(crate) enum Places<'a> {
    /// Whole slices along one axis: ScatterUpdate.
    Slices { indices: Indices<'a>, outer: usize, size: usize, inner: usize },
    /// Single elements; off the axis, each goes where it stands: ScatterElementsUpdate.
    Elements { indices: Indices<'a>, data: &'a Shape, axis: usize },
    /// Blocks that rows of coordinates address: ScatterNDUpdate.
    Blocks { indices: Indices<'a>, data: &'a Shape, depth: usize },
}

impl Places<'_> {
    /// Calls `visit(place in the data, place in the updates, length)` in the row-major order of the updates. The
    /// indices must have been checked.
    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(usize, usize, usize)) {
        match self {
            Places::Slices { indices, outer, size, inner } => {
                let count = indices.len();
                for block in 0..*outer {
                    for k in 0..count {
                        if let Some(index) = indices.resolve(k, *size, IndexRange::FromStart) {
                            visit((block * size + index) * inner, (block * count + k) * inner, *inner);
                        }
                    }
                }
            }
            Places::Elements { indices, data, axis } => each_element(indices, data, *axis, visit),
            Places::Blocks { indices, data, depth } => {
                let strides = data.strides();
                let inner: usize = data[*depth..].iter().product();
                let rows = match depth {
                    0 => indices.shape()[..indices.shape().rank() - 1].iter().product(),
                    depth => indices.len() / depth,
                };
                for row in 0..rows {
                    let mut place = 0;
                    for j in 0..*depth {
                        let index = indices.resolve(row * depth + j, data[j], IndexRange::Wrapping);
                        place += index.unwrap_or(0) * strides[j];
                    }
                    visit(place, row * inner, inner);
                }
            }
        }
    }
}

impl Places<'_> {
    /// Appends the byte ranges of the data that the updates change, or says that it cannot tell: for elements that do
    /// not take whole bytes, and where so many places change that keeping everything is cheaper.
    pub(crate) fn overwritten(&self, inputs: &[TensorView<'_>], ranges: &mut Vec<Range<usize>>) -> bool {
        let Some(data) = inputs.first() else { return false };
        let Some(width) = data.element_type().byte_width() else { return false };
        let mut is_complete = true;
        self.for_each(&mut |place, _, length| {
            is_complete &= add_range(ranges, place * width..(place + length) * width);
        });
        is_complete
    }
}

/// Appends a range, joined to the last one where it follows that. Says no where so many places change that keeping
/// everything is cheaper.
fn add_range(ranges: &mut Vec<Range<usize>>, range: Range<usize>) -> bool {
    const MAX_RANGES: usize = 4096;
    let has_room = ranges.len() < MAX_RANGES;
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ if has_room => ranges.push(range),
        _ => return false,
    }
    true
}

/// Appends the byte ranges of the elements of a view, or says that they are too many.
pub(crate) fn overwritten_runs(view: &View, width: usize, ranges: &mut Vec<Range<usize>>) -> bool {
    let Some((last, outer)) = view.walk.split_last() else {
        return add_range(ranges, view.from.offset * width..(view.from.offset + 1) * width);
    };
    let (rows, step) = (outer.iter().product::<usize>(), view.from.strides[outer.len()]);
    let is_dense = step == 1 || *last == 1;
    (0..if *last == 0 { 0 } else { rows }).all(|row| {
        let place = coordinates(row, &outer.iter().copied().collect());
        let steps = place.iter().zip(&view.from.strides).map(|(coordinate, stride)| *coordinate as isize * stride);
        let start = view.from.offset as isize + steps.sum::<isize>();
        let at = |i: usize| (start + i as isize * step) as usize * width;
        match is_dense {
            true => add_range(ranges, at(0)..at(0) + last * width),
            false => (0..*last).all(|i| add_range(ranges, at(i)..at(i) + width)),
        }
    })
}

/// The single integer that input `port` holds.
pub(crate) fn single_integer(view: TensorView<'_>, port: usize) -> OpResult<i64> {
    match crate::infer::integers_of_view(view).as_deref() {
        Some([value]) => Ok(*value),
        _ => {
            let message = format!("{}{} must hold one integer", view.element_type(), view.shape());
            Err(OpError::value(Blame::Input(port), message))
        }
    }
}

/// The error of a layer with the wrong number of inputs.
pub(crate) fn wrong_ports(given: usize, expected: usize) -> OpError {
    OpError::new(ovir_diagnostics::Code::PortCount, Blame::Node, format!("{given} inputs where {expected} are needed"))
}

/// Writes output 0: input 0 with the updates of input 2. The indices must have been checked.
pub(crate) fn evaluate_scatter(
    context: &mut EvaluateContext<'_>,
    places: &Places<'_>,
    reduction: Reduction,
) -> OpResult {
    let (data, updates) = (context.input(0)?, context.input(2)?);
    let (element_type, shape) = (data.element_type(), data.shape());
    let is_replacing = reduction.combine == Combine::Replace;
    let can_move = element_type.byte_width().is_some() || element_type == ElementType::String;
    if is_replacing && !can_move {
        return Err(unmovable(element_type));
    }
    if !is_replacing && !element_type.is_native() {
        return Err(super::elementwise::unsupported(element_type));
    }
    let mut scratch = Scratch::new(context, element_type, shape, reduction, updates.elements() == 0)?;
    let in_place = context.is_in_place();
    let mut output = context.output(0, shape)?;
    if !in_place {
        copy_all(&data, &mut output)?;
    }
    if is_replacing {
        return dispatch_cell!(element_type, C => {
            let (source, target) = (C::source(&updates), C::target(&mut output));
            places.for_each(&mut |to, from, length| {
                target[to..to + length].clone_from_slice(&source[from..from + length]);
            });
            Ok(())
        });
    }
    reduce(&mut output, &updates, places, reduction, &mut scratch)
}

/// Follows small integer values: those of input 0 with the updates of input 2.
pub(crate) fn propagate_scatter(context: &mut InferContext<'_>, places: &Places<'_>, reduction: Reduction) {
    let element_type = context.element_type(0);
    let (Some(data), Some(shape)) = (context.bounds(0), context.shape(2).to_shape()) else { return };
    if shape.elements() > MAX_BOUNDS_ELEMENTS || !element_type.is_integer() {
        return;
    }
    let updates = match context.bounds(2) {
        Some(bounds) => bounds.values.clone(),
        None => SmallVec::from_elem(Value::UNKNOWN, shape.elements()),
    };
    let mut values = data.values.clone();
    let mut counts: SmallVec<[u32; 8]> = SmallVec::from_elem(0, values.len());
    let combine: fn(Value, Value) -> Value = match reduction.combine {
        Combine::Replace => |_, b| b,
        Combine::Sum | Combine::Mean => |a, b| a + b,
        Combine::Sub => |a, b| a - b,
        Combine::Prod => |a, b| a * b,
        Combine::Min => Value::minimum,
        Combine::Max => Value::maximum,
    };
    each_update(places, |to, from| {
        let replaces = counts[to] == 0 && !reduction.use_init;
        values[to] = if replaces { updates[from] } else { combine(values[to], updates[from]) };
        counts[to] += 1;
    });
    if !matches!(reduction.combine, Combine::Replace | Combine::Min | Combine::Max) {
        // What reached the end of i64 may have wrapped.
        for (value, _) in values.iter_mut().zip(&counts).filter(|(_, count)| **count > 0) {
            if value.min == i64::MIN || value.max == i64::MAX {
                *value = Value::UNKNOWN;
            }
        }
    }
    if reduction.combine == Combine::Mean {
        let (low, high) = integer_range(element_type);
        for (value, count) in values.iter_mut().zip(&counts).filter(|(_, count)| **count > 0) {
            let parts = i64::from(*count) + i64::from(reduction.use_init);
            // A sum that wraps has a mean that cannot be followed.
            *value = match (low..=high).contains(&value.min) && (low..=high).contains(&value.max) {
                true if value.min > i64::MIN && value.max < i64::MAX => {
                    Value::interval(value.min.div_euclid(parts), value.max.div_euclid(parts))
                }
                _ => Value::UNKNOWN,
            };
        }
    }
    context.set_bounds(0, Bounds { shape: data.shape.clone(), values });
}

/// Memory beside the output: how many updates each place got, and wide accumulators of narrow types.
struct Scratch {
    counts: Option<Tensor>,
    wide: Option<Tensor>,
}

impl Scratch {
    fn new(
        context: &mut EvaluateContext<'_>,
        element_type: ElementType,
        shape: &Shape,
        reduction: Reduction,
        is_idle: bool,
    ) -> OpResult<Scratch> {
        let is_half = matches!(element_type, ElementType::F16 | ElementType::Bf16);
        let is_replacing = reduction.combine == Combine::Replace || is_idle;
        let environment = context.environment();
        let tensor = |element_type, needed: bool| match needed && !is_replacing {
            true => environment.allocate(element_type, shape).map(Some),
            false => Ok(None),
        };
        Ok(Scratch {
            counts: tensor(ElementType::U32, is_half || reduction.counts())?,
            wide: tensor(ElementType::F32, is_half)?,
        })
    }
}

fn each_element(indices: &Indices<'_>, data: &Shape, axis: usize, visit: &mut dyn FnMut(usize, usize, usize)) {
    let shape = indices.shape();
    let strides = data.strides();
    let mut coordinates: SmallVec<[usize; 8]> = SmallVec::from_elem(0, shape.rank());
    for position in 0..indices.len() {
        let mut place = indices.resolve(position, data[axis], IndexRange::Wrapping).unwrap_or(0) * strides[axis];
        for (i, coordinate) in coordinates.iter().enumerate() {
            if i != axis {
                place += coordinate * strides[i];
            }
        }
        visit(place, position, 1);
        for (coordinate, size) in coordinates.iter_mut().zip(shape.iter()).rev() {
            *coordinate += 1;
            if *coordinate < *size {
                break;
            }
            *coordinate = 0;
        }
    }
}

fn each_update(places: &Places<'_>, mut visit: impl FnMut(usize, usize)) {
    places.for_each(&mut |to, from, length| {
        for i in 0..length {
            visit(to + i, from + i);
        }
    });
}

fn reduce(
    output: &mut TensorViewMut<'_>,
    updates: &TensorView<'_>,
    places: &Places<'_>,
    reduction: Reduction,
    scratch: &mut Scratch,
) -> OpResult {
    let combine = reduction.combine;
    if updates.elements() == 0 {
        return Ok(());
    }
    match output.element_type() {
        ElementType::Boolean => {
            let (source, target) = (updates.slice::<u8>()?, output.slice_mut::<u8>()?);
            let Some(function) = boolean(combine) else {
                return Err(OpError::attribute("reduction", "mean is not defined for booleans"));
            };
            accumulate(target, source, places, reduction, scratch, Arithmetic { combine: function, divide: |v, _| v })
        }
        ElementType::F16 => {
            let (source, target) = (updates.slice::<f16>()?, output.slice_mut::<f16>()?);
            accumulate_wide(target, source, places, reduction, scratch, f16::to_f32, f16::from_f32)
        }
        ElementType::Bf16 => {
            let (source, target) = (updates.slice::<bf16>()?, output.slice_mut::<bf16>()?);
            accumulate_wide(target, source, places, reduction, scratch, bf16::to_f32, bf16::from_f32)
        }
        ElementType::F32 => accumulate_native::<f32>(output, updates, places, reduction, scratch),
        ElementType::F64 => accumulate_native::<f64>(output, updates, places, reduction, scratch),
        other => dispatch!(other, T in [integer] => {
            accumulate_native::<T>(output, updates, places, reduction, scratch)
        } else { Err(super::elementwise::unsupported(other)) }),
    }
}

fn accumulate_native<T: Summand>(
    output: &mut TensorViewMut<'_>,
    updates: &TensorView<'_>,
    places: &Places<'_>,
    reduction: Reduction,
    scratch: &mut Scratch,
) -> OpResult {
    let (source, target) = (updates.slice::<T>()?, output.slice_mut::<T>()?);
    accumulate(target, source, places, reduction, scratch, arithmetic::<T>(reduction.combine))
}

/// The mathematics of a reduction on accumulators of type `A`.
#[derive(Clone, Copy)]
struct Arithmetic<A> {
    combine: fn(A, A) -> A,
    divide: fn(A, u32) -> A,
}

/// Applies updates to the target itself, counting them where the reduction needs it.
fn accumulate<T: Copy>(
    target: &mut [T],
    source: &[T],
    places: &Places<'_>,
    reduction: Reduction,
    scratch: &mut Scratch,
    arithmetic: Arithmetic<T>,
) -> OpResult {
    let Some(counts) = &mut scratch.counts else {
        each_update(places, |to, from| target[to] = (arithmetic.combine)(target[to], source[from]));
        return Ok(());
    };
    let counts = counts.slice_mut::<u32>()?;
    each_update(places, |to, from| {
        let replaces = counts[to] == 0 && !reduction.use_init;
        target[to] = if replaces { source[from] } else { (arithmetic.combine)(target[to], source[from]) };
        counts[to] = counts[to].saturating_add(1);
    });
    if reduction.combine == Combine::Mean {
        let init = u32::from(reduction.use_init);
        for (value, count) in target.iter_mut().zip(counts).filter(|(_, count)| **count > 0) {
            *value = (arithmetic.divide)(*value, count.saturating_add(init));
        }
    }
    Ok(())
}

/// Applies updates to f32 accumulators and rounds each place that was touched once.
fn accumulate_wide<T: Copy>(
    target: &mut [T],
    source: &[T],
    places: &Places<'_>,
    reduction: Reduction,
    scratch: &mut Scratch,
    read: fn(T) -> f32,
    write: fn(f32) -> T,
) -> OpResult {
    let (Some(counts), Some(wide)) = (&mut scratch.counts, &mut scratch.wide) else { return Ok(()) };
    let (counts, wide) = (counts.slice_mut::<u32>()?, wide.slice_mut::<f32>()?);
    let arithmetic = arithmetic::<f32>(reduction.combine);
    each_update(places, |to, from| {
        let update = read(source[from]);
        wide[to] = match (counts[to], reduction.use_init) {
            (0, false) => update,
            (0, true) => (arithmetic.combine)(read(target[to]), update),
            _ => (arithmetic.combine)(wide[to], update),
        };
        counts[to] = counts[to].saturating_add(1);
    });
    let init = u32::from(reduction.use_init);
    for ((value, sum), count) in target.iter_mut().zip(wide).zip(counts).filter(|(_, count)| **count > 0) {
        let is_mean = reduction.combine == Combine::Mean;
        *value = write(if is_mean { (arithmetic.divide)(*sum, count.saturating_add(init)) } else { *sum });
    }
    Ok(())
}

fn boolean(combine: Combine) -> Option<fn(u8, u8) -> u8> {
    match combine {
        Combine::Replace => Some(|_, b| b),
        Combine::Sum | Combine::Max => Some(|a, b| u8::from(a != 0 || b != 0)),
        Combine::Prod | Combine::Min => Some(|a, b| u8::from(a != 0 && b != 0)),
        Combine::Sub => Some(|a, b| u8::from((a != 0) != (b != 0))),
        Combine::Mean => None,
    }
}

fn arithmetic<T: Summand>(combine: Combine) -> Arithmetic<T> {
    let function: fn(T, T) -> T = match combine {
        Combine::Replace => |_, b| b,
        Combine::Sum | Combine::Mean => T::plus,
        Combine::Sub => T::minus,
        Combine::Prod => T::times,
        Combine::Min => |a, b| if a.is_unordered() || a <= b { a } else { b },
        Combine::Max => |a, b| if a.is_unordered() || a >= b { a } else { b },
    };
    Arithmetic { combine: function, divide: T::mean }
}

/// Arithmetic in an element's own width: integers wrap.
trait Summand: NativeElement {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// The mean of `count` values whose sum this is; rounded down for integers.
    fn mean(self, count: u32) -> Self;
    /// Whether this is NaN.
    fn is_unordered(self) -> bool;
}

macro_rules! integer_summand {
    ($($rust:ty),*) => {
        $(impl Summand for $rust {
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            fn minus(self, other: Self) -> Self { self.wrapping_sub(other) }
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn mean(self, count: u32) -> Self { i128::from(self).div_euclid(i128::from(count.max(1))) as $rust }
            fn is_unordered(self) -> bool { false }
        })*
    };
}
integer_summand!(u8, u16, u32, u64, i8, i16, i32, i64);

macro_rules! float_summand {
    ($($rust:ty),*) => {
        $(impl Summand for $rust {
            fn plus(self, other: Self) -> Self { self + other }
            fn minus(self, other: Self) -> Self { self - other }
            fn times(self, other: Self) -> Self { self * other }
            fn mean(self, count: u32) -> Self { self / count as $rust }
            fn is_unordered(self) -> bool { self.is_nan() }
        })*
    };
}
float_summand!(f32, f64);
