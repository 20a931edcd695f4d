//! NumPy's `.npy` files.
//!
//! The format is that of NumPy's enhancement proposal 1 in versions 1.0 to 3.0. Element types have their NumPy type.
//! Strings are written as `<U`. bf16 and the 8-bit floats have no NumPy type: they are written as 2- and 1-byte void, as
//! the ml_dtypes package writes them, and what a void array holds is told by the reader of the file. Sub-byte types are
//! written unpacked as u8 or i8 (nf4 and f4e2m1 as their codes).

use std::io::Write;

use byteorder::{ByteOrder, LittleEndian};

use crate::packed::{pack_codes, unpack_codes, unpacked_type};
use crate::{AlignedBuffer, ElementType, MAX_RANK, Shape, Tensor, TensorError};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Bytes of a header. NumPy refuses more than 10000 unless told otherwise; a header of [`MAX_RANK`] dimensions has less
/// than a thousand.
const MAX_HEADER: usize = 1 << 16;

/// Strings of an array of type `<U0`, whose number no byte of the file bears out.
const MAX_EMPTY_STRINGS: usize = 1 << 16;

/// NumPy aligns the elements to this many bytes.
const HEADER_ALIGNMENT: usize = 64;

/// Reads a `.npy` file. What follows the elements is ignored.
///
/// `hint` is the element type that the tensor is expected to have. It decides what a void array or one of 8-bit floats
/// holds, and whether one code a byte is packed into a sub-byte type; without it 2-byte void is bf16, and 1-byte void is
/// an error. It never converts numbers: an array of f32 stays f32.
///
/// # Errors
/// [`TensorError::Format`] if the bytes are no `.npy` file or hold what no element type can hold, and
/// [`TensorError::OutOfMemory`].
pub fn read_npy(bytes: &[u8], hint: Option<ElementType>) -> Result<Tensor, TensorError> {
    let (header, data) = split_header(bytes)?;
    let header = Header::parse(header)?;
    let elements = header.shape.checked_elements();
    let size = elements.and_then(|n| n.checked_mul(header.kind.width()));
    let data = size.and_then(|size| data.get(..size)).ok_or_else(|| {
        format_error(format!("the file holds {} bytes of elements, too few for the shape {}", data.len(), header.shape))
    })?;
    let mut data = AlignedBuffer::copy_of(data)?;
    if header.is_fortran {
        data = to_row_major(&data, &header.shape, header.kind.width())?;
    }
    header.kind.tensor(data, header.shape, hint)
}

/// Writes a tensor as a `.npy` file of version 1.0.
///
/// # Errors
/// What writing says, as [`TensorError::Format`]; [`TensorError::OutOfMemory`].
pub fn write_npy(tensor: &Tensor, output: &mut impl Write) -> Result<(), TensorError> {
    let element_type = tensor.element_type();
    if let Some(strings) = tensor.strings() {
        return write_strings(strings, tensor.shape(), output);
    }
    let description = match element_type {
        ElementType::Boolean => "|b1",
        ElementType::I8 | ElementType::I4 => "|i1",
        ElementType::I16 => "<i2",
        ElementType::U16 => "<u2",
        ElementType::U32 => "<u4",
        ElementType::U64 => "<u8",
        ElementType::I32 => "<i4",
        ElementType::I64 => "<i8",
        ElementType::F16 => "<f2",
        ElementType::F32 => "<f4",
        ElementType::F64 => "<f8",
        ElementType::Bf16 => "|V2",
        ElementType::F8e4m3 | ElementType::F8e5m2 | ElementType::F8e8m0 => "|V1",
        _ => "|u1",
    };
    write_header(description, tensor.shape(), output)?;
    if element_type.byte_width().is_some() {
        return output.write_all(tensor.bytes()).map_err(write_error);
    }
    let mut codes = AlignedBuffer::zeroed(tensor.elements())?;
    unpack_codes(element_type, tensor.bytes(), &mut codes)?;
    if element_type == ElementType::I4 {
        for code in codes.iter_mut() {
            *code = (*code ^ 8).wrapping_sub(8);
        }
    }
    output.write_all(&codes).map_err(write_error)
}

