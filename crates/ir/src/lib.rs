//! The OpenVINO IR file format: XML to a located document, weights, and back to XML.
//!
//! This crate knows how an IR file is written, and nothing of what any operation means. The text is borrowed where
//! possible: a [`Document`] lives as long as the XML it was read from, unless it was built by hand from owned text.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::as_conversions))]

mod document;
mod limits;
mod reader;
mod strings;
mod weights;
mod writer;
mod xml;

pub use document::{
    Attribute, BackEdge, Body, ControlFlow, DeclaredDim, DeclaredDims, Document, Edge, Layer, Located, MeanChannel,
    MeanImage, Port, PortMap, PortMapEntry, PreProcess, RtAttribute, RtInfo, Text,
};
pub use limits::{Limits, beyond};
pub use reader::{read_document, read_document_within, read_text_within};
pub use weights::{Weights, WeightsError};
pub use writer::{AtomicFile, ConstantPlace, WeightsWriter, write_document};
