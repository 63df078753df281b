//! Content codings: what is compressed, and how, at once for files and piece by piece for answers of backends.
//!
//! ```text
//!  pieces ─► write ─► made: what came of them so far ─► finish ─► the end of the coding
//!                      ▲
//!            flush: all of it can be read, as the sender pauses
//! ```
//!
//! What an [`Encoder`] keeps is bounded by what its coding looks back at, whatever goes through it. A loop has [`OPEN_MAX`] of
//! them at once, and begins none where more than [`BYTES_PER_SECOND`] went through them: it serves no other client while it
//! compresses.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use pollux_http::{Acceptable, ContentCoding, Fields};

use crate::fault::{ProxyCounter, ProxyCounters};

/// Most answers of backends that a loop compresses at once.
const OPEN_MAX: usize = 64;
/// What a loop compresses of them in a second before it begins no other one.
const BYTES_PER_SECOND: u64 = 16 << 20;
/// Binary logarithm of what a coding looks back at.
const WINDOW_BITS: u32 = 17;
/// What the encoder of brotli writes at a time.
const BROTLI_ROOM_BYTES: usize = 4 * 1024;

/// Forms of a body, best first.
pub(crate) const FORMS: [ContentCoding; 4] =
    [ContentCoding::Brotli, ContentCoding::Zstd, ContentCoding::Gzip, ContentCoding::Identity];

/// What bodies are compressed with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Coding {
    Brotli,
    Zstd,
    Gzip,
}

impl Coding {
    pub(crate) fn from_content_coding(coding: ContentCoding) -> Option<Self> {
        match coding {
            ContentCoding::Brotli => Some(Self::Brotli),
            ContentCoding::Zstd => Some(Self::Zstd),
            ContentCoding::Gzip => Some(Self::Gzip),
            ContentCoding::Identity => None,
        }
    }

    /// The one that a client likes best that has sent these fields; none where it likes none, or takes nothing at all.
    pub(crate) fn best(fields: Fields<'_>) -> Option<Self> {
        Acceptable::of(fields).best(&FORMS).and_then(Self::from_content_coding)
    }

    /// Its name in Content-Encoding.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Brotli => ContentCoding::Brotli.name(),
            Self::Zstd => ContentCoding::Zstd.name(),
            Self::Gzip => ContentCoding::Gzip.name(),
        }
    }

    /// `bytes` in this coding, at a level that takes about as long as the network saves.
    pub(crate) fn encode(self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), GZIP_LEVEL);
                encoder.write_all(bytes)?;
                encoder.finish()
            }
            Self::Zstd => zstd::bulk::compress(bytes, ZSTD_LEVEL),
            Self::Brotli => {
                let mut out = Vec::new();
                let params = brotli::enc::BrotliEncoderParams {
                    quality: BROTLI_QUALITY,
                    lgwin: 19,
                    size_hint: bytes.len(),
                    ..Default::default()
                };
                brotli::BrotliCompress(&mut &*bytes, &mut out, &params)?;
                Ok(out)
            }
        }
    }
}

const GZIP_LEVEL: flate2::Compression = flate2::Compression::new(5);
const ZSTD_LEVEL: i32 = 3;
const BROTLI_QUALITY: i32 = 4;

/// The media type in the value of Content-Type, without its parameters.
pub(crate) fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// Whether what is of this media type gets smaller.
pub(crate) fn is_text(media_type: &str) -> bool {
    let kind = media_type.to_ascii_lowercase();
    kind.starts_with("text/")
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
        || matches!(
            &*kind,
            "application/json"
                | "application/javascript"
                | "application/xml"
                | "application/wasm"
                | "font/ttf"
                | "font/otf"
                | "image/bmp"
                | "image/x-icon"
                | "image/vnd.microsoft.icon"
        )
}

/// Those of one loop.
#[derive(Debug)]
pub(crate) struct Encoders {
    /// Each that is open has a copy.
    open: Arc<()>,
    counts: Arc<ProxyCounters>,
    second: u64,
    /// So many bytes of those that were taken are paid for by the seconds that have passed.
    paid_bytes: u64,
}

