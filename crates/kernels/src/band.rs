//! Pieces of the innermost axis of data that are worked on along another axis.

/// The most positions of a band. Short pieces of lines that lie far apart would share few sets of the caches.
pub(crate) const MOST: usize = 1024;

/// Bands of so few positions have little memory, which is cleared for each of them.
pub(crate) const NARROW: usize = 64;

/// The elements of all lines of a band, which pass three times and should lie in the second cache meanwhile.
const ELEMENTS: usize = 1 << 16;

/// The positions of a band over so many lines, of which there is one at least: a multiple of four vectors of any tier.
pub(crate) fn positions(lines: usize) -> usize {
    (ELEMENTS / lines).clamp(64, MOST) / 64 * 64
}
