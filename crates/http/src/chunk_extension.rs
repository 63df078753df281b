//! Chunk extensions (RFC 9112 7.1.1), byte by byte: nothing is kept of them, but what two readers
//! could take for different things is refused. [`crate::BodyReader`] calls it and counts their bytes.
//!
//! ```text
//!  chunk-ext = *( BWS ";" BWS name [ BWS "=" BWS ( token | quoted-string ) ] )
//!
//!             ';'        token          BWS           '='           token
//!  (size) ─┬──────► Start ────► Name ───────► NameEnd ───► Equals ────────► Value ─┐
//!          │          ▲          │ └──────────── '=' ────────►│                    │
//!      BWS │          │ ';'      │ ';' or CR                  │ '"'                │ ';', BWS or CR
//!          ▼          │          ▼                            ▼                    │
//!        Blank ───────┘                     Escape ◄─'\'── Quoted ──'"'──► QuoteEnd┘
//! ```
//!
//! White space stands only where a part of an extension follows it.

use crate::fields::{is_token_byte, is_value_byte};

/// Where in the extensions of a chunk its line stands.
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
