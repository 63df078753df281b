//! A struct as lines (`Bvprint`), and back (`Bvextread`); two structs compared (`Bvcmp`).
//!
//! A line is the name of a member, a tab and a value; values of an array stand in lines behind each other. In texts, bytes
//! that cannot be printed and the backslash are a backslash and two hexadecimal digits. In front of a name, `+` sets the
//! first value, `-` makes it the null value, `=` takes the value of the member whose name stands in place of the value;
//! `#` begins a remark.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::{Member, MemberType, View, ViewError, of_process};
use crate::ubf::{FieldType, LineForm, Scratch, UbfError, VIEW_NAME_BYTES, Value};

/// The views of this process, for fields that hold them; without addresses, which mean nothing to another process.
pub const LINES: LineForm = LineForm {
    print_view: |name, data| {
        let lines = of_process(name).and_then(|view| view.print(data)).map_err(in_field)?;
        // All else was escaped.
        String::from_utf8(lines).map_err(|_| UbfError::BadView)
    },
    read_view: |name, text| {
        let view = of_process(name).map_err(in_field)?;
        let mut data = vec![0; view.size];
        view.read_printed(&mut data, text.as_bytes()).map_err(in_field)?;
        Ok(data)
    },
    reads_addresses: false,
};

/// A value of a struct that a field holds, by the names of its view and member; none for a null value and beyond the count.
///
/// # Errors
/// [`UbfError::BadView`], [`UbfError::NoMember`], [`UbfError::Invalid`] for an occurrence beyond the array.
pub fn value_of_process<'d>(
    view: &str,
    data: &'d [u8],
    member: &str,
    occurrence: i32,
) -> Result<Option<Value<'d>>, UbfError> {
    let view = of_process(view).map_err(in_field)?;
    let member = view.member(member).map_err(in_field)?;
    let occurrence = usize::try_from(occurrence).unwrap_or(usize::MAX);
    let is_null = view.is_null(member, data, occurrence).map_err(in_field)?;
    if is_null || occurrence >= view.count(member, data).map_err(in_field)? {
        return Ok(None);
    }
    view.value(member, data, occurrence).map(Some).map_err(in_field)
}

/// Which of two views that fields hold stands first: by their members where the process knows both, else by their bytes.
#[must_use]
pub fn order_of_process(one: &[u8], two: &[u8]) -> Ordering {
    let halves = |stored: &'_ [u8]| {
        stored.split_at_checked(VIEW_NAME_BYTES).map(|(name, data)| {
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            (String::from_utf8_lossy(name).into_owned(), data.len())
        })
    };
    let by_members = || {
        let ((name, len), (other_name, other_len)) = (halves(one)?, halves(two)?);
        let view = of_process(&name).ok()?;
        let other = of_process(&other_name).ok()?;
        let data = &one[one.len() - len..];
        let other_data = &two[two.len() - other_len..];
        view.compare(data, other, other_data).ok()
    };
    by_members().unwrap_or_else(|| one.cmp(two))
}

/// What is wrong with a view, as an error of the field that holds it.
#[expect(clippy::needless_pass_by_value, reason = "what map_err calls gets its error whole")]
fn in_field(error: ViewError) -> UbfError {
    match error {
        ViewError::Fields(error) => error,
        ViewError::NoMember { .. } => UbfError::NoMember,
        ViewError::Unknown { .. } | ViewError::Unreadable { .. } | ViewError::Syntax { .. } => {
            UbfError::BadView
        }
        ViewError::NotPresent | ViewError::Invalid { .. } => {
            let reason = "a count, a length or an occurrence of the struct is beyond its member";
            UbfError::Invalid { reason }
        }
    }
}

impl View {
    /// The lines of a struct.
    ///
    /// # Errors
    /// [`ViewError::Invalid`] for a count or a length that makes no sense.
    pub fn print(&self, data: &[u8]) -> Result<Vec<u8>, ViewError> {
        let mut out = Vec::new();
        for member in &self.members {
            for occurrence in 0..self.count(member, data)? {
                out.extend_from_slice(member.name.as_bytes());
                out.push(b'\t');
                let mut scratch = Scratch::new();
                let text = self
                    .value(member, data, occurrence)?
                    .convert(FieldType::Carray, &mut scratch)?;
                let Value::Carray(text) = text else { unreachable!("it was converted") };
                escape(text, &mut out);
                out.push(b'\n');
            }
        }
        Ok(out)
    }

