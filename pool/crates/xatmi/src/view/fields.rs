//! From the fields of a buffer to a struct (`Bvftos`) and back (`Bvstof`).

use super::{Mapping, Member, View, ViewError};
use crate::field_table::FieldTable;
use crate::ubf::{FieldId, Scratch, Ubf, UbfError, UbfMut, UbfRef};

/// How fields of a struct come into a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    Update,
    OuterJoin,
    Join,
    Concat,
}

impl Merge {
    /// That of a number of `ubf.h`.
    #[must_use]
    pub const fn from_number(number: i32) -> Option<Self> {
        match number {
            1 => Some(Self::Update),
            2 => Some(Self::OuterJoin),
            3 => Some(Self::Join),
            4 => Some(Self::Concat),
            _ => None,
        }
    }

    /// Merges what a struct holds into a buffer.
    ///
    /// # Errors
    /// [`UbfError::NoSpace`]; the buffer is as it was.
    pub fn apply(self, into: &mut UbfMut<'_>, from: UbfRef<'_>) -> Result<(), UbfError> {
        match self {
            Self::Update => into.update(from),
            Self::OuterJoin => into.outer_join(from),
            Self::Join => into.join(from),
            Self::Concat => into.concat(from),
        }
    }
}

impl View {
    /// Fills a struct from fields: values that a buffer does not have become null values, those beyond an array are
    /// left out. Members that go another way, or that stand for no field, stay.
    ///
    /// # Errors
    /// [`ViewError::Fields`] for a name that the tables do not have, a text that is too long for its member, and a
    /// buffer that was damaged.
    pub fn fill(
        &self,
        data: &mut [u8],
        fields: UbfRef<'_>,
        table: &FieldTable,
    ) -> Result<(), ViewError> {
        for (member, id) in self.mapped(Mapping::ToStruct, table) {
            let id = id?;
            let mut count = 0;
            let there = fields.occurrences(id)?.min(member.count);
            for occurrence in 0..member.count {
                if occurrence < there {
                    let mut scratch = Scratch::new();
                    let wanted = member.member_type.field_type();
                    let value = fields.get_as(id, occurrence as i32, wanted, &mut scratch)?;
                    self.set(member, data, occurrence, value)?;
                    count += 1;
                } else {
                    member.init_value(data, occurrence);
                }
            }
            member.set_count(data, count);
        }
        Ok(())
    }

    /// The fields of a struct. Null values are left out but for [`Merge::Concat`], so occurrences behind one move up.
    ///
    /// # Errors
    /// [`ViewError::Invalid`] for a count or a length of the struct that makes no sense, [`ViewError::Fields`] for a
    /// name that the tables do not have.
    pub fn fields(&self, data: &[u8], merge: Merge, table: &FieldTable) -> Result<Ubf, ViewError> {
        let mut fields = Ubf::new();
        for (member, id) in self.mapped(Mapping::ToFields, table) {
            let id = id?;
            for occurrence in 0..self.count(member, data)? {
                if merge == Merge::Concat || !self.is_null(member, data, occurrence)? {
                    fields.add_as(id, self.value(member, data, occurrence)?)?;
                }
            }
        }
        Ok(fields)
    }

    /// The members that go this way, with their fields.
    fn mapped<'a>(
        &'a self,
        way: Mapping,
        table: &'a FieldTable,
    ) -> impl Iterator<Item = (&'a Member, Result<FieldId, UbfError>)> {
        self.members.iter().filter_map(move |member| {
            let field = member.field.as_ref()?;
            let goes = [way, Mapping::Both].contains(&member.mapping());
            goes.then(|| (member, table.id(field).ok_or(UbfError::BadName)))
        })
    }
}
