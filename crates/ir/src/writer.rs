//! [`Document`] to XML, and constants to a `.bin`.

mod file;
mod weights;

use std::fmt::{Display, Write};

use crate::document::{
    Attribute, Body, ControlFlow, Document, Layer, Located, MeanChannel, Port, PortMap, PortMapEntry, PreProcess,
    RtAttribute, RtInfo, Text,
};
use crate::xml::is_xml_name;

pub use file::AtomicFile;
pub use weights::{ConstantPlace, WeightsWriter};

/// The version of documents that do not say which.
const IR_VERSION: u32 = 11;

/// Prints a document as OpenVINO prints it: version 11 unless the document says otherwise, indented by tabs.
///
/// Reading the text gives the document back, but for the spans, and for text that XML or the list of tensor names cannot
/// hold: control characters become U+FFFD, and of several names that end with a backslash only one keeps it apart.
pub fn write_document(document: &Document<'_>) -> String {
    let mut writer = XmlWriter { text: "<?xml version=\"1.0\"?>\n".to_owned(), depth: 0 };
    let version = if document.version.value == 0 { IR_VERSION } else { document.version.value };
    writer.start("net").attribute("name", &document.name.value).number("version", version).children();
    writer.body(&document.body);
    for section in &document.pre_process {
        writer.pre_process(section);
    }
    for section in &document.legacy_metadata {
        writer.rt_info_entry(section);
    }
    writer.end("net");
    writer.text
}

/// Prints elements; every method leaves the text at the start of a line.
struct XmlWriter {
    text: String,
    depth: usize,
}

/// A tag that has been begun.
struct OpenTag<'w> {
    writer: &'w mut XmlWriter,
}

