//! Attributes, each stated once.
//!
//! The [`attributes!`](crate::attributes) macro turns one statement (name, type, default, versions) into a typed
//! struct, the table that hints and documentation read, the reader and the writer.

use std::borrow::Cow;

use ovir_diagnostics::{Code, nearest};
use ovir_tensor::{ElementType, PartialShape, Shape, SmallVec};

use crate::{Blame, OpError};

/// One attribute as it stands in the file.
#[derive(Debug, Clone, Copy)]
pub struct RawAttribute<'a> {
    /// The name.
    pub name: &'a str,
    /// The text of the value.
    pub value: &'a str,
}

/// What values an attribute can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributeKind {
    /// The kind of value in words: `an integer`, `a list of integers`.
    pub name: &'static str,
    /// The allowed words of an enumeration; empty for other kinds.
    pub allowed: &'static [&'static str],
}

/// The statement about one attribute of an operation.
#[derive(Debug, Clone, Copy)]
pub struct AttributeDef {
    /// The name in IR.
    pub name: &'static str,
    /// What it can be.
    pub kind: AttributeKind,
    /// The text of its default; `None` if it is required or simply absent.
    pub default: Option<&'static str>,
    /// Whether the specification requires it.
    pub required: bool,
    /// The first class version that has it.
    pub since: u8,
    /// The last class version that has it.
    pub until: u8,
    /// What it means.
    pub documentation: &'static str,
}

/// A type that an attribute can have.
pub trait AttributeValue: Default {
    /// The kind, for hints.
    const KIND: AttributeKind;

    /// Reads the text.
    ///
    /// # Errors
    /// Why the text is no such value.
    fn parse(text: &str) -> Result<Self, String>;

    /// The text; `None` if the attribute is absent.
    fn print(&self) -> Option<String>;

    /// Whether an absent attribute is a value of this type.
    const OPTIONAL: bool = false;
}

/// Reads attributes and collects what is wrong with them.
pub struct AttributeReader<'a> {
    raw: &'a [RawAttribute<'a>],
    class_version: u8,
    problems: Vec<OpError>,
    known: SmallVec<[&'static str; 12]>,
}

impl<'a> AttributeReader<'a> {
    /// A reader of the attributes of an operation of `class_version`.
    pub fn new(raw: &'a [RawAttribute<'a>], class_version: u8) -> AttributeReader<'a> {
        AttributeReader { raw, class_version, problems: Vec::new(), known: SmallVec::new() }
    }

    /// The class version of the operation.
    pub fn class_version(&self) -> u8 {
        self.class_version
    }

    /// The text of an attribute.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.raw.iter().find(|a| a.name == name).map(|a| a.value)
    }

    /// Reads one attribute. What is wrong is collected, and some value returned so that reading goes on.
    pub fn read<T: AttributeValue>(&mut self, definition: &AttributeDef) -> T {
        if self.class_version < definition.since || self.class_version > definition.until {
            return definition.default.and_then(|text| T::parse(text).ok()).unwrap_or_default();
        }
        self.known.push(definition.name);
        let text = match self.text(definition.name) {
            Some(text) => text,
            None if definition.required => {
                let message = format!("required attribute `{}` is missing", definition.name);
                let error = OpError::new(Code::MissingAttribute, Blame::Node, message);
                self.problems.push(error.help(format!("add `{}`: {}", definition.name, describe(definition))));
                return T::default();
            }
            None => match definition.default {
                Some(text) => text,
                None => return T::default(),
            },
        };
        match T::parse(text) {
            Ok(value) => value,
            Err(reason) => {
                let message = format!("`{}=\"{}\"` is not allowed: {reason}", definition.name, shorten(text));
                self.problems.push(OpError::attribute(definition.name, message));
                T::default()
            }
        }
    }

    /// Collects a violation that concerns several attributes or a range.
    pub fn report(&mut self, error: OpError) {
        self.problems.push(error);
    }

    /// Ends reading: attributes that nobody read are unknown. Returns everything that is wrong.
    pub fn finish(mut self) -> Vec<OpError> {
        for attribute in self.raw {
            if self.known.contains(&attribute.name) {
                continue;
            }
            let message = format!("unknown attribute `{}`", attribute.name);
            let blame = Blame::Attribute(Cow::Owned(attribute.name.to_owned()));
            let error = OpError::new(Code::UnknownAttribute, blame, message);
            let nearest = nearest(attribute.name, self.known.iter().copied());
            self.problems.push(match (nearest, self.known.is_empty()) {
                (Some(name), _) => error.help(format!("did you mean `{name}`?")),
                (None, true) => error.help("the operation has no attributes"),
                (None, false) => error.help(format!("the attributes are: {}", self.known.join(", "))),
            });
        }
        self.problems
    }
}

