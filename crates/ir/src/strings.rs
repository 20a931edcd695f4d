//! String constants in a `.bin`: a count, offsets, and the UTF-8 bytes of all strings one after another.
//!
//! All numbers are little-endian i32: the number of strings `n`, then `n + 1` offsets into the bytes that follow, the
//! first of which is 0. String `k` is the bytes from offset `k` to offset `k + 1`. An empty tensor is eight zero bytes.

/// Bytes of the count and of each offset.
const WORD: usize = 4;

/// The strings of a constant of `elements` elements.
///
/// # Errors
/// In words, what is wrong with the bytes.
pub(crate) fn unpack_strings(bytes: &[u8], elements: usize) -> Result<Vec<String>, String> {
    let count = word(bytes, 0).ok_or("there is no number of strings")?;
    if count != elements {
        return Err(format!("there are {count} strings, but the shape has {elements} elements"));
    }
    let header = count.checked_add(2).and_then(|words| words.checked_mul(WORD));
    let data = header.and_then(|header| bytes.get(header..)).ok_or("the offsets are cut off")?;
    let mut strings = Vec::with_capacity(count);
    let mut begin = word(bytes, 1).ok_or("an offset is negative")?;
    for index in 0..count {
        let end = word(bytes, index + 2).ok_or("an offset is negative")?;
        if end < begin {
            return Err(format!("string {index} ends before it begins"));
        }
        let string = data.get(begin..end).ok_or_else(|| format!("string {index} is cut off"))?;
        let string = std::str::from_utf8(string).map_err(|_| format!("string {index} is not UTF-8"))?;
        strings.push(string.to_owned());
        begin = end;
    }
    Ok(strings)
}

/// The bytes of a constant with these strings; `None` if an offset would not fit.
pub(crate) fn pack_strings(strings: &[String]) -> Option<Vec<u8>> {
    let total = strings.iter().try_fold(0usize, |total, string| total.checked_add(string.len()))?;
    i32::try_from(total).ok()?;
    let mut bytes = i32::try_from(strings.len()).ok()?.to_le_bytes().to_vec();
    let mut offset = 0;
    bytes.extend(0i32.to_le_bytes());
    for string in strings {
        offset += string.len();
        bytes.extend(i32::try_from(offset).ok()?.to_le_bytes());
    }
    for string in strings {
        bytes.extend(string.as_bytes());
    }
    Some(bytes)
}

/// The non-negative number at a position that counts words.
fn word(bytes: &[u8], index: usize) -> Option<usize> {
    let start = index.checked_mul(WORD)?;
    let bytes = bytes.get(start..)?.first_chunk::<WORD>()?;
    usize::try_from(i32::from_le_bytes(*bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn words(words: &[i32], data: &[u8]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).chain(data.iter().copied()).collect()
    }

    #[test]
    fn strings_read_back() {
        let strings: Vec<String> = ["hello", "wörld", "", "abc"].map(str::to_owned).to_vec();
        let bytes = pack_strings(&strings).unwrap();
        assert_eq!(bytes, include_bytes!("../tests/fixtures/strings.bin"));
        assert_eq!(unpack_strings(&bytes, 4), Ok(strings));
        assert_eq!(pack_strings(&[]).unwrap(), [0; 8]);
        assert_eq!(unpack_strings(&[0; 8], 0), Ok(vec![]));
    }

    #[test]
    fn damage_is_told() {
        let table: &[(Vec<u8>, usize, &str)] = &[
            (vec![0; 3], 1, "there is no number of strings"),
            (words(&[-1, 0], b""), 1, "there is no number of strings"),
            (words(&[2, 0, 1, 3], b"abc"), 3, "there are 2 strings, but the shape has 3 elements"),
            (words(&[i32::MAX, 0], b""), i32::MAX as usize, "the offsets are cut off"),
            (words(&[2, 0, 1, 5], b"abc"), 2, "string 1 is cut off"),
            (words(&[2, 2, 1, 3], b"abc"), 2, "string 0 ends before it begins"),
            (words(&[2, 0, -1, 3], b"abc"), 2, "an offset is negative"),
            (words(&[1, 0, 1], b"\xff"), 1, "string 0 is not UTF-8"),
        ];
        for (bytes, elements, expected) in table {
            assert_eq!(unpack_strings(bytes, *elements).unwrap_err(), *expected);
        }
    }
}
