//! `<layer>`: data, ports, bodies and port maps.

use std::borrow::Cow;

use ovir_diagnostics::{Code, Diagnostic, Span};

use super::attributes::Number;
use super::{LayerContext, Reader, Result, Seen};
use crate::document::{
    BackEdge, ControlFlow, DeclaredDim, DeclaredDims, Layer, Located, Port, PortMap, PortMapEntry, Text,
};
use crate::limits::beyond;
use crate::xml::{Item, Tag, shorten};

const SECTIONS: &[&str] = &[
    "data",
    "input",
    "output",
    "rt_info",
    "body",
    "then_body",
    "else_body",
    "port_map",
    "then_port_map",
    "else_port_map",
    "back_edges",
];

impl<'a> Reader<'a> {
    /// Reads a layer into a place for it. Returns whether it can be used: nothing can refer to it if its id is missing or
    /// unreadable.
    pub(super) fn read_layer(&mut self, tag: &Tag<'a>, depth: usize, layer: &mut Layer<'a>) -> Result<bool> {
        let mut attributes = self.attributes(tag)?;
        let id_text = attributes.take("id");
        let name = attributes.take("name");
        let type_name = attributes.take("type");
        let version = attributes.take("version");
        let output_names = attributes.take("output_names");
        self.context.push(LayerContext {
            id: id_text.clone().unwrap_or_default(),
            name: name.clone().unwrap_or_default(),
            type_name: type_name.clone().unwrap_or_default(),
            version: version.clone().unwrap_or_default(),
        });
        for (attribute, text) in [("id", &id_text), ("name", &name), ("type", &type_name), ("version", &version)] {
            if text.is_none() && !attributes.is_damaged {
                let message = format!("<layer> has no attribute `{attribute}`");
                self.report(Diagnostic::new(Code::MissingXmlAttribute, message).at(tag.span, "it is required"));
            }
        }
        self.no_more(&attributes, tag);
        let id = match &id_text {
            Some(text) => self.number::<u64>(text, "id"),
            None => None,
        };
        layer.id = id.unwrap_or_default();
        layer.id_text = id_text.unwrap_or_default().value;
        layer.name = name.unwrap_or_default();
        layer.type_name = type_name.unwrap_or_default();
        layer.version = version.unwrap_or_default();
        layer.output_names = output_names.map(|text| split_names(&text)).unwrap_or_default();
        layer.span = tag.span;
        self.read_layer_sections(tag, layer, depth)?;
        self.context.pop();
        Ok(id.is_some())
    }

    fn read_layer_sections(&mut self, tag: &Tag<'a>, layer: &mut Layer<'a>, depth: usize) -> Result<()> {
        let mut seen = Seen::default();
        while let Some(child) = self.child(tag)? {
            if !SECTIONS.contains(&child.name) {
                self.unknown(&child, tag, SECTIONS)?;
                layer.is_incomplete |= self.was_slip();
                continue;
            }
            if !self.is_first(&mut seen, &child)? {
                continue;
            }
            match child.name {
                "data" => {
                    layer.data_span = Some(child.span);
                    layer.attributes = self.attributes(&child)?.into_vec();
                    self.expect_empty(&child)?;
                }
                "input" => layer.inputs = self.read_ports(&child, false)?,
                "output" => layer.outputs = self.read_ports(&child, true)?,
                "rt_info" => layer.rt_info = self.read_rt_attributes(&child)?,
                _ => {
                    let control_flow = layer.control_flow.get_or_insert_with(Box::default);
                    self.read_control_flow(&child, control_flow, depth)?;
                }
            }
        }
        Ok(())
    }

    fn read_control_flow(&mut self, tag: &Tag<'a>, control_flow: &mut ControlFlow<'a>, depth: usize) -> Result<()> {
        match tag.name {
            "body" => control_flow.body = Some(self.read_body(tag, depth + 1)?),
            "then_body" => control_flow.then_body = Some(self.read_body(tag, depth + 1)?),
            "else_body" => control_flow.else_body = Some(self.read_body(tag, depth + 1)?),
            "port_map" => control_flow.port_map = Some(self.read_port_map(tag)?),
            "then_port_map" => control_flow.then_port_map = Some(self.read_port_map(tag)?),
            "else_port_map" => control_flow.else_port_map = Some(self.read_port_map(tag)?),
            _ => control_flow.back_edges = self.read_back_edges(tag)?,
        }
        Ok(())
    }