/// What the elements of an array are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Numbers and booleans, with the byte order.
    Native(ElementType, bool),
    /// Fixed-length UTF-32, in characters, with the byte order.
    Unicode(usize, bool),
    /// Fixed-length bytes.
    Bytes(usize),
    /// Bytes without meaning: 1 or 2.
    Void(usize),
    /// f8e5m2, which ml_dtypes calls `<f1`.
    F8e5m2,
}

struct Header {
    kind: Kind,
    is_fortran: bool,
    shape: Shape,
}

impl Kind {
    fn parse(description: &str) -> Result<Kind, TensorError> {
        let unknown = || format_error(format!("the NumPy type `{description}` is not one of an element type"));
        let (order, rest) = match description.as_bytes().first() {
            Some(b'<' | b'>' | b'=' | b'|') => description.split_at(1),
            _ => ("=", description),
        };
        let is_big = order == ">";
        let letter = rest.chars().next().filter(char::is_ascii).ok_or_else(unknown)?;
        let width: usize = rest[1..].parse().map_err(|_| unknown())?;
        let native = |element_type| Ok(Kind::Native(element_type, is_big));
        match (letter, width) {
            ('b', 1) => native(ElementType::Boolean),
            ('i', 1) => native(ElementType::I8),
            ('i', 2) => native(ElementType::I16),
            ('i', 4) => native(ElementType::I32),
            ('i', 8) => native(ElementType::I64),
            ('u', 1) => native(ElementType::U8),
            ('u', 2) => native(ElementType::U16),
            ('u', 4) => native(ElementType::U32),
            ('u', 8) => native(ElementType::U64),
            ('f', 1) => Ok(Kind::F8e5m2),
            ('f', 2) => native(ElementType::F16),
            ('f', 4) => native(ElementType::F32),
            ('f', 8) => native(ElementType::F64),
            ('V', 1 | 2) => Ok(Kind::Void(width)),
            ('U', _) if width <= u32::MAX as usize => Ok(Kind::Unicode(width, is_big)),
            ('S', _) => Ok(Kind::Bytes(width)),
            _ => Err(unknown()),
        }
    }

    /// Bytes of an element.
    fn width(self) -> usize {
        match self {
            Kind::Native(element_type, _) => element_type.byte_width().unwrap_or(1),
            Kind::Unicode(characters, _) => characters.saturating_mul(4),
            Kind::Bytes(width) | Kind::Void(width) => width,
            Kind::F8e5m2 => 1,
        }
    }

    fn tensor(self, mut data: AlignedBuffer, shape: Shape, hint: Option<ElementType>) -> Result<Tensor, TensorError> {
        let element_type = match (self, hint) {
            (Kind::Native(ElementType::U8 | ElementType::I8, _), Some(packed)) if is_packed(packed) => {
                return packed_tensor(packed, shape, &data);
            }
            (Kind::Void(1), Some(packed)) if is_packed(packed) => return packed_tensor(packed, shape, &data),
            (Kind::Native(element_type, is_big), _) => {
                if is_big {
                    swap_bytes(&mut data, self.width());
                }
                if element_type == ElementType::Boolean {
                    data.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
                }
                element_type
            }
            (Kind::Unicode(characters, is_big), _) => {
                if is_big {
                    swap_bytes(&mut data, 4);
                }
                let strings = split_elements(&data, characters * 4, &shape, unicode)?;
                return Tensor::from_strings(strings, shape);
            }
            (Kind::Bytes(width), _) => {
                let strings = split_elements(&data, width, &shape, byte_string)?;
                return Tensor::from_strings(strings, shape);
            }
            (Kind::F8e5m2, _) => ElementType::F8e5m2,
            (Kind::Void(width), Some(hint)) if hint.byte_width() == Some(width) => hint,
            (Kind::Void(2), None) => ElementType::Bf16,
            (Kind::Void(width), hint) => {
                let hint = hint.map_or("nothing says which".to_owned(), |hint| format!("{hint} is wanted"));
                return Err(format_error(format!("the array holds {width}-byte elements of an unnamed type; {hint}")));
            }
        };
        Tensor::from_buffer(element_type, shape, data)
    }
}

