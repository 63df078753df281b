//! Changing the fields of a region in borrowed memory: one field, or all of them by those of another buffer.
//!
//! The C interface works through it on its callers' memory, [`Ubf`](super::Ubf) on its own. Each
//! operation either does all that was asked or changes nothing, and never writes behind the size
//! in the header.

use std::cmp::Ordering;

use super::layout::{
    self, ENTRY_HEAD_BYTES, Entry, HEADER_BYTES, Header, NESTING_MAX, Run, SIZE_MAX, damaged,
    entry_bytes,
};
use super::{Field, FieldId, LAST, Scratch, UbfError, UbfRef, Value};

/// A buffer of fields in borrowed memory, to be changed.
///
/// A value that does not fit is [`UbfError::NoSpace`] with the size that the region would need. Views are
/// [`UbfError::BadView`]. Occurrences count from 0.
#[derive(Debug)]
pub struct UbfMut<'a> {
    region: &'a mut [u8],
    header: Header,
}

/// The field that [`UbfMut::add_next`] added last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    pub id: FieldId,
    /// Its offset in the region, in bytes.
    pub at: usize,
}

impl<'a> UbfMut<'a> {
    /// Makes a buffer without fields out of any memory, all of which it may fill.
    ///
    /// # Errors
    /// [`UbfError::NoSpace`] below [`HEADER_BYTES`], [`UbfError::Invalid`] above [`SIZE_MAX`].
    pub fn init(region: &'a mut [u8]) -> Result<Self, UbfError> {
        let size = region.len();
        if size < HEADER_BYTES {
            return Err(UbfError::NoSpace { needed: HEADER_BYTES, room: size });
        }
        if size > SIZE_MAX {
            return Err(UbfError::Invalid { reason: "a buffer has at most 1 GiB" });
        }
        let header = Header { size, used: HEADER_BYTES, fields: 0 };
        header.write(region);
        Ok(Self { region, header })
    }

    /// The buffer at the start of `region`. Its fields are not looked at.
    ///
    /// # Errors
    /// [`UbfError::NotFielded`] when none was made there, or one that is longer than `region`.
    #[inline]
    pub fn open(region: &'a mut [u8]) -> Result<Self, UbfError> {
        let header = Header::read(region)?;
        if header.size > region.len() {
            return Err(damaged("it was cut short"));
        }
        Ok(Self { region, header })
    }

    /// The buffer whose used bytes were copied to the start of `region`: all of it is checked, and
    /// it may fill all of `region` from now on.
    ///
    /// For what another process sent.
    ///
    /// # Errors
    /// As [`UbfRef::check`], and [`UbfError::Invalid`] above [`SIZE_MAX`].
    pub fn adopt(region: &'a mut [u8]) -> Result<Self, UbfError> {
        UbfRef::check(region)?;
        Self::resized(region)
    }

    /// The buffer at the start of a region that was made longer or shorter: it may fill all of it
    /// from now on. Its fields are not looked at.
    ///
    /// # Errors
    /// [`UbfError::NotFielded`], [`UbfError::NoSpace`] when the used bytes do not fit,
    /// [`UbfError::Invalid`] above [`SIZE_MAX`].
    pub fn resized(region: &'a mut [u8]) -> Result<Self, UbfError> {
        let header = Header::read(region)?;
        let size = region.len();
        if header.used > size {
            return Err(UbfError::NoSpace { needed: header.used, room: size });
        }
        if size > SIZE_MAX {
            return Err(UbfError::Invalid { reason: "a buffer has at most 1 GiB" });
        }
        let header = Header { size, ..header };
        header.write(region);
        Ok(Self { region, header })
    }

