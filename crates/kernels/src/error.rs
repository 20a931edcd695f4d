//! The error every kernel returns when its arguments do not fit together.

use std::error::Error;
use std::fmt;

/// An argument that does not fit the geometry of a kernel call. Nothing has been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelError {
    /// The argument at fault, by the name it has in the function's signature or geometry.
    pub argument: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
    /// The least value (usually a length in elements) that would have been accepted; zero where it does not apply.
    pub required: usize,
    /// The value that was given; zero where it does not apply.
    pub given: usize,
}

impl KernelError {
    /// An argument that is invalid by itself.
    pub(crate) const fn invalid(argument: &'static str, reason: &'static str) -> Self {
        Self { argument, reason, required: 0, given: 0 }
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "kernel argument `{}`: {}", self.argument, self.reason)?;
        if self.required != 0 || self.given != 0 {
            write!(formatter, " (required {}, given {})", self.required, self.given)?;
        }
        Ok(())
    }
}

impl Error for KernelError {}

/// Checks that a slice holds at least `required` elements.
pub(crate) fn check_len(argument: &'static str, given: usize, required: usize) -> Result<(), KernelError> {
    if given < required {
        return Err(KernelError { argument, reason: "slice is too short", required, given });
    }
    Ok(())
}

/// Checks that a slice holds exactly `required` elements.
pub(crate) fn check_exact(argument: &'static str, given: usize, required: usize) -> Result<(), KernelError> {
    if given != required {
        return Err(KernelError { argument, reason: "slice has the wrong length", required, given });
    }
    Ok(())
}

/// The product of dimensions, or an error when it exceeds `isize::MAX`.
pub(crate) fn product(argument: &'static str, dimensions: &[usize]) -> Result<usize, KernelError> {
    let mut total = 1usize;
    let mut zero = false;
    for &dimension in dimensions {
        if dimension == 0 {
            zero = true;
            continue;
        }
        total = match total.checked_mul(dimension) {
            Some(value) if value <= isize::MAX as usize / 8 => value,
            _ => return Err(KernelError::invalid(argument, "the number of elements overflows")),
        };
    }
    Ok(if zero { 0 } else { total })
}

/// The number of elements a strided view touches from its first to its last element, or an error on overflow.
pub(crate) fn span(argument: &'static str, extents: &[(usize, usize)]) -> Result<usize, KernelError> {
    if extents.iter().any(|&(count, _)| count == 0) {
        return Ok(0);
    }
    let mut last = 0usize;
    for &(count, stride) in extents {
        last = (count - 1)
            .checked_mul(stride)
            .and_then(|offset| last.checked_add(offset))
            .filter(|&value| value < isize::MAX as usize / 8)
            .ok_or(KernelError::invalid(argument, "the strided view overflows"))?;
    }
    Ok(last + 1)
}
