//! The members of a struct: values by place, counts and lengths beside them, null values.

use super::{Member, MemberType, Null, View, ViewError};
use crate::ubf::{Scratch, UbfError, Value};

impl View {
    /// The struct that `data` begins with.
    ///
    /// # Errors
    /// [`ViewError::Invalid`] when it is shorter.
    fn check(&self, len: usize) -> Result<(), ViewError> {
        if len >= self.size {
            return Ok(());
        }
        let Self { name, size, .. } = self;
        Err(ViewError::invalid(format!("{len} bytes for the view {name}, which has {size}")))
    }

    /// Gives all members their null values; counts are 0.
    ///
    /// # Errors
    /// [`ViewError::Invalid`] for too little memory.
    pub fn init(&self, data: &mut [u8]) -> Result<(), ViewError> {
        self.check(data.len())?;
        data[..self.size].fill(0);
        self.members.iter().for_each(|member| member.init(data));
        Ok(())
    }

    /// The same for one member.
    ///
    /// # Errors
    /// As [`init`](Self::init), and [`ViewError::NoMember`].
    pub fn init_member(&self, data: &mut [u8], name: &str) -> Result<(), ViewError> {
        self.check(data.len())?;
        self.member(name)?.init(data);
        Ok(())
    }

    /// A value.
    ///
    /// # Errors
    /// [`ViewError::Invalid`] for an occurrence beyond the array, and for a length in the struct beyond the member.
    pub fn value<'d>(
        &self,
        member: &Member,
        data: &'d [u8],
        occurrence: usize,
    ) -> Result<Value<'d>, ViewError> {
        self.check(data.len())?;
        member.check(occurrence)?;
        member.value(data, occurrence)
    }

    /// Gives a member a value, converted to its type; a count that does not reach so far is raised.
    ///
    /// # Errors
    /// As [`value`](Self::value); [`UbfError::NoSpace`] for a longer text, [`UbfError::NotConverted`].
    pub fn set(
        &self,
        member: &Member,
        data: &mut [u8],
        occurrence: usize,
        value: Value<'_>,
    ) -> Result<(), ViewError> {
        self.check(data.len())?;
        member.check(occurrence)?;
        member.set(data, occurrence, value)?;
        if member.count_at.is_some() && member.count_in(data)? <= occurrence {
            member.set_count(data, occurrence + 1);
        }
        Ok(())
    }

    /// Whether a value is the null value of its member, or beyond its count.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn is_null(
        &self,
        member: &Member,
        data: &[u8],
        occurrence: usize,
    ) -> Result<bool, ViewError> {
        self.check(data.len())?;
        member.check(occurrence)?;
        if member.count_at.is_some() && member.count_in(data).is_ok_and(|count| occurrence >= count)
        {
            return Ok(true);
        }
        member.is_null(data, occurrence)
    }

    /// How many values of an array are in use: its count, else all.
    ///
    /// # Errors
    /// [`ViewError::Invalid`] for a count below 0 or beyond the array.
    pub fn count(&self, member: &Member, data: &[u8]) -> Result<usize, ViewError> {
        self.check(data.len())?;
        member.count_in(data)
    }

    /// Sets the count of a member that has one.
    ///
    /// # Errors
    /// [`ViewError::Invalid`] beyond the array.
    pub fn set_count(
        &self,
        member: &Member,
        data: &mut [u8],
        count: usize,
    ) -> Result<(), ViewError> {
        self.check(data.len())?;
        if count > member.count {
            return Err(member.beyond(count));
        }
        member.set_count(data, count);
        Ok(())
    }

    /// The values in use without the null values at their end.
    ///
    /// # Errors
    /// As [`count`](Self::count).
    pub fn real_count(&self, member: &Member, data: &[u8]) -> Result<usize, ViewError> {
        let mut count = self.count(member, data)?;
        while count > 0 && member.is_null(data, count - 1)? {
            count -= 1;
        }
        Ok(count)
    }
}

impl Member {
    fn check(&self, occurrence: usize) -> Result<(), ViewError> {
        if occurrence < self.count { Ok(()) } else { Err(self.beyond(occurrence)) }
    }

    fn beyond(&self, given: usize) -> ViewError {
        let Self { name, count, .. } = self;
        ViewError::invalid(format!("{given} is beyond {name}, which has {count} values"))
    }

    fn place(&self, occurrence: usize) -> std::ops::Range<usize> {
        let at = self.at + occurrence * self.size;
        at..at + self.size
    }

    pub(super) fn count_in(&self, data: &[u8]) -> Result<usize, ViewError> {
        let Some(at) = self.count_at else { return Ok(self.count) };
        let count = i16::from_ne_bytes(taken(data, at));
        usize::try_from(count).ok().filter(|count| *count <= self.count).ok_or_else(|| {
            let Self { name, count: most, .. } = self;
            ViewError::invalid(format!("C_{name} is {count}: expected 0 to {most}"))
        })
    }

    pub(super) fn set_count(&self, data: &mut [u8], count: usize) {
        if let Some(at) = self.count_at {
            // An array has no more values than a short counts.
            data[at..at + 2].copy_from_slice(&(count as i16).to_ne_bytes());
        }
    }

    pub(super) fn set_len(&self, data: &mut [u8], occurrence: usize, len: usize) {
        if let Some(at) = self.len_at {
            // A text has no more bytes than a short without a sign counts.
            let at = at + 2 * occurrence;
            data[at..at + 2].copy_from_slice(&(len as u16).to_ne_bytes());
        }
    }