fn describe(definition: &AttributeDef) -> String {
    if definition.kind.allowed.is_empty() {
        return definition.kind.name.to_owned();
    }
    format!("one of {}", definition.kind.allowed.join(", "))
}

fn shorten(text: &str) -> String {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// States the attributes of an operation once.
///
/// ```
/// ovir_ops::attributes! {
///     /// Attributes of an example.
///     pub struct ExampleAttributes {
///         /// The axis along which it works.
///         axis: i64 = "axis", default "1";
///         /// How many groups.
///         group: i64 = "group", required true, since 7;
///         /// Something that may be absent.
///         output_type: Option<ovir_tensor::ElementType> = "output_type";
///     }
/// }
/// assert_eq!(ExampleAttributes::DEFINITIONS[0].name, "axis");
/// ```
#[macro_export]
macro_rules! attributes {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $field:ident : $type:ty = $text:literal
                    $(, default $default:literal)?
                    $(, required $required:literal)?
                    $(, since $since:literal)?
                    $(, until $until:literal)?
                ;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $name {
            $( $(#[doc = $doc])* pub $field: $type, )*
        }

        impl $name {
            /// The statement about each attribute.
            pub const DEFINITIONS: &'static [$crate::AttributeDef] = &[
                $($crate::AttributeDef {
                    name: $text,
                    kind: <$type as $crate::AttributeValue>::KIND,
                    default: $crate::attributes!(@default $($default)?),
                    required: $crate::attributes!(@required $($required)?),
                    since: $crate::attributes!(@number 0, $($since)?),
                    until: $crate::attributes!(@number u8::MAX, $($until)?),
                    documentation: concat!($($doc, "\n",)* ""),
                },)*
            ];

            /// Reads the attributes; what is wrong is collected in the reader.
            #[allow(unused_variables, unused_mut, unused_assignments)]
            pub fn read(reader: &mut $crate::AttributeReader<'_>) -> $name {
                let mut definitions = Self::DEFINITIONS.iter();
                $(
                    let $field: $type = match definitions.next() {
                        Some(definition) => reader.read(definition),
                        None => Default::default(),
                    };
                )*
                $name { $($field),* }
            }

            /// The attributes as they are written to IR.
            #[allow(unused_mut)]
            pub fn print(&self, class_version: u8) -> Vec<(&'static str, String)> {
                let mut written = Vec::new();
                $(
                    let (since, until): (u8, u8) =
                        ($crate::attributes!(@number 0, $($since)?), $crate::attributes!(@number u8::MAX, $($until)?));
                    if (since..=until).contains(&class_version)
                        && let Some(text) = $crate::AttributeValue::print(&self.$field) {
                        written.push(($text, text));
                    }
                )*
                written
            }
        }
    };
    (@default) => { None };
    (@default $default:literal) => { Some($default) };
    (@required) => { false };
    (@required $required:literal) => { $required };
    (@number $or:expr,) => { $or };
    (@number $or:expr, $number:literal) => { $number };
}

/// States an enumeration whose values are words in IR; the first one that carries `#[default]` stands in where a word
/// cannot be read. Words are compared without regard to case, as OpenVINO does.
#[macro_export]
macro_rules! attribute_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $( $(#[$variant_meta:meta])* $variant:ident = $text:literal $(| $alias:literal)* ),* $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub enum $name { $( $(#[$variant_meta])* $variant ),* }

        impl $crate::AttributeValue for $name {
            const KIND: $crate::AttributeKind =
                $crate::AttributeKind { name: "a word", allowed: &[$($text),*] };

            fn parse(text: &str) -> Result<Self, String> {
                let trimmed = text.trim();
                $(if [$text, $($alias),*].iter().any(|word| trimmed.eq_ignore_ascii_case(word)) {
                    return Ok($name::$variant);
                })*
                Err(format!("it must be one of {}", Self::KIND.allowed.join(", ")))
            }

            fn print(&self) -> Option<String> {
                Some(match self { $($name::$variant => $text),* }.to_owned())
            }
        }
    };
}

impl AttributeValue for bool {
    const KIND: AttributeKind = AttributeKind { name: "true or false", allowed: &["true", "false"] };

    fn parse(text: &str) -> Result<bool, String> {
        match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err("it must be true or false".to_owned()),
        }
    }

    fn print(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl AttributeValue for i64 {
    const KIND: AttributeKind = AttributeKind { name: "an integer", allowed: &[] };

    fn parse(text: &str) -> Result<i64, String> {
        text.trim().parse().map_err(|_| "it must be an integer of at most 64 bits".to_owned())
    }

    fn print(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl AttributeValue for u64 {
    const KIND: AttributeKind = AttributeKind { name: "a non-negative integer", allowed: &[] };

    fn parse(text: &str) -> Result<u64, String> {
        text.trim().parse().map_err(|_| "it must be a non-negative integer of at most 64 bits".to_owned())
    }

    fn print(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl AttributeValue for f64 {
    const KIND: AttributeKind = AttributeKind { name: "a number", allowed: &[] };

    fn parse(text: &str) -> Result<f64, String> {
        text.trim().parse().map_err(|_| "it must be a number".to_owned())
    }

    fn print(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl AttributeValue for f32 {
    const KIND: AttributeKind = AttributeKind { name: "a number", allowed: &[] };

    fn parse(text: &str) -> Result<f32, String> {
        text.trim().parse().map_err(|_| "it must be a number".to_owned())
    }

    fn print(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl AttributeValue for String {
    const KIND: AttributeKind = AttributeKind { name: "a text", allowed: &[] };

    fn parse(text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }

    fn print(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl AttributeValue for ElementType {
    const KIND: AttributeKind = AttributeKind { name: "an element type such as f32 or i64", allowed: &[] };

    /// Other spellings than the names, such as those of ports, are refused, as OpenVINO does.
    fn parse(text: &str) -> Result<ElementType, String> {
        let names = || ElementType::ALL.iter().map(|element_type| element_type.name());
        let named = ElementType::ALL.into_iter().find(|element_type| element_type.name().eq_ignore_ascii_case(text));
        if let Some(element_type) = named {
            return Ok(element_type);
        }
        match text.parse::<ElementType>() {
            Ok(ElementType::Dynamic) => Ok(ElementType::Dynamic),
            Ok(element_type) => Err(format!("write `{}`", element_type.name())),
            Err(_) => Err(match nearest(text, names()) {
                Some(near) => format!("it must be an element type; did you mean `{near}`?"),
                None => "it must be an element type such as f32 or i64".to_owned(),
            }),
        }
    }

    fn print(&self) -> Option<String> {
        Some(self.name().to_owned())
    }
}

impl Default for PartialShapeAttribute {
    fn default() -> Self {
        PartialShapeAttribute(PartialShape::DYNAMIC)
    }
}

/// A partial shape as an attribute: `1,3,?,..5`.
#[derive(Debug, Clone, PartialEq)]
pub struct PartialShapeAttribute(pub PartialShape);

impl AttributeValue for PartialShapeAttribute {
    const KIND: AttributeKind = AttributeKind { name: "a shape such as 1,3,?,1..10", allowed: &[] };

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map(PartialShapeAttribute).map_err(|e: ovir_tensor::TensorError| e.to_string())
    }

    fn print(&self) -> Option<String> {
        let text = self.0.to_string();
        Some(text.trim_start_matches('[').trim_end_matches(']').to_owned())
    }
}

impl AttributeValue for Shape {
    const KIND: AttributeKind = AttributeKind { name: "a static shape such as 1,3,224,224", allowed: &[] };

    fn parse(text: &str) -> Result<Shape, String> {
        let shape: PartialShape = text.parse().map_err(|e: ovir_tensor::TensorError| e.to_string())?;
        shape.to_shape().ok_or_else(|| "every dimension must be a number".to_owned())
    }

    fn print(&self) -> Option<String> {
        Some(self.iter().map(usize::to_string).collect::<Vec<_>>().join(","))
    }
}

macro_rules! list_attribute {
    ($($item:ty => $kind:literal),*) => {
        $(impl AttributeValue for Vec<$item> {
            const KIND: AttributeKind = AttributeKind { name: $kind, allowed: &[] };

            fn parse(text: &str) -> Result<Vec<$item>, String> {
                if text.trim().is_empty() {
                    return Ok(Vec::new());
                }
                text.split(',').map(|part| <$item as AttributeValue>::parse(part.trim())).collect::<Result<_, _>>()
                    .map_err(|reason| format!("every item of the list: {reason}"))
            }

            fn print(&self) -> Option<String> {
                Some(self.iter().filter_map(AttributeValue::print).collect::<Vec<_>>().join(", "))
            }
        })*
    };
}
list_attribute!(i64 => "a list of integers", u64 => "a list of non-negative integers", f32 => "a list of numbers",
    f64 => "a list of numbers", String => "a list of words");

impl<T: AttributeValue> AttributeValue for Option<T> {
    const KIND: AttributeKind = T::KIND;
    const OPTIONAL: bool = true;

    fn parse(text: &str) -> Result<Option<T>, String> {
        T::parse(text).map(Some)
    }

    fn print(&self) -> Option<String> {
        self.as_ref().and_then(T::print)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    attributes! {
        /// Attributes of an example.
        pub struct Example {
            /// The axis.
            axis: i64 = "axis", default "1";
            /// The mode.
            mode: String = "mode", required true;
            /// Newer.
            batch_dims: i64 = "batch_dims", default "0", since 7;
        }
    }

    #[test]
    fn everything_wrong_is_reported_at_once() {
        let raw = [RawAttribute { name: "axis", value: "x" }, RawAttribute { name: "axsi", value: "1" }];
        let mut reader = AttributeReader::new(&raw, 1);
        Example::read(&mut reader);
        let messages: Vec<String> = reader.finish().iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                "attribute `axis`: `axis=\"x\"` is not allowed: it must be an integer of at most 64 bits",
                "required attribute `mode` is missing",
                "attribute `axsi`: unknown attribute `axsi`",
            ]
        );
    }

    #[test]
    fn attributes_write_what_they_read() {
        let raw = [
            RawAttribute { name: "mode", value: "a" },
            RawAttribute { name: "axis", value: "-1" },
            RawAttribute { name: "batch_dims", value: "2" },
        ];
        let mut reader = AttributeReader::new(&raw, 8);
        let example = Example::read(&mut reader);
        assert_eq!(reader.finish(), []);
        let written = example.print(8);
        assert_eq!(written, [("axis", "-1".into()), ("mode", "a".into()), ("batch_dims", "2".into())]);
        assert_eq!(example.print(1).len(), 2);
    }
}
