//! XML as nearly all IR files are written, read in one pass over its bytes.
//!
//! What is plain here is certain to be sound XML of one meaning. Everything else (other quotes, references, comments,
//! white space that is no space, defects of any kind) is left to quick-xml, which reads from the same place.

use std::ops::Range;

use super::{RawAttribute, span_in};

/// Letters that a name goes on with. Those of other alphabets are left to quick-xml.
const NAME: u8 = 1;

/// What stands between double quotes and means itself.
const VALUE: u8 = 2;

/// What text between elements consists of: numbers, mostly.
const TEXT: u8 = 4;

/// White space between attributes and elements.
const SPACE: u8 = 8;

/// Letters that a name begins with.
const INITIAL: u8 = 16;

/// The most attributes of a plain tag: each is compared with those before it.
const MOST_ATTRIBUTES: usize = 16;

/// Numbers with more digits than this are left to others.
const MOST_DIGITS: usize = 9;

static CLASSES: [u8; 256] = classes();

/// What was found, and the offset behind it.
pub(super) struct Plain<'a> {
    pub(super) what: What<'a>,
    pub(super) end: usize,
}

/// A plain item; offsets count from the start of the text.
pub(super) enum What<'a> {
    /// A tag; its attributes are in the list that was given.
    Open { start: usize, name: &'a str, is_empty: bool },
    /// An end tag without white space in it.
    Close { start: usize, name: &'a str },
    /// Text without white space around it.
    Text(&'a str),
}

/// A number in an element, the place of its text, and the offset behind the element.
pub(super) struct Number {
    pub(super) value: i64,
    pub(super) text: Range<usize>,
    pub(super) end: usize,
}

/// Reads bytes from a place on.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

/// The item at `at`, after white space, if it is plain. The attributes of a tag go to `attributes`.
pub(super) fn read<'a>(text: &'a str, at: usize, attributes: &mut Vec<RawAttribute<'a>>) -> Option<Plain<'a>> {
    let mut cursor = Cursor { text, at };
    cursor.take(SPACE);
    let start = cursor.at;
    let what = match (cursor.peek()?, cursor.text.as_bytes().get(start + 1)) {
        (b'<', Some(b'/')) => {
            cursor.at += 2;
            let name = cursor.name()?;
            cursor.expect(b'>')?;
            What::Close { start, name }
        }
        (b'<', _) => {
            cursor.at += 1;
            let name = cursor.name()?;
            let is_empty = cursor.attributes(attributes)?;
            What::Open { start, name, is_empty }
        }
        _ => {
            let words = cursor.take(TEXT);
            (cursor.peek()? == b'<' && !words.is_empty()).then_some(What::Text(words.trim_end_matches(' ')))?
        }
    };
    Some(Plain { what, end: cursor.at })
}

/// The dimension at `at`, after white space: an element `<dim>` with -1 or a number of at most nine digits. Half of the
/// items of an IR file are dimensions.
pub(super) fn dimension(text: &str, at: usize) -> Option<Number> {
    let bytes = text.as_bytes();
    let mut rest = bytes.get(at..)?;
    while let [b' ' | b'\t' | b'\n' | b'\r', after @ ..] = rest {
        rest = after;
    }
    let number = rest.strip_prefix(b"<dim>")?;
    let digits = number.strip_prefix(b"-").unwrap_or(number);
    let (mut value, mut rest) = (0i64, digits);
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        value = value * 10 + i64::from(digit - b'0');
        rest = after;
        if digits.len() - rest.len() > MOST_DIGITS {
            return None;
        }
    }
    if rest.len() == digits.len() {
        return None;
    }
    let text = bytes.len() - number.len()..bytes.len() - rest.len();
    let end = bytes.len() - rest.strip_prefix(b"</dim>")?.len();
    let value = if digits.len() < number.len() { -value } else { value };
    (value >= -1).then_some(Number { value, text, end })
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// All that follows of one of the classes.
    fn take(&mut self, classes: u8) -> &'a str {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| class_of(*byte) & classes == 0).unwrap_or(rest.len());
        let start = self.at;
        self.at += length;
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn name(&mut self) -> Option<&'a str> {
        (class_of(self.peek()?) & INITIAL != 0).then(|| self.take(NAME))
    }

    /// The attributes and the end of a tag. Returns whether the tag is closed at once.
    fn attributes(&mut self, attributes: &mut Vec<RawAttribute<'a>>) -> Option<bool> {
        attributes.clear();
        loop {
            let has_space = !self.take(SPACE).is_empty();
            match self.peek()? {
                b'>' => {
                    self.at += 1;
                    return Some(false);
                }
                b'/' => {
                    self.at += 1;
                    return self.expect(b'>').map(|()| true);
                }
                _ if !has_space || attributes.len() == MOST_ATTRIBUTES => return None,
                _ => {}
            }
            let name = self.name()?;
            self.expect(b'=')?;
            self.expect(b'"')?;
            let raw = self.take(VALUE);
            self.expect(b'"')?;
            if attributes.iter().any(|earlier| earlier.name == name) {
                return None;
            }
            let (name_span, value_span) = (span_in(self.text, name), span_in(self.text, raw));
            attributes.push(RawAttribute { name, name_span, raw, value_span, is_verbatim: true });
        }
    }
}

fn class_of(byte: u8) -> u8 {
    CLASSES.get(usize::from(byte)).copied().unwrap_or(0)
}

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut index = 0usize;
    while index < classes.len() {
        let [byte, ..] = index.to_le_bytes();
        let mut class = 0;
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'-' | b'.') {
            class |= NAME;
        }
        if byte.is_ascii_alphabetic() || matches!(byte, b'_' | b':') {
            class |= INITIAL;
        }
        if byte >= b' ' && !matches!(byte, b'"' | b'&' | b'<') {
            class |= VALUE;
        }
        if byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'_' | b'-' | b'.' | b',') {
            class |= TEXT;
        }
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            class |= SPACE;
        }
        #[expect(
            clippy::indexing_slicing,
            reason = "the loop ends at the length, and nothing else works in a constant"
        )]
        {
            classes[index] = class;
        }
        index += 1;
    }
    classes
}