    /// For reading.
    #[inline]
    #[must_use]
    pub fn fields(&self) -> UbfRef<'_> {
        UbfRef::of(&self.region[..self.header.used], self.header)
    }

    /// Adds an occurrence behind those that the field has.
    ///
    /// # Errors
    /// [`UbfError::OtherType`] when the value is not of the field's type, [`UbfError::Invalid`] for
    /// a string with a NUL in it or too many buffers within one another, [`UbfError::NoSpace`],
    /// [`UbfError::NotFielded`].
    #[inline]
    pub fn add<'v>(&mut self, id: FieldId, value: impl Into<Value<'v>>) -> Result<(), UbfError> {
        let value = value.into();
        check(id, &value)?;
        let end = layout::run(self.used(), id.raw())?.end;
        self.put(end, 0, id, &value)?;
        self.set_fields(self.header.fields + 1);
        Ok(())
    }

    /// [`add`](Self::add) without a search, when `last` is the field that was added just before
    /// and nothing else changed the buffer since; otherwise it searches as `add` does.
    ///
    /// # Errors
    /// As [`add`](Self::add), and [`UbfError::Invalid`] for a field whose id is below that of
    /// `last`.
    pub fn add_next<'v>(
        &mut self,
        id: FieldId,
        value: impl Into<Value<'v>>,
        last: Option<Added>,
    ) -> Result<Added, UbfError> {
        let value = value.into();
        check(id, &value)?;
        if last.is_some_and(|last| id < last.id) {
            return Err(UbfError::Invalid { reason: "fields are added in the order of their ids" });
        }
        let at = match last.and_then(|last| self.end_of(last, id)) {
            Some(end) => end,
            None => layout::run(self.used(), id.raw())?.end,
        };
        self.put(at, 0, id, &value)?;
        self.set_fields(self.header.fields + 1);
        Ok(Added { id, at })
    }

    /// The offset for `id` right behind `last`, if that is still where it was added.
    fn end_of(&self, last: Added, id: FieldId) -> Option<usize> {
        let used = self.used();
        let is_offset = last.at >= HEADER_BYTES && last.at.is_multiple_of(8);
        let entry = Entry::read(used, last.at).ok().filter(|_| is_offset)?;
        if entry.id != last.id.raw() {
            return None;
        }
        let is_next_above = || Entry::read(used, entry.end()).is_ok_and(|next| next.id > id.raw());
        (entry.end() == used.len() || is_next_above()).then(|| entry.end())
    }

    /// Adds a value of any type, converted to the field's.
    ///
    /// # Errors
    /// As [`add`](Self::add), and [`UbfError::NotConverted`].
    pub fn add_as<'v>(&mut self, id: FieldId, value: impl Into<Value<'v>>) -> Result<(), UbfError> {
        self.add(id, value.into().convert(id.field_type(), &mut Scratch::new())?)
    }

    /// Gives an occurrence another value.
    ///
    /// An occurrence behind the last is made, with empty values in the gap before it;
    /// [`LAST`] makes one right behind the last.
    ///
    /// # Errors
    /// As [`add`](Self::add), and [`UbfError::Invalid`] for an occurrence below -1.
    #[inline]
    pub fn change<'v>(
        &mut self,
        id: FieldId,
        occurrence: i32,
        value: impl Into<Value<'v>>,
    ) -> Result<(), UbfError> {
        let value = value.into();
        check(id, &value)?;
        if occurrence == LAST {
            return self.add(id, value);
        }
        let number = index(occurrence)?;
        if let Some(entry) = layout::nth(self.used(), id.raw(), number)? {
            self.put(entry.at, entry.end() - entry.at, id, &value)?;
            self.set_fields(self.header.fields);
            return Ok(());
        }
        let run = layout::run(self.used(), id.raw())?;
        self.append_behind_gap(run, number - run.count, id, &value)
    }

    /// Gives an occurrence a value of any type, converted to the field's.
    ///
    /// # Errors
    /// As [`change`](Self::change), and [`UbfError::NotConverted`].
    pub fn change_as<'v>(
        &mut self,
        id: FieldId,
        occurrence: i32,
        value: impl Into<Value<'v>>,
    ) -> Result<(), UbfError> {
        let mut scratch = Scratch::new();
        self.change(id, occurrence, value.into().convert(id.field_type(), &mut scratch)?)
    }

    /// Removes an occurrence, [`LAST`] the last one; those behind it move up.
    ///
    /// # Errors
    /// [`UbfError::NotPresent`], [`UbfError::Invalid`] below -1, [`UbfError::NotFielded`].
    pub fn delete(&mut self, id: FieldId, occurrence: i32) -> Result<(), UbfError> {
        let found = if occurrence == LAST {
            layout::run(self.used(), id.raw())?.last
        } else {
            layout::nth(self.used(), id.raw(), index(occurrence)?)?
        };
        let entry = found.ok_or(UbfError::NotPresent { id: id.raw(), occurrence })?;
        self.make_room(entry.at, entry.end() - entry.at, 0)?;
        self.set_fields(self.header.fields.saturating_sub(1));
        Ok(())
    }

    /// Removes all occurrences of a field.
    ///
    /// # Errors
    /// [`UbfError::NotPresent`] when there is none, [`UbfError::NotFielded`].
    pub fn delete_all(&mut self, id: FieldId) -> Result<(), UbfError> {
        let run = layout::run(self.used(), id.raw())?;
        if run.count == 0 {
            return Err(UbfError::NotPresent { id: id.raw(), occurrence: 0 });
        }
        self.make_room(run.start, run.end - run.start, 0)?;
        self.set_fields(self.header.fields.saturating_sub(run.count));
        Ok(())
    }

    /// Removes every field.
    pub fn clear(&mut self) {
        self.header.used = HEADER_BYTES;
        self.set_fields(0);
    }

    /// Holds what `source` holds, and nothing else.
    ///
    /// # Errors
    /// [`UbfError::NoSpace`].
    pub fn copy_from(&mut self, source: UbfRef<'_>) -> Result<(), UbfError> {
        self.set_entries(&source.used_bytes()[HEADER_BYTES..], source.count())
    }

    /// Replaces all fields by others, as they stand in a region.
    fn set_entries(&mut self, entries: &[u8], fields: usize) -> Result<(), UbfError> {
        let needed = HEADER_BYTES + entries.len();
        let room = self.header.size;
        if needed > room {
            return Err(UbfError::NoSpace { needed, room });
        }
        self.region[HEADER_BYTES..needed].copy_from_slice(entries);
        self.header.used = needed;
        self.set_fields(fields);
        Ok(())
    }

    /// Keeps the fields for which `is_kept` is true, without memory of its own.
    pub(super) fn retain(&mut self, is_kept: impl Fn(i32) -> bool) -> Result<(), UbfError> {
        UbfRef::check(self.used())?;
        let mut at = HEADER_BYTES;
        let mut kept_end = HEADER_BYTES;
        let mut fields = 0;
        while at < self.header.used {
            let entry = Entry::read(self.used(), at)?;
            if is_kept(entry.id) {
                self.region.copy_within(at..entry.end(), kept_end);
                kept_end += entry.end() - at;
                fields += 1;
            }
            at = entry.end();
        }
        self.header.used = kept_end;
        self.set_fields(fields);
        Ok(())
    }

    #[inline]
    fn used(&self) -> &[u8] {
        &self.region[..self.header.used]
    }

    fn append_behind_gap(
        &mut self,
        run: Run,
        gap: usize,
        id: FieldId,
        value: &Value<'_>,
    ) -> Result<(), UbfError> {
        let empty = Value::empty(id.field_type());
        let empty_bytes = entry_bytes(empty.raw_len());
        let gap_bytes = gap.saturating_mul(empty_bytes);
        self.make_room(run.end, 0, gap_bytes.saturating_add(entry_bytes(value.raw_len())))?;
        for number in 0..gap {
            self.write_entry(run.end + number * empty_bytes, id, &empty);
        }
        self.write_entry(run.end + gap_bytes, id, value);
        self.set_fields(self.header.fields + gap + 1);
        Ok(())
    }

    /// Writes a field at `at` over `old_bytes` of others; the header is left to `set_fields`.
    #[inline]
    fn put(
        &mut self,
        at: usize,
        old_bytes: usize,
        id: FieldId,
        value: &Value<'_>,
    ) -> Result<(), UbfError> {
        self.make_room(at, old_bytes, entry_bytes(value.raw_len()))?;
        self.write_entry(at, id, value);
        Ok(())
    }

    /// Moves what stands behind `at + old_bytes` to `at + new_bytes`.
    #[inline]
    fn make_room(&mut self, at: usize, old_bytes: usize, new_bytes: usize) -> Result<(), UbfError> {
        let used = self.header.used;
        let needed = (used - old_bytes).saturating_add(new_bytes);
        if needed > self.header.size {
            return Err(UbfError::NoSpace { needed, room: self.header.size });
        }
        if old_bytes != new_bytes {
            self.region.copy_within(at + old_bytes..used, at + new_bytes);
        }
        self.header.used = needed;
        Ok(())
    }

    #[inline]
    fn write_entry(&mut self, at: usize, id: FieldId, value: &Value<'_>) {
        let len = value.raw_len();
        let entry = &mut self.region[at..at + entry_bytes(len)];
        let (head, rest) = entry.split_at_mut(ENTRY_HEAD_BYTES);
        head.copy_from_slice(&Entry::head(id.raw(), len));
        // The filling is zero, so that no old bytes leave the process.
        if let Some(last) = rest.len().checked_sub(8) {
            rest[last..].fill(0);
        }
        value.write_raw(rest).expect("an entry holds its value");
    }

    #[inline]
    fn set_fields(&mut self, fields: usize) {
        self.header.fields = fields;
        self.header.write(self.region);
    }
}