impl Encoders {
    pub(crate) fn new(counts: Arc<ProxyCounters>) -> Self {
        Self { open: Arc::new(()), counts, second: 0, paid_bytes: 0 }
    }

    /// Begins one; none where the loop has as many as it may, or has done enough for now.
    pub(crate) fn begin(&mut self, coding: Coding, now_s: u64) -> Option<Box<Encoder>> {
        let taken_bytes = self.counts.value(ProxyCounter::CompressBytes);
        let more = BYTES_PER_SECOND.saturating_mul(now_s.saturating_sub(self.second));
        self.paid_bytes = self.paid_bytes.saturating_add(more).min(taken_bytes);
        self.second = now_s;
        let is_busy = taken_bytes - self.paid_bytes >= BYTES_PER_SECOND;
        let made = (!is_busy && Arc::strong_count(&self.open) <= OPEN_MAX)
            .then(|| By::new(coding))
            .and_then(Result::ok);
        let Some(by) = made else {
            self.counts.count(ProxyCounter::CompressionsPutOff);
            return None;
        };
        self.counts.count(ProxyCounter::AnswersCompressed);
        let counts = Arc::clone(&self.counts);
        Some(Box::new(Encoder {
            by,
            taken_bytes: 0,
            has_unflushed: true,
            counts,
            _place: Arc::clone(&self.open),
        }))
    }
}

/// Compresses one body.
pub(crate) struct Encoder {
    by: By,
    /// Bytes of the body as it came.
    taken_bytes: u64,
    /// Something was taken that can't be read yet from what was made; of a body of which nothing came, its beginning.
    has_unflushed: bool,
    counts: Arc<ProxyCounters>,
    /// One of the places of its loop.
    _place: Arc<()>,
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("taken_bytes", &self.taken_bytes).finish_non_exhaustive()
    }
}

enum By {
    /// Larger than the others.
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
}

impl By {
    fn new(coding: Coding) -> std::io::Result<Self> {
        Ok(match coding {
            Coding::Brotli => Self::Brotli(Box::new(brotli::CompressorWriter::new(
                Vec::new(),
                BROTLI_ROOM_BYTES,
                BROTLI_QUALITY as u32,
                WINDOW_BITS,
            ))),
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.window_log(WINDOW_BITS)?;
                Self::Zstd(encoder)
            }
            Coding::Gzip => Self::Gzip(flate2::write::GzEncoder::new(Vec::new(), GZIP_LEVEL)),
        })
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Brotli(by) => by.as_mut(),
            Self::Zstd(by) => by,
            Self::Gzip(by) => by,
        }
    }

    fn made(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Brotli(by) => by.get_mut(),
            Self::Zstd(by) => by.get_mut(),
            Self::Gzip(by) => by.get_mut(),
        }
    }
}

/// Why none of the calls fails.
const IN_MEMORY: &str = "what is made goes into memory";

impl Encoder {
    /// Takes some of the body; `give` gets what came of it.
    pub(crate) fn write(&mut self, data: &[u8], give: impl FnOnce(&[u8])) {
        if data.is_empty() {
            return;
        }
        self.taken_bytes += data.len() as u64;
        self.counts.add(ProxyCounter::CompressBytes, data.len() as u64);
        self.has_unflushed = true;
        self.by.writer().write_all(data).expect(IN_MEMORY);
        self.give(give);
    }

    /// Has all that was taken be readable from what was made; `give` gets that.
    pub(crate) fn flush(&mut self, give: impl FnOnce(&[u8])) {
        if std::mem::take(&mut self.has_unflushed) && self.taken_bytes > 0 {
            self.by.writer().flush().expect(IN_MEMORY);
            self.give(give);
        }
    }

    /// The body is whole; `give` gets the rest.
    pub(crate) fn finish(self, give: impl FnOnce(&[u8])) {
        let made = match self.by {
            By::Brotli(by) => by.into_inner(),
            By::Zstd(by) => by.finish().expect(IN_MEMORY),
            By::Gzip(by) => by.finish().expect(IN_MEMORY),
        };
        self.counts.add(ProxyCounter::CompressedBytes, made.len() as u64);
        give(&made);
    }

