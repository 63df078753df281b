//! What holds for every chunked body, and whatever follows it.
//!
//! The fuzz target and the corpus test call it. It panics when something does not hold.
#![cfg_attr(fuzzing, no_main)]

use pollux_http::{BodyReader, Framing, Limits, Rejection};

const LIMITS: Limits = Limits {
    head_bytes: 0,
    target_bytes: 0,
    fields: 4,
    body_bytes: 300,
    chunk_line_bytes: 16,
    extension_bytes: 40,
    trailer_bytes: 64,
};

/// A body that has ended: its bytes and how many bytes it took.
type Ended = Option<(Vec<u8>, usize)>;

/// Compares the reader, fed in pieces of several sizes, with a slow reader of the whole.
pub(crate) fn holds(data: &[u8]) {
    let whole = read(Framing::Chunked, data, data.len().max(1));
    for piece in [1, 2, 3, 7] {
        assert_eq!(read(Framing::Chunked, data, piece), whole, "in pieces of {piece}");
    }
    assert_eq!(whole.ok().flatten(), slow(data));

    let half = data.len() / 2;
    let framing = Framing::Length(half as u64);
    assert_eq!(read(framing, data, 3), Ok(Some((data[..half].to_vec(), half))));
}

fn read(framing: Framing, data: &[u8], piece: usize) -> Result<Ended, Rejection> {
    let mut reader = BodyReader::new(framing, &LIMITS);
    let mut body = Vec::new();
    let mut at = 0;
    while at < data.len() && !reader.is_done() {
        let piece = &data[at..data.len().min(at + piece)];
        let step = reader.feed(piece)?;
        assert!(0 < step.consumed && step.consumed <= piece.len(), "it must continue");
        assert!(step.data.end <= step.consumed && step.is_done == reader.is_done());
        body.extend_from_slice(&piece[step.data]);
        at += step.consumed;
    }
    Ok(reader.is_done().then_some((body, at)))
}

/// The same by cutting lines off the front; none for a body that is broken, too large or has
/// not ended.
fn slow(data: &[u8]) -> Ended {
    let mut body = Vec::new();
    let mut rest = data;
    let mut extensions = 0;
    loop {
        let line = cut_line(&mut rest)?;
        let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        let (digits, extension) = line.split_at(digits);
        extensions += extension.len();
        if digits.len() > 64 || extension.len() > 16 || extensions > 40 {
            return None;
        }
        skip_extensions(extension)?;
        let size = u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).ok().filter(|size| *size <= 300 - body.len())?;
        let (chunk, behind) = rest.split_at_checked(size)?;
        body.extend_from_slice(chunk);
        rest = behind.strip_prefix(b"\r\n")?;
    }
    let trailers = rest;
    let mut fields = 0;
    loop {
        let line = cut_line(&mut rest)?;
        if line.is_empty() {
            break;
        }
        let colon = line.iter().position(|&b| b == b':')?;
        fields += 1;
        let is_sound = colon > 0 && line[..colon].iter().all(is_token);
        if !is_sound || line[colon..].iter().any(|&b| (b < b' ' && b != b'\t') || b == 0x7f) {
            return None;
        }
    }
    let is_small = fields <= 4 && trailers.len() - rest.len() <= 64;
    is_small.then_some((body, data.len() - rest.len()))
}

/// Reads what stands behind a chunk's size as the grammar says (RFC 9112 7.1.1); none when it does
/// not fit.
fn skip_extensions(mut rest: &[u8]) -> Option<()> {
    while !rest.is_empty() {
        rest = without_blanks(rest).strip_prefix(b";")?;
        rest = skip_token(without_blanks(rest))?;
        if let Some(value) = without_blanks(rest).strip_prefix(b"=") {
            let value = without_blanks(value);
            rest = match value.strip_prefix(b"\"") {
                Some(quoted) => skip_quoted(quoted)?,
                None => skip_token(value)?,
            };
        }
    }
    Some(())
}

fn without_blanks(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|&&b| b == b' ' || b == b'\t').count();
    &text[blanks..]
}

fn skip_token(text: &[u8]) -> Option<&[u8]> {
    let len = text.iter().take_while(|b| is_token(b)).count();
    (len > 0).then(|| &text[len..])
}

/// What stands behind the closing quote (RFC 9110 5.6.4).
fn skip_quoted(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        let (&b, behind) = text.split_first()?;
        let (&b, behind) = match b {
            b'"' => return Some(behind),
            b'\\' => behind.split_first()?,
            _ => (&b, behind),
        };
        if (b < b' ' && b != b'\t') || b == 0x7f {
            return None;
        }
        text = behind;
    }
}

fn is_token(b: &u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b)
}

/// A line without its CRLF; none when it has another end or none.
fn cut_line<'d>(rest: &mut &'d [u8]) -> Option<&'d [u8]> {
    let end = rest.iter().position(|&b| b == b'\n')?;
    let line = rest[..end].strip_suffix(b"\r")?;
    *rest = &rest[end + 1..];
    Some(line)
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| holds(data));
