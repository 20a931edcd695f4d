//! XML attributes: collecting, taking and reporting them.

use std::str::FromStr;

use ovir_diagnostics::{Code, Diagnostic, nearest};
use ovir_tensor::{ElementType, SmallVec};

use super::{Reader, Result, syntax};
use crate::document::{Attribute, Located, Text};
use crate::limits::beyond;
use crate::xml::{Tag, XmlError, attribute_value, shorten};

/// The attributes of a tag, in the order of the file. One that was taken has an empty name, which no attribute has.
#[derive(Default)]
pub(super) struct AttributeSet<'a> {
    items: SmallVec<[Attribute<'a>; 4]>,
    /// Whether something in the tag could not be read. What seems to be missing or unknown is no defect of its own then.
    pub(super) is_damaged: bool,
}

impl<'a> AttributeSet<'a> {
    /// Takes the attribute with this name out.
    pub(super) fn take(&mut self, name: &str) -> Option<Text<'a>> {
        let attribute = self.items.iter_mut().find(|attribute| attribute.name.value == name)?;
        attribute.name = Text::default();
        Some(std::mem::take(&mut attribute.value))
    }

    /// All that nobody took.
    fn rest(&self) -> impl Iterator<Item = &Attribute<'a>> {
        self.items.iter().filter(|attribute| !attribute.name.value.is_empty())
    }

    /// All that nobody took.
    pub(super) fn into_vec(self) -> Vec<Attribute<'a>> {
        let left = self.rest().count();
        if left == self.items.len() {
            return self.items.into_vec();
        }
        let mut rest = Vec::with_capacity(left);
        rest.extend(self.items.into_iter().filter(|attribute| !attribute.name.value.is_empty()));
        rest
    }
}

impl<'a> Reader<'a> {
    /// The attributes of a tag. Damaged ones are reported and left out.
    // Without inlining the set, which is large, would be copied for every tag.
    #[inline(always)]
    pub(super) fn attributes(&mut self, tag: &Tag<'a>) -> Result<AttributeSet<'a>> {
        let mut set = AttributeSet::default();
        if let Some(plain) = self.plain_attributes(tag) {
            set.items.extend(plain);
            return Ok(set);
        }
        self.other_attributes(tag, &mut set)?;
        Ok(set)
    }

    /// The attributes of a tag that is not plain.
    fn other_attributes(&mut self, tag: &Tag<'a>, set: &mut AttributeSet<'a>) -> Result<()> {
        for attribute in self.xml.attributes(tag) {
            let attribute = match attribute {
                Ok(attribute) => attribute,
                Err(error) => {
                    self.damaged(tag, &error, set)?;
                    continue;
                }
            };
            if attribute.raw.len() > self.limits.attribute_bytes {
                let message = beyond("an attribute has", self.limits.attribute_bytes, "bytes", "attribute-bytes");
                return self.limit(attribute.name_span, message);
            }
            if set.items.len() == self.limits.attributes {
                return self
                    .limit(tag.span, beyond("an element has", self.limits.attributes, "attributes", "attributes"));
            }
            match attribute_value(&attribute) {
                Ok(value) => set.items.push(Attribute {
                    name: Located::new(attribute.name.into(), attribute.name_span),
                    value: Located::new(value, attribute.value_span),
                }),
                Err(error) => self.damaged(tag, &error, set)?,
            }
        }
        Ok(())
    }

    /// The attributes of a tag that is written as nearly all are, if they are within the limits.
    fn plain_attributes(&self, tag: &Tag<'a>) -> Option<impl Iterator<Item = Attribute<'a>> + use<'a, '_>> {
        let plain = self.xml.plain_attributes(tag)?;
        let is_within = plain.iter().all(|attribute| attribute.raw.len() <= self.limits.attribute_bytes);
        (is_within && plain.len() <= self.limits.attributes).then(|| {
            plain.iter().map(|attribute| Attribute {
                name: Located::new(attribute.name.into(), attribute.name_span),
                value: Located::new(attribute.raw.into(), attribute.value_span),
            })
        })
    }

    /// Reports what is wrong in a tag, once. A tag that runs into the next one ends reading.
    fn damaged(&mut self, tag: &Tag<'a>, error: &XmlError, set: &mut AttributeSet<'a>) -> Result<()> {
        if tag.runs_on() {
            let message = format!("the tag <{}> is not closed before the next `<`", shorten(tag.name));
            return self.stop(Diagnostic::new(Code::XmlSyntax, message).at(tag.name_span(), "opened here"));
        }
        if !std::mem::replace(&mut set.is_damaged, true) {
            self.report(syntax(error));
        }
        Ok(())
    }

    /// Reports the attributes that nobody took.
    pub(super) fn no_more(&mut self, attributes: &AttributeSet<'a>, tag: &Tag<'a>) {
        for attribute in attributes.rest().filter(|_| !attributes.is_damaged) {
            let message = format!("<{}> has no attribute `{}`", tag.name, shorten(&attribute.name.value));
            let mut diagnostic = Diagnostic::new(Code::UnknownXmlAttribute, message).at(attribute.span(), "ignored");
            if let Some(near) = nearest(&attribute.name.value, known_attributes(tag.name).iter().copied()) {
                diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
            }
            self.report(diagnostic);
        }
    }

    /// A text that must be there; without it the finding is reported.
    pub(super) fn required(&mut self, set: &mut AttributeSet<'a>, name: &str, tag: &Tag<'a>) -> Option<Text<'a>> {
        let text = set.take(name);
        if text.is_none() && !set.is_damaged {
            let message = format!("<{}> has no attribute `{name}`", tag.name);
            self.report(Diagnostic::new(Code::MissingXmlAttribute, message).at(tag.span, "it is required"));
        }
        text
    }

    /// A number that must be there and readable.
    pub(super) fn required_number<T: Number>(
        &mut self,
        set: &mut AttributeSet<'a>,
        name: &str,
        tag: &Tag<'a>,
    ) -> Option<Located<T>> {
        let text = self.required(set, name, tag)?;
        self.number(&text, name)
    }

    /// A number that must be readable if it is there.
    pub(super) fn optional_number<T: Number>(&mut self, set: &mut AttributeSet<'a>, name: &str) -> Option<Located<T>> {
        let text = set.take(name)?;
        self.number(&text, name)
    }

    /// Reads a number; `what` names it.
    pub(super) fn number<T: Number>(&mut self, text: &Text<'a>, what: &str) -> Option<Located<T>> {
        if let Some(value) = T::read(&text.value) {
            return Some(Located::new(value, text.span));
        }
        let message = format!("`{what}` is `{}`, which is not {}", shorten(&text.value), T::WORDS);
        self.report(Diagnostic::new(Code::InvalidNumber, message).at(text.span, "not a number in range"));
        None
    }

    /// Reads a precision as OpenVINO spells it. Another spelling is reported, and understood where its meaning is plain.
    pub(super) fn precision(&mut self, text: &Text<'a>) -> Option<Located<ElementType>> {
        let spelling = text.as_str();
        if let Some(element_type) = accepted_precision(spelling) {
            return Some(Located::new(element_type, text.span));
        }
        let parsed = ElementType::from_str(spelling).ok();
        let message = format!("`{}` is not a precision", shorten(spelling));
        let mut diagnostic = Diagnostic::new(Code::UnknownPrecision, message).at(text.span, "unknown");
        if let Some(known) = parsed {
            diagnostic = diagnostic.help(format!("write `{}`", known.precision_name()));
        } else if let Some(near) = nearest(spelling, ElementType::ALL.iter().map(|known| known.precision_name())) {
            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
        }
        self.report(diagnostic);
        parsed.map(|element_type| Located::new(element_type, text.span))
    }
}

/// The attributes that an element can have.
fn known_attributes(element: &str) -> &'static [&'static str] {
    match element {
        "net" => &["name", "version"],
        "layer" => &["id", "name", "type", "version", "output_names"],
        "port" => &["id", "precision", "names"],
        "edge" => &["from-layer", "from-port", "to-layer", "to-port"],
        "input" | "output" => {
            &["external_port_id", "internal_layer_id", "axis", "start", "end", "stride", "part_size", "purpose"]
        }
        _ => &[],
    }
}

