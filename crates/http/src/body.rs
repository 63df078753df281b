//! Bodies: finds their bytes among the framing (RFC 9112 6.2 and 7.1).
//!
//! The server and its clients feed it what follows a head. Everything it has seen is kept in a few words, so
//! that the bytes may come in any pieces; body bytes are never copied, only pointed at. Trailers
//! are checked, and not kept: who wants them takes them from the input ([`BodyReader::is_in_trailers`]). Nothing of them may
//! reach framing, routing or Host.
//!
//! ```text
//!  Size ──► (Extension) ──► SizeLf ──► Data ──► DataCr ──► DataLf ──► Size
//!                              │ size 0
//!                              ▼
//!               EndLf ◄── TrailerStart ◄──► TrailerName ──► TrailerValue ──► TrailerLf
//!                 ▼
//!               Done
//! ```
//!
//! The size of a chunk may have zeros in front, and in answers blanks behind it, as old servers pad it; in
//! requests the grammar decides.
//!
//! A body of known length needs one state, and so does an answer that ends with its connection.

use std::ops::Range;

use crate::fields::{is_token_byte, is_value_byte};
use crate::{Framing, LimitName, Limits, Rejection, ResponseBody, Status};

/// Reads one body.
#[derive(Clone, Debug)]
pub struct BodyReader {
    state: State,
    /// Size of the chunk whose line is read.
    chunk: u64,
    /// What the body's chunks may still hold.
    body_left: u64,
    /// What the extensions of this chunk may still hold, and its start.
    line_left: u32,
    line_max: u32,
    /// What the extensions of all chunks may still hold.
    extension_left: u32,
    /// What the trailer section may still hold.
    trailer_left: u32,
    trailer_fields_left: usize,
    /// Whether a refusal is of an answer.
    is_answer: bool,
}

/// What one call of [`BodyReader::feed`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BodyStep {
    /// Bytes of the input that are done with; never 0 unless the input was empty or the body had
    /// ended before.
    pub consumed: usize,
    /// Where in the input the body's bytes stand; may be empty.
    pub data: Range<usize>,
    /// Whether the body ends here; the next head starts behind `consumed`.
    pub is_done: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Done,
    Refused(Rejection),
    Length(u64),
    UntilClose,
    Size { digits: u8 },
    Extension(ChunkExtension),
    SizeLf,
    Data(u64),
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
}

/// Digits of a chunk size, leading zeros included. More than 16 of them are zeros: the grammar has no end of
/// them (RFC 9112 7.1).
const SIZE_DIGITS_MAX: u8 = 64;

const SIZE: Rejection =
    Rejection::bad("a chunk size is not 1 to 64 hex digits and CRLF", "RFC 9112 7.1");
const BODY_LARGE: Rejection = Rejection::beyond(
    LimitName::Body,
    Status::CONTENT_TOO_LARGE,
    "the body exceeds the limit",
    "RFC 9110 15.5.14",
);
const CUT: Rejection = Rejection::bad("the connection ended before the body did", "RFC 9112 8");
const EXTENSION: Rejection =
    Rejection::bad("a chunk extension is not ;name or ;name=value and CRLF", "RFC 9112 7.1.1");
const EXTENSION_LARGE: Rejection =
    Rejection::bad("chunk extensions exceed the limit", "RFC 9112 7.1.1");
const CHUNK_END: Rejection = Rejection::bad("a chunk is not followed by CRLF", "RFC 9112 7.1");
const TRAILER: Rejection = Rejection::bad("a trailer line is not a field", "RFC 9112 7.1.2");
const TRAILER_LARGE: Rejection =
    Rejection::new(Status::FIELDS_TOO_LARGE, "the trailers exceed the limit", "RFC 6585 5");

