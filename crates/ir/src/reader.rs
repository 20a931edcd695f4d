//! XML text to [`Document`].
//!
//! Reading goes on past every defect after which the rest still has a plain meaning, so that one run reports them all.
//! Only damaged XML and exceeded limits end it. What is reported here is how the file is written; whether its layers
//! and edges make a sound graph is for others to say.

mod attributes;
mod body;
mod foreign;
mod layer;
mod rt_info;

use ovir_diagnostics::{Code, Diagnostic, LayerReference, Severity, Span, nearest};

use crate::document::{Document, Located, Text};
use crate::limits::{Limits, MAX_TEXT_BYTES, beyond};
use crate::xml::{Item, Tag, XmlError, XmlReader, find_control_character, is_xml_name, shorten};

/// The IR versions that are read.
const IR_VERSIONS: std::ops::RangeInclusive<u32> = 10..=11;

/// Reads the XML of an IR file (version 10 or 11), in UTF-8 with or without a byte order mark.
///
/// The document is `None` if the XML is damaged, is no IR of a supported version, or exceeds a limit; there is then an
/// error among the diagnostics. Otherwise the document holds all that could be read, even if there are errors. The
/// diagnostics are in the order in which they were found.
pub fn read_document(xml: &[u8]) -> (Option<Document<'_>>, Vec<Diagnostic>) {
    read_document_within(xml, &Limits::default())
}

/// As [`read_document`], with limits of one's own.
pub fn read_document_within<'a>(xml: &'a [u8], limits: &Limits) -> (Option<Document<'a>>, Vec<Diagnostic>) {
    let checked = readable(xml).and_then(|()| checked_text(xml));
    read_checked(checked, limits)
}

/// As [`read_document_within`], of a text that is known to be UTF-8.
pub fn read_text_within<'a>(xml: &'a str, limits: &Limits) -> (Option<Document<'a>>, Vec<Diagnostic>) {
    read_checked(readable(xml.as_bytes()).map(|()| xml), limits)
}

fn read_checked<'a>(
    text: std::result::Result<&'a str, Box<Diagnostic>>,
    limits: &Limits,
) -> (Option<Document<'a>>, Vec<Diagnostic>) {
    let text = match text {
        Ok(text) => text,
        Err(diagnostic) => return (None, vec![*diagnostic]),
    };
    let mut reader = Reader {
        xml: XmlReader::new(text),
        diagnostics: Vec::new(),
        context: Vec::new(),
        limits: *limits,
        layers: 0,
        edges: 0,
        is_incomplete: false,
    };
    if let Some(position) = find_control_character(text) {
        reader.report(
            Diagnostic::new(Code::XmlSyntax, "a control character is not allowed in XML")
                .at(Span::new(position, position + 1), "this byte"),
        );
    }
    let document = reader.read_document().ok();
    (document, reader.diagnostics)
}

/// Reading cannot go on; the reason has been reported.
#[derive(Debug)]
struct Stop;

type Result<T> = std::result::Result<T, Stop>;

struct Reader<'a> {
    xml: XmlReader<'a>,
    diagnostics: Vec<Diagnostic>,
    /// The layers that are being read, outermost first, so that findings can name the innermost.
    context: Vec<LayerContext<'a>>,
    limits: Limits,
    layers: usize,
    edges: usize,
    /// Whether something of the current body was left out.
    is_incomplete: bool,
}

struct LayerContext<'a> {
    id: Text<'a>,
    name: Text<'a>,
    type_name: Text<'a>,
    version: Text<'a>,
}

/// The sections of an element that have been seen, with the places of their tags.
#[derive(Default)]
struct Seen<'a>(ovir_tensor::SmallVec<[(&'a str, Span); 4]>);

