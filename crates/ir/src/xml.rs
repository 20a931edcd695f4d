//! XML events with byte offsets: the only module that knows quick-xml.

mod plain;

use std::borrow::Cow;

use ovir_diagnostics::Span;
use quick_xml::XmlVersion;
use quick_xml::errors::IllFormedError;
use quick_xml::escape::EscapeError;
use quick_xml::events::Event;
use quick_xml::events::attributes::{AttrError, Attributes};

/// A place where the text is not XML. It is boxed because results are passed around for every element.
pub(crate) type XmlError = Box<XmlDefect>;

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct XmlDefect {
    pub(crate) span: Span,
    pub(crate) message: String,
}

/// A start tag, or a tag without content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tag<'a> {
    /// The element name.
    pub(crate) name: &'a str,
    /// From `<` to `>`.
    pub(crate) span: Span,
    /// Whether it is closed at once: `<dim/>`.
    pub(crate) is_empty: bool,
    /// The text between `<` and `>` or `/>`.
    content: &'a str,
}

impl Tag<'_> {
    /// The `<` and the name.
    pub(crate) fn name_span(&self) -> Span {
        let start = self.span.range().start;
        Span::new(start, start + 1 + self.name.len())
    }

    /// Whether a `<` stands in the tag outside of quotes, or inside of quotes that are never closed.
    pub(crate) fn runs_on(&self) -> bool {
        let mut quote = None;
        for letter in self.content.chars() {
            match (quote, letter) {
                (None, '<') => return true,
                (None, '"' | '\'') => quote = Some(letter),
                (Some(open), _) if open == letter => quote = None,
                _ => {}
            }
        }
        quote.is_some() && self.content.contains('<')
    }
}

/// One XML attribute as it is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawAttribute<'a> {
    pub(crate) name: &'a str,
    pub(crate) name_span: Span,
    /// The text between the quotes, before references are resolved.
    pub(crate) raw: &'a str,
    pub(crate) value_span: Span,
    /// Whether the value is what is written: no references, and no white space but spaces.
    is_verbatim: bool,
}

/// What the text holds next.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    /// An element starts (and ends, if its tag is empty).
    Open(Tag<'a>),
    /// The innermost open element ends.
    Close,
    /// Text that is not white space alone, trimmed. References are resolved.
    Text(Cow<'a, str>, Span),
    /// The XML declaration.
    Declaration {
        /// The `encoding` it names.
        encoding: Option<String>,
        span: Span,
    },
    /// The end of the text.
    End,
}

/// Reads items from a text.
pub(crate) struct XmlReader<'a> {
    text: &'a str,
    reader: quick_xml::Reader<&'a [u8]>,
    /// Bytes of the byte order mark.
    mark: usize,
    /// Bytes that quick-xml never saw: the byte order mark and what was plain.
    unseen: usize,
    /// Whether quick-xml stands between two items, so that another one may be read in its place.
    is_between: bool,
    /// The names of the open elements.
    open: Vec<&'a str>,
    /// The attributes of the last tag that was plain.
    attributes: Vec<RawAttribute<'a>>,
    /// Where that tag starts.
    attributes_of: Option<usize>,
}

impl<'a> XmlReader<'a> {
    pub(crate) fn new(text: &'a str) -> XmlReader<'a> {
        let content = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut reader = quick_xml::Reader::from_str(content);
        let config = reader.config_mut();
        config.trim_text(true);
        // quick-xml does not see all tags, so that names are compared here.
        config.check_end_names = false;
        config.allow_unmatched_ends = true;
        let mark = text.len() - content.len();
        XmlReader {
            text,
            reader,
            mark,
            unseen: mark,
            is_between: false,
            open: Vec::new(),
            attributes: Vec::new(),
            attributes_of: None,
        }
    }

    /// The offset of the next byte.
    pub(crate) fn position(&self) -> usize {
        self.offset(self.reader.buffer_position())
    }

    /// Bytes of the text.
    pub(crate) fn size(&self) -> usize {
        self.text.len()
    }

    /// Whether the whole text is ASCII.
    pub(crate) fn is_ascii(&self) -> bool {
        self.text.is_ascii()
    }

    /// Whether nothing but a byte order mark stands before `span`.
    pub(crate) fn is_at_start(&self, span: Span) -> bool {
        span.range().start <= self.mark
    }

    /// The next item; comments and processing instructions are skipped.
    pub(crate) fn next_item(&mut self) -> Result<Item<'a>, XmlError> {
        match self.plain_item() {
            Some(item) => item,
            None => self.any_item(),
        }
    }

