//! Arithmetic on bounds that follows the rules of integer operations: division, remainders, comparisons.

use ovir_tensor::Value;

/// The quotient rounded down, or towards zero.
pub(crate) fn value_divide(a: Value, b: Value, floor: bool) -> Value {
    if b.get() == Some(1) {
        return a;
    }
    if b.min <= 0 && b.max >= 0 {
        return Value::UNKNOWN;
    }
    let quotient = |x: i64, y: i64| divide_bound(x, y, floor);
    let corners = [quotient(a.min, b.min), quotient(a.min, b.max), quotient(a.max, b.min), quotient(a.max, b.max)];
    let (low, high) = corners.iter().fold((i64::MAX, i64::MIN), |(l, h), c| (l.min(*c), h.max(*c)));
    Value::interval(low, high)
}

/// The remainder of truncated division.
pub(crate) fn value_modulo(a: Value, b: Value) -> Value {
    match (a.get(), b.get()) {
        (Some(x), Some(y)) if y != 0 => Value::known(x.wrapping_rem(y)),
        (_, Some(y)) if y > 0 && a.min >= 0 && a.max < y => a,
        (_, Some(y)) if y > 0 => {
            Value::interval(if a.min >= 0 { 0 } else { 1 - y }, if a.max <= 0 { 0 } else { y - 1 })
        }
        _ => Value::UNKNOWN,
    }
}

/// The remainder of division rounded down.
pub(crate) fn value_floor_modulo(a: Value, b: Value) -> Value {
    match (a.get(), b.get()) {
        (Some(x), Some(y)) if y > 0 => Value::known(x.rem_euclid(y)),
        (_, Some(y)) if y > 0 && a.min >= 0 && a.max < y => a,
        (_, Some(y)) if y > 0 => Value::interval(0, y - 1),
        _ => Value::UNKNOWN,
    }
}

/// Whether `a < b`, as a boolean value.
pub(crate) fn value_less(a: Value, b: Value) -> Value {
    truth(a.max < b.min, a.min >= b.max || is_same(a, b))
}

/// Whether `a <= b`, as a boolean value.
pub(crate) fn value_less_equal(a: Value, b: Value) -> Value {
    truth(a.max <= b.min || is_same(a, b), a.min > b.max)
}

/// Whether `a == b`, as a boolean value.
pub(crate) fn value_equal(a: Value, b: Value) -> Value {
    let same = is_same(a, b) || (a.get().is_some() && a.get() == b.get());
    truth(same, a.max < b.min || b.max < a.min)
}

/// The opposite of a boolean value.
pub(crate) fn value_not(a: Value) -> Value {
    truth(a.max <= 0, a.min >= 1)
}

/// A boolean value that is certainly true, certainly false, or unknown.
pub(crate) fn truth(certainly: bool, never: bool) -> Value {
    match (certainly, never) {
        (true, _) => Value::known(1),
        (_, true) => Value::known(0),
        _ => Value::interval(0, 1),
    }
}

/// Equal symbols mean equal numbers. Unbounded ends compare as numbers, which errs towards "unknown" only.
fn is_same(a: Value, b: Value) -> bool {
    a.symbol.is_some() && a.symbol == b.symbol
}

/// One end of an interval divided; `i64::MIN` and `i64::MAX` stay unbounded.
fn divide_bound(x: i64, y: i64, floor: bool) -> i64 {
    let unbounded = x == i64::MIN || x == i64::MAX;
    if y == i64::MIN || y == i64::MAX {
        // A bounded number over an unbounded one tends to zero, from the side that its sign says.
        return match (unbounded, (x < 0) == (y < 0) || x == 0, floor) {
            (true, same, _) => {
                if same {
                    i64::MAX
                } else {
                    i64::MIN
                }
            }
            (false, false, true) => -1,
            _ => 0,
        };
    }
    if unbounded {
        return if (x < 0) == (y < 0) { i64::MAX } else { i64::MIN };
    }
    let quotient = x.saturating_div(y);
    if floor && x % y != 0 && (x < 0) != (y < 0) { quotient.saturating_sub(1) } else { quotient }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn intervals_hold_every_result() {
        let intervals: Vec<Value> = (-4..5).flat_map(|a| (a..5).map(move |b| Value::interval(a, b))).collect();
        for a in &intervals {
            for b in &intervals {
                for x in a.min..=a.max {
                    for y in (b.min..=b.max).filter(|y| *y != 0) {
                        let holds = |v: Value, r: i64| assert!(v.min <= r && r <= v.max, "{a:?} {b:?} {x} {y}: {v:?}");
                        let floor = (x as f64 / y as f64).floor() as i64;
                        holds(value_divide(*a, *b, true), floor);
                        holds(value_divide(*a, *b, false), x / y);
                        holds(value_modulo(*a, *b), x % y);
                        holds(value_floor_modulo(*a, *b), x - floor * y);
                        holds(value_less(*a, *b), i64::from(x < y));
                        holds(value_less_equal(*a, *b), i64::from(x <= y));
                        holds(value_equal(*a, *b), i64::from(x == y));
                        holds(value_not(value_less(*a, *b)), i64::from(x >= y));
                    }
                }
            }
        }
    }

    #[test]
    fn unbounded_ends_stay_unbounded() {
        let open = Value::interval(4, i64::MAX);
        assert_eq!(value_divide(open, Value::known(2), true), Value::interval(2, i64::MAX));
        assert_eq!(value_divide(Value::known(8), open, true), Value::interval(0, 2));
        assert_eq!(value_divide(Value::known(-8), open, true), Value::interval(-2, -1));
    }
}