impl BodyReader {
    /// A reader for the body behind a head with that framing.
    #[must_use]
    #[inline]
    pub fn new(framing: Framing, limits: &Limits) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(len) => State::Length(len),
            Framing::Chunked => State::Size { digits: 0 },
        };
        Self::starting(state, limits)
    }

    /// A reader for the body of a response; its refusals have status 502.
    #[must_use]
    #[inline]
    pub fn of_response(body: ResponseBody, limits: &Limits) -> Self {
        let reader = match body {
            ResponseBody::None => Self::new(Framing::None, limits),
            ResponseBody::Length(len) => Self::new(Framing::Length(len), limits),
            ResponseBody::Chunked => Self::new(Framing::Chunked, limits),
            ResponseBody::UntilClose => Self::starting(State::UntilClose, limits),
        };
        Self { is_answer: true, ..reader }
    }

    #[inline]
    fn starting(state: State, limits: &Limits) -> Self {
        Self {
            state,
            chunk: 0,
            body_left: limits.body_bytes,
            line_left: limits.chunk_line_bytes,
            line_max: limits.chunk_line_bytes,
            extension_left: limits.extension_bytes,
            trailer_left: limits.trailer_bytes,
            trailer_fields_left: limits.fields,
            is_answer: false,
        }
    }

    /// Whether the body has ended.
    #[must_use]
    #[inline]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether the fields behind the last chunk are read, or the empty line that ends them: what [`BodyReader::feed`] consumes
    /// then is theirs, for [`Fields::of_trailers`](crate::Fields::of_trailers). It always returns in front of them.
    #[must_use]
    #[inline]
    pub fn is_in_trailers(&self) -> bool {
        matches!(
            self.state,
            State::TrailerStart
                | State::TrailerName
                | State::TrailerValue
                | State::TrailerLf
                | State::EndLf
        )
    }

    /// How many bytes may follow that are all data: the rest of a body of known length, or what the limit leaves of one
    /// that lasts until its connection ends. None where framing stands among the data, and at the end.
    #[must_use]
    #[inline]
    pub fn plain_left(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            State::UntilClose if self.body_left > 0 => Some(self.body_left),
            _ => None,
        }
    }

    /// Notes that so many bytes of data went another way, past this reader.
    ///
    /// # Panics
    /// When they exceed [`BodyReader::plain_left`].
    pub fn skip(&mut self, bytes: u64) {
        let left = self.plain_left().and_then(|left| left.checked_sub(bytes));
        let left = left.expect("no more bytes than may follow");
        match self.state {
            State::UntilClose => self.body_left = left,
            _ if left == 0 => self.state = State::Done,
            _ => self.state = State::Length(left),
        }
    }

    /// Looks at `input`, the bytes behind what was consumed before. Returns at the end of one
    /// piece of data, and in front of trailers; call it again while bytes are left and the body has not ended.
    ///
    /// # Errors
    /// When the framing is broken or a limit is exceeded; every later call says the same.
    #[inline]
    pub fn feed(&mut self, input: &[u8]) -> Result<BodyStep, Rejection> {
        match self.state {
            State::Length(left) if !input.is_empty() => Ok(self.take(input, 0, left)),
            _ => self.feed_framing(input),
        }
    }

    fn feed_framing(&mut self, input: &[u8]) -> Result<BodyStep, Rejection> {
        for (at, &b) in input.iter().enumerate() {
            match self.state {
                State::Done => return Ok(self.step(at, at..at)),
                State::Refused(rejection) => return Err(rejection),
                State::Length(left) => return Ok(self.take(input, at, left)),
                State::Data(left) => return Ok(self.take(input, at, left)),
                State::UntilClose => return self.take_all(input),
                State::SizeLf => match self.chunk_start(b) {
                    Ok(State::TrailerStart) => {
                        self.state = State::TrailerStart;
                        return Ok(self.step(at + 1, at + 1..at + 1));
                    }
                    Ok(state) => self.state = state,
                    Err(rejection) => return Err(self.refuse(rejection)),
                },
                _ => match self.next_state(b) {
                    Ok(state) => self.state = state,
                    Err(rejection) => return Err(self.refuse(rejection)),
                },
            }
        }
        let end = input.len();
        Ok(self.step(end, end..end))
    }

    /// Notes that the peer has ended its side of the connection. An answer that lasts
    /// until then is done.
    ///
    /// # Errors
    /// When the body should have gone on (RFC 9112 8), or had been refused before.
    pub fn end(&mut self) -> Result<(), Rejection> {
        match self.state {
            State::Done => Ok(()),
            State::Refused(rejection) => Err(rejection),
            State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            _ => Err(self.refuse(CUT)),
        }
    }

    #[cold]
    fn refuse(&mut self, rejection: Rejection) -> Rejection {
        let rejection = if self.is_answer { rejection.of_answer() } else { rejection };
        self.state = State::Refused(rejection);
        rejection
    }

    /// Points at all of the input, up to the limit of the body.
    fn take_all(&mut self, input: &[u8]) -> Result<BodyStep, Rejection> {
        match self.body_left.checked_sub(input.len() as u64) {
            Some(left) => {
                self.body_left = left;
                Ok(self.step(input.len(), 0..input.len()))
            }
            None => Err(self.refuse(BODY_LARGE)),
        }
    }

    /// Points at the data that starts at `at`, of which `left` bytes are still to come.
    #[inline]
    fn take(&mut self, input: &[u8], at: usize, left: u64) -> BodyStep {
        let here = input.len() - at;
        let taken = usize::try_from(left).map_or(here, |left| left.min(here));
        let left = left - taken as u64;
        self.state = match self.state {
            State::Length(_) if left == 0 => State::Done,
            State::Length(_) => State::Length(left),
            _ if left == 0 => State::DataCr,
            _ => State::Data(left),
        };
        self.step(at + taken, at..at + taken)
    }

    #[inline]
    fn step(&self, consumed: usize, data: Range<usize>) -> BodyStep {
        BodyStep { consumed, data, is_done: self.is_done() }
    }

    /// The state behind one byte of framing.
    fn next_state(&mut self, b: u8) -> Result<State, Rejection> {
        match self.state {
            State::Size { digits } => self.size(b, digits),
            State::Extension(at) if b == b'\r' && self.is_answer && at.is_blank() => {
                Ok(State::SizeLf)
            }
            State::Extension(at) => match at.next(b) {
                Next::At(at) => self.extension(at),
                Next::Cr => Ok(State::SizeLf),
                Next::Wrong => Err(EXTENSION),
            },
            State::DataCr if b == b'\r' => Ok(State::DataLf),
            State::DataLf if b == b'\n' => Ok(State::Size { digits: 0 }),
            State::DataCr | State::DataLf => Err(CHUNK_END),
            _ => self.trailer(b),
        }
    }

    fn size(&mut self, b: u8, digits: u8) -> Result<State, Rejection> {
        if let Some(digit) = char::from(b).to_digit(16) {
            if digits == SIZE_DIGITS_MAX {
                return Err(SIZE);
            }
            // What is shifted out at the top would make another size of it.
            if self.chunk >> 60 != 0 {
                return Err(SIZE);
            }
            self.chunk = self.chunk << 4 | u64::from(digit);
            return Ok(State::Size { digits: digits + 1 });
        }
        match b {
            _ if digits == 0 => Err(SIZE),
            b'\r' => Ok(State::SizeLf),
            _ => self.extension(ChunkExtension::begin(b).ok_or(SIZE)?),
        }
    }

    /// Counts one byte of an extension. The blanks of a server that pads every size are bounded by line.
    fn extension(&mut self, at: ChunkExtension) -> Result<State, Rejection> {
        self.line_left = self.line_left.checked_sub(1).ok_or(EXTENSION_LARGE)?;
        if self.is_answer && at == ChunkExtension::Blank {
            return Ok(State::Extension(at));
        }
        self.extension_left = self.extension_left.checked_sub(1).ok_or(EXTENSION_LARGE)?;
        Ok(State::Extension(at))
    }

    fn chunk_start(&mut self, b: u8) -> Result<State, Rejection> {
        if b != b'\n' {
            return Err(SIZE);
        }
        let size = std::mem::take(&mut self.chunk);
        self.body_left = self.body_left.checked_sub(size).ok_or(BODY_LARGE)?;
        self.line_left = self.line_max;
        Ok(if size == 0 { State::TrailerStart } else { State::Data(size) })
    }

    fn trailer(&mut self, b: u8) -> Result<State, Rejection> {
        self.trailer_left = self.trailer_left.checked_sub(1).ok_or(TRAILER_LARGE)?;
        match (self.state, b) {
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::TrailerStart, _) if is_token_byte(b) => {
                self.trailer_fields_left =
                    self.trailer_fields_left.checked_sub(1).ok_or(TRAILER_LARGE)?;
                Ok(State::TrailerName)
            }
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerName, _) if is_token_byte(b) => Ok(State::TrailerName),
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerValue, _) if is_value_byte(b) => Ok(State::TrailerValue),
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::EndLf, b'\n') => Ok(State::Done),
            _ => Err(TRAILER),
        }
    }
}