    /// The next item if it is written as nearly all are.
    fn plain_item(&mut self) -> Option<Result<Item<'a>, XmlError>> {
        if !self.is_between {
            return None;
        }
        let plain::Plain { what, end } = plain::read(self.text, self.position(), &mut self.attributes)?;
        self.go_to(end)?;
        Some(Ok(match what {
            plain::What::Text(text) => Item::Text(Cow::Borrowed(text), self.span_of(text)),
            plain::What::Close { start, name } => return Some(self.close(start, name)),
            plain::What::Open { start, name, is_empty } => {
                self.attributes_of = Some(start);
                let content_end = end - if is_empty { 2 } else { 1 };
                let content = self.text.get(start + 1..content_end).unwrap_or("");
                self.opened(Tag { name, span: Span::new(start, end), is_empty, content })
            }
        }))
    }

    /// The element `<dim>` that comes next, if it is written as nearly all are: its number and the place of that.
    pub(crate) fn plain_dimension(&mut self) -> Option<(i64, Span)> {
        if !self.is_between {
            return None;
        }
        let number = plain::dimension(self.text, self.position())?;
        self.go_to(number.end)?;
        Some((number.value, Span::new(number.text.start, number.text.end)))
    }

    /// Goes on behind what quick-xml did not see.
    fn go_to(&mut self, end: usize) -> Option<()> {
        self.unseen += end.checked_sub(self.position())?;
        *self.reader.get_mut() = self.text.as_bytes().get(end..)?;
        Some(())
    }

    /// The next item as quick-xml reads it.
    fn any_item(&mut self) -> Result<Item<'a>, XmlError> {
        loop {
            let before = self.position();
            let event = match self.reader.read_event() {
                Ok(event) => event,
                Err(error) => return Err(self.error(&error)),
            };
            self.is_between = matches!(event, Event::Start(_) | Event::Empty(_) | Event::End(_));
            let end = self.position();
            return Ok(match event {
                Event::Start(start) => {
                    let tag = self.tag(start.len(), start.name().as_ref().len(), end, false);
                    self.opened(tag)
                }
                Event::Empty(start) => {
                    let tag = self.tag(start.len(), start.name().as_ref().len(), end, true);
                    self.opened(tag)
                }
                Event::End(tag) => {
                    let space = self.text.get(before..).unwrap_or("");
                    return self.close(before + (space.len() - space.trim_ascii_start().len()), tag.name().as_ref());
                }
                Event::Text(text) => match text.into_inner() {
                    Cow::Borrowed("") => continue,
                    Cow::Borrowed(text) => {
                        let span = self.span_of(text);
                        Item::Text(Cow::Borrowed(text), span)
                    }
                    Cow::Owned(text) => Item::Text(Cow::Owned(text), Span::new(end, end)),
                },
                Event::CData(data) => {
                    let length = data.len();
                    let start = end.saturating_sub(length + "]]>".len());
                    Item::Text(data.into_inner(), Span::new(start, start + length))
                }
                Event::GeneralRef(reference) => {
                    let span = Span::new(end.saturating_sub(reference.len() + 2), end);
                    match resolve_reference(&reference) {
                        Some(text) => Item::Text(Cow::Owned(text), span),
                        None => {
                            return Err(defect(span, format!("the entity `&{};` is not defined", &*reference)));
                        }
                    }
                }
                Event::Decl(declaration) => Item::Declaration {
                    encoding: declaration.encoding().and_then(Result::ok).map(|name| name.into_owned()),
                    span: Span::new(end.saturating_sub(declaration.len() + 4), end),
                },
                Event::Comment(_) | Event::PI(_) | Event::DocType(_) => continue,
                Event::Eof => Item::End,
            });
        }
    }

    fn opened(&mut self, tag: Tag<'a>) -> Item<'a> {
        if !tag.is_empty {
            self.open.push(tag.name);
        }
        Item::Open(tag)
    }

    /// The end tag at `start` must be that of the innermost open element.
    fn close(&mut self, start: usize, name: &str) -> Result<Item<'a>, XmlError> {
        let wrong = match self.open.pop() {
            Some(expected) if expected == name => return Ok(Item::Close),
            Some(expected) => {
                IllFormedError::MismatchedEndTag { expected: expected.to_owned(), found: name.to_owned() }
            }
            None => IllFormedError::UnmatchedEndTag(name.to_owned()),
        };
        Err(self.defect_at(start, quick_xml::Error::IllFormed(wrong).to_string()))
    }

    /// The attributes of a tag if it was plain and is the last one that was: they are sound and each is there once.
    pub(crate) fn plain_attributes(&self, tag: &Tag<'a>) -> Option<&[RawAttribute<'a>]> {
        (self.attributes_of == Some(tag.span.range().start)).then_some(&self.attributes)
    }

    /// The attributes of a tag, duplicates checked. An error does not end the iteration.
    pub(crate) fn attributes(
        &self,
        tag: &Tag<'a>,
    ) -> impl Iterator<Item = Result<RawAttribute<'a>, XmlError>> + use<'a> {
        let text = self.text;
        // Positions that quick-xml reports count from the byte after `<`.
        let base = tag.span.range().start + 1;
        Attributes::new(tag.content, tag.name.len()).map(move |attribute| {
            let attribute = attribute.map_err(|error| attribute_error(&error, base))?;
            let name = attribute.key.into_inner();
            let Cow::Borrowed(raw) = attribute.value else {
                return Err(defect(Span::new(base, base), "an attribute cannot be read"));
            };
            let is_special = |b: u8| b < 0x20 || b == b'&' || b == b'<';
            let attribute = RawAttribute {
                name,
                name_span: span_in(text, name),
                raw,
                value_span: span_in(text, raw),
                is_verbatim: !raw.bytes().any(is_special),
            };
            check_attribute(text, &attribute)?;
            Ok(attribute)
        })
    }

    /// The span of a part of the text.
    pub(crate) fn span_of(&self, part: &str) -> Span {
        span_in(self.text, part)
    }

    fn tag(&self, length: usize, name_length: usize, end: usize, is_empty: bool) -> Tag<'a> {
        let closing = if is_empty { 2 } else { 1 };
        let content_start = end.saturating_sub(length + closing);
        let content = self.text.get(content_start..content_start + length).unwrap_or("");
        Tag {
            name: content.get(..name_length).unwrap_or(""),
            span: Span::new(content_start.saturating_sub(1), end),
            is_empty,
            content,
        }
    }

    /// An offset that quick-xml reports, as an offset into the text.
    fn offset(&self, position: u64) -> usize {
        let position = usize::try_from(position).unwrap_or(usize::MAX);
        position.saturating_add(self.unseen).min(self.text.len())
    }

    fn error(&self, error: &quick_xml::Error) -> XmlError {
        self.defect_at(self.offset(self.reader.error_position()), error.to_string())
    }

    /// A defect of the letter at `position`.
    fn defect_at(&self, position: usize, message: String) -> XmlError {
        let start = floor_boundary(self.text, position);
        let end = ceil_boundary(self.text, start.saturating_add(1));
        defect(Span::new(start, end), message)
    }
}

