//! Sliding windows of convolutions and poolings: attributes, sizes and pads along one spatial axis.

use ovir_tensor::{Dim, INFINITE, Shape, SmallVec, Symbol};

use crate::{AttributeReader, Blame, OpError, OpResult, SymbolSource};

/// The largest stride, dilation, pad or kernel size of an attribute. Larger numbers address no tensor that exists, and
/// below it no product of two of them leaves 64 bits.
pub(crate) const MAX_WINDOW_NUMBER: i64 = i32::MAX as i64;

crate::attribute_enum! {
    /// How pads are found.
    pub enum AutoPad {
        /// The attributes `pads_begin` and `pads_end` say them.
        #[default]
        Explicit = "explicit",
        /// The output is the input divided by the stride, rounded up; an odd pad goes to the end.
        SameUpper = "same_upper",
        /// The output is the input divided by the stride, rounded up; an odd pad goes to the beginning.
        SameLower = "same_lower",
        /// There are no pads.
        Valid = "valid",
    }
}

impl AutoPad {
    /// Whether the pads follow from the size of the output.
    pub fn is_same(self) -> bool {
        matches!(self, AutoPad::SameUpper | AutoPad::SameLower)
    }
}

crate::attribute_enum! {
    /// How the number of windows is rounded.
    pub enum RoundingType {
        /// A window that does not fit is left out.
        #[default]
        Floor = "floor",
        /// A window that does not fit at the end is cut.
        Ceil = "ceil",
        /// As `Ceil`, but no window starts in the padding at the end.
        CeilTorch = "ceil_torch",
    }
}

/// The rule of one spatial axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowRule {
    /// The distance between windows.
    pub stride: i64,
    /// The distance between the elements of a window.
    pub dilation: i64,
    /// The elements added before the first one, under explicit pads.
    pub pad_begin: i64,
    /// The elements added after the last one, under explicit pads.
    pub pad_end: i64,
    /// How pads are found.
    pub auto_pad: AutoPad,
    /// How the number of windows is rounded.
    pub rounding: RoundingType,
}

/// The geometry of one spatial axis when all sizes are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowAxis {
    /// The size of the padded side: the input of a convolution, the output of a transposed one.
    pub input: usize,
    /// The number of windows.
    pub output: usize,
    /// The elements of a window.
    pub kernel: usize,
    /// The distance between windows.
    pub stride: usize,
    /// The distance between the elements of a window.
    pub dilation: usize,
    /// The elements added before the first one.
    pub pad_begin: i64,
    /// The elements added after the last one.
    pub pad_end: i64,
}

impl WindowAxis {
    /// An axis that does nothing: one element, one window.
    pub const UNIT: WindowAxis =
        WindowAxis { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, pad_begin: 0, pad_end: 0 };

    /// The position of element `k` of window `window`; outside of `0..input` it lies in the padding.
    pub fn position(&self, window: usize, k: usize) -> i64 {
        (window * self.stride) as i64 + (k * self.dilation) as i64 - self.pad_begin
    }

    /// The windows whose element `k` lies inside of the input.
    pub fn windows_inside(&self, k: usize) -> std::ops::Range<usize> {
        let start = (k * self.dilation) as i64 - self.pad_begin;
        range_inside(start, self.stride, self.input, self.output)
    }

    /// The elements of window `window` that lie inside of the input.
    pub fn elements_inside(&self, window: usize) -> std::ops::Range<usize> {
        let start = (window * self.stride) as i64 - self.pad_begin;
        range_inside(start, self.dilation, self.input, self.kernel)
    }

    /// The number of elements of window `window` that lie inside of the input or its pads.
    pub fn padded_elements(&self, window: usize) -> usize {
        let start = (window * self.stride) as i64;
        let padded = self.input as i64 + self.pad_begin + self.pad_end;
        range_inside(start, self.dilation, usize::try_from(padded).unwrap_or(0), self.kernel).len()
    }
}