    /// Makes a struct of lines; members that none names have their null values.
    ///
    /// # Errors
    /// [`UbfError::Syntax`] with the line, [`ViewError::NoMember`], and as [`View::set`]; the struct is undefined then.
    pub fn read_printed(&self, data: &mut [u8], text: &[u8]) -> Result<(), ViewError> {
        self.init(data)?;
        let mut next: HashMap<&str, usize> = HashMap::new();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let syntax = |reason| UbfError::Syntax { line: index + 1, reason };
            let (sign, rest) = match line {
                [] | [b'#', ..] => continue,
                [sign @ (b'+' | b'-' | b'='), b' ', rest @ ..] => (Some(*sign), rest),
                [sign @ (b'+' | b'-' | b'='), rest @ ..] => (Some(*sign), rest),
                rest => (None, rest),
            };
            let tab = rest.iter().position(|byte| *byte == b'\t');
            let (name, value) = match (tab, sign) {
                (Some(tab), _) => (&rest[..tab], &rest[tab + 1..]),
                (None, Some(b'-')) => (rest, &rest[..0]),
                (None, _) => return Err(syntax("expected a name, a tab and a value").into()),
            };
            let name = str::from_utf8(name).map_err(|_| syntax("the name is not text"))?;
            let member = self.member(name)?;
            match sign {
                None => {
                    let occurrence = next.entry(member.name.as_str()).or_default();
                    let bytes = unescape(value).ok_or_else(|| syntax(HEX))?;
                    self.set_text(member, data, *occurrence, &bytes)?;
                    *occurrence += 1;
                }
                Some(b'+') => {
                    let bytes = unescape(value).ok_or_else(|| syntax(HEX))?;
                    self.set_text(member, data, 0, &bytes)?;
                }
                Some(b'-') => member.init_value(data, 0),
                Some(_) => {
                    let other =
                        str::from_utf8(value).map_err(|_| syntax("the name is not text"))?;
                    let before = data.to_vec();
                    let value = self.value(self.member(other)?, &before, 0)?;
                    self.set(member, data, 0, value)?;
                }
            }
        }
        Ok(())
    }

    fn set_text(
        &self,
        member: &Member,
        data: &mut [u8],
        occurrence: usize,
        bytes: &[u8],
    ) -> Result<(), ViewError> {
        let value = if member.member_type == MemberType::Carray {
            Value::Carray(bytes)
        } else {
            // A NUL would end it.
            Value::String(bytes.split(|byte| *byte == 0).next().unwrap_or_default())
        };
        // A NUL is a character, and ends a text.
        let value = if member.member_type == MemberType::Char && bytes == [0] {
            Value::Char(0)
        } else {
            value
        };
        self.set(member, data, occurrence, value)
    }

    /// Which of two structs stands first: by the names of their views, then member by member: counts, null values
    /// (which are equal), values.
    ///
    /// # Errors
    /// As [`print`](Self::print).
    pub fn compare(
        &self,
        data: &[u8],
        other: &Self,
        other_data: &[u8],
    ) -> Result<Ordering, ViewError> {
        let names = self.name.cmp(&other.name);
        if names != Ordering::Equal {
            return Ok(names);
        }
        for (one, two) in self.members.iter().zip(&other.members) {
            let count = self.count(one, data)?;
            let other_count = other.count(two, other_data)?;
            if count != other_count {
                return Ok(count.cmp(&other_count));
            }
            for occurrence in 0..count {
                if self.is_null(one, data, occurrence)?
                    && other.is_null(two, other_data, occurrence)?
                {
                    continue;
                }
                let values =
                    (self.value(one, data, occurrence)?, other.value(two, other_data, occurrence)?);
                let order = match values {
                    (Value::Carray(one), Value::Carray(two)) => {
                        one.len().cmp(&two.len()).then_with(|| one.cmp(two))
                    }
                    (Value::String(one), Value::String(two)) => one.cmp(two),
                    (Value::Float(one), Value::Float(two)) => one.total_cmp(&two),
                    (Value::Double(one), Value::Double(two)) => one.total_cmp(&two),
                    (one, two) => one.to_long()?.cmp(&two.to_long()?),
                };
                if order != Ordering::Equal {
                    return Ok(order);
                }
            }
        }
        Ok(Ordering::Equal)
    }
}

const HEX: &str = "expected two hexadecimal digits, or a backslash, behind a backslash";

fn escape(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x20..=0x7e => out.push(*byte),
            _ => out.extend_from_slice(format!("\\{byte:02x}").as_bytes()),
        }
    }
}

/// None for an escape that is none.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, behind @ ..] = rest {
        rest = behind;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        match behind {
            [b'\\', more @ ..] => {
                out.push(b'\\');
                rest = more;
            }
            [high, low, more @ ..] => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                out.push((digit(*high)? * 16 + digit(*low)?) as u8);
                rest = more;
            }
            _ => return None,
        }
    }
    Some(out)
}
