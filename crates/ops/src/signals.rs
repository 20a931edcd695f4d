//! Signal processing.

use crate::OpDef;

pub mod dft;
pub mod idft;
pub mod irdft;
pub mod istft;
pub mod rdft;
pub mod stft;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&dft::DFT, &idft::IDFT, &irdft::IRDFT, &istft::ISTFT, &rdft::RDFT, &stft::STFT];