/// The indices `i` below `count` for which `0 <= start + i * step < size`.
fn range_inside(start: i64, step: usize, size: usize, count: usize) -> std::ops::Range<usize> {
    let (step, size) = (step.max(1) as i64, size as i64);
    let first = if start >= 0 { 0 } else { (-start + step - 1) / step };
    let end = if start >= size { 0 } else { (size - 1 - start) / step + 1 };
    let end = end.clamp(0, count as i64) as usize;
    (first as usize).min(end)..end
}

impl WindowRule {
    /// The number of windows; `None` if the kernel does not fit.
    fn windows(&self, input: i64, kernel: i64) -> Option<i64> {
        let stride = i128::from(self.stride.max(1));
        if self.auto_pad.is_same() {
            return Some(((i128::from(input) + stride - 1) / stride) as i64);
        }
        let (pad_begin, pad_end) = self.explicit_pads();
        let extent = self.extent(kernel);
        let padded = i128::from(input) + i128::from(pad_begin) + i128::from(pad_end);
        if extent > padded || kernel < 1 {
            return None;
        }
        let room = padded - extent;
        let windows = match self.rounding {
            RoundingType::Floor => room / stride + 1,
            RoundingType::Ceil => (room + stride - 1) / stride + 1,
            RoundingType::CeilTorch => {
                let steps = (room + stride - 1) / stride;
                steps + i128::from(steps * stride < i128::from(input) + i128::from(pad_begin))
            }
        };
        Some(windows.min(i128::from(INFINITE - 1)) as i64)
    }

    fn extent(&self, kernel: i64) -> i128 {
        (i128::from(kernel) - 1) * i128::from(self.dilation) + 1
    }

    fn explicit_pads(&self) -> (i64, i64) {
        if self.auto_pad == AutoPad::Explicit { (self.pad_begin, self.pad_end) } else { (0, 0) }
    }

    /// The number of windows for intervals of input and kernel sizes.
    ///
    /// # Errors
    /// The sentence that says why no sizes of these intervals fit.
    pub fn infer(&self, symbols: &mut SymbolSource, input: Dim, kernel: Dim) -> Result<Dim, String> {
        if kernel.max() == 0 {
            return Err("the kernel has size 0".to_owned());
        }
        let smallest = kernel.min().max(1);
        if self.auto_pad.is_same() {
            if self.stride == 1 {
                return Ok(input);
            }
            let symbol = input.symbol().and_then(|symbol| symbols.windows(symbol, -1, self.stride));
            return Ok(input.div_ceil(self.stride).with_symbol(symbol));
        }
        let max = match input.max() {
            INFINITE => INFINITE,
            max => self.windows(max, smallest).ok_or_else(|| self.misfit(max, smallest))?,
        };
        // Pads that make up for the kernel keep the size, whatever it is, and with it the identity of an unknown one.
        let (begin, end) = self.explicit_pads();
        let keeps = kernel.get().is_some_and(|k| self.extent(k as i64) - 1 == i128::from(begin) + i128::from(end));
        if self.stride == 1 && keeps && (kernel.get() == Some(1) || input.symbol().is_some()) {
            return Ok(input);
        }
        let min = match kernel.max() {
            INFINITE => 1,
            largest => self.windows(input.min(), largest).unwrap_or(1),
        };
        let symbol = kernel.get().and_then(|kernel| self.symbol(symbols, input.symbol()?, kernel as i64));
        Ok(Dim::interval(min.min(max), max).with_symbol(symbol))
    }

    /// The symbol of the number of windows, where pads do not depend on sizes.
    fn symbol(&self, symbols: &mut SymbolSource, input: Symbol, kernel: i64) -> Option<Symbol> {
        let (begin, end) = self.explicit_pads();
        let offset = i128::from(begin) + i128::from(end) - self.extent(kernel);
        let offset = match self.rounding {
            RoundingType::Floor => offset,
            RoundingType::Ceil => offset + i128::from(self.stride) - 1,
            RoundingType::CeilTorch => return None,
        };
        symbols.windows(input, i64::try_from(offset).ok()?, self.stride)
    }

