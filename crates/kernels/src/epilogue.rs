//! What matrix multiplication and convolution do to a result before they store it.

use crate::error::{KernelError, check_len, span};
use crate::isa::Isa;
use crate::unary::{self, UnaryOp};

/// Values that belong to one axis of a result matrix.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Channelwise<'a> {
    /// No values.
    #[default]
    None,
    /// One value per row.
    PerRow(&'a [f32]),
    /// One value per column.
    PerColumn(&'a [f32]),
}

/// A function applied last.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Activation<'a> {
    /// No function.
    #[default]
    None,
    /// An elementwise function; `Relu` and `Clamp` cost nothing.
    Unary(UnaryOp),
    /// `x < 0 ? slope * x : x` with a slope per row or column.
    PRelu(Channelwise<'a>),
}

/// A matrix added to the result, with the stride between its rows in elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Residual<'a> {
    /// The values, columns contiguous.
    pub values: &'a [f32],
    /// Elements from one row to the next.
    pub row_stride: usize,
}

/// `activation(product + bias + residual)`.
///
/// In a matrix multiplication rows and columns are those of the result. In a convolution a row is an output channel
/// and a column an output position; see there.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Epilogue<'a> {
    /// Added to every row or column.
    pub bias: Channelwise<'a>,
    /// Added elementwise.
    pub residual: Option<Residual<'a>>,
    /// Applied last.
    pub activation: Activation<'a>,
}

impl Channelwise<'_> {
    /// Checks the number of values.
    pub(crate) fn check(self, argument: &'static str, rows: usize, columns: usize) -> Result<(), KernelError> {
        match self {
            Channelwise::None => Ok(()),
            Channelwise::PerRow(values) => check_len(argument, values.len(), rows),
            Channelwise::PerColumn(values) => check_len(argument, values.len(), columns),
        }
    }
}

/// Estimated picoseconds of one core that reading or storing a value takes.
const VALUE_PICOSECONDS: u64 = 250;

impl Activation<'_> {
    /// The limits that it amounts to, if it is no more than a clamp.
    pub(crate) fn limits(self) -> (f32, f32) {
        match self {
            Activation::Unary(UnaryOp::Relu) => (0.0, f32::INFINITY),
            Activation::Unary(UnaryOp::Clamp { min, max }) => (min, max),
            _ => (f32::NEG_INFINITY, f32::INFINITY),
        }
    }

    /// Whether it needs a pass of its own after the store.
    pub(crate) fn needs_pass(self) -> bool {
        !matches!(self, Activation::None | Activation::Unary(UnaryOp::Relu | UnaryOp::Clamp { .. } | UnaryOp::Identity))
    }

    /// The function that it applies in a pass of its own after the store, if it is one of single values.
    pub(crate) fn function(self) -> Option<UnaryOp> {
        match self {
            Activation::Unary(op) if self.needs_pass() => Some(op),
            _ => None,
        }
    }

    /// Estimated picoseconds of one core that storing a value and applying the activation to it take.
    pub(crate) fn picoseconds(self) -> u64 {
        let pass = match self {
            Activation::PRelu(_) => UnaryOp::LeakyRelu { slope: 0.0 }.picoseconds(),
            _ => self.function().map_or(0, UnaryOp::picoseconds),
        };
        VALUE_PICOSECONDS + pass
    }

    /// Checks the slopes of rows, as convolutions have them, against the number of channels.
    pub(crate) fn check_rows(self, channels: usize) -> Result<(), KernelError> {
        match self {
            Activation::PRelu(Channelwise::PerRow(slopes)) => check_len("slopes", slopes.len(), channels),
            Activation::PRelu(_) => Err(KernelError::invalid("activation", "slopes must be per row")),
            _ => Ok(()),
        }
    }
}

impl Epilogue<'_> {
    /// Checks all parts against a result of this size.
    pub(crate) fn check(&self, rows: usize, columns: usize) -> Result<(), KernelError> {
        self.bias.check("bias", rows, columns)?;
        if let Some(residual) = self.residual {
            let required = span("residual", &[(rows, residual.row_stride), (columns, 1)])?;
            check_len("residual", residual.values.len(), required)?;
        }
        if let Activation::PRelu(slopes) = self.activation {
            slopes.check("slopes", rows, columns)?;
        }
        Ok(())
    }

    /// Estimated picoseconds of one core that a value of the result takes besides the sum of its products.
    pub(crate) fn picoseconds(&self) -> u64 {
        self.activation.picoseconds() + if self.residual.is_some() { VALUE_PICOSECONDS } else { 0 }
    }

    /// As [`Activation::limits`].
    pub(crate) fn limits(&self) -> (f32, f32) {
        self.activation.limits()
    }

    /// As [`Activation::needs_pass`].
    pub(crate) fn needs_pass(&self) -> bool {
        self.activation.needs_pass()
    }

    /// Applies the activation to one row of values, whichever it is.
    ///
    /// # Safety
    /// The values are writable and the epilogue was checked for one row of so many.
    pub(crate) unsafe fn pass_always(&self, isa: Isa, pointer: *mut f32, columns: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.pass(isa, pointer, columns, 0, 0, 1, columns) };
    }

    /// Applies an activation that `limits` does not cover to a block of the result.
    ///
    /// # Safety
    /// The block of `rows` by `columns` at `pointer` is writable, and the epilogue was checked for a matrix that has
    /// it at the place `(row, column)`.
    pub(crate) unsafe fn pass(
        &self,
        isa: Isa,
        pointer: *mut f32,
        row_stride: usize,
        row: usize,
        column: usize,
        rows: usize,
        columns: usize,
    ) {
        for r in 0..rows {
            // SAFETY: the row lies in the block.
            let line = unsafe { pointer.add(r * row_stride) };
            match self.activation {
                Activation::None | Activation::PRelu(Channelwise::None) => return,
                // SAFETY: the row's columns lie in the block.
                Activation::Unary(op) => unsafe { unary::apply(isa, op, line, line, columns) },
                Activation::PRelu(Channelwise::PerRow(slopes)) => {
                    let op = UnaryOp::LeakyRelu { slope: slopes[row + r] };
                    // SAFETY: the row's columns lie in the block.
                    unsafe { unary::apply(isa, op, line, line, columns) };
                }
                Activation::PRelu(Channelwise::PerColumn(slopes)) => {
                    // SAFETY: the row's columns lie in the block, which nobody else touches now.
                    let values = unsafe { std::slice::from_raw_parts_mut(line, columns) };
                    for (value, slope) in values.iter_mut().zip(&slopes[column..]) {
                        *value = if *value < 0.0 { *value * slope } else { *value };
                    }
                }
            }
        }
    }
}