impl XmlWriter {
    fn start(&mut self, name: &str) -> OpenTag<'_> {
        self.indent();
        self.text.push('<');
        self.text.push_str(name);
        OpenTag { writer: self }
    }

    fn end(&mut self, name: &str) {
        self.depth -= 1;
        self.indent();
        self.put(format_args!("</{name}>\n"));
    }

    fn indent(&mut self) {
        self.text.extend(std::iter::repeat_n('\t', self.depth));
    }

    fn put(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.text.write_fmt(arguments);
    }

    fn body(&mut self, body: &Body<'_>) {
        self.start("layers").children();
        for layer in &body.layers {
            self.layer(layer);
        }
        self.end("layers");
        self.start("edges").children();
        for edge in &body.edges {
            self.start("edge")
                .number("from-layer", edge.from_layer.value)
                .number("from-port", edge.from_port.value)
                .number("to-layer", edge.to_layer.value)
                .number("to-port", edge.to_port.value)
                .empty();
        }
        self.end("edges");
        self.rt_info("rt_info", &body.rt_info);
    }

    fn layer(&mut self, layer: &Layer<'_>) {
        let mut tag = self.start("layer");
        if layer.id_text.is_empty() {
            tag = tag.number("id", layer.id.value);
        } else {
            tag = tag.attribute("id", &layer.id_text);
        }
        tag = tag.attribute("name", &layer.name.value).attribute("type", &layer.type_name.value);
        tag = tag.attribute("version", &layer.version.value);
        if !layer.output_names.is_empty() {
            tag = tag.attribute("output_names", &join_names(&layer.output_names));
        }
        let has_data = layer.data_span.is_some() || !layer.attributes.is_empty();
        let is_empty = !has_data
            && layer.inputs.is_empty()
            && layer.outputs.is_empty()
            && layer.rt_info.is_empty()
            && layer.control_flow.is_none();
        if is_empty {
            return tag.empty();
        }
        tag.children();
        if has_data {
            self.start("data").attributes(&layer.attributes).empty();
        }
        self.rt_attributes(&layer.rt_info);
        if let Some(control_flow) = &layer.control_flow {
            self.port_maps(control_flow);
        }
        self.ports("input", &layer.inputs);
        self.ports("output", &layer.outputs);
        if let Some(control_flow) = &layer.control_flow {
            self.bodies(control_flow);
        }
        self.end("layer");
    }

    fn ports(&mut self, name: &str, ports: &[Port<'_>]) {
        if ports.is_empty() {
            return;
        }
        self.start(name).children();
        for port in ports {
            self.port(port);
        }
        self.end(name);
    }

    fn port(&mut self, port: &Port<'_>) {
        let mut tag = self.start("port").number("id", port.id.value);
        if let Some(precision) = port.precision {
            tag = tag.attribute("precision", precision.value.precision_name());
        }
        if !port.names.is_empty() {
            tag = tag.attribute("names", &join_names(&port.names));
        }
        let dims = port.dims.as_deref().unwrap_or_default();
        if dims.is_empty() && port.rt_info.is_empty() {
            return tag.empty();
        }
        tag.children();
        for dim in dims {
            self.indent();
            self.put(format_args!("<dim>{}</dim>\n", dim.value));
        }
        self.rt_attributes(&port.rt_info);
        self.end("port");
    }

    fn port_maps(&mut self, control_flow: &ControlFlow<'_>) {
        let maps = [
            ("port_map", &control_flow.port_map),
            ("else_port_map", &control_flow.else_port_map),
            ("then_port_map", &control_flow.then_port_map),
        ];
        for (name, map) in maps {
            if let Some(map) = map {
                self.port_map(name, map);
            }
        }
        if control_flow.back_edges.is_empty() {
            return;
        }
        self.start("back_edges").children();
        for edge in &control_flow.back_edges {
            self.start("edge")
                .number("from-layer", edge.from_layer.value)
                .number("to-layer", edge.to_layer.value)
                .empty();
        }
        self.end("back_edges");
    }

    fn port_map(&mut self, name: &str, map: &PortMap<'_>) {
        if map.inputs.is_empty() && map.outputs.is_empty() {
            return self.start(name).empty();
        }
        self.start(name).children();
        for entry in &map.inputs {
            self.port_map_entry("input", entry);
        }
        for entry in &map.outputs {
            self.port_map_entry("output", entry);
        }
        self.end(name);
    }

    fn port_map_entry(&mut self, name: &str, entry: &PortMapEntry<'_>) {
        let mut tag = self
            .start(name)
            .optional("axis", entry.axis)
            .number("external_port_id", entry.external_port_id.value)
            .number("internal_layer_id", entry.internal_layer_id.value)
            .optional("start", entry.start)
            .optional("end", entry.end)
            .optional("stride", entry.stride)
            .optional("part_size", entry.part_size);
        if let Some(purpose) = &entry.purpose {
            tag = tag.attribute("purpose", &purpose.value);
        }
        tag.empty();
    }

    fn bodies(&mut self, control_flow: &ControlFlow<'_>) {
        let bodies = [
            ("body", &control_flow.body),
            ("then_body", &control_flow.then_body),
            ("else_body", &control_flow.else_body),
        ];
        for (name, body) in bodies {
            if let Some(body) = body {
                self.start(name).children();
                self.body(body);
                self.end(name);
            }
        }
    }

    fn rt_info(&mut self, name: &str, entries: &[RtInfo<'_>]) {
        if entries.is_empty() {
            return self.start(name).empty();
        }
        self.start(name).children();
        for entry in entries {
            self.rt_info_entry(entry);
        }
        self.end(name);
    }

    fn rt_info_entry(&mut self, entry: &RtInfo<'_>) {
        // A name that is no XML name goes into an attribute.
        let is_element = is_xml_name(&entry.name.value) && entry.name.value != "info";
        let element = if is_element { entry.name.value.as_ref() } else { "info" };
        let mut tag = self.start(element);
        if !is_element {
            tag = tag.attribute("name", &entry.name.value);
        }
        if let Some(value) = &entry.value {
            tag = tag.attribute("value", &value.value);
        }
        if entry.children.is_empty() {
            return tag.empty();
        }
        tag.children();
        for child in &entry.children {
            self.rt_info_entry(child);
        }
        self.end(element);
    }

    fn rt_attributes(&mut self, entries: &[RtAttribute<'_>]) {
        if entries.is_empty() {
            return;
        }
        self.start("rt_info").children();
        for entry in entries {
            let element = if is_xml_name(&entry.element.value) { &entry.element.value } else { "attribute" };
            let mut tag = self.start(element);
            if !entry.name.value.is_empty() {
                tag = tag.attribute("name", &entry.name.value);
            }
            if !entry.version.value.is_empty() {
                tag = tag.attribute("version", &entry.version.value);
            }
            tag.attributes(&entry.attributes).empty();
        }
        self.end("rt_info");
    }

    fn pre_process(&mut self, section: &PreProcess<'_>) {
        let mut tag = self.start("pre-process");
        if let Some(precision) = &section.mean_precision {
            tag = tag.attribute("mean-precision", &precision.value);
        }
        if let Some(name) = &section.reference_layer_name {
            tag = tag.attribute("reference-layer-name", &name.value);
        }
        tag.children();
        for channel in &section.channels {
            self.mean_channel(channel);
        }
        self.end("pre-process");
    }

    fn mean_channel(&mut self, channel: &MeanChannel) {
        self.start("channel").number("id", channel.id.value).children();
        if let Some(mean) = channel.mean {
            self.start("mean").number("value", mean.value).empty();
        }
        if let Some(image) = channel.mean_image {
            self.start("mean").number("offset", image.offset.value).number("size", image.size.value).empty();
        }
        if let Some(scale) = channel.scale {
            self.start("scale").number("value", scale.value).empty();
        }
        self.end("channel");
    }
}

impl OpenTag<'_> {
    fn attribute(self, name: &str, value: &str) -> Self {
        self.writer.put(format_args!(" {name}=\""));
        escape(value, &mut self.writer.text);
        self.writer.text.push('"');
        self
    }

    fn number(self, name: &str, value: impl Display) -> Self {
        self.writer.put(format_args!(" {name}=\"{value}\""));
        self
    }

    fn optional(self, name: &str, value: Option<Located<i64>>) -> Self {
        match value {
            Some(value) => self.number(name, value.value),
            None => self,
        }
    }

    fn attributes(mut self, attributes: &[Attribute<'_>]) -> Self {
        for attribute in attributes {
            // No operation has such an attribute, and no XML can hold it.
            if is_xml_name(&attribute.name.value) {
                self = self.attribute(&attribute.name.value, &attribute.value.value);
            }
        }
        self
    }

    /// Ends a tag without content.
    fn empty(self) {
        self.writer.text.push_str(" />\n");
    }

    /// Ends a tag whose content follows.
    fn children(self) {
        self.writer.text.push_str(">\n");
        self.writer.depth += 1;
    }
}

/// Puts an attribute value so that reading it gives the same text.
fn escape(value: &str, text: &mut String) {
    for character in value.chars() {
        match character {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '"' => text.push_str("&quot;"),
            '\t' => text.push_str("&#09;"),
            '\n' => text.push_str("&#10;"),
            '\r' => text.push_str("&#13;"),
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => text.push('\u{fffd}'),
            _ => text.push(character),
        }
    }
}

/// The list of tensor names: commas in names become `\,`. A name that ends with a backslash would join the next one, so
/// it goes last.
fn join_names(names: &[Text<'_>]) -> String {
    let (last, first): (Vec<_>, Vec<_>) = names.iter().partition(|name| name.value.ends_with('\\'));
    let names: Vec<String> = first.into_iter().chain(last).map(|name| name.value.replace(',', "\\,")).collect();
    names.join(",")
}

#[cfg(test)]
mod tests;
