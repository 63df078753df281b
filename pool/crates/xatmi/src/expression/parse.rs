//! The text of an expression to its tree, by recursive descent, one function for all levels, and the regular
//! expressions in it.
//!
//! `Expression::compile` calls it. It never evaluates anything.

use regex::bytes::{Regex, RegexBuilder};

use super::{
    ARGUMENT_BYTES_MAX, BYTES_MAX, Binary, DEPTH_MAX, ExpressionError, FUNCTION_BYTES_MAX, FieldOf,
    FieldPath, Known, Node, Step, Unary,
};
use crate::ubf::{FieldType, NESTING_MAX};

/// Most bytes of a pattern once it is compiled.
const COMPILED_BYTES_MAX: usize = 256 * 1024;

/// Most groups within one another.
const GROUPS_DEEP_MAX: u32 = 32;

/// # Errors
/// [`ExpressionError`] with what was wrong and where.
pub(super) fn parse(
    text: &[u8],
    field_of: &FieldOf<'_>,
    known: &Known<'_>,
) -> Result<Node, ExpressionError> {
    if text.len() > BYTES_MAX {
        return Err(ExpressionError::TooLong { len: text.len() });
    }
    let mut parser = Parser { text, at: 0, depth: 0, field_of, known };
    let root = parser.level(0)?;
    parser.skip_blanks();
    match parser.rest() {
        [] => Ok(root),
        [b'=', ..] => Err(parser.wrong("`==` compares; `=` is not an operator")),
        [b')', ..] => Err(parser.wrong("this parenthesis closes none")),
        _ => Err(parser.wrong("an operator is expected")),
    }
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
    field_of: &'t FieldOf<'t>,
    known: &'t Known<'t>,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t [u8] {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    }

    /// Takes `sign` if it comes next, behind blanks.
    fn take(&mut self, sign: &str) -> bool {
        self.skip_blanks();
        let is_next = self.rest().starts_with(sign.as_bytes());
        if is_next {
            self.at += sign.len();
        }
        is_next
    }

    fn wrong(&self, reason: &'static str) -> ExpressionError {
        ExpressionError::Syntax { column: self.at + 1, reason }
    }

    fn level(&mut self, level: usize) -> Result<Node, ExpressionError> {
        let Some(operators) = Binary::LEVELS.get(level) else { return self.unary() };
        let first = self.level(level + 1)?;
        let mut rest = Vec::new();
        while let Some(binary) = self.operator(operators) {
            self.skip_blanks();
            let start = self.at;
            let operand = self.level(level + 1)?;
            if !binary.is_comparison() && !binary.is_logical() {
                let first = (rest.is_empty()).then_some(&first);
                self.no_any(first.into_iter().chain([&operand]))?;
            }
            if binary.is_match() && rest.is_empty() && !first.has_text() {
                return Err(ExpressionError::Syntax { column: start + 1, reason: PATTERN_OF });
            }
            let operand = if binary.is_match() { pattern(operand, start)? } else { operand };
            rest.push((binary, operand));
        }
        Ok(if rest.is_empty() { first } else { Node::Chain(Box::new(first), rest) })
    }

    fn operator(&mut self, operators: &[(Binary, &str)]) -> Option<Binary> {
        self.skip_blanks();
        // The remainder must leave the sign of a match alone.
        let is_match = self.rest().starts_with(b"%%");
        let is_next = |(binary, sign): &&(Binary, &str)| {
            self.rest().starts_with(sign.as_bytes()) && !(is_match && *binary == Binary::Remainder)
        };
        let (binary, sign) = *operators.iter().find(is_next)?;
        self.at += sign.len();
        Some(binary)
    }

    /// `?` stands for one occurrence at a time, which only a comparison can ask for.
    fn no_any<'n>(
        &self,
        operands: impl IntoIterator<Item = &'n Node>,
    ) -> Result<(), ExpressionError> {
        let is_any = |node: &Node| matches!(node, Node::Field(path) if path.occurrence.is_none());
        if operands.into_iter().any(is_any) {
            return Err(self.wrong("[?] is for comparisons and matches: give an occurrence"));
        }
        Ok(())
    }

    fn unary(&mut self) -> Result<Node, ExpressionError> {
        self.skip_blanks();
        let found = Unary::ALL.iter().find(|(_, sign)| self.rest().starts_with(sign.as_bytes()));
        let Some((unary, sign)) = found else { return self.primary() };
        self.at += sign.len();
        let operand = self.deeper(Self::unary)?;
        self.no_any([&operand])?;
        Ok(Node::Unary(*unary, Box::new(operand)))
    }

    fn deeper(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<Node, ExpressionError>,
    ) -> Result<Node, ExpressionError> {
        if self.depth == DEPTH_MAX {
            return Err(self.wrong("at most 32 parentheses and signs are within one another"));
        }
        self.depth += 1;
        let node = parse(self);
        self.depth -= 1;
        node
    }

    fn primary(&mut self) -> Result<Node, ExpressionError> {
        self.skip_blanks();
        match self.rest() {
            [b'(', ..] => {
                self.at += 1;
                let inner = self.deeper(|parser| parser.level(0))?;
                if !self.take(")") {
                    return Err(self.wrong("`)` is expected"));
                }
                Ok(inner)
            }
            [b'\'', ..] => self.string().map(Node::Text),
            [b'0'..=b'9' | b'.', ..] => self.number(),
            [b'a'..=b'z' | b'A'..=b'Z' | b'_', ..] => match self.function()? {
                Some(function) => Ok(function),
                None => self.field().map(Node::Field),
            },
            [b'"', ..] => Err(self.wrong("texts stand between single quotes")),
            _ => Err(self.wrong("a field, a number, a text or `(` is expected")),
        }
    }

    /// `'...'`: `\\`, `\'` and a backslash with two hexadecimal digits stand for one byte; any other
    /// backslash for itself, as patterns are full of them.
    fn string(&mut self) -> Result<Vec<u8>, ExpressionError> {
        let start = self.at;
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            let (byte, taken) = match *self.rest() {
                [] => {
                    self.at = start;
                    return Err(self.wrong("the text has no end: `'` is expected"));
                }
                [b'\'', ..] => break,
                [b'\\', escaped @ (b'\\' | b'\''), ..] => (escaped, 2),
                [b'\\', high, low, ..] => match (hex(high), hex(low)) {
                    (Some(high), Some(low)) => (high << 4 | low, 3),
                    _ => (b'\\', 1),
                },
                [byte, ..] => (byte, 1),
            };
            bytes.push(byte);
            self.at += taken;
        }
        self.at += 1;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<Node, ExpressionError> {
        let rest = self.rest();
        let digits = |from: usize| {
            rest[from.min(rest.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count()
        };
        let mut len = digits(0);
        let mut is_whole = true;
        if rest.get(len) == Some(&b'.') {
            is_whole = false;
            len += 1 + digits(len + 1);
        }
        if matches!(rest.get(len), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(rest.get(len + 1), Some(b'+' | b'-')));
            let exponent = digits(len + 1 + sign);
            if exponent > 0 {
                is_whole = false;
                len += 1 + sign + exponent;
            }
        }
        let text = str::from_utf8(&rest[..len]).unwrap_or_default();
        let node = if is_whole {
            let number = text.parse();
            Node::Long(number.map_err(|_| self.wrong("the number is more than a long can be"))?)
        } else {
            let number: Option<f64> = text.parse().ok();
            let number = number.filter(|number| number.is_finite());
            Node::Double(number.ok_or_else(|| self.wrong("the number is not valid"))?)
        };
        self.at += len;
        Ok(node)
    }

    /// `NAME()` or `NAME('text')`; none where the name is that of a field. The text stands for itself, without escapes.
    fn function(&mut self) -> Result<Option<Node>, ExpressionError> {
        let start = self.at;
        let name = self.name()?;
        if !self.take("(") {
            self.at = start;
            return Ok(None);
        }
        let column = start + 1;
        let wrong = |reason| ExpressionError::Syntax { column, reason };
        let takes_text = (self.known)(name).filter(|_| name.len() <= FUNCTION_BYTES_MAX);
        let takes_text = takes_text.ok_or_else(|| {
            wrong("no function of this name was set by Bboolsetcbf or Bboolsetcbf2")
        })?;
        let text = match (takes_text, self.take("'")) {
            (true, true) => {
                let rest = self.rest();
                let len = rest.iter().position(|byte| *byte == b'\'');
                let len = len.ok_or_else(|| self.wrong("the text has no end: `'` is expected"))?;
                if len > ARGUMENT_BYTES_MAX {
                    return Err(self.wrong("the text of a function has at most 510 bytes"));
                }
                self.at += len + 1;
                Some(rest[..len].to_vec())
            }
            (false, false) => None,
            (true, false) => {
                return Err(self.wrong("the function takes a text between single quotes"));
            }
            (false, true) => return Err(self.wrong("the function takes nothing: `)` is expected")),
        };
        if !self.take(")") {
            return Err(self.wrong("`)` is expected"));
        }
        Ok(Some(Node::Function(name.to_owned(), text)))
    }

    fn field(&mut self) -> Result<FieldPath, ExpressionError> {
        let mut outer = Vec::new();
        loop {
            let column = self.at + 1;
            let name = self.name().map_err(|error| of_path(error, !outer.is_empty()))?;
            let unknown = || ExpressionError::UnknownField { column, name: name.to_owned() };
            let id = (self.field_of)(name).ok_or_else(unknown)?;
            let field_type = id.field_type();
            let is_path =
                !outer.is_empty() || matches!(field_type, FieldType::Ubf | FieldType::View);
            let occurrence = self.occurrence().map_err(|error| of_path(error, is_path))?;
            let name = name.to_owned();
            if self.rest().first() != Some(&b'.') {
                if matches!(field_type, FieldType::Ptr | FieldType::Ubf | FieldType::View) {
                    return Err(ExpressionError::BadType { column, name, field_type });
                }
                return Ok(FieldPath { outer, name, id, occurrence, member: None });
            }
            if !matches!(field_type, FieldType::Ubf | FieldType::View) {
                return Err(self.lost("a point follows a field that holds a buffer or a view"));
            }
            let Some(occurrence) = occurrence else {
                return Err(self.lost("[?] is for the last field of a path: give an occurrence"));
            };
            self.at += 1;
            if field_type == FieldType::View {
                let member = Some(self.member()?);
                return Ok(FieldPath { outer, name, id, occurrence: Some(occurrence), member });
            }
            if outer.len() == NESTING_MAX {
                return Err(self.lost("at most 16 buffers are within one another"));
            }
            outer.push(Step { name, id, occurrence });
        }
    }

    /// A member of a view, with its occurrence: the first one without.
    fn member(&mut self) -> Result<(String, i32), ExpressionError> {
        let name = self.name().map_err(|error| of_path(error, true))?.to_owned();
        let at = self.at + 1;
        let occurrence = self.occurrence().map_err(|error| of_path(error, true))?;
        let Some(occurrence) = occurrence else {
            let reason = "a number is expected within [ ] of a member";
            return Err(ExpressionError::Path { column: at + 1, reason });
        };
        if self.rest().first() == Some(&b'.') {
            return Err(self.lost("nothing follows a member of a view"));
        }
        Ok((name, occurrence))
    }

    /// A path that leads nowhere.
    fn lost(&self, reason: &'static str) -> ExpressionError {
        ExpressionError::Path { column: self.at + 1, reason }
    }

    fn name(&mut self) -> Result<&'t str, ExpressionError> {
        let rest = self.rest();
        let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
        let len = rest.iter().take_while(is_part).count();
        let name = str::from_utf8(&rest[..len]).unwrap_or_default();
        if name.is_empty() || name.as_bytes()[0].is_ascii_digit() {
            return Err(self.wrong("the name of a field is expected"));
        }
        self.at += len;
        Ok(name)
    }

    /// `[n]` or `[?]`; without it the first one.
    fn occurrence(&mut self) -> Result<Option<i32>, ExpressionError> {
        if self.rest().first() != Some(&b'[') {
            return Ok(Some(0));
        }
        self.at += 1;
        let occurrence = if self.take("?") {
            None
        } else {
            let len = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
            let digits = str::from_utf8(&self.rest()[..len]).unwrap_or_default();
            let number = digits.parse();
            let number =
                number.map_err(|_| self.wrong("a number or `?` is expected within [ ]"))?;
            self.at += len;
            Some(number)
        };
        if !self.take("]") {
            return Err(self.wrong("`]` is expected"));
        }
        Ok(occurrence)
    }
}

