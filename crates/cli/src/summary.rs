//! What tensors hold, in words: ranges, first values, best classes.

use std::cmp::Ordering;
use std::path::Path;

use ovir::Tensor;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::tensors::{numbers, read_file};

/// The first values that a summary shows.
const SHOWN_VALUES: usize = 8;

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

/// A class and its score.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// The index.
    pub index: usize,
    /// The score.
    pub score: f64,
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
    let Some(values) = numbers(tensor) else {
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

/// The same for programs.
pub fn describe_json(name: &str, tensor: &Tensor, digest: Option<String>) -> Value {
    let mut object = json!({
        "name": name,
        "element_type": tensor.element_type().name(),
        "shape": tensor.shape().to_vec(),
    });
    let values = numbers(tensor);
    if let Some(values) = &values {
        let statistics = Statistics::of(values);
        object["min"] = number(statistics.min);
        object["max"] = number(statistics.max);
        object["mean"] = number(statistics.mean);
        object["nan"] = json!(statistics.nan);
        object["infinite"] = json!(statistics.infinite);
        object["first_values"] = values.iter().take(SHOWN_VALUES).map(|v| number(Some(*v))).collect();
    }
    if let Some(strings) = tensor.strings() {
        object["first_values"] = strings.iter().take(SHOWN_VALUES).map(|s| json!(s)).collect();
    }
    if let Some(digest) = digest {
        object["sha256"] = json!(digest);
    }
    object
}

/// A number as JSON; numbers that JSON does not have are texts, absent ones null.
pub fn number(value: Option<f64>) -> Value {
    match value {
        None => Value::Null,
        Some(value) if value.is_finite() => json!(value),
        Some(value) if value.is_nan() => json!("nan"),
        Some(value) => json!(if value > 0.0 { "inf" } else { "-inf" }),
    }
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

/// The best classes of each row of scores: the last dimension that is not 1 counts the classes, the one before it the
/// rows. Equal scores are in the order of their indices, NaN comes last. `None` if there are no scores.
pub fn best_classes(tensor: &Tensor, count: usize) -> Option<Vec<Vec<Class>>> {
    let values = numbers(tensor)?;
    let sizes: Vec<usize> = tensor.shape().iter().copied().collect();
    let classes = sizes.iter().rev().copied().find(|size| *size != 1).unwrap_or(1);
    if values.is_empty() || classes == 0 {
        return None;
    }
    let best = |row: &[f64]| {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|a, b| compare_scores(row[*b], row[*a]).then(a.cmp(b)));
        order.into_iter().take(count).map(|index| Class { index, score: row[index] }).collect()
    };
    Some(values.chunks(classes).map(best).collect())
}

/// NaN is less than every number.
fn compare_scores(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// The labels of a file, one a line.
///
/// # Errors
/// When it cannot be read as text.
pub fn read_labels(path: &Path) -> Result<Vec<String>, Failure> {
    let bytes = read_file(path)?;
    let text = String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{} is no text", path.display())))?;
    Ok(text.lines().map(|line| line.trim_end().to_owned()).collect())
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
    fn classes_are_ranked() {
        let tensor = Tensor::from_slice(&[0.1f32, 0.7, f32::NAN, 0.7, 5.0, 1.0, 2.0, 3.0], [2, 4, 1, 1]).unwrap();
        let best = best_classes(&tensor, 3).unwrap();
        let indices: Vec<Vec<usize>> = best.iter().map(|row| row.iter().map(|c| c.index).collect()).collect();
        assert_eq!(indices, [[1, 3, 0], [0, 3, 2]]);
        assert_eq!(best_classes(&Tensor::zeros(ovir::ElementType::F32, [0, 4]).unwrap(), 1), None);
    }

    #[test]
    fn statistics_leave_out_what_is_no_number() {
        let statistics = Statistics::of(&[1.0, f64::NAN, 3.0, f64::INFINITY]);
        let expected = Statistics { min: Some(1.0), max: Some(f64::INFINITY), mean: Some(2.0), nan: 1, infinite: 1 };
        assert_eq!(statistics, expected);
        assert_eq!(Statistics::of(&[]).mean, None);
    }
}