impl Header {
    fn parse(text: &str) -> Result<Header, TensorError> {
        let mut scanner = Scanner { rest: text };
        let (mut kind, mut is_fortran, mut shape) = (None, None, None);
        scanner.expect('{')?;
        while !scanner.take('}') {
            let key = scanner.string()?;
            scanner.expect(':')?;
            match key {
                "descr" => kind = Some(Kind::parse(scanner.string()?)?),
                "fortran_order" => is_fortran = Some(scanner.boolean()?),
                "shape" => shape = Some(scanner.shape()?),
                _ => return Err(format_error(format!("the header has an unknown key `{key}`"))),
            }
            if !scanner.take(',') {
                scanner.expect('}')?;
                break;
            }
        }
        match (kind, is_fortran, shape) {
            (Some(kind), Some(is_fortran), Some(shape)) => Ok(Header { kind, is_fortran, shape }),
            _ => Err(format_error("the header lacks one of descr, fortran_order and shape".to_owned())),
        }
    }
}

/// Reads the Python literal of a header.
struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    fn take(&mut self, character: char) -> bool {
        let trimmed = self.rest.trim_start();
        match trimmed.strip_prefix(character) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, character: char) -> Result<(), TensorError> {
        if self.take(character) { Ok(()) } else { Err(self.error(&format!("`{character}`"))) }
    }

    fn string(&mut self) -> Result<&'a str, TensorError> {
        let quote = if self.take('\'') {
            '\''
        } else if self.take('"') {
            '"'
        } else {
            return Err(self.error("a string (structured types are not read)"));
        };
        let (text, rest) = self.rest.split_once(quote).ok_or_else(|| self.error("the end of a string"))?;
        self.rest = rest;
        Ok(text)
    }

    fn boolean(&mut self) -> Result<bool, TensorError> {
        let trimmed = self.rest.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = trimmed.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(self.error("True or False"))
    }

    fn shape(&mut self) -> Result<Shape, TensorError> {
        let mut shape = Shape::default();
        self.expect('(')?;
        while !self.take(')') {
            if shape.rank() == MAX_RANK {
                return Err(format_error(format!("the array has more than {MAX_RANK} dimensions")));
            }
            let trimmed = self.rest.trim_start();
            let end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
            let size = trimmed[..end].parse().map_err(|_| self.error("a dimension"))?;
            shape.push(size);
            // Python 2 wrote long integers with an L.
            self.rest = trimmed[end..].trim_start_matches('L');
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }

    fn error(&self, expected: &str) -> TensorError {
        let found: String = self.rest.trim_start().chars().take(20).collect();
        format_error(format!("the header should have {expected} where it has `{found}`"))
    }
}