    fn misfit(&self, input: i64, kernel: i64) -> String {
        let (begin, end) = self.explicit_pads();
        let mut message = format!("a kernel of size {kernel}");
        if self.dilation != 1 {
            message += &format!(" with dilation {} (extent {})", self.dilation, self.extent(kernel));
        }
        message += &format!(" does not fit into {input} elements");
        if (begin, end) != (0, 0) {
            message += &format!(" with pads {begin} and {end}");
        }
        message
    }

    /// The geometry for known sizes.
    ///
    /// # Errors
    /// The sentence that says why the kernel does not fit.
    pub fn geometry(&self, input: usize, kernel: usize) -> Result<WindowAxis, String> {
        let (x, k) = (input as i64, kernel as i64);
        let output = self.windows(x, k).ok_or_else(|| self.misfit(x, k))?;
        let (mut pad_begin, mut pad_end) = self.explicit_pads();
        if self.auto_pad.is_same() {
            let needed = (i128::from(output) - 1) * i128::from(self.stride) + self.extent(k) - i128::from(x);
            (pad_begin, pad_end) = split_pads(needed.clamp(0, i128::from(i64::MAX)) as i64, self.auto_pad);
        }
        Ok(WindowAxis {
            input,
            output: output as usize,
            kernel,
            stride: self.stride as usize,
            dilation: self.dilation as usize,
            pad_begin,
            pad_end,
        })
    }
}

/// Divides a total pad into the part before and the part after.
pub(crate) fn split_pads(total: i64, auto_pad: AutoPad) -> (i64, i64) {
    let half = total / 2;
    if auto_pad == AutoPad::SameLower { (total - half, half) } else { (half, total - half) }
}

/// The lists of an operation with windows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowLists<'a> {
    /// `strides`; empty means 1.
    pub strides: &'a [i64],
    /// `dilations`; empty means 1.
    pub dilations: &'a [i64],
    /// `pads_begin`; empty means 0.
    pub pads_begin: &'a [i64],
    /// `pads_end`; empty means 0.
    pub pads_end: &'a [i64],
    /// How pads are found.
    pub auto_pad: AutoPad,
    /// How the number of windows is rounded.
    pub rounding: RoundingType,
}

impl WindowLists<'_> {
    /// Reports numbers out of their range.
    pub fn check(&self, reader: &mut AttributeReader<'_>) {
        check_range(reader, "strides", self.strides, 1);
        check_range(reader, "dilations", self.dilations, 1);
        if self.auto_pad == AutoPad::Explicit {
            check_range(reader, "pads_begin", self.pads_begin, 0);
            check_range(reader, "pads_end", self.pads_end, 0);
        }
    }

    /// The number of spatial axes that the lists have, if one says it.
    pub fn spatial_rank(&self) -> Option<usize> {
        let pads = if self.auto_pad == AutoPad::Explicit { self.pads_begin } else { &[] };
        [self.strides, self.dilations, pads].into_iter().map(<[i64]>::len).find(|n| *n > 0)
    }

    /// Checks that every list that is not empty has an item for each spatial axis.
    ///
    /// # Errors
    /// The attribute that has another number of items.
    pub fn check_rank(&self, spatial_rank: usize) -> OpResult {
        let is_explicit = self.auto_pad == AutoPad::Explicit;
        // Pads are not used under the other rules; an empty list is never wrong.
        let pads = |list| if is_explicit { list } else { &[][..] };
        let lists = [
            ("strides", self.strides),
            ("dilations", self.dilations),
            ("pads_begin", pads(self.pads_begin)),
            ("pads_end", pads(self.pads_end)),
        ];
        lists.into_iter().try_for_each(|(name, list)| check_items(name, list, spatial_rank))
    }

    /// The rule of spatial axis `axis`.
    pub fn rule(&self, axis: usize) -> WindowRule {
        let at = |list: &[i64], default: i64| list.get(axis).copied().unwrap_or(default);
        WindowRule {
            stride: at(self.strides, 1).clamp(1, MAX_WINDOW_NUMBER),
            dilation: at(self.dilations, 1).clamp(1, MAX_WINDOW_NUMBER),
            pad_begin: at(self.pads_begin, 0).clamp(0, MAX_WINDOW_NUMBER),
            pad_end: at(self.pads_end, 0).clamp(0, MAX_WINDOW_NUMBER),
            auto_pad: self.auto_pad,
            rounding: self.rounding,
        }
    }

    /// The geometry of all spatial axes.
    ///
    /// # Errors
    /// A shape mismatch that blames input 0 when a kernel does not fit.
    pub fn geometry(&self, input: &[usize], kernel: &[usize]) -> OpResult<SmallVec<[WindowAxis; 3]>> {
        self.check_rank(input.len())?;
        let sizes = input.iter().zip(kernel).enumerate();
        sizes.map(|(i, (x, k))| self.rule(i).geometry(*x, *k).map_err(|why| at_spatial_axis(i, &why))).collect()
    }

    /// The dimensions of the output for intervals of input and kernel sizes.
    ///
    /// # Errors
    /// As [`WindowLists::geometry`].
    pub fn infer(
        &self,
        symbols: &mut SymbolSource,
        spatial_rank: usize,
        sizes: impl Fn(usize) -> (Dim, Dim),
    ) -> OpResult<SmallVec<[Dim; 3]>> {
        self.check_rank(spatial_rank)?;
        let infer = |i: usize| {
            let (input, kernel) = sizes(i);
            self.rule(i).infer(symbols, input, kernel).map_err(|why| at_spatial_axis(i, &why))
        };
        (0..spatial_rank).map(infer).collect()
    }
}