/// Which fields of two buffers a join keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joined {
    /// All stay; the other's value wins.
    Update,
    /// Only the fields of both stay, with the other's value.
    Inner,
    /// The fields that are here stay, with the other's value where it has one.
    Outer,
}

/// Two buffers into one, and a buffer without some of its fields: `Bupdate`, `Bjoin`, `Bojoin`, `Bconcat`,
/// `Bproj`, `Bprojcpy` and `Bdelete`. The result is made in memory of its own and then copied, so a region
/// that is too short stays as it was.
impl UbfMut<'_> {
    /// Takes over each occurrence of `source`: it replaces the same occurrence here or is added.
    ///
    /// # Errors
    /// [`UbfError::NoSpace`], [`UbfError::NotFielded`].
    pub fn update(&mut self, source: UbfRef<'_>) -> Result<(), UbfError> {
        self.joined(source, Joined::Update)
    }

    /// Keeps the occurrences that `source` has too, with its values.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn join(&mut self, source: UbfRef<'_>) -> Result<(), UbfError> {
        self.joined(source, Joined::Inner)
    }

    /// Gives the occurrences that `source` has too its values, and keeps the others.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn outer_join(&mut self, source: UbfRef<'_>) -> Result<(), UbfError> {
        self.joined(source, Joined::Outer)
    }

    /// Adds each occurrence of `source` behind those that its field has here.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn concat(&mut self, source: UbfRef<'_>) -> Result<(), UbfError> {
        let mut entries = Entries::default();
        let mut mine = self.sound()?.iter().peekable();
        let mut theirs = sound(source)?.iter();
        for their in theirs.by_ref() {
            while let Some(field) = mine.next_if(|field| field.id <= their.id) {
                entries.push(&field);
            }
            entries.push(&their);
        }
        mine.for_each(|field| entries.push(&field));
        self.set_entries(&entries.bytes, entries.fields)
    }

    /// Keeps only the fields of this list.
    ///
    /// # Errors
    /// [`UbfError::NotFielded`].
    pub fn project(&mut self, kept: &[FieldId]) -> Result<(), UbfError> {
        self.retain(|id| kept.iter().any(|kept| kept.raw() == id))
    }

    /// Holds the fields of `source` that are in this list, and nothing else.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn project_from(&mut self, source: UbfRef<'_>, kept: &[FieldId]) -> Result<(), UbfError> {
        let mut entries = Entries::default();
        let fields = sound(source)?.iter().filter(|field| kept.contains(&field.id));
        fields.for_each(|field| entries.push(&field));
        self.set_entries(&entries.bytes, entries.fields)
    }

    /// Removes the fields of this list, as far as there are any.
    ///
    /// # Errors
    /// [`UbfError::NotFielded`].
    pub fn delete_each(&mut self, removed: &[FieldId]) -> Result<(), UbfError> {
        self.retain(|id| !removed.iter().any(|removed| removed.raw() == id))
    }

    fn joined(&mut self, source: UbfRef<'_>, how: Joined) -> Result<(), UbfError> {
        let mut entries = Entries::default();
        let mut mine = self.sound()?.iter().peekable();
        let mut theirs = sound(source)?.iter().peekable();
        loop {
            let order = match (mine.peek(), theirs.peek()) {
                (Some(mine), Some(theirs)) => occurrence_of(mine).cmp(&occurrence_of(theirs)),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            let here = if order.is_le() { mine.next() } else { None };
            let there = if order.is_ge() { theirs.next() } else { None };
            let (is_here_kept, is_there_kept) = match how {
                Joined::Update => (true, true),
                Joined::Inner => (false, here.is_some()),
                Joined::Outer => (true, here.is_some()),
            };
            match (here, there) {
                (_, Some(field)) if is_there_kept => entries.push(&field),
                (Some(field), None) if is_here_kept => entries.push(&field),
                _ => {}
            }
        }
        self.set_entries(&entries.bytes, entries.fields)
    }

    fn sound(&self) -> Result<UbfRef<'_>, UbfError> {
        sound(self.fields())
    }
}

