//! Ranges of single attributes.

use std::ops::RangeInclusive;

use crate::{AttributeReader, OpError};

/// Reports an integer outside of its range.
pub(crate) fn check_integer(
    reader: &mut AttributeReader<'_>,
    name: &'static str,
    value: i64,
    range: RangeInclusive<i64>,
) {
    if !range.contains(&value) {
        let message = format!("`{name}` {value} is out of range [{}, {}]", range.start(), range.end());
        reader.report(OpError::attribute(name, message));
    }
}

/// Reports a number outside of its range; NaN lies in none. An infinite end is not part of the range.
pub(crate) fn check_number(
    reader: &mut AttributeReader<'_>,
    name: &'static str,
    value: f32,
    range: RangeInclusive<f32>,
) {
    let (start, end) = (*range.start(), *range.end());
    if range.contains(&value) && value.is_finite() {
        return;
    }
    let rule = match (start.is_finite(), end.is_finite()) {
        (true, false) => format!("must be a number of at least {start}"),
        (false, false) => "must be a finite number".to_owned(),
        _ => format!("is out of range [{start}, {end}]"),
    };
    reader.report(OpError::attribute(name, format!("`{name}` {value} {rule}")));
}

/// Reports a number that is not positive and finite.
pub(crate) fn check_positive(reader: &mut AttributeReader<'_>, name: &'static str, value: f32) {
    if !(value > 0.0 && value.is_finite()) {
        reader.report(OpError::attribute(name, format!("`{name}` {value} must be positive")));
    }
}