/// Three axes, with units in front where the operation has fewer.
pub(crate) fn three_axes(axes: &[WindowAxis]) -> [WindowAxis; 3] {
    let mut three = [WindowAxis::UNIT; 3];
    for (target, axis) in three.iter_mut().rev().zip(axes.iter().rev()) {
        *target = *axis;
    }
    three
}

/// Reports the items of a list that lie outside of `min..=MAX_WINDOW_NUMBER`.
pub(crate) fn check_range(reader: &mut AttributeReader<'_>, name: &'static str, list: &[i64], min: i64) {
    if let Some(value) = list.iter().find(|v| !(min..=MAX_WINDOW_NUMBER).contains(v)) {
        let message = format!("item {value} of `{name}` is out of range [{min}, {MAX_WINDOW_NUMBER}]");
        reader.report(OpError::attribute(name, message));
    }
}

/// Checks that a list is empty or has an item for each spatial axis.
///
/// # Errors
/// The attribute that has another number of items.
pub(crate) fn check_items(name: &'static str, list: &[i64], spatial_rank: usize) -> OpResult {
    if list.is_empty() || list.len() == spatial_rank {
        return Ok(());
    }
    let message = format!("`{name}` has {} items for {spatial_rank} spatial axes", list.len());
    Err(OpError::attribute(name, message))
}

/// The sizes of the spatial axes.
pub(crate) fn spatial(shape: &Shape, leading: usize) -> &[usize] {
    shape.get(leading..).unwrap_or(&[])
}