    fn len_in(&self, data: &[u8], occurrence: usize) -> Result<usize, ViewError> {
        let Some(at) = self.len_at else { return Ok(self.size) };
        let len = usize::from(u16::from_ne_bytes(taken(data, at + 2 * occurrence)));
        if len <= self.size {
            return Ok(len);
        }
        let Self { name, size, .. } = self;
        Err(ViewError::invalid(format!("L_{name} is {len}: expected 0 to {size}")))
    }

    pub(super) fn value<'d>(
        &self,
        data: &'d [u8],
        occurrence: usize,
    ) -> Result<Value<'d>, ViewError> {
        let bytes = &data[self.place(occurrence)];
        Ok(match self.member_type {
            MemberType::Short => Value::Short(i16::from_ne_bytes(taken(bytes, 0))),
            MemberType::Int => Value::Long(i32::from_ne_bytes(taken(bytes, 0)).into()),
            MemberType::Long => Value::Long(i64::from_ne_bytes(taken(bytes, 0))),
            MemberType::Char => Value::Char(bytes[0]),
            MemberType::Float => Value::Float(f32::from_ne_bytes(taken(bytes, 0))),
            MemberType::Double => Value::Double(f64::from_ne_bytes(taken(bytes, 0))),
            MemberType::String => Value::String(until_nul(bytes)),
            MemberType::Carray => Value::Carray(&bytes[..self.len_in(data, occurrence)?]),
        })
    }

    pub(super) fn set(
        &self,
        data: &mut [u8],
        occurrence: usize,
        value: Value<'_>,
    ) -> Result<(), ViewError> {
        let mut scratch = Scratch::new();
        let value = value.convert(self.member_type.field_type(), &mut scratch)?;
        let needed = value.raw_len();
        let room = self.size;
        let bytes = &mut data[self.place(occurrence)];
        match (self.member_type, value) {
            // A wider number loses its high bits, as in all conversions.
            (MemberType::Int, Value::Long(number)) => {
                bytes.copy_from_slice(&(number as i32).to_ne_bytes());
            }
            (MemberType::String | MemberType::Carray, _) if needed > room => {
                return Err(UbfError::NoSpace { needed, room }.into());
            }
            (_, value) => {
                let len = value.write_raw(bytes)?;
                bytes[len..].fill(0);
                self.set_len(data, occurrence, len);
            }
        }
        Ok(())
    }

    /// The bytes that stand for nothing, as many as the member says of itself then.
    fn null_bytes(&self, null: &[u8]) -> Vec<u8> {
        let room = if self.member_type == MemberType::String { self.size - 1 } else { self.size };
        let mut bytes = null.to_vec();
        if let Some(last) = null.last().filter(|_| self.is_filled) {
            bytes.resize(room, *last);
        }
        bytes
    }

    pub(super) fn init(&self, data: &mut [u8]) {
        (0..self.count).for_each(|occurrence| self.init_value(data, occurrence));
        self.set_count(data, 0);
    }

    pub(super) fn init_value(&self, data: &mut [u8], occurrence: usize) {
        let bytes = &mut data[self.place(occurrence)];
        bytes.fill(0);
        match &self.null {
            None => self.set_len(data, occurrence, 0),
            Some(Null::Whole(number)) => {
                let number = *number;
                match self.member_type {
                    MemberType::Short => bytes.copy_from_slice(&(number as i16).to_ne_bytes()),
                    MemberType::Int => bytes.copy_from_slice(&(number as i32).to_ne_bytes()),
                    _ => bytes.copy_from_slice(&number.to_ne_bytes()),
                }
            }
            Some(Null::Floating(number)) => match self.member_type {
                MemberType::Float => bytes.copy_from_slice(&(*number as f32).to_ne_bytes()),
                _ => bytes.copy_from_slice(&number.to_ne_bytes()),
            },
            Some(Null::Bytes(null)) => {
                let null = self.null_bytes(null);
                bytes[..null.len()].copy_from_slice(&null);
                let nul = usize::from(self.member_type == MemberType::String && !null.is_empty());
                self.set_len(data, occurrence, null.len() + nul);
            }
        }
    }

    pub(super) fn is_null(&self, data: &[u8], occurrence: usize) -> Result<bool, ViewError> {
        let Some(null) = &self.null else { return Ok(false) };
        let value = self.value(data, occurrence)?;
        Ok(match (null, value) {
            (Null::Whole(null), Value::Short(number)) => i64::from(number) == *null,
            (Null::Whole(null), Value::Long(number)) => number == *null,
            // The same text made both, so they are the same bits.
            (Null::Floating(null), Value::Float(number)) => number == *null as f32,
            (Null::Floating(null), Value::Double(number)) => number == *null,
            (Null::Bytes(null), Value::Char(byte)) => byte == null.first().copied().unwrap_or(0),
            (Null::Bytes(null), Value::String(text)) => text == until_nul(&self.null_bytes(null)),
            (Null::Bytes(null), Value::Carray(bytes)) => {
                let null = self.null_bytes(null);
                let is_padded = self.len_at.is_none();
                let rest = bytes.get(null.len()..).unwrap_or_default();
                bytes.starts_with(&null)
                    && (rest.is_empty() || is_padded && rest.iter().all(|byte| *byte == 0))
            }
            _ => false,
        })
    }
}

fn taken<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the member is within its struct")
}

fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}