/// The value of an attribute: line ends and tabs become spaces, references are resolved.
pub(crate) fn attribute_value<'a>(attribute: &RawAttribute<'a>) -> Result<Cow<'a, str>, XmlError> {
    let raw = attribute.raw;
    if attribute.is_verbatim {
        return Ok(Cow::Borrowed(raw));
    }
    let whole = quick_xml::events::attributes::Attribute {
        key: quick_xml::name::QName(attribute.name),
        value: Cow::Borrowed(raw),
    };
    whole
        .normalized_value(XmlVersion::Implicit1_0)
        .map_err(|error| defect(attribute.value_span, reference_error(&error)))
}

fn reference_error(error: &quick_xml::Error) -> String {
    match error {
        quick_xml::Error::Escape(EscapeError::UnrecognizedEntity(_, name)) => {
            format!("the entity `&{}` is not defined", shorten(&format!("{name};")))
        }
        _ => error.to_string(),
    }
}

/// Whether a text can be the name of an element or attribute. Non-ASCII letters are all allowed.
pub(crate) fn is_xml_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    let starts = |b: u8| b.is_ascii_alphabetic() || b == b'_' || b == b':' || b >= 0x80;
    bytes.next().is_some_and(starts)
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'-' | b'.') || b >= 0x80)
}