fn at_spatial_axis(axis: usize, why: &str) -> OpError {
    OpError::shape(Blame::Input(0), format!("at spatial axis {axis}, {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn rule(stride: i64, dilation: i64, pads: (i64, i64), auto_pad: AutoPad, rounding: RoundingType) -> WindowRule {
        WindowRule { stride, dilation, pad_begin: pads.0, pad_end: pads.1, auto_pad, rounding }
    }

    /// Equal numbers of windows over one unknown size have equal symbols, and only these.
    #[test]
    fn numbers_of_windows_are_told_apart() {
        use {AutoPad::*, RoundingType::*};
        let mut symbols = SymbolSource::default();
        let input = Dim::DYNAMIC.with_symbol(symbols.fresh());
        let mut of = |rule: WindowRule, kernel: usize| {
            let windows = rule.infer(&mut symbols, input, Dim::fixed(kernel)).unwrap();
            // The sizes behind a symbol are those of the formula, whatever the input is.
            let sizes = [7, 8, 9, 30].map(|n| rule.infer(&mut symbols, Dim::fixed(n), Dim::fixed(kernel)).unwrap());
            (windows.symbol(), sizes)
        };
        let rules = [
            of(rule(1, 1, (1, 1), Explicit, Floor), 3),
            of(rule(1, 1, (0, 0), SameUpper, Floor), 5),
            of(rule(2, 1, (1, 1), Explicit, Floor), 3),
            of(rule(2, 1, (0, 0), Explicit, Floor), 1),
            of(rule(2, 1, (0, 0), SameLower, Floor), 4),
            of(rule(2, 1, (0, 0), Valid, Floor), 3),
            of(rule(2, 1, (0, 0), Explicit, Ceil), 3),
            of(rule(2, 1, (0, 0), Explicit, Ceil), 2),
            of(rule(2, 1, (0, 0), Explicit, Floor), 2),
            of(rule(3, 1, (0, 0), Explicit, Floor), 1),
            of(rule(1, 2, (0, 0), Explicit, Floor), 3),
            of(rule(1, 1, (0, 0), Explicit, Floor), 5),
        ];
        assert_eq!(rules[0].0, input.symbol());
        for (a, b) in rules.iter().flat_map(|a| rules.iter().map(move |b| (a, b))) {
            assert!(a.0.is_some());
            assert_eq!(a.0 == b.0, a.1 == b.1, "{a:?} {b:?}");
        }
        assert_eq!(of(rule(2, 1, (0, 0), Explicit, CeilTorch), 3).0, None);
    }

    #[test]
    fn intervals_hold_every_exact_size() {
        for rounding in [RoundingType::Floor, RoundingType::Ceil, RoundingType::CeilTorch] {
            for auto_pad in [AutoPad::Explicit, AutoPad::SameUpper, AutoPad::Valid] {
                for (stride, dilation) in [(1, 1), (2, 1), (3, 2), (2, 3)] {
                    let rule = rule(stride, dilation, (1, 2), auto_pad, rounding);
                    let (input, kernel) = (Dim::interval(0, 9), Dim::interval(1, 4));
                    let inferred = rule.infer(&mut SymbolSource::default(), input, kernel).unwrap();
                    for (x, k) in (0..=9).flat_map(|x| (1..=4).map(move |k| (x, k))) {
                        if let Ok(axis) = rule.geometry(x, k) {
                            assert!(inferred.contains(axis.output), "{rule:?} {x} {k} {inferred}");
                            assert_eq!(
                                rule.infer(&mut SymbolSource::default(), Dim::fixed(x), Dim::fixed(k)),
                                Ok(Dim::fixed(axis.output))
                            );
                        } else {
                            assert!(rule.infer(&mut SymbolSource::default(), Dim::fixed(x), Dim::fixed(k)).is_err());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn ranges_name_what_lies_inside() {
        let axis = rule(2, 3, (4, 1), AutoPad::Explicit, RoundingType::Ceil).geometry(7, 3).unwrap();
        for k in 0..3 {
            let inside: Vec<usize> = (0..axis.output).filter(|w| (0..7).contains(&axis.position(*w, k))).collect();
            assert_eq!(axis.windows_inside(k).collect::<Vec<_>>(), inside);
        }
        for w in 0..axis.output {
            let inside: Vec<usize> = (0..3).filter(|k| (0..7).contains(&axis.position(w, *k))).collect();
            assert_eq!(axis.elements_inside(w).collect::<Vec<_>>(), inside);
            assert_eq!(axis.padded_elements(w), (0..3).filter(|k| axis.position(w, *k) < 8).count());
        }
    }

    #[test]
    fn same_pads_put_the_odd_one_at_the_named_side() {
        let upper = rule(2, 1, (0, 0), AutoPad::SameUpper, RoundingType::Floor).geometry(5, 4).unwrap();
        assert_eq!((upper.output, upper.pad_begin, upper.pad_end), (3, 1, 2));
        let lower = rule(2, 1, (0, 0), AutoPad::SameLower, RoundingType::Floor).geometry(5, 4).unwrap();
        assert_eq!((lower.output, lower.pad_begin, lower.pad_end), (3, 2, 1));
    }
}
