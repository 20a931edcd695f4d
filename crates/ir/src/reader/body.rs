//! `<net>` and bodies: layers, edges, pre-process.

use ovir_diagnostics::{Code, Diagnostic};
use ovir_tensor::with_room;

use super::{Reader, Result, Seen};
use crate::document::{Body, Document, Edge, Layer, Located, MeanChannel, MeanImage, PreProcess};
use crate::limits::beyond;
use crate::xml::Tag;

/// Bytes of XML that a layer takes with its edges. Too much room costs nothing, since it is not touched.
const TYPICAL_LAYER_BYTES: usize = 512;

/// Layers for which room is made before they are seen.
const MOST_RESERVED: usize = 1 << 18;

impl<'a> Reader<'a> {
    pub(super) fn read_net(&mut self, tag: &Tag<'a>, document: &mut Document<'a>) -> Result<()> {
        let mut seen = Seen::default();
        document.body.span = tag.span;
        while let Some(child) = self.child(tag)? {
            match child.name {
                "pre-process" => document.pre_process.push(self.read_pre_process(&child)?),
                "meta_data" | "quantization_parameters" => {
                    document.legacy_metadata.push(self.read_rt_info_entry(&child, 0)?);
                }
                // Statistics of activations for an old calibration tool; nobody uses them.
                "statistics" => self.skip(&child)?,
                _ => self.read_section(&child, tag, &mut seen, &mut document.body, 0)?,
            }
        }
        self.finish_body(tag, &seen, &mut document.body);
        Ok(())
    }

