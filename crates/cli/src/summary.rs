//! What tensors hold, in words: ranges and first values.

use ovir::Tensor;
/// The first values that a summary shows.
pub const SHOWN_VALUES: usize = 8;

/// The range of a tensor's values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// The smallest number; `None` if there is none.
    pub min: Option<f64>,
    /// The largest number.
    pub max: Option<f64>,
    /// The mean of the finite numbers.
    pub mean: Option<f64>,
    /// How many are not a number.
    pub nan: usize,
    /// How many are infinite.
    pub infinite: usize,
}

impl Statistics {
    /// The range of some numbers.
    pub fn of(values: &[f64]) -> Statistics {
        let finite = values.iter().copied().filter(|v| v.is_finite());
        let count = finite.clone().count();
        Statistics {
            min: values.iter().copied().filter(|v| !v.is_nan()).reduce(f64::min),
            max: values.iter().copied().filter(|v| !v.is_nan()).reduce(f64::max),
            mean: (count > 0).then(|| finite.sum::<f64>() / count as f64),
            nan: values.iter().filter(|v| v.is_nan()).count(),
            infinite: values.iter().filter(|v| v.is_infinite()).count(),
        }
    }
}

/// One or two lines about a tensor: type, shape, range, first values.
pub fn describe(name: &str, tensor: &Tensor) -> String {
    let head = format!("{name}  {}{}", tensor.element_type(), tensor.shape());
    let more = if tensor.elements() > SHOWN_VALUES { ", ..." } else { "" };
    let Some(values) = tensor.numbers() else {
        let strings: Vec<String> =
            tensor.strings().unwrap_or_default().iter().take(SHOWN_VALUES).map(|s| format!("{s:?}")).collect();
        return format!("{head}\n  [{}{more}]\n", strings.join(", "));
    };
    let statistics = Statistics::of(&values);
    let mut facts = Vec::new();
    for (what, value) in [("min", statistics.min), ("max", statistics.max), ("mean", statistics.mean)] {
        facts.extend(value.map(|value| format!("{what} {}", short(value))));
    }
    for (what, count) in [("NaN", statistics.nan), ("infinite", statistics.infinite)] {
        if count > 0 {
            facts.push(format!("{count} {what}"));
        }
    }
    let first: Vec<String> = values.iter().take(SHOWN_VALUES).map(|v| short(*v)).collect();
    let facts = if facts.is_empty() { "empty".to_owned() } else { facts.join(", ") };
    format!("{head}\n  {facts}\n  [{}{more}]\n", first.join(", "))
}

/// A number with about six digits.
pub fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor();
    if !(-5.0..6.0).contains(&magnitude) {
        return format!("{value:.5e}");
    }
    let decimals = (5.0 - magnitude).clamp(0.0, 10.0) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (3.0, "3"),
            (0.1, "0.1"),
            (-1.0 / 3.0, "-0.333333"),
            (123456.789, "123457"),
            (1234567.5, "1.23457e6"),
            (1.25e-7, "1.25000e-7"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
            (0.0001234, "0.0001234"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn statistics_leave_out_what_is_no_number() {
        let statistics = Statistics::of(&[1.0, f64::NAN, 3.0, f64::INFINITY]);
        let expected = Statistics { min: Some(1.0), max: Some(f64::INFINITY), mean: Some(2.0), nan: 1, infinite: 1 };
        assert_eq!(statistics, expected);
        assert_eq!(Statistics::of(&[]).mean, None);
    }
}
