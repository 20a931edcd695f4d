//! Sums and means of rows of an embedding table, gathered into bags.

use ovir_tensor::{Dim, ElementClass, ElementType, PartialShape, Shape, dispatch};

use super::accumulate::{Accumulate, Sum};
use super::elementwise::unsupported;
use super::memory::filled;
use crate::{Blame, EvaluateContext, InferContext, OpError, OpResult};

crate::attribute_enum! {
    /// How the rows of a bag become one.
    pub enum Reduction {
        /// Their sum.
        #[default]
        Sum = "sum",
        /// Their mean.
        Mean = "mean",
    }
}

/// Which rows belong to which bag.
pub(crate) struct Bags {
    /// The positions in `indices` of each bag.
    pub ranges: Vec<std::ops::Range<usize>>,
    /// The port of the default index, if there is one.
    pub default_port: Option<usize>,
    /// The port of the weights, if there is one.
    pub weights_port: Option<usize>,
    /// How the rows of a bag become one.
    pub reduction: Reduction,
}

/// Checks the table, and gives the output of `bags` rows.
pub(crate) fn infer_bags(context: &mut InferContext<'_>, bags: Dim, weights_port: Option<usize>) -> OpResult {
    let mut element_type = context.require_class(0, ElementClass::Numeric)?;
    context.require_rank(0, 1..=usize::MAX)?;
    context.require_class(1, ElementClass::Integer)?;
    if let Some(port) = weights_port.filter(|port| *port < context.input_count()) {
        element_type = context.require_same_type(&[0, port])?;
        let (indices, weights) = (context.shape(1), context.shape(port));
        if indices.merge(weights).is_none() {
            let message = format!("shape {weights} must equal shape {indices} of input 1: one weight an index");
            return Err(OpError::shape(Blame::Input(port), message));
        }
    }
    let shape = match context.shape(0).dims() {
        None => PartialShape::DYNAMIC,
        Some(dims) => PartialShape::from_dims([bags].into_iter().chain(dims[1..].iter().copied())),
    };
    context.set_output(0, element_type, shape);
    Ok(())
}

/// Checks a default index.
pub(crate) fn check_default(context: &InferContext<'_>, port: usize) -> OpResult {
    if port >= context.input_count() {
        return Ok(());
    }
    context.require_class(port, ElementClass::Integer)?;
    context.require_one_element(port)
}

/// Writes one row for each bag. An empty bag takes the row of the default index, or zeros without one or with -1.
pub(crate) fn evaluate_bags(context: &mut EvaluateContext<'_>, bags: &Bags) -> OpResult {
    let table = context.input(0)?;
    let rows = table.shape()[0];
    let indices = context.integers(1)?;
    let default = match bags.default_port.filter(|port| *port < context.input_count()) {
        Some(port) => match context.integer(port)? {
            -1 => None,
            index => Some(row_of(index, rows, port, 0)?),
        },
        None => None,
    };
    for (position, index) in indices.iter().enumerate() {
        row_of(*index, rows, 1, position)?;
    }
    let weights = match bags.weights_port.filter(|port| *port < context.input_count()) {
        Some(port) => Some(context.input(port)?),
        None => None,
    };
    let shape: Shape = [bags.ranges.len()].into_iter().chain(table.shape()[1..].iter().copied()).collect();
    let width: usize = table.shape()[1..].iter().product();
    let element_type: ElementType = table.element_type();
    let mut output = context.output(0, &shape)?;
    dispatch!(element_type, T in [numeric] => {
        let (source, target) = (table.slice::<T>()?, output.slice_mut::<T>()?);
        let weights = weights.map(|w| w.slice::<T>()).transpose()?;
        let mut sums = filled::<<T as Accumulate>::Sum>(width)?;
        for (bag, range) in bags.ranges.iter().enumerate() {
            let target = &mut target[bag * width..][..width];
            if range.is_empty() {
                match default {
                    Some(row) => target.copy_from_slice(&source[row * width..][..width]),
                    None => target.fill(T::default()),
                }
                continue;
            }
            sums.fill(Default::default());
            for position in range.clone() {
                let row = &source[indices[position] as usize * width..][..width];
                add_row::<T>(&mut sums, row, weights.map(|w| w[position]));
            }
            for (t, sum) in target.iter_mut().zip(&sums) {
                *t = match bags.reduction {
                    Reduction::Sum => T::narrow(*sum),
                    Reduction::Mean => T::mean(*sum, range.len()),
                };
            }
        }
        Ok(())
    } else { Err(unsupported(element_type)) })
}

fn add_row<T: Accumulate>(sums: &mut [T::Sum], row: &[T], weight: Option<T>) {
    for (sum, value) in sums.iter_mut().zip(row) {
        let value: T::Sum = value.widen();
        add(sum, weight.map_or(value, |w| value * w.widen()));
    }
}

fn add<S: Sum>(sum: &mut S, value: S) {
    *sum += value;
}

fn row_of(index: i64, rows: usize, port: usize, position: usize) -> OpResult<usize> {
    usize::try_from(index).ok().filter(|row| *row < rows).ok_or_else(|| {
        let message = format!("index {index} at position {position} is out of range [0, {}]", rows as i64 - 1);
        OpError::index(Blame::Input(port), message)
    })
}