impl<'a> Reader<'a> {
    fn read_document(&mut self) -> Result<Document<'a>> {
        let root = self.root()?;
        if root.name != "net" {
            let message = format!("the root element is <{}>, not <net>", shorten(root.name));
            return self.stop(Diagnostic::new(Code::NotIr, message).at(root.span, "not an IR file"));
        }
        let mut attributes = self.attributes(&root)?;
        let name = attributes.take("name").unwrap_or_default();
        let version = match attributes.take("version") {
            Some(text) => self.version(&text)?,
            None => {
                let message = "<net> has no attribute `version`";
                self.report(
                    Diagnostic::new(Code::MissingXmlAttribute, message)
                        .at(root.span, "a version is needed")
                        .note("the file is read as IR version 11"),
                );
                Located::from(*IR_VERSIONS.end())
            }
        };
        self.no_more(&attributes, &root);
        let mut document = Document { name, version, span: root.span, ..Document::default() };
        self.read_net(&root, &mut document)?;
        // What follows is a defect, but the document is whole.
        let _ = self.epilog();
        Ok(document)
    }

    /// The root element, after whatever may stand before it.
    fn root(&mut self) -> Result<Tag<'a>> {
        loop {
            match self.item()? {
                Item::Open(tag) => return Ok(tag),
                Item::Declaration { encoding, span } => {
                    if !self.xml.is_at_start(span) {
                        self.misplaced_declaration(span);
                    }
                    self.check_encoding(encoding.as_deref(), span);
                }
                Item::Text(_, span) => {
                    let message = "the file does not start with an XML element";
                    return self.stop(Diagnostic::new(Code::NotIr, message).at(span, "this is no markup"));
                }
                Item::Close | Item::End => {
                    let message = "the file holds no XML element";
                    return self.stop(Diagnostic::new(Code::NotIr, message).at(Span::new(0, 0), ""));
                }
            }
        }
    }

    /// Checks that nothing follows the root element.
    fn epilog(&mut self) -> Result<()> {
        let (span, what) = match self.item()? {
            Item::End => return Ok(()),
            Item::Open(tag) => (tag.span, "a second root element"),
            Item::Text(_, span) => (span, "text"),
            Item::Declaration { span, .. } => (span, "an XML declaration"),
            Item::Close => (Span::default(), "an end tag"),
        };
        let message = format!("{what} follows the end of <net>");
        self.stop(Diagnostic::new(Code::XmlSyntax, message).at(span, "nothing may follow"))
    }

    fn version(&mut self, text: &Text<'a>) -> Result<Located<u32>> {
        let Ok(version) = text.value.trim().parse::<u32>() else {
            let message = format!("`{}` is not an IR version", shorten(&text.value));
            return self.stop(Diagnostic::new(Code::InvalidNumber, message).at(text.span, "10 or 11"));
        };
        if IR_VERSIONS.contains(&version) {
            return Ok(Located::new(version, text.span));
        }
        let (message, help) = if version < *IR_VERSIONS.start() {
            (
                format!("IR version {version} is too old; versions 10 and 11 are read"),
                "convert the original model again with a current OpenVINO",
            )
        } else {
            (
                format!("IR version {version} is newer than this program; versions 10 and 11 are read"),
                "use a newer ovir, or save the model as IR version 11",
            )
        };
        self.stop(Diagnostic::new(Code::UnsupportedIrVersion, message).at(text.span, "this version").help(help))
    }

    fn check_encoding(&mut self, encoding: Option<&str>, span: Span) {
        let Some(encoding) = encoding else { return };
        let is_known = ["utf-8", "utf8", "us-ascii", "ascii"].iter().any(|known| encoding.eq_ignore_ascii_case(known));
        if !is_known && !self.xml.is_ascii() {
            let message = format!("the file declares the encoding {}, but is read as UTF-8", shorten(encoding));
            self.report(
                Diagnostic::new(Code::XmlSyntax, message)
                    .at(span, "declared here")
                    .help("save the file as UTF-8 and declare that"),
            );
        }
    }

    fn misplaced_declaration(&mut self, span: Span) {
        let message = "the XML declaration is not at the start of the file";
        self.report(Diagnostic::new(Code::XmlSyntax, message).at(span, "misplaced"));
    }

    fn item(&mut self) -> Result<Item<'a>> {
        match self.xml.next_item() {
            Ok(item) => Ok(item),
            Err(error) => self.stop(syntax(&error)),
        }
    }

    fn item_in(&mut self, parent: &Tag<'a>) -> Result<Item<'a>> {
        match self.xml.next_item() {
            Ok(item) => Ok(item),
            Err(error) => self.stop(syntax(&error).also(parent.span, "in this element")),
        }
    }

    /// The next element inside `parent`, or `None` at its end. Text there has no meaning and is reported.
    fn child(&mut self, parent: &Tag<'a>) -> Result<Option<Tag<'a>>> {
        if parent.is_empty {
            return Ok(None);
        }
        loop {
            match self.item_in(parent)? {
                Item::Open(tag) => return Ok(Some(tag)),
                Item::Close => return Ok(None),
                Item::Text(text, span) => {
                    let message = format!("text in <{}> is ignored: `{}`", parent.name, shorten(&text));
                    self.report(Diagnostic::new(Code::UnknownElement, message).at(span, "no text belongs here"));
                }
                Item::Declaration { span, .. } => self.misplaced_declaration(span),
                Item::End => return self.unclosed(parent),
            }
        }
    }

    fn unclosed<T>(&mut self, tag: &Tag<'a>) -> Result<T> {
        let end = self.xml.position();
        let message = format!("the file ends inside <{}>", shorten(tag.name));
        self.stop(
            Diagnostic::new(Code::XmlSyntax, message)
                .at(Span::new(end, end), "end of the file")
                .also(tag.span, "opened here"),
        )
    }

    /// Reads past the end of an element of which nothing is wanted.
    fn skip(&mut self, tag: &Tag<'a>) -> Result<()> {
        let mut depth = usize::from(!tag.is_empty);
        while depth > 0 {
            match self.item()? {
                Item::Open(inner) => depth += usize::from(!inner.is_empty),
                Item::Close => depth -= 1,
                Item::Text(..) => {}
                Item::Declaration { span, .. } => self.misplaced_declaration(span),
                Item::End => return self.unclosed(tag),
            }
            if depth > self.limits.element_depth {
                let message = beyond("elements nest in", self.limits.element_depth, "others", "element-depth");
                return self.limit(tag.span, message);
            }
        }
        Ok(())
    }

    /// Reads past the end of an element that should have no content.
    fn expect_empty(&mut self, tag: &Tag<'a>) -> Result<()> {
        while let Some(child) = self.child(tag)? {
            self.unknown(&child, tag, &[])?;
        }
        Ok(())
    }

    /// Reports an element that has no meaning in `parent`, and reads past it.
    fn unknown(&mut self, tag: &Tag<'a>, parent: &Tag<'a>, expected: &[&str]) -> Result<()> {
        if !is_xml_name(tag.name) {
            let message = format!("`{}` is not an element name", shorten(tag.name));
            return self.stop(Diagnostic::new(Code::XmlSyntax, message).at(tag.span, "in this tag"));
        }
        let message = format!("<{}> has no meaning in <{}>", shorten(tag.name), parent.name);
        let mut diagnostic = Diagnostic::new(Code::UnknownElement, message).at(tag.span, "ignored");
        if let Some(near) = nearest(tag.name, expected.iter().copied()) {
            // What the section was to say is missing now.
            diagnostic.severity = Severity::Error;
            diagnostic = diagnostic.help(format!("did you mean <{near}>?"));
        } else if !expected.is_empty() {
            let list: Vec<String> = expected.iter().map(|name| format!("<{name}>")).collect();
            diagnostic = diagnostic.help(format!("<{}> holds {}", parent.name, list.join(", ")));
        }
        self.report(diagnostic);
        self.skip(tag)
    }

    /// Whether the element that was reported last seems to be a misspelt one.
    fn was_slip(&self) -> bool {
        self.diagnostics.last().is_some_and(|d| d.code == Code::UnknownElement && d.is_error())
    }

    /// Whether a section appears for the first time in its parent. A second one is reported and read past.
    fn is_first(&mut self, seen: &mut Seen<'a>, tag: &Tag<'a>) -> Result<bool> {
        let Some((_, first)) = seen.0.iter().find(|(name, _)| *name == tag.name) else {
            seen.0.push((tag.name, tag.span));
            return Ok(true);
        };
        let message = format!("a second <{}>; only the first counts", tag.name);
        let diagnostic =
            Diagnostic::new(Code::DuplicateElement, message).at(tag.span, "ignored").also(*first, "the first");
        self.report(diagnostic);
        self.skip(tag)?;
        Ok(false)
    }

    /// Adds a finding, about the innermost layer that is being read.
    fn report(&mut self, mut diagnostic: Diagnostic) {
        if self.diagnostics.len() >= self.limits.findings {
            return;
        }
        if let Some(layer) = self.context.last() {
            diagnostic.layer = Some(LayerReference {
                name: layer.name.value.to_string(),
                id: layer.id.value.to_string(),
                type_name: layer.type_name.value.to_string(),
                version: layer.version.value.to_string(),
            });
        }
        self.diagnostics.push(diagnostic);
        if self.diagnostics.len() == self.limits.findings {
            let message = beyond("there are", self.limits.findings, "findings", "findings");
            self.diagnostics.push(Diagnostic::new(Code::LimitExceeded, message));
        }
    }

    /// Reports why reading cannot go on.
    fn stop<T>(&mut self, diagnostic: Diagnostic) -> Result<T> {
        self.report(diagnostic);
        Err(Stop)
    }

    fn limit<T>(&mut self, span: Span, message: String) -> Result<T> {
        self.stop(Diagnostic::new(Code::LimitExceeded, message).at(span, "beyond the limit"))
    }
}

fn syntax(error: &XmlError) -> Diagnostic {
    Diagnostic::new(Code::XmlSyntax, error.message.as_str()).at(error.span, "damaged here")
}

/// Whether a file is worth reading: no other format than XML, and of a bearable size.
fn readable(xml: &[u8]) -> std::result::Result<(), Box<Diagnostic>> {
    if let Some(diagnostic) = foreign::foreign(xml) {
        return Err(Box::new(diagnostic));
    }
    if xml.len() > MAX_TEXT_BYTES {
        let message = format!("the XML has {} bytes; the limit is {MAX_TEXT_BYTES}", xml.len());
        return Err(Box::new(Diagnostic::new(Code::LimitExceeded, message)));
    }
    Ok(())
}

/// The text, if it is UTF-8.
fn checked_text(xml: &[u8]) -> std::result::Result<&str, Box<Diagnostic>> {
    std::str::from_utf8(xml).map_err(|error| {
        let at = error.valid_up_to();
        let message = if xml.starts_with(&[0xff, 0xfe]) || xml.starts_with(&[0xfe, 0xff]) {
            "the file is UTF-16; only UTF-8 is read".to_owned()
        } else {
            format!("the file is not UTF-8: byte {at} does not belong to a character")
        };
        Box::new(Diagnostic::new(Code::XmlSyntax, message).at(Span::new(at, at + 1), "not UTF-8"))
    })
}

#[cfg(test)]
mod tests;