/// Fields as they stand in a region, one after the other.
#[derive(Default)]
struct Entries {
    bytes: Vec<u8>,
    fields: usize,
}

impl Entries {
    fn push(&mut self, field: &Field<'_>) {
        let at = self.bytes.len();
        let len = field.value.raw_len();
        self.bytes.resize(at + entry_bytes(len), 0);
        let (head, value) = self.bytes[at..].split_at_mut(ENTRY_HEAD_BYTES);
        head.copy_from_slice(&Entry::head(field.id.raw(), len));
        field.value.write_raw(value).expect("an entry holds its value");
        self.fields += 1;
    }
}

fn occurrence_of(field: &Field<'_>) -> (FieldId, i32) {
    (field.id, field.occurrence)
}

/// The buffer, when a walk over all its fields ends at its end.
fn sound(fields: UbfRef<'_>) -> Result<UbfRef<'_>, UbfError> {
    UbfRef::check(fields.used_bytes())
}

#[inline]
fn check(id: FieldId, value: &Value<'_>) -> Result<(), UbfError> {
    let wanted = id.field_type();
    let given = value.field_type();
    match value {
        _ if wanted != given => Err(UbfError::OtherType { wanted, given }),
        Value::String(text) if text.contains(&0) => {
            Err(UbfError::Invalid { reason: "a string has no NUL in it; a carray may" })
        }
        Value::Ubf(inner) if inner.depth(NESTING_MAX) >= NESTING_MAX => {
            Err(UbfError::Invalid { reason: "at most 16 buffers are within one another" })
        }
        _ => Ok(()),
    }
}

#[inline]
fn index(occurrence: i32) -> Result<usize, UbfError> {
    let reason = "an occurrence is -1 or above";
    usize::try_from(occurrence).map_err(|_| UbfError::Invalid { reason })
}
