//! How two tensors differ.

use ovir::Tensor;

/// How far two tensors are from each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Why they cannot be compared: types or shapes differ.
    pub reason: Option<String>,
    /// The largest absolute difference.
    pub max_absolute: f64,
    /// The largest difference relative to the expected value.
    pub max_relative: f64,
    /// Elements beyond the tolerance.
    pub beyond: usize,
    /// All elements.
    pub elements: usize,
    /// The index of the worst element, and both values.
    pub worst: Option<(usize, f64, f64)>,
}

impl Difference {
    /// Compares element by element; `rtol` is relative to the expected value.
    pub fn of(found: &Tensor, expected: &Tensor, rtol: f64, atol: f64) -> Difference {
        let mut difference = Difference {
            reason: None,
            max_absolute: 0.0,
            max_relative: 0.0,
            beyond: 0,
            elements: found.elements(),
            worst: None,
        };
        if found.shape() != expected.shape() {
            difference.reason = Some(format!("shape {} against {}", found.shape(), expected.shape()));
            return difference;
        }
        if found.element_type() == expected.element_type() && found == expected {
            return difference;
        }
        match (found.numbers(), expected.numbers()) {
            (Some(found), Some(expected)) => difference.add_numbers(&found, &expected, rtol, atol),
            (None, None) => {
                let pairs = found.strings().unwrap_or_default().iter().zip(expected.strings().unwrap_or_default());
                difference.beyond = pairs.filter(|(a, b)| a != b).count();
            }
            _ => {
                let reason = format!("{} against {}", found.element_type(), expected.element_type());
                difference.reason = Some(reason);
            }
        }
        difference
    }

    fn add_numbers(&mut self, found: &[f64], expected: &[f64], rtol: f64, atol: f64) {
        let mut worst = 0.0;
        for (index, (a, b)) in found.iter().zip(expected).enumerate() {
            if a == b || (a.is_nan() && b.is_nan()) {
                continue;
            }
            let absolute = if a.is_finite() && b.is_finite() { (a - b).abs() } else { f64::INFINITY };
            let relative = absolute / b.abs();
            self.max_absolute = self.max_absolute.max(absolute);
            self.max_relative = self.max_relative.max(if relative.is_nan() { f64::INFINITY } else { relative });
            let allowed = atol + rtol * b.abs();
            if absolute.is_infinite() || absolute > allowed {
                self.beyond += 1;
            }
            // How often the tolerance is exceeded tells the worst element.
            let excess = if absolute.is_infinite() { f64::INFINITY } else { absolute / allowed.max(f64::MIN_POSITIVE) };
            if self.worst.is_none() || excess > worst {
                worst = excess;
                self.worst = Some((index, *a, *b));
            }
        }
    }

    /// Whether no element is beyond the tolerance.
    #[cfg(any(feature = "run", test))]
    pub fn is_within(&self) -> bool {
        self.reason.is_none() && self.beyond == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn difference(a: &[f32], b: &[f32]) -> Difference {
        let tensor = |values: &[f32]| Tensor::from_slice(values, [values.len()]).unwrap();
        Difference::of(&tensor(a), &tensor(b), 0.0, 0.1)
    }

    #[test]
    fn differences_are_measured() {
        assert!(difference(&[1.0, f32::NAN], &[1.05, f32::NAN]).is_within());
        let far = difference(&[1.0, 2.0, 3.0], &[1.0, 4.0, 3.5]);
        assert_eq!((far.beyond, far.worst), (2, Some((1, 2.0, 4.0))));
        assert_eq!(far.max_absolute, 2.0);
        for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN), (f32::INFINITY, 1.0), (f32::INFINITY, f32::NEG_INFINITY)] {
            assert!(!difference(&[a], &[b]).is_within(), "{a} {b}");
        }
        assert!(difference(&[f32::INFINITY], &[f32::INFINITY]).is_within());
        assert!(!difference(&[1.0], &[1.0, 1.0]).is_within());
    }
}