/// The element type that OpenVINO reads from a precision. Case matters.
fn accepted_precision(spelling: &str) -> Option<ElementType> {
    match spelling {
        "FP32" => return Some(ElementType::F32),
        "I64" => return Some(ElementType::I64),
        "dynamic" | "undefined" | "UNSPECIFIED" => return Some(ElementType::Dynamic),
        "U1" => return Some(ElementType::U1),
        _ => {}
    }
    let is_spelt = |known: &ElementType| spelling == known.precision_name() || spelling == known.name();
    ElementType::ALL.into_iter().find(is_spelt)
}

/// A number of one to nine digits and nothing else, as nearly all are written.
pub(super) fn short_number(text: &str) -> Option<u32> {
    if text.is_empty() || text.len() > 9 {
        return None;
    }
    let mut number = 0;
    for byte in text.bytes() {
        if !byte.is_ascii_digit() {
            return None;
        }
        number = number * 10 + u32::from(byte - b'0');
    }
    Some(number)
}

/// A number in an attribute.
pub(super) trait Number: Sized {
    /// What it must be, in words.
    const WORDS: &'static str;

    /// Reads it; white space around it is allowed, as in OpenVINO.
    fn read(text: &str) -> Option<Self>;
}

impl Number for u64 {
    const WORDS: &'static str = "a non-negative integer";

    fn read(text: &str) -> Option<u64> {
        if let Some(number) = short_number(text) {
            return Some(number.into());
        }
        let text = text.trim();
        // `parse` would also take a leading plus sign.
        if !text.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        text.parse().ok()
    }
}

impl Number for i64 {
    const WORDS: &'static str = "an integer";

    fn read(text: &str) -> Option<i64> {
        if let Some(number) = short_number(text) {
            return Some(number.into());
        }
        let text = text.trim();
        if !text.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            return None;
        }
        text.parse().ok()
    }
}

impl Number for f32 {
    const WORDS: &'static str = "a number";

    fn read(text: &str) -> Option<f32> {
        text.trim().parse().ok()
    }
}