/// Where in the extensions of a chunk its line stands.
///
/// Chunk extensions (RFC 9112 7.1.1), byte by byte: nothing is kept of them, but what two readers
/// could take for different things is refused. [`crate::BodyReader`] calls it and counts their bytes.
///
/// ```text
///  chunk-ext = *( BWS ";" BWS name [ BWS "=" BWS ( token | quoted-string ) ] )
///
///             ';'        token          BWS           '='           token
///  (size) ─┬──────► Start ────► Name ───────► NameEnd ───► Equals ────────► Value ─┐
///          │          ▲          │ └──────────── '=' ────────►│                    │
///      BWS │          │ ';'      │ ';' or CR                  │ '"'                │ ';', BWS or CR
///          ▼          │          ▼                            ▼                    │
///        Blank ───────┘                     Escape ◄─'\'── Quoted ──'"'──► QuoteEnd┘
/// ```
///
/// White space stands only where a part of an extension follows it; in answers also in front of the line's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChunkExtension {
    /// White space, before a semicolon.
    Blank,
    /// Behind a semicolon: a name is to come.
    Start,
    Name,
    /// White space behind a name.
    NameEnd,
    /// Behind `=`: a value is to come.
    Equals,
    Value,
    /// Within a quoted value.
    Quoted,
    /// Behind a backslash of a quoted value.
    Escape,
    /// Behind the closing quote.
    QuoteEnd,
}

