//! The names that a misspelt one was meant to be.

/// The candidate nearest to a misspelt word, if one is near; the first of several that are equally near. Case does not
/// count.
pub fn nearest<'n>(word: &str, candidates: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    near(word, candidates).into_iter().min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// The candidates that are near to a misspelt word, nearest first, at most three.
pub fn nearest_all<'n>(word: &str, candidates: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    const MOST: usize = 3;
    let mut near = near(word, candidates);
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().take(MOST).map(|(_, candidate)| candidate).collect()
}

/// The candidates near to a word, each with its distance.
fn near<'n>(word: &str, candidates: impl IntoIterator<Item = &'n str>) -> Vec<(usize, &'n str)> {
    // A longer word is no slip of any name, and distances take time.
    const LONGEST: usize = 100;
    if word.len() > LONGEST {
        return Vec::new();
    }
    let lower = word.to_ascii_lowercase();
    candidates
        .into_iter()
        .map(|c| (strsim::damerau_levenshtein(&lower, &c.to_ascii_lowercase()), c))
        .filter(|(distance, c)| *distance <= 1 + c.len().min(word.len()) / 4)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn slips_are_found() {
        assert_eq!(nearest("Gater", ["Gather", "GatherND"]), Some("Gather"));
        assert_eq!(nearest("MATMULL", ["Add", "MatMul"]), Some("MatMul"));
        assert_eq!(nearest("ov530", ["OV501", "OV503"]), Some("OV503"));
        assert_eq!(nearest_all("Scater", ["Scale", "Add", "Scatter"]), ["Scatter", "Scale"]);
        assert_eq!(nearest("thickness", ["axis", "strides"]), None);
        assert_eq!(nearest(&"x".repeat(1000), ["x"]), None);
    }
}
