//! The text that diagnostics point into: offsets to lines and columns.

use std::borrow::Cow;

use serde::Serialize;

use crate::Span;

/// A place in a text, as editors count: both numbers start at 1, columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column in characters.
    pub column: usize,
}

/// Bytes after which characters are counted anew: a file of one line may have ten thousand findings.
const BLOCK: usize = 1024;

/// A text with an index of its lines.
#[derive(Debug, Clone)]
pub struct SourceText<'a> {
    text: Cow<'a, str>,
    /// The offset at which each line starts.
    starts: Vec<usize>,
    /// The characters before each block of bytes.
    before: Vec<usize>,
}

impl<'a> SourceText<'a> {
    /// Indexes a text.
    pub fn new(text: &'a str) -> SourceText<'a> {
        SourceText::from_cow(Cow::Borrowed(text))
    }

    /// Indexes bytes that need not be UTF-8: bytes that belong to no character are shown as `?`, so that all offsets
    /// stay what they are.
    pub fn from_bytes(bytes: &'a [u8]) -> SourceText<'a> {
        match std::str::from_utf8(bytes) {
            Ok(text) => SourceText::new(text),
            Err(_) => SourceText::from_cow(Cow::Owned(readable(bytes))),
        }
    }

    fn from_cow(text: Cow<'a, str>) -> SourceText<'a> {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(newlines.map(|(offset, _)| offset + 1)).collect();
        let mut count = 0;
        let before = text.as_bytes().chunks(BLOCK).map(|block| {
            let before = count;
            count += characters(block);
            before
        });
        SourceText { starts, before: before.collect(), text }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line and column of an offset. An offset beyond the text is its end, one within a character its start.
    pub fn position(&self, offset: usize) -> Position {
        let offset = self.boundary(offset);
        let line = self.line_index(offset);
        Position { line: line + 1, column: self.count(offset) - self.count(self.starts[line]) + 1 }
    }

    /// The characters before an offset.
    fn count(&self, offset: usize) -> usize {
        let block = offset / BLOCK;
        let before = self.before.get(block).or(self.before.last()).copied().unwrap_or(0);
        let start = block.min(self.before.len().saturating_sub(1)) * BLOCK;
        before + characters(&self.text.as_bytes()[start..offset])
    }

    /// The places of the first character and of the one after the last.
    pub fn positions(&self, span: Span) -> (Position, Position) {
        let range = span.range();
        (self.position(range.start), self.position(range.end))
    }

    /// A line without its end, counted from 1; empty if there is none.
    pub fn line(&self, line: usize) -> &str {
        self.text[self.line_range(line.saturating_sub(1))].trim_end_matches(['\n', '\r'])
    }

    /// The offsets of a line, counted from 0.
    pub(crate) fn line_range(&self, index: usize) -> std::ops::Range<usize> {
        let end = self.text.len();
        let start = self.starts.get(index).copied().unwrap_or(end);
        start..self.starts.get(index + 1).copied().unwrap_or(end)
    }

    /// The line that holds an offset, counted from 0.
    pub(crate) fn line_index(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset).saturating_sub(1)
    }

    /// The start of the character at an offset.
    pub(crate) fn boundary(&self, offset: usize) -> usize {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
    }
}

/// The characters that begin in these bytes.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| !(0x80..0xc0).contains(*byte)).count()
}

/// The bytes as text of the same length.
fn readable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(std::iter::repeat_n('?', chunk.invalid().len()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn columns_of_long_lines_count_characters() {
        for length in [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK] {
            let text = format!("a\n{}", "xé𝄞".repeat(length).chars().take(length).collect::<String>());
            let source = SourceText::new(&text);
            for (column, (offset, _)) in text[2..].char_indices().enumerate() {
                assert_eq!(source.position(offset + 2), Position { line: 2, column: column + 1 });
            }
            assert_eq!(source.position(usize::MAX).column, length + 1);
        }
    }

    #[test]
    fn columns_count_characters() {
        let source = SourceText::new("ab\nüé𝄞x\r\n\nz");
        let position = |offset| {
            let Position { line, column } = source.position(offset);
            (line, column)
        };
        assert_eq!(position(0), (1, 1));
        assert_eq!(position(2), (1, 3));
        assert_eq!(position(3), (2, 1));
        assert_eq!(position(5), (2, 2));
        assert_eq!(position(6), (2, 2));
        assert_eq!(position(11), (2, 4));
        assert_eq!(position(14), (3, 1));
        assert_eq!(position(15), (4, 1));
        assert_eq!(position(999), (4, 2));
        assert_eq!(source.line(2), "üé𝄞x");
        assert_eq!((source.line(0), source.line(9)), ("ab", ""));
        assert_eq!(SourceText::new("").position(0), Position { line: 1, column: 1 });
    }

    #[test]
    fn damaged_bytes_keep_their_offsets() {
        let source = SourceText::from_bytes(b"a\xff\xe2\x82\nb");
        assert_eq!(source.text(), "a???\nb");
        assert_eq!(source.position(5), Position { line: 2, column: 1 });
    }
}