/// What a byte makes of a place in the extensions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// They continue here.
    At(ChunkExtension),
    /// They have ended with the CR of their line.
    Cr,
    /// It may not stand here.
    Wrong,
}

impl ChunkExtension {
    /// The place behind a byte that follows a chunk's size; none where no extension begins.
    pub(crate) fn begin(b: u8) -> Option<Self> {
        match b {
            b';' => Some(Self::Start),
            b' ' | b'\t' => Some(Self::Blank),
            _ => None,
        }
    }

    /// Whether white space stands in front of it and nothing that would need more.
    fn is_blank(self) -> bool {
        matches!(self, Self::Blank | Self::NameEnd)
    }

    /// The place behind one more byte.
    pub(crate) fn next(self, b: u8) -> Next {
        let is_blank = matches!(b, b' ' | b'\t');
        Next::At(match (self, b) {
            (Self::Name | Self::Value | Self::QuoteEnd, b'\r') => return Next::Cr,
            (Self::Blank | Self::Name | Self::NameEnd | Self::Value | Self::QuoteEnd, b';') => {
                Self::Start
            }
            (Self::Start | Self::Name, _) if is_token_byte(b) => Self::Name,
            (Self::Name | Self::NameEnd, b'=') => Self::Equals,
            (Self::Equals, b'"') => Self::Quoted,
            (Self::Equals | Self::Value, _) if is_token_byte(b) => Self::Value,
            (Self::Quoted, b'"') => Self::QuoteEnd,
            (Self::Quoted, b'\\') => Self::Escape,
            (Self::Quoted | Self::Escape, _) if is_value_byte(b) => Self::Quoted,
            (Self::Blank | Self::Start | Self::NameEnd | Self::Equals, _) if is_blank => self,
            (Self::Name, _) if is_blank => Self::NameEnd,
            (Self::Value | Self::QuoteEnd, _) if is_blank => Self::Blank,
            _ => return Next::Wrong,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body's bytes, and how many bytes it took; the input comes in pieces of that size.
    fn read(framing: Framing, input: &[u8], piece: usize) -> Result<(Vec<u8>, usize, bool), u16> {
        let limits = Limits {
            body_bytes: 1000,
            chunk_line_bytes: 8,
            extension_bytes: 20,
            trailer_bytes: 40,
            fields: 3,
            ..Limits::default()
        };
        let mut reader = BodyReader::new(framing, &limits);
        let mut data = Vec::new();
        let mut at = 0;
        while at < input.len() && !reader.is_done() {
            let piece = &input[at..input.len().min(at + piece)];
            let step = reader.feed(piece).map_err(|rejection| rejection.status.code())?;
            data.extend_from_slice(&piece[step.data]);
            at += step.consumed;
        }
        Ok((data, at, reader.is_done()))
    }

    fn chunked(input: &str) -> Result<(String, usize, bool), u16> {
        let whole = read(Framing::Chunked, input.as_bytes(), usize::MAX / 2);
        assert_eq!(whole, read(Framing::Chunked, input.as_bytes(), 1), "{input:?}");
        whole.map(|(data, at, done)| (String::from_utf8(data).expect("ASCII"), at, done))
    }

    fn whole(data: &str, input: &str) -> Result<(String, usize, bool), u16> {
        Ok((data.to_owned(), input.len(), true))
    }

    #[test]
    fn a_length_takes_its_bytes_and_no_more() {
        assert_eq!(read(Framing::Length(3), b"abcd", 9), Ok((b"abc".to_vec(), 3, true)));
        assert_eq!(read(Framing::Length(5), b"abc", 1), Ok((b"abc".to_vec(), 3, false)));
        assert_eq!(read(Framing::Length(0), b"abc", 1), Ok((Vec::new(), 0, true)));
        assert_eq!(read(Framing::None, b"abc", 1), Ok((Vec::new(), 0, true)));
    }

    #[test]
    fn data_that_went_another_way_is_not_waited_for() {
        let limits = Limits { body_bytes: 10, ..Limits::default() };
        let mut reader = BodyReader::new(Framing::Length(9), &limits);
        assert_eq!(reader.feed(b"abc").expect("data").consumed, 3);
        assert_eq!(reader.plain_left(), Some(6));
        reader.skip(4);
        assert_eq!((reader.plain_left(), reader.is_done()), (Some(2), false));
        reader.end().expect_err("two bytes are missing");
        let mut reader = BodyReader::new(Framing::Length(9), &limits);
        reader.skip(9);
        assert_eq!((reader.plain_left(), reader.is_done()), (None, true));
        let mut reader = BodyReader::of_response(ResponseBody::UntilClose, &limits);
        reader.skip(9);
        assert_eq!(reader.plain_left(), Some(1));
        reader.skip(1);
        assert_eq!((reader.plain_left(), reader.is_done()), (None, false));
        reader.feed(b"a").expect_err("beyond the limit");
        for framing in [Framing::None, Framing::Chunked] {
            assert_eq!(BodyReader::new(framing, &limits).plain_left(), None);
        }
    }

    #[test]
    fn chunks_are_joined() {
        for (data, input) in [
            ("", "0\r\n\r\n"),
            ("abcde", "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
            ("0123456789", "A\r\n0123456789\r\n00000\r\n\r\n"),
            ("0123456789", "a;x=y\r\n0123456789\r\n0;z\r\n\r\n"),
            ("a", "1 ;x\r\na\r\n0\t;a\r\n\r\n"),
            ("\r\n0\r\n\r\n", "7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n"),
            ("a", "1\r\na\r\n0\r\nA: b\r\nC:\r\n\r\n"),
            ("a", "0000000000000001\r\na\r\n0\r\n\r\n"),
            ("a", "00000000000000000000001\r\na\r\n0\r\n\r\n"),
        ] {
            assert_eq!(chunked(input), whole(data, input), "{input:?}");
        }
    }

    #[test]
    fn trailers_are_read_apart_from_what_stands_in_front() {
        let input = b"1\r\na\r\n0\r\nA: b\r\nC:d \r\n\r\nGET";
        for piece in 1..=input.len() {
            let mut reader = BodyReader::new(Framing::Chunked, &Limits::default());
            let mut at = 0;
            let mut trailers = Vec::new();
            while !reader.is_done() {
                let rest = &input[at..input.len().min(at + piece)];
                let is_trailer = reader.is_in_trailers();
                let step = reader.feed(rest).expect("sound");
                if is_trailer {
                    assert!(step.data.is_empty());
                    trailers.extend_from_slice(&rest[..step.consumed]);
                }
                at += step.consumed;
            }
            let fields = crate::Fields::of_trailers(&trailers);
            let fields: Vec<_> = fields.map(|field| (field.name, field.value)).collect();
            assert_eq!(fields, [("A", &b"b"[..]), ("C", b"d")], "pieces of {piece}");
            assert_eq!(&input[at..], b"GET");
        }
        assert_eq!(crate::Fields::of_trailers(b"\r\n").count(), 0);
    }

    #[test]
    fn what_follows_the_body_is_left_alone() {
        assert_eq!(chunked("0\r\n\r\nGET /"), Ok((String::new(), 5, true)));
    }

    #[test]
    fn broken_chunks_are_400() {
        for input in [
            "\r\n",
            "x",
            "-1\r\n",
            "+1\r\n",
            " 1\r\n",
            "0x1\r\n",
            "1\n",
            "1\rx",
            "1 \r\n",
            "1 2",
            "1\r\nab",
            "1\r\na\n",
            "1\r\na\rx",
            "1;\0",
            "1;\r",
            "1;a=\r",
            "1;a=[",
            "1;a \r",
            "1;\"a",
            "1;a\n",
            ";",
            "1,\r\n",
            "1_",
            "1;12345678",
            "0\r\n :",
            "0\r\nA\r",
            "0\r\nA: \n",
            "0\r\nA: b\rc",
            "0\r\nA : b",
            "0\r\n\n",
            "0\r\n\rx",
            "0\r\nA: b\r\n c",
            "0\r\n:",
        ] {
            assert_eq!(chunked(input), Err(400), "{input:?}");
        }
    }

    #[test]
    fn limits_have_their_status() {
        assert_eq!(chunked("3e9\r\n"), Err(413));
        assert_eq!(chunked("ffffffffffffffff\r\n"), Err(413));
        assert_eq!(chunked("10000000000000000"), Err(400));
        assert_eq!(chunked("0010000000000000001"), Err(400));
        assert_eq!(
            chunked(&format!("{:0>64}\r\na\r\n0\r\n\r\n", 1)),
            whole("a", &format!("{:0>64}\r\na\r\n0\r\n\r\n", 1))
        );
        assert_eq!(chunked(&format!("{:0>65}", 1)), Err(400));
        assert_eq!(chunked(&format!("3e8\r\n{:1000}\r\n1\r\n", "")), Err(413));
        assert_eq!(chunked(&format!("0\r\nA: {:40}", "")), Err(431));
        assert_eq!(chunked("0\r\nA:\r\nA:\r\nA:\r\nA:\r\n"), Err(431));
        assert_eq!(chunked(&"1;123456\r\na\r\n".repeat(3)), Err(400));
    }

    /// The same of an answer, whose reader may be more lenient.
    fn chunked_answer(input: &str, piece: usize) -> Result<(String, usize), u16> {
        let mut reader = BodyReader::of_response(ResponseBody::Chunked, &Limits::default());
        let mut data = Vec::new();
        let mut at = 0;
        while at < input.len() && !reader.is_done() {
            let piece = &input.as_bytes()[at..input.len().min(at + piece)];
            let step = reader.feed(piece).map_err(|rejection| rejection.status.code())?;
            data.extend_from_slice(&piece[step.data]);
            at += step.consumed;
        }
        assert!(reader.is_done(), "{input:.60}");
        Ok((String::from_utf8(data).expect("ASCII"), at))
    }

    #[test]
    fn sizes_of_an_answer_may_be_padded_with_blanks() {
        let padded = "2      \r\nab\r\n".repeat(10_000);
        let many = format!("{padded}0      \r\n\r\n");
        for (input, data) in [
            ("5 \r\nhello\r\n0 \r\n\r\n", "hello"),
            ("5\t\r\nhello\r\n0\r\n\r\n", "hello"),
            ("5    ;a=b \r\nhello\r\n0;c\t\r\n\r\n", "hello"),
            ("00000000000000000000005\r\nhello\r\n0\r\n\r\n", "hello"),
            (&many, &"ab".repeat(10_000)),
        ] {
            for piece in [1, 3, usize::MAX / 2] {
                let expected = Ok((data.to_owned(), input.len()));
                assert_eq!(chunked_answer(input, piece), expected, "{input:.60}");
            }
            // Never in requests.
            assert!(input.starts_with("000") || chunked(input) == Err(400), "{input:.60}");
        }
        let endless = format!("5{:1100}", "");
        for broken in ["5 0\r\n", " 5\r\n", "5 \n", "5 \rx", "5; \r\n", "5;a= \r\n", &endless] {
            assert_eq!(chunked_answer(broken, 1), Err(502), "{broken:.60}");
        }
    }

    #[test]
    fn a_refusal_is_final() {
        let mut reader = BodyReader::new(Framing::Chunked, &Limits::default());
        assert!(reader.feed(b"x").is_err());
        assert!(reader.feed(b"0\r\n\r\n").is_err());
    }
}
