//! Two buffers into one, and a buffer without some of its fields.
//!
//! The C calls `Bupdate`, `Bjoin`, `Bojoin`, `Bconcat`, `Bproj`, `Bprojcpy` and `Bdelete` end
//! here. The result is made in memory of its own and then copied, so a region that is too short
//! stays as it was.

use std::cmp::Ordering;

use super::layout::{ENTRY_HEAD_BYTES, Entry, entry_bytes};
use super::{Field, FieldId, UbfError, UbfMut, UbfRef};

/// What becomes of a field that stands in one of two buffers, or in both.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joined {
    /// All stay; the other's value wins.
    Update,
    /// Only what stands in both stays, with the other's value.
    Inner,
    /// What stands here stays, with the other's value where it has one.
    Outer,
}

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
        let (mut mine, mut theirs) = (self.sound()?.iter().peekable(), sound(source)?.iter());
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
                (Some(mine), Some(theirs)) => place(mine).cmp(&place(theirs)),
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
        let (at, len) = (self.bytes.len(), field.value.raw_len());
        self.bytes.resize(at + entry_bytes(len), 0);
        let (head, value) = self.bytes[at..].split_at_mut(ENTRY_HEAD_BYTES);
        head.copy_from_slice(&Entry::head(field.id.raw(), len));
        field.value.write_raw(value).expect("an entry holds its value");
        self.fields += 1;
    }
}

fn place(field: &Field<'_>) -> (FieldId, i32) {
    (field.id, field.occurrence)
}

/// The buffer, when a walk over all its fields ends at its end.
fn sound(fields: UbfRef<'_>) -> Result<UbfRef<'_>, UbfError> {
    UbfRef::check(fields.used_bytes())
}