/// The place of the first control character that XML 1.0 forbids.
pub(crate) fn find_control_character(text: &str) -> Option<usize> {
    // The first pass has no early exit, so that it runs as vector instructions over sound files.
    let forbidden = |b: u8| b < 0x20 && b != b'\n' && b != b'\t' && b != b'\r';
    let found =
        text.as_bytes().chunks(4096).position(|chunk| chunk.iter().fold(false, |found, b| found | forbidden(*b)))?;
    let start = found * 4096;
    let within = text.as_bytes().get(start..)?.iter().position(|b| forbidden(*b))?;
    Some(start + within)
}

fn defect(span: Span, message: impl Into<String>) -> XmlError {
    Box::new(XmlDefect { span, message: message.into() })
}

fn check_attribute(text: &str, attribute: &RawAttribute<'_>) -> Result<(), XmlError> {
    if !is_xml_name(attribute.name) {
        return Err(defect(attribute.name_span, format!("`{}` is not an attribute name", shorten(attribute.name))));
    }
    let before = attribute.name_span.range().start.checked_sub(1);
    let before = before.and_then(|index| text.as_bytes().get(index));
    if !before.is_some_and(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r')) {
        return Err(defect(attribute.name_span, "white space is missing before an attribute"));
    }
    if !attribute.is_verbatim && attribute.raw.contains('<') {
        return Err(defect(attribute.value_span, "`<` stands in an attribute; it must be written as `&lt;`"));
    }
    Ok(())
}

fn attribute_error(error: &AttrError, base: usize) -> XmlError {
    let (position, message) = match error {
        AttrError::ExpectedEq(at) => (*at, "an attribute has no `=`"),
        AttrError::ExpectedValue(at) => (*at, "an attribute has no value"),
        AttrError::UnquotedValue(at) => (*at, "the value of an attribute is not in quotes"),
        AttrError::ExpectedQuote(at, _) => (*at, "the closing quote of an attribute is missing"),
        AttrError::Duplicated(at, _) => (*at, "an attribute is given twice"),
    };
    let start = base.saturating_add(position);
    defect(Span::new(start, start.saturating_add(1)), message)
}

fn resolve_reference(reference: &quick_xml::events::BytesRef<'_>) -> Option<String> {
    if let Ok(Some(character)) = reference.resolve_char_ref() {
        return Some(character.to_string());
    }
    quick_xml::escape::resolve_predefined_entity(reference).map(str::to_owned)
}

fn span_in(text: &str, part: &str) -> Span {
    let start = part.as_ptr().addr().saturating_sub(text.as_ptr().addr()).min(text.len());
    Span::new(start, (start + part.len()).min(text.len()))
}

fn floor_boundary(text: &str, position: usize) -> usize {
    let mut position = position.min(text.len());
    while !text.is_char_boundary(position) {
        position -= 1;
    }
    position
}

fn ceil_boundary(text: &str, position: usize) -> usize {
    let mut position = position.min(text.len());
    while !text.is_char_boundary(position) {
        position += 1;
    }
    position
}

/// The beginning of a text, for messages.
pub(crate) fn shorten(text: &str) -> Cow<'_, str> {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}...", text.get(..end).unwrap_or(""))),
    }
}

#[cfg(test)]
mod tests;
