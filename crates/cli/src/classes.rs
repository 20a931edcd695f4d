//! Scores as classes: the best of them, and their names.

use std::cmp::Ordering;
use std::path::Path;

use ovir::Tensor;

use crate::failure::Failure;
use crate::load::read_file;

/// A class and its score.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// The index.
    pub index: usize,
    /// The score.
    pub score: f64,
}

/// The best classes of each row of scores: the last dimension that is not 1 counts the classes, the one before it the
/// rows. Equal scores are in the order of their indices, NaN comes last. `None` if there are no scores.
pub fn best_classes(tensor: &Tensor, count: usize) -> Option<Vec<Vec<Class>>> {
    let values = tensor.numbers()?;
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
    fn classes_are_ranked() {
        let tensor = Tensor::from_slice(&[0.1f32, 0.7, f32::NAN, 0.7, 5.0, 1.0, 2.0, 3.0], [2, 4, 1, 1]).unwrap();
        let best = best_classes(&tensor, 3).unwrap();
        let indices: Vec<Vec<usize>> = best.iter().map(|row| row.iter().map(|c| c.index).collect()).collect();
        assert_eq!(indices, [[1, 3, 0], [0, 3, 2]]);
        assert_eq!(best_classes(&Tensor::zeros(ovir::ElementType::F32, [0, 4]).unwrap(), 1), None);
    }
}