    /// Reads `<body>`, `<then_body>` or `<else_body>`.
    pub(super) fn read_body(&mut self, tag: &Tag<'a>, depth: usize) -> Result<Body<'a>> {
        if depth > self.limits.body_depth {
            return self.limit(tag.span, beyond("bodies nest in", self.limits.body_depth, "others", "body-depth"));
        }
        let outer_is_incomplete = std::mem::take(&mut self.is_incomplete);
        let mut body = Body { span: tag.span, ..Body::default() };
        let mut seen = Seen::default();
        while let Some(child) = self.child(tag)? {
            self.read_section(&child, tag, &mut seen, &mut body, depth)?;
        }
        self.finish_body(tag, &seen, &mut body);
        self.is_incomplete = outer_is_incomplete;
        Ok(body)
    }

    fn finish_body(&mut self, tag: &Tag<'a>, seen: &Seen<'a>, body: &mut Body<'a>) {
        if !seen.0.iter().any(|(name, _)| *name == "layers") {
            let message = format!("<{}> has no <layers>", tag.name);
            self.report(Diagnostic::new(Code::MissingElement, message).at(tag.span, "it is required"));
            self.is_incomplete = true;
        }
        body.is_incomplete = self.is_incomplete;
    }

    fn read_section(
        &mut self,
        tag: &Tag<'a>,
        parent: &Tag<'a>,
        seen: &mut Seen<'a>,
        body: &mut Body<'a>,
        depth: usize,
    ) -> Result<()> {
        match tag.name {
            "layers" | "edges" | "rt_info" => {
                if !self.is_first(seen, tag)? {
                    return Ok(());
                }
            }
            _ => {
                let sections = ["layers", "edges", "rt_info"];
                self.unknown(tag, parent, &sections)?;
                self.is_incomplete |= self.was_slip();
                return Ok(());
            }
        }
        match tag.name {
            "layers" => self.read_layers(tag, &mut body.layers, depth),
            "edges" => {
                // Layers have one edge and some more; where the edges stand first, nothing is known of that.
                body.edges = with_room(body.layers.len() + body.layers.len() / 4);
                self.read_edges(tag, &mut body.edges)
            }
            _ => {
                while let Some(child) = self.child(tag)? {
                    body.rt_info.push(self.read_rt_info_entry(&child, 0)?);
                }
                Ok(())
            }
        }
    }

    fn read_layers(&mut self, tag: &Tag<'a>, layers: &mut Vec<Layer<'a>>, depth: usize) -> Result<()> {
        while let Some(child) = self.child(tag)? {
            if child.name != "layer" {
                self.is_incomplete = true;
                self.unknown(&child, tag, &["layer"])?;
                continue;
            }
            self.layers += 1;
            if self.layers > self.limits.layers {
                return self.limit(child.span, beyond("the file has", self.limits.layers, "layers", "layers"));
            }
            if layers.is_empty() && depth == 0 {
                *layers = with_room((self.xml.size() / TYPICAL_LAYER_BYTES).min(MOST_RESERVED));
            }
            // A layer is large: it is read where it stays.
            let place = layers.len();
            layers.push(Layer::default());
            let Some(layer) = layers.get_mut(place) else { continue };
            if !self.read_layer(&child, depth, layer)? {
                layers.truncate(place);
                self.is_incomplete = true;
            }
        }
        Ok(())
    }

    fn read_edges(&mut self, tag: &Tag<'a>, edges: &mut Vec<Edge>) -> Result<()> {
        while let Some(child) = self.child(tag)? {
            if child.name != "edge" {
                self.is_incomplete = true;
                self.unknown(&child, tag, &["edge"])?;
                continue;
            }
            self.edges += 1;
            if self.edges > self.limits.edges {
                return self.limit(child.span, beyond("the file has", self.limits.edges, "edges", "edges"));
            }
            match self.read_edge(&child)? {
                Some(edge) => edges.push(edge),
                None => self.is_incomplete = true,
            }
        }
        Ok(())
    }

    fn read_edge(&mut self, tag: &Tag<'a>) -> Result<Option<Edge>> {
        let mut attributes = self.attributes(tag)?;
        let from_layer = self.required_number(&mut attributes, "from-layer", tag);
        let from_port = self.required_number(&mut attributes, "from-port", tag);
        let to_layer = self.required_number(&mut attributes, "to-layer", tag);
        let to_port = self.required_number(&mut attributes, "to-port", tag);
        self.no_more(&attributes, tag);
        self.expect_empty(tag)?;
        let (Some(from_layer), Some(from_port), Some(to_layer), Some(to_port)) =
            (from_layer, from_port, to_layer, to_port)
        else {
            return Ok(None);
        };
        Ok(Some(Edge { from_layer, from_port, to_layer, to_port, span: tag.span }))
    }

    fn read_pre_process(&mut self, tag: &Tag<'a>) -> Result<PreProcess<'a>> {
        let mut attributes = self.attributes(tag)?;
        let mut section = PreProcess {
            reference_layer_name: attributes.take("reference-layer-name"),
            mean_precision: attributes.take("mean-precision"),
            channels: Vec::new(),
            span: tag.span,
        };
        self.no_more(&attributes, tag);
        while let Some(child) = self.child(tag)? {
            if child.name != "channel" {
                self.unknown(&child, tag, &["channel"])?;
                continue;
            }
            let position = u64::try_from(section.channels.len()).unwrap_or(u64::MAX);
            section.channels.push(self.read_channel(&child, position)?);
        }
        Ok(section)
    }

    fn read_channel(&mut self, tag: &Tag<'a>, position: u64) -> Result<MeanChannel> {
        let mut attributes = self.attributes(tag)?;
        let id = self.optional_number(&mut attributes, "id");
        self.no_more(&attributes, tag);
        let mut channel =
            MeanChannel { id: id.unwrap_or(Located::from(position)), span: tag.span, ..MeanChannel::default() };
        while let Some(child) = self.child(tag)? {
            match child.name {
                "mean" => self.read_mean(&child, &mut channel)?,
                "scale" => {
                    let mut attributes = self.attributes(&child)?;
                    channel.scale = self.required_number(&mut attributes, "value", &child);
                    self.expect_empty(&child)?;
                }
                _ => self.unknown(&child, tag, &["mean", "scale"])?,
            }
        }
        Ok(channel)
    }

    fn read_mean(&mut self, tag: &Tag<'a>, channel: &mut MeanChannel) -> Result<()> {
        let mut attributes = self.attributes(tag)?;
        let value = attributes.take("value");
        let offset = self.optional_number(&mut attributes, "offset");
        let size = self.optional_number(&mut attributes, "size");
        self.no_more(&attributes, tag);
        match (value, offset, size) {
            (Some(value), _, _) => channel.mean = self.number(&value, "value"),
            (None, Some(offset), Some(size)) => channel.mean_image = Some(MeanImage { offset, size }),
            _ => {
                let message = "<mean> needs `value`, or `offset` and `size`";
                self.report(Diagnostic::new(Code::MissingXmlAttribute, message).at(tag.span, "no mean"));
            }
        }
        self.expect_empty(tag)
    }
}
