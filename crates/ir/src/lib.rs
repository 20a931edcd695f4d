//! The OpenVINO IR file format: XML to a located document, weights, and back to XML.