fn split_header(bytes: &[u8]) -> Result<(&str, &[u8]), TensorError> {
    let cut = || format_error("the header is cut off".to_owned());
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(format_error("this is not a .npy file".to_owned()));
    };
    let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
    let (length, rest) = match version {
        [1, _] => {
            let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        [2 | 3, _] => {
            let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        [major, minor] => {
            return Err(format_error(format!("version {major}.{minor} of the .npy format is not known")));
        }
    };
    if length > MAX_HEADER {
        return Err(format_error(format!("the header has {length} bytes; the limit is {MAX_HEADER}")));
    }
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    let header = std::str::from_utf8(header).map_err(|_| format_error("the header is not text".to_owned()))?;
    Ok((header, data))
}

/// Moves the elements of a column-major array into row-major order.
fn to_row_major(data: &[u8], shape: &Shape, width: usize) -> Result<AlignedBuffer, TensorError> {
    let mut result = AlignedBuffer::zeroed(data.len())?;
    if data.is_empty() || width == 0 {
        return Ok(result);
    }
    let mut strides = Shape::default();
    let mut stride = width;
    for size in shape.iter() {
        strides.push(stride);
        stride *= size;
    }
    let mut index = Shape::from_slice(&[0; MAX_RANK][..shape.rank()]);
    let mut source = 0;
    for target in result.chunks_exact_mut(width) {
        target.copy_from_slice(&data[source..source + width]);
        for axis in (0..shape.rank()).rev() {
            index[axis] += 1;
            source += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            source -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    Ok(result)
}

fn is_packed(element_type: ElementType) -> bool {
    unpacked_type(element_type).is_some() && element_type.byte_width().is_none()
}

fn packed_tensor(element_type: ElementType, shape: Shape, codes: &[u8]) -> Result<Tensor, TensorError> {
    let mut tensor = Tensor::zeros(element_type, shape)?;
    pack_codes(element_type, codes, tensor.bytes_mut()?)?;
    Ok(tensor)
}

fn swap_bytes(data: &mut [u8], width: usize) {
    for element in data.chunks_exact_mut(width) {
        element.reverse();
    }
}

fn split_elements(
    data: &[u8],
    width: usize,
    shape: &Shape,
    read: fn(&[u8]) -> Option<String>,
) -> Result<Vec<String>, TensorError> {
    let elements = shape.elements();
    if width == 0 {
        // An array of empty strings takes no bytes, so the file does not bound their number.
        if elements > MAX_EMPTY_STRINGS {
            return Err(format_error(format!("the array has more than {MAX_EMPTY_STRINGS} empty strings")));
        }
        return Ok(Tensor::zeros(ElementType::String, shape.clone())?.strings().unwrap_or_default().to_vec());
    }
    let mut strings = Vec::with_capacity(elements);
    for (index, element) in data.chunks_exact(width).enumerate() {
        let string = read(element).ok_or_else(|| format_error(format!("string {index} is not valid Unicode")))?;
        strings.push(string);
    }
    Ok(strings)
}

fn unicode(element: &[u8]) -> Option<String> {
    let characters = element.chunks_exact(4).map(LittleEndian::read_u32);
    let text: String = characters.map(char::from_u32).collect::<Option<_>>()?;
    Some(text.trim_end_matches('\0').to_owned())
}

fn byte_string(element: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(element).ok()?;
    Some(text.trim_end_matches('\0').to_owned())
}

fn write_header(description: &str, shape: &Shape, output: &mut impl Write) -> Result<(), TensorError> {
    let mut dims: String = shape.iter().map(|size| format!("{size}, ")).collect();
    if shape.rank() > 1 {
        dims.truncate(dims.len() - 2);
    } else if shape.rank() == 1 {
        dims.truncate(dims.len() - 1);
    }
    let mut header = format!("{{'descr': '{description}', 'fortran_order': False, 'shape': ({dims}), }}");
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(HEADER_ALIGNMENT) - unpadded));
    header.push('\n');
    let length = u16::try_from(header.len()).map_err(|_| format_error("the header is too long".to_owned()))?;
    let start = [MAGIC, &[1, 0], &length.to_le_bytes()].concat();
    output.write_all(&start).and_then(|()| output.write_all(header.as_bytes())).map_err(write_error)
}

fn write_strings(strings: &[String], shape: &Shape, output: &mut impl Write) -> Result<(), TensorError> {
    let longest = strings.iter().map(|string| string.chars().count()).max().unwrap_or(0).max(1);
    write_header(&format!("<U{longest}"), shape, output)?;
    let mut element = Vec::with_capacity(longest.saturating_mul(4));
    for string in strings {
        element.clear();
        element.extend(string.chars().flat_map(|c| u32::from(c).to_le_bytes()));
        element.resize(longest.saturating_mul(4), 0);
        output.write_all(&element).map_err(write_error)?;
    }
    Ok(())
}

fn format_error(message: String) -> TensorError {
    TensorError::Format(message)
}

fn write_error(error: std::io::Error) -> TensorError {
    format_error(format!("the array cannot be written: {error}"))
}

#[cfg(test)]
mod tests;
