//! Files that are something else than XML, and often stand where an IR file should.

use ovir_diagnostics::{Code, Diagnostic, Span};

/// How a Git LFS pointer begins.
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// What the file is instead of XML, if that can be told from how it begins.
pub(super) fn foreign(file: &[u8]) -> Option<Diagnostic> {
    let start = file.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(file.len());
    let (message, help) = what(file.get(start..)?)?;
    // Letters are shown, other bytes are not worth showing.
    let rest = file.get(start..).unwrap_or_default();
    let shown = rest.iter().take_while(|byte| byte.is_ascii_graphic() || **byte == b' ').count();
    let diagnostic = Diagnostic::new(Code::NotIr, message).at(Span::new(start, start + shown), "");
    Some(match help {
        "" => diagnostic,
        help => diagnostic.help(help),
    })
}

fn what(start: &[u8]) -> Option<(&'static str, &'static str)> {
    let is_html = |tag: &[u8]| start.get(..tag.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(tag));
    Some(match start {
        [] => ("the file is empty", ""),
        [b'{' | b'[', ..] => ("the file seems to be JSON, not the XML of an IR file", ""),
        [b'P', b'K', 3, 4, ..] => ("the file is a ZIP archive", "unpack it, and name the .xml file in it"),
        [0x1f, 0x8b, ..] => ("the file is compressed with gzip", "unpack it first"),
        _ if start.starts_with(POINTER) => {
            ("the file is a Git LFS pointer, not the model", "fetch the model with `git lfs pull`")
        }
        _ if is_html(b"<!doctype html") || is_html(b"<html") => (
            "the file is a web page, not an IR file",
            "the page about the file may have been saved instead of the file; download the raw file",
        ),
        _ => return None,
    })
}
