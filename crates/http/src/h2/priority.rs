//! What a client says of how urgent its requests are (RFC 9218): a dictionary of structured fields (RFC 8941).

/// How urgent an answer is, and whether parts of it are of use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Priority {
    /// 0 to 7, the most urgent first.
    pub(crate) urgency: u8,
    pub(crate) is_incremental: bool,
}

/// How many urgencies there are.
pub(crate) const URGENCIES: usize = 8;

impl Priority {
    /// What stands where a dictionary does not say it (RFC 9218 4).
    const DEFAULT: Self = Self { urgency: 3, is_incremental: false };

    /// Of a request whose client says nothing: then the order is the server's, which has them take turns.
    pub(crate) const UNSAID: Self = Self { urgency: 3, is_incremental: true };

    /// What the value says, where `before` was said in an earlier line; none for what is not a dictionary, which is
    /// ignored (RFC 8941 4.2). Members that are not known, or out of their bounds, are ignored alone.
    pub(crate) fn parse(value: &[u8], before: Option<Self>) -> Option<Self> {
        let mut said = before.unwrap_or(Self::DEFAULT);
        let mut rest = Rest(value);
        rest.skip(b" ");
        while !rest.0.is_empty() {
            let key = rest.key()?;
            let item = if rest.take(b'=') { rest.member()? } else { Item::Boolean(true) };
            rest.parameters()?;
            match (key, item) {
                (b"u", Item::Integer(urgency @ 0..=7)) => {
                    said.urgency = u8::try_from(urgency).expect("bounded");
                }
                (b"i", Item::Boolean(is_incremental)) => said.is_incremental = is_incremental,
                _ => {}
            }
            rest.skip(b" \t");
            if rest.0.is_empty() {
                break;
            }
            if !rest.take(b',') {
                return None;
            }
            rest.skip(b" \t");
            if rest.0.is_empty() {
                return None;
            }
        }
        Some(said)
    }
}

/// A value of which more than its syntax matters.
enum Item {
    Integer(i64),
    Boolean(bool),
    Other,
}

/// What was not read yet.
struct Rest<'v>(&'v [u8]);

/// Digits of the longest integer, and of a decimal with its fraction (RFC 8941 3.3).
const DIGITS_MAX: usize = 15;

impl<'v> Rest<'v> {
    fn skip(&mut self, bytes: &[u8]) {
        while let [first, rest @ ..] = self.0
            && bytes.contains(first)
        {
            self.0 = rest;
        }
    }

    /// Takes this byte where it is next.
    fn take(&mut self, byte: u8) -> bool {
        match self.0 {
            [first, rest @ ..] if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    /// Takes all bytes in front that are so.
    fn run(&mut self, is_so: impl Fn(u8) -> bool) -> &'v [u8] {
        let len = self.0.iter().position(|&byte| !is_so(byte)).unwrap_or(self.0.len());
        let (run, rest) = self.0.split_at(len);
        self.0 = rest;
        run
    }

    fn key(&mut self) -> Option<&'v [u8]> {
        match self.0.first() {
            Some(b'a'..=b'z' | b'*') => Some(self.run(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
            })),
            _ => None,
        }
    }

    fn member(&mut self) -> Option<Item> {
        if !self.take(b'(') {
            return self.item();
        }
        loop {
            self.skip(b" ");
            if self.take(b')') {
                return Some(Item::Other);
            }
            self.item()?;
            self.parameters()?;
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.skip(b" ");
            self.key()?;
            if self.take(b'=') {
                self.item()?;
            }
        }
        Some(())
    }

    fn item(&mut self) -> Option<Item> {
        match self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'?' => {
                self.take(b'?');
                match (self.take(b'1'), self.take(b'0')) {
                    (true, false) => Some(Item::Boolean(true)),
                    (false, true) => Some(Item::Boolean(false)),
                    _ => None,
                }
            }
            b'"' => self.string(),
            b':' => {
                self.take(b':');
                self.run(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
                self.take(b':').then_some(Item::Other)
            }
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.run(|byte| {
                    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
                });
                Some(Item::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Item> {
        let is_negative = self.take(b'-');
        let digits = self.run(|byte| byte.is_ascii_digit());
        if digits.is_empty() || digits.len() > DIGITS_MAX {
            return None;
        }
        if self.take(b'.') {
            let fraction = self.run(|byte| byte.is_ascii_digit());
            return matches!(fraction.len(), 1..=3).then_some(Item::Other);
        }
        let number = digits.iter().fold(0, |number, digit| 10 * number + i64::from(digit - b'0'));
        Some(Item::Integer(if is_negative { -number } else { number }))
    }

    fn string(&mut self) -> Option<Item> {
        self.take(b'"');
        loop {
            match self.0 {
                [b'"', rest @ ..] => {
                    self.0 = rest;
                    return Some(Item::Other);
                }
                [b'\\', b'"' | b'\\', rest @ ..] => self.0 = rest,
                [b' '..=b'[' | b']'..=b'~', rest @ ..] => self.0 = rest,
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionaries_say_urgency_and_whether_parts_are_of_use() {
        for (value, expected) in [
            ("", Some((3, false))),
            ("u=0", Some((0, false))),
            ("u=7, i", Some((7, true))),
            ("i", Some((3, true))),
            ("  i=?0 , u=5", Some((5, false))),
            ("u=5;x=1;y, i;z=\"a,b\"", Some((5, true))),
            // The last one counts.
            ("u=1, u=6", Some((6, false))),
            // Unknown, out of bounds, of another type.
            ("a=1.5, b=\"\\\"\", c=:aGk=:, d=(1 2;x \"y\"), e=Tok/en, *f, u=2", Some((2, false))),
            ("u=8, i=1", Some((3, false))),
            ("u=-1, u=1.5, u=a", Some((3, false))),
            // No dictionaries.
            ("u=", None),
            ("u=1,", None),
            ("u=1 i", None),
            ("U=1", None),
            ("=1", None),
            ("i=?2", None),
            ("u=1;", None),
            ("u=1234567890123456", None),
            ("a=(1", None),
            ("a=\"b", None),
            ("a=:b", None),
            ("u=1, \u{e4}", None),
        ] {
            let parsed = Priority::parse(value.as_bytes(), None);
            let parsed = parsed.map(|said| (said.urgency, said.is_incremental));
            assert_eq!(parsed, expected, "{value:?}");
        }
    }

    #[test]
    fn a_second_line_continues_the_first() {
        let first = Priority::parse(b"u=1, i", None);
        assert_eq!(Priority::parse(b"i=?0", first), Priority::parse(b"u=1", None));
    }

    #[test]
    fn any_bytes_are_read_to_an_end() {
        let mut random = 7_u32;
        for len in 0..3000 {
            let value: Vec<u8> = (0..len % 40)
                .map(|_| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    b"ui=?0123,; \"\\():.-*aZ\x80"[(random >> 16) as usize % 22]
                })
                .collect();
            Priority::parse(&value, None);
        }
    }
}