    fn read_ports(&mut self, tag: &Tag<'a>, is_output: bool) -> Result<Vec<Port<'a>>> {
        let mut ports = Vec::new();
        while let Some(child) = self.child(tag)? {
            if child.name != "port" {
                self.unknown(&child, tag, &["port"])?;
                continue;
            }
            if ports.len() == self.limits.ports {
                return self.limit(child.span, beyond("a layer has", self.limits.ports, "ports", "ports"));
            }
            match self.read_port(&child, is_output)? {
                Some(port) => {
                    // Most layers have one or two ports; a vector would start with room for four.
                    if ports.is_empty() {
                        ports.reserve_exact(1);
                    }
                    ports.push(port);
                }
                None => self.is_incomplete = true,
            }
        }
        Ok(ports)
    }

    fn read_port(&mut self, tag: &Tag<'a>, is_output: bool) -> Result<Option<Port<'a>>> {
        let mut attributes = self.attributes(tag)?;
        let id = self.required_number(&mut attributes, "id", tag);
        let precision =
            if is_output { self.required(&mut attributes, "precision", tag) } else { attributes.take("precision") };
        let mut port = Port {
            id: id.unwrap_or_default(),
            precision: precision.and_then(|text| self.precision(&text)),
            names: attributes.take("names").map(|text| split_names(&text)).unwrap_or_default(),
            span: tag.span,
            ..Port::default()
        };
        self.no_more(&attributes, tag);
        let mut has_rt_info = false;
        loop {
            self.read_plain_dims(tag, &mut port.dims);
            let Some(child) = self.child(tag)? else { break };
            match child.name {
                "dim" => self.read_dim(&child, tag, port.dims.get_or_insert_default())?,
                "rt_info" if !has_rt_info => {
                    has_rt_info = true;
                    port.rt_info = self.read_rt_attributes(&child)?;
                }
                _ => self.unknown(&child, tag, &["dim", "rt_info"])?,
            }
        }
        Ok(id.map(|_| port))
    }

    /// Reads the dimensions that follow and are sound; the first other one, and one beyond the limit, is left alone.
    fn read_plain_dims(&mut self, port: &Tag<'a>, dims: &mut Option<DeclaredDims>) {
        let count = |dims: &Option<DeclaredDims>| dims.as_ref().map_or(0, |dims| dims.len());
        while !port.is_empty && count(dims) < self.limits.rank {
            let Some((value, span)) = self.xml.plain_dimension() else { return };
            dims.get_or_insert_default().push(DeclaredDim { value, span });
        }
    }

    fn read_dim(&mut self, tag: &Tag<'a>, port: &Tag<'a>, dims: &mut DeclaredDims) -> Result<()> {
        let text = self.element_text(tag)?;
        if dims.len() == self.limits.rank {
            let message = format!("a port has more than {} dimensions (limit \"rank\")", self.limits.rank);
            return self.limit(port.span, message);
        }
        let value = i64::read(&text.value).filter(|value| *value >= -1).unwrap_or_else(|| {
            let message = format!("`{}` is not a dimension", shorten(&text.value));
            let diagnostic = Diagnostic::new(Code::InvalidNumber, message);
            self.report(diagnostic.at(text.span, "a size, or -1 where it is unknown"));
            -1
        });
        dims.push(DeclaredDim { value, span: text.span });
        Ok(())
    }

    /// The text inside an element, trimmed.
    fn element_text(&mut self, tag: &Tag<'a>) -> Result<Text<'a>> {
        let mut text: Option<Text<'a>> = None;
        if tag.is_empty {
            return Ok(Located::new(Cow::Borrowed(""), tag.span));
        }
        loop {
            match self.item()? {
                Item::Text(part, span) => match &mut text {
                    None => text = Some(Located::new(part, span)),
                    Some(whole) => {
                        whole.value.to_mut().push_str(&part);
                        whole.span.end = span.end;
                    }
                },
                Item::Close => return Ok(text.unwrap_or(Located::new(Cow::Borrowed(""), tag.span))),
                Item::Open(child) => self.unknown(&child, tag, &[])?,
                Item::Declaration { span, .. } => self.misplaced_declaration(span),
                Item::End => return self.unclosed(tag),
            }
        }
    }

    fn read_port_map(&mut self, tag: &Tag<'a>) -> Result<PortMap<'a>> {
        let mut map = PortMap { span: tag.span, ..PortMap::default() };
        while let Some(child) = self.child(tag)? {
            if child.name != "input" && child.name != "output" {
                self.unknown(&child, tag, &["input", "output"])?;
                continue;
            }
            let entries = if child.name == "input" { &mut map.inputs } else { &mut map.outputs };
            if entries.len() == self.limits.ports {
                return self.limit(child.span, beyond("a port map has", self.limits.ports, "entries", "ports"));
            }
            match self.read_port_map_entry(&child)? {
                Some(entry) => entries.push(entry),
                None => self.is_incomplete = true,
            }
        }
        Ok(map)
    }

    fn read_port_map_entry(&mut self, tag: &Tag<'a>) -> Result<Option<PortMapEntry<'a>>> {
        let mut attributes = self.attributes(tag)?;
        let external_port_id = self.required_number(&mut attributes, "external_port_id", tag);
        let internal_layer_id = self.required_number(&mut attributes, "internal_layer_id", tag);
        // Files of version 10 name the only port of the Parameter or Result as well.
        attributes.take("internal_port_id");
        let entry = PortMapEntry {
            external_port_id: external_port_id.unwrap_or_default(),
            internal_layer_id: internal_layer_id.unwrap_or_default(),
            axis: self.optional_number(&mut attributes, "axis"),
            start: self.optional_number(&mut attributes, "start"),
            end: self.optional_number(&mut attributes, "end"),
            stride: self.optional_number(&mut attributes, "stride"),
            part_size: self.optional_number(&mut attributes, "part_size"),
            purpose: attributes.take("purpose"),
            span: tag.span,
        };
        self.no_more(&attributes, tag);
        self.expect_empty(tag)?;
        Ok((external_port_id.is_some() && internal_layer_id.is_some()).then_some(entry))
    }

    fn read_back_edges(&mut self, tag: &Tag<'a>) -> Result<Vec<BackEdge>> {
        let mut back_edges = Vec::new();
        while let Some(child) = self.child(tag)? {
            if child.name != "edge" {
                self.unknown(&child, tag, &["edge"])?;
                continue;
            }
            if back_edges.len() == self.limits.ports {
                return self.limit(child.span, beyond("a layer has", self.limits.ports, "back edges", "ports"));
            }
            let mut attributes = self.attributes(&child)?;
            let from_layer = self.required_number(&mut attributes, "from-layer", &child);
            let to_layer = self.required_number(&mut attributes, "to-layer", &child);
            // Files of version 10 name the only port at either end as well.
            attributes.take("from-port");
            attributes.take("to-port");
            self.no_more(&attributes, &child);
            self.expect_empty(&child)?;
            match (from_layer, to_layer) {
                (Some(from_layer), Some(to_layer)) => {
                    back_edges.push(BackEdge { from_layer, to_layer, span: child.span });
                }
                _ => self.is_incomplete = true,
            }
        }
        Ok(back_edges)
    }
}

/// Splits a list of tensor names: `,` separates, `\,` is a comma in a name, every other backslash is itself, and empty
/// names do not count.
pub(super) fn split_names<'a>(text: &Text<'a>) -> Vec<Text<'a>> {
    if text.value.is_empty() {
        return Vec::new();
    }
    if !text.value.contains(',') {
        return vec![text.clone()];
    }
    let whole = text.as_str();
    // Offsets into the value are offsets into the file only if no reference was resolved.
    let is_verbatim = text.span.range().len() == whole.len();
    let mut names = Vec::new();
    let mut start = 0;
    let bytes = whole.as_bytes();
    for end in 0..=bytes.len() {
        let is_separator = bytes.get(end) == Some(&b',') && (end == 0 || bytes.get(end - 1) != Some(&b'\\'));
        if !is_separator && end != bytes.len() {
            continue;
        }
        let span = if is_verbatim {
            let base = text.span.range().start;
            Span::new(base + start, base + end)
        } else {
            text.span
        };
        if end > start {
            names.push(Located::new(one_name(&text.value, start..end), span));
        }
        start = end + 1;
    }
    names
}

fn one_name<'a>(value: &Cow<'a, str>, range: std::ops::Range<usize>) -> Cow<'a, str> {
    let part: Cow<'a, str> = match value {
        Cow::Borrowed(text) => Cow::Borrowed(text.get(range).unwrap_or("")),
        Cow::Owned(text) => Cow::Owned(text.get(range).unwrap_or("").to_owned()),
    };
    if part.contains("\\,") {
        return Cow::Owned(part.replace("\\,", ","));
    }
    part
}