const PATTERN_OF: &str = "a pattern fits a field or a text, not what was computed";

/// A mistake within a path is one of the path.
fn of_path(error: ExpressionError, is_path: bool) -> ExpressionError {
    match error {
        ExpressionError::Syntax { column, reason } if is_path => {
            ExpressionError::Path { column, reason }
        }
        error => error,
    }
}

/// The right side of a match, which starts at `start`.
fn pattern(operand: Node, start: usize) -> Result<Node, ExpressionError> {
    let column = start + 1;
    let Node::Text(text) = operand else {
        let reason = "a pattern between single quotes is expected";
        return Err(ExpressionError::Syntax { column, reason });
    };
    let pattern = Pattern::new(&text);
    let pattern = pattern.map_err(|reason| ExpressionError::Pattern { column, reason })?;
    Ok(Node::Pattern(Box::new(pattern)))
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// A regular expression of `%%` and `!%`: it matches a whole value, byte by byte. Its time is linear in the
/// value, and its memory is bounded, whatever the pattern is.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: String,
    whole: Regex,
}

impl Pattern {
    /// # Errors
    /// The mistake in the pattern, in one line.
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
    /// The mistake in the pattern, in one line.
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
        // The last line names the mistake, those before draw its position.
        other => other.to_string().lines().last().unwrap_or_default().trim().to_owned(),
    })
}
