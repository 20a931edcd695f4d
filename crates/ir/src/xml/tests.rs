use super::*;
use pretty_assertions::assert_eq;

const SAMPLE: &str = concat!(
    "\u{feff}<?xml version=\"1.0\"?>\n<!-- c --><net name=\"m &lt;é>\" version='11'>\n\t<a b=\"1\" c=\"x/>y\"/>",
    "<d e = \"2\"><dim> 64 </dim>\n<dim>-1</dim >te<!-- c -->xt &amp; <![CDATA[<]]></d>\r\n</net>\n"
);

/// All that a text holds, up to the first defect.
fn items(text: &str, is_plain_allowed: bool) -> Vec<String> {
    let mut reader = XmlReader::new(text);
    let mut items = Vec::new();
    // A defect ends reading, and there are not more items than letters.
    for _ in 0..=text.len() {
        if !is_plain_allowed {
            reader.is_between = false;
        }
        let item = reader.next_item();
        items.push(format!("{item:?} at {}", reader.position()));
        match item {
            Ok(Item::Open(tag)) => items.push(attributes(&reader, &tag)),
            Ok(Item::End) | Err(_) => break,
            _ => {}
        }
    }
    items
}

fn attributes<'a>(reader: &XmlReader<'a>, tag: &Tag<'a>) -> String {
    match reader.plain_attributes(tag) {
        Some(plain) => format!("{:?}", plain.iter().copied().map(Ok).collect::<Vec<Result<_, XmlError>>>()),
        None => format!("{:?}", reader.attributes(tag).collect::<Vec<_>>()),
    }
}

#[test]
fn plain_items_are_what_quick_xml_reads() {
    assert_eq!(items(SAMPLE, true), items(SAMPLE, false));
    let places: Vec<usize> = SAMPLE.char_indices().map(|(index, _)| index).collect();
    for (number, start) in places.iter().enumerate() {
        let end = places.get(number + 1).copied().unwrap_or(SAMPLE.len());
        for letter in ["", "<", ">", "\"", "'", "&", "/", " ", "=", "\n", "\0", "x", "1", "é", "--", "b=\"\" "] {
            for kept in [*start, end] {
                let text = format!("{}{letter}{}", &SAMPLE[..kept], &SAMPLE[end..]);
                assert_eq!(items(&text, true), items(&text, false), "{text}");
            }
        }
    }
}

#[test]
fn end_tags_are_compared() {
    let last = |text: &str| items(text, true).pop().unwrap();
    assert!(last("<a><b></a>").contains("expected `</b>`, but `</a>` was found"), "{}", last("<a><b></a>"));
    assert!(last("<a></a></b>").contains("does not match any open tag"), "{}", last("<a></a></b>"));
}

#[test]
fn plain_dimensions_are_numbers_alone() {
    let dimension = |text: &str| plain::dimension(text, 1).map(|n| (n.value, text[n.text].to_owned(), n.end));
    assert_eq!(dimension("> \n<dim>64</dim><"), Some((64, "64".to_owned(), 16)));
    assert_eq!(dimension("><dim>-1</dim>"), Some((-1, "-1".to_owned(), 14)));
    for other in ["-2", "", "-", "+1", " 1", "1 ", "1.", "1234567890", "1<", "x"] {
        assert_eq!(dimension(&format!("><dim>{other}</dim>")), None, "{other}");
    }
    assert_eq!(dimension("><dim>1</dim"), None);
    assert_eq!(dimension("><dims>1</dims>"), None);
}
