//! Which release of OpenVINO a model needs.

/// The first release with each opset, from opset1, as its documentation of operation sets lists them.
const RELEASES: [&str; 15] = [
    "2020.1", "2020.2", "2020.4", "2021.1", "2021.2", "2021.3", "2021.4", "2022.1", "2022.2", "2022.3", "2023.0",
    "2023.1", "2023.2", "2024.0", "2024.5",
];

/// The first release that reads IR version 11.
const VERSION_11: &str = "2022.1";

/// The oldest release that reads a model of an IR version with operations from these opsets; `None` if one of the names
/// is no opset, or its release is not known here.
pub fn oldest_release<'n>(ir_version: u32, opsets: impl Iterator<Item = &'n str>) -> Option<&'static str> {
    let mut oldest = if ir_version >= 11 { VERSION_11 } else { RELEASES[0] };
    for opset in opsets {
        let number: usize = opset.strip_prefix("opset")?.parse().ok()?;
        oldest = oldest.max(RELEASES.get(number.checked_sub(1)?)?);
    }
    Some(oldest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn the_newest_opset_decides() {
        assert_eq!(oldest_release(11, ["opset1", "opset13"].into_iter()), Some("2023.2"));
        assert_eq!(oldest_release(11, ["opset1"].into_iter()), Some("2022.1"));
        assert_eq!(oldest_release(10, ["opset3"].into_iter()), Some("2020.4"));
        assert_eq!(oldest_release(11, ["opset99"].into_iter()), None);
        assert_eq!(oldest_release(11, ["extension"].into_iter()), None);
    }

    #[test]
    fn releases_are_in_order() {
        assert!(RELEASES.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