    /// Bytes of the body that were taken.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    fn give(&mut self, give: impl FnOnce(&[u8])) {
        let made = self.by.made();
        self.counts.add(ProxyCounter::CompressedBytes, made.len() as u64);
        give(made);
        made.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        // What was flushed has no end yet: what can be read of it is read.
        let mut room = [0; 4096];
        let mut reader: Box<dyn Read> = match coding {
            Coding::Brotli => Box::new(brotli::Decompressor::new(bytes, 4096)),
            Coding::Zstd => Box::new(zstd::stream::read::Decoder::new(bytes).expect("a decoder")),
            Coding::Gzip => Box::new(flate2::read::GzDecoder::new(bytes)),
        };
        while let Ok(read @ 1..) = reader.read(&mut room) {
            out.extend_from_slice(&room[..read]);
        }
        out
    }

    #[test]
    fn what_was_written_can_be_read_once_it_is_flushed_and_at_the_end() {
        let mut encoders = Encoders::new(Arc::new(ProxyCounters::new(0)));
        for coding in ALL {
            let mut encoder = encoders.begin(coding, 1).expect("the first one");
            let mut made = Vec::new();
            let mut body = Vec::new();
            for piece in 0..50 {
                let text = format!("line {piece} of a text that is long\n").repeat(piece + 1);
                body.extend_from_slice(text.as_bytes());
                encoder.write(text.as_bytes(), |bytes| made.extend_from_slice(bytes));
                if piece % 3 == 0 {
                    encoder.flush(|bytes| made.extend_from_slice(bytes));
                    assert_eq!(decoded(coding, &made), body, "{coding:?} {piece}");
                    let before = made.len();
                    encoder.flush(|bytes| made.extend_from_slice(bytes));
                    assert_eq!(made.len(), before, "{coding:?}: there was nothing to flush");
                }
            }
            assert_eq!(encoder.taken_bytes(), body.len() as u64);
            encoder.finish(|bytes| made.extend_from_slice(bytes));
            assert_eq!(decoded(coding, &made), body, "{coding:?}");
            assert!(made.len() < body.len() / 5, "{coding:?}: {} of {}", made.len(), body.len());
        }
        let counts = &encoders.counts;
        assert!(counts.value(ProxyCounter::CompressedBytes) > 0);
        assert_eq!(counts.value(ProxyCounter::AnswersCompressed), 3);
    }

    #[test]
    fn a_loop_has_so_many_at_once_and_so_much_in_a_second() {
        let counts = Arc::new(ProxyCounters::new(0));
        let mut encoders = Encoders::new(Arc::clone(&counts));
        let mut open: Vec<_> =
            (0..OPEN_MAX).map(|_| encoders.begin(Coding::Gzip, 1).expect("a place")).collect();
        assert!(encoders.begin(Coding::Gzip, 1).is_none());
        assert_eq!(counts.value(ProxyCounter::CompressionsPutOff), 1);
        open.pop();
        let mut last = encoders.begin(Coding::Gzip, 1).expect("a place again");
        open.clear();
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..BYTES_PER_SECOND >> 20 {
            last.write(&piece, |_| {});
        }
        assert!(encoders.begin(Coding::Gzip, 1).is_none(), "enough for this second");
        // What continues is charged to the seconds that follow.
        last.write(&piece, |_| {});
        last.write(&piece, |_| {});
        assert!(encoders.begin(Coding::Gzip, 2).is_some());
        for _ in 0..2 * (BYTES_PER_SECOND >> 20) {
            last.write(&piece, |_| {});
        }
        assert!(encoders.begin(Coding::Gzip, 3).is_none());
        assert!(encoders.begin(Coding::Gzip, 4).is_some());
    }

    #[test]
    fn text_is_known_by_its_type_in_any_case() {
        for (content_type, is_it) in [
            ("text/html; charset=utf-8", true),
            ("TEXT/HTML", true),
            ("application/problem+json", true),
            ("application/json ;x=y", true),
            ("application/grpc", false),
            ("image/png", false),
            ("", false),
        ] {
            assert_eq!(is_text(media_type(content_type)), is_it, "{content_type}");
        }
    }
}
