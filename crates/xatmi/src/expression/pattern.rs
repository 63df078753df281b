//! Regular expressions of `%%` and `!%`: they fit a whole value, byte by byte.
//!
//! Parsing makes them, evaluation asks them. Their time is linear in the value, and their memory is
//! bounded, whatever the pattern is.

use regex::bytes::{Regex, RegexBuilder};

/// Most bytes of a pattern once it is compiled.
const COMPILED_BYTES_MAX: usize = 256 * 1024;

/// Most groups within one another.
const GROUPS_DEEP_MAX: u32 = 32;

#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: String,
    whole: Regex,
}

impl Pattern {
    /// # Errors
    /// What is wrong with the pattern, in one line.
    pub(super) fn new(text: &[u8]) -> Result<Self, String> {
        let text = str::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned())?;
        // By itself first: a parenthesis that closes nothing would leave the group around it.
        compiled(text)?;
        let whole = compiled(&format!(r"\A(?:{text})\z"))?;
        Ok(Self { text: text.to_owned(), whole })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn fits(&self, value: &[u8]) -> bool {
        self.whole.is_match(value)
    }
}

/// A pattern of names of events, and of texts as filters have them.
#[derive(Clone, Debug)]
pub struct EventPattern(Pattern);

impl EventPattern {
    /// # Errors
    /// What is wrong with the pattern, in one line.
    pub fn new(text: &str) -> Result<Self, String> {
        Pattern::new(text.as_bytes()).map(Self)
    }

    /// Whether the whole name fits.
    #[must_use]
    pub fn fits(&self, name: &str) -> bool {
        self.fits_bytes(name.as_bytes())
    }

    /// Whether the whole text fits.
    #[must_use]
    pub fn fits_bytes(&self, text: &[u8]) -> bool {
        self.0.fits(text)
    }
}

fn compiled(text: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(text);
    // Values are bytes, and a new line in one is a character as any other.
    builder.unicode(false).dot_matches_new_line(true);
    builder.size_limit(COMPILED_BYTES_MAX).nest_limit(GROUPS_DEEP_MAX);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            format!("it needs more than {COMPILED_BYTES_MAX} bytes once it is compiled")
        }
        // The last line says what is wrong, those before draw where.
        other => other.to_string().lines().last().unwrap_or_default().trim().to_owned(),
    })
}
