//! Lists such as `NAME[1,3,224,224],NAME2[1..10,?,-1]`, or `[..]` alone where there is one input.

use ovir::{Model, PartialShape};

use crate::failure::Failure;

/// One entry: a name, empty where none was given, and what stands in the brackets.
pub type NamedList = (String, String);

/// Splits a list into its entries. `what` is named in errors.
///
/// # Errors
/// When brackets are missing.
pub fn split(text: &str, what: &str) -> Result<Vec<NamedList>, Failure> {
    let wrong =
        || Failure::usage(format!("{what} \"{text}\" cannot be read; write NAME[..],NAME2[..], or [..] for one input"));
    let mut entries = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (entry, after) = split_first(rest).ok_or_else(wrong)?;
        let open = entry.rfind('[').ok_or_else(wrong)?;
        entries.push((entry[..open].trim().to_owned(), entry[open + 1..].to_owned()));
        rest = after;
    }
    if entries.is_empty() {
        return Err(wrong());
    }
    Ok(entries)
}

/// The first entry without its closing bracket, and what follows its comma. A name may hold brackets: an entry ends at
/// a bracket before a comma or the end.
fn split_first(text: &str) -> Option<(&str, &str)> {
    for (position, _) in text.match_indices(']') {
        let after = text[position + 1..].trim_start();
        if after.is_empty() {
            return Some((&text[..position], ""));
        }
        if let Some(after) = after.strip_prefix(',') {
            return Some((&text[..position], after.trim_start()));
        }
    }
    None
}

/// The index of the input that an entry means; an entry without name means the only input.
///
/// # Errors
/// Unknown names, and no name where there are several inputs.
pub fn input_of(model: &Model, name: &str, what: &str) -> Result<usize, Failure> {
    if !name.is_empty() {
        return Ok(model.input_index(name)?);
    }
    let inputs = model.inputs();
    match inputs.len() {
        1 => Ok(0),
        count => {
            let names: Vec<String> = inputs.iter().map(|input| format!("\"{}\"", input.name)).collect();
            Err(Failure::usage(format!(
                "{what} needs a name: the model has {count} inputs{}{}",
                if count == 0 { "" } else { ": " },
                names.join(", ")
            )))
        }
    }
}

/// The shapes that a `--shape` names, by input index.
///
/// # Errors
/// Text that is no shape, unknown names, and an input that is named twice.
pub fn shapes(model: &Model, text: &str, flag: &str) -> Result<Vec<(usize, PartialShape)>, Failure> {
    // A bare list without brackets is common and has one meaning.
    let text = if text.contains('[') { text.to_owned() } else { format!("[{text}]") };
    let mut shapes: Vec<(usize, PartialShape)> = Vec::new();
    for (name, dims) in split(&text, flag)? {
        let index = input_of(model, &name, flag)?;
        let shape = dims.parse::<PartialShape>().map_err(|error| Failure::from(error).within(flag))?;
        if shapes.iter().any(|(other, _)| *other == index) {
            let input = &model.inputs()[index].name;
            return Err(Failure::usage(format!("{flag} names input \"{input}\" twice")));
        }
        shapes.push((index, shape));
    }
    Ok(shapes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn entries(text: &str) -> Vec<NamedList> {
        split(text, "--shape").unwrap()
    }

    fn entry(name: &str, list: &str) -> NamedList {
        (name.to_owned(), list.to_owned())
    }

    #[test]
    fn entries_are_split() {
        assert_eq!(entries("[1,3]"), [entry("", "1,3")]);
        assert_eq!(entries("a[1,?], b:0[1..2,-1]"), [entry("a", "1,?"), entry("b:0", "1..2,-1")]);
        assert_eq!(entries("x[0][],y[2]"), [entry("x[0]", ""), entry("y", "2")]);
    }

    #[test]
    fn broken_lists_are_refused() {
        for text in ["", "a", "a[1", "a]1[", "a[1],b"] {
            assert!(split(text, "--shape").is_err(), "{text}");
        }
    }
}
