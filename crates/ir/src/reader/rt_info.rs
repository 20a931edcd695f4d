//! `<rt_info>`: of the model, of layers and of ports.

use std::borrow::Cow;

use super::{Reader, Result};
use crate::document::{Located, RtAttribute, RtInfo};
use crate::limits::beyond;
use crate::xml::{Item, Tag};

impl<'a> Reader<'a> {
    /// Reads one entry of the model's rt_info, or a section of version 10 that is written alike. Nothing in it is
    /// unknown: everybody may add entries.
    pub(super) fn read_rt_info_entry(&mut self, tag: &Tag<'a>, depth: usize) -> Result<RtInfo<'a>> {
        if depth > self.limits.rt_info_depth {
            let message = beyond("groups of rt_info nest in", self.limits.rt_info_depth, "others", "rt-info-depth");
            return self.limit(tag.span, message);
        }
        let mut attributes = self.attributes(tag)?;
        let own_name = || Located::new(Cow::Borrowed(tag.name), tag.span);
        let mut entry = RtInfo {
            name: attributes.take("name").unwrap_or_else(own_name),
            value: attributes.take("value").or_else(|| attributes.take("unset_cli_parameters")),
            children: Vec::new(),
            span: tag.span,
        };
        if tag.is_empty {
            return Ok(entry);
        }
        let has_value = entry.value.is_some();
        loop {
            match self.item()? {
                Item::Open(child) => entry.children.push(self.read_rt_info_entry(&child, depth + 1)?),
                Item::Text(part, span) if !has_value => match &mut entry.value {
                    None => entry.value = Some(Located::new(part, span)),
                    Some(text) => {
                        text.value.to_mut().push_str(&part);
                        text.span.end = span.end;
                    }
                },
                Item::Text(..) => {}
                Item::Declaration { span, .. } => self.misplaced_declaration(span),
                Item::Close => return Ok(entry),
                Item::End => return self.unclosed(tag),
            }
        }
    }

    /// Reads the rt_info of a layer or port.
    pub(super) fn read_rt_attributes(&mut self, tag: &Tag<'a>) -> Result<Vec<RtAttribute<'a>>> {
        let mut entries = Vec::new();
        while let Some(child) = self.child(tag)? {
            let mut attributes = self.attributes(&child)?;
            entries.push(RtAttribute {
                element: Located::new(Cow::Borrowed(child.name), child.span),
                name: attributes.take("name").unwrap_or_default(),
                version: attributes.take("version").unwrap_or_default(),
                attributes: attributes.into_vec(),
                span: child.span,
            });
            self.skip(&child)?;
        }
        Ok(entries)
    }
}
