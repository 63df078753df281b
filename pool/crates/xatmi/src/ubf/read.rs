//! Reading fields out of a region.
//!
//! All reading and comparing goes through [`UbfRef`]; the writing side lends one out. It never
//! allocates, and it checks every length before it follows it.

use std::cmp::Ordering;
use std::fmt;

use super::layout::{self, EMPTY, Entry, HEADER_BYTES, Header, NESTING_MAX, damaged};
use super::{FieldId, FieldType, LAST, Scratch, UbfError, Value};

/// A buffer of fields in borrowed memory, to be read.
///
/// Opening looks at the header only; every read checks what it walks over. A region that came from
/// another process goes through [`check`](Self::check) once.
///
/// Occurrences count from 0 and [`LAST`] is the last one; below that is [`UbfError::Invalid`].
#[derive(Clone, Copy)]
pub struct UbfRef<'a> {
    /// The used bytes, header included.
    used: &'a [u8],
    size: usize,
    fields: usize,
}

/// One occurrence of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Field<'a> {
    pub id: FieldId,
    /// Which occurrence, from 0.
    pub occurrence: i32,
    pub value: Value<'a>,
}

impl<'a> UbfRef<'a> {
    /// A buffer without fields.
    pub const EMPTY: UbfRef<'static> = UbfRef { used: &EMPTY, size: HEADER_BYTES, fields: 0 };

    /// The buffer at the start of `region`.
    ///
    /// # Errors
    /// [`UbfError::NotFielded`] when none was made there, or the region is shorter than its used
    /// bytes.
    #[inline]
    pub fn open(region: &'a [u8]) -> Result<Self, UbfError> {
        let Header { size, used, fields } = Header::read(region)?;
        match region.get(..used) {
            Some(used) => Ok(Self { used, size, fields }),
            None => Err(damaged("it was cut short")),
        }
    }

    /// The same, with every field checked, inner buffers too: for what another process sent.
    ///
    /// # Errors
    /// [`UbfError::NotFielded`] with what was wrong.
    pub fn check(region: &'a [u8]) -> Result<Self, UbfError> {
        Self::check_within(region, 0)
    }

    /// The buffer with these used bytes and their header.
    #[inline]
    pub(super) fn of(used: &'a [u8], header: Header) -> Self {
        Self { used, size: header.size, fields: header.fields }
    }

    fn check_within(region: &'a [u8], depth: usize) -> Result<Self, UbfError> {
        if depth > NESTING_MAX {
            return Err(damaged("too many buffers are within one another"));
        }
        let this = Self::open(region)?;
        let mut at = HEADER_BYTES;
        let mut fields = 0;
        let mut id_before = 0;
        while at < this.used.len() {
            let entry = Entry::read(this.used, at)?;
            if entry.id < id_before {
                return Err(damaged("its fields are out of order"));
            }
            check_value(&entry, this.used, depth)?;
            (at, fields, id_before) = (entry.end(), fields + 1, entry.id);
        }
        if fields != this.fields {
            return Err(damaged("its number of fields is wrong"));
        }
        Ok(this)
    }

    /// Bytes that sending it takes: header and fields.
    #[inline]
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.len()
    }

    /// Bytes of the region it stands in.
    #[inline]
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes that are free.
    #[must_use]
    pub fn unused(&self) -> usize {
        self.size - self.used.len()
    }

    /// Number of fields, each occurrence for itself.
    #[must_use]
    pub fn count(&self) -> usize {
        self.fields
    }

    /// The bytes that sending it sends: header and fields.
    #[must_use]
    pub fn used_bytes(&self) -> &'a [u8] {
        self.used
    }

    /// The value of a field.
    ///
    /// # Errors
    /// [`UbfError::NotPresent`], [`UbfError::Invalid`] for an occurrence below -1,
    /// [`UbfError::NotFielded`] for a damaged region.
    #[inline]
    pub fn get(&self, id: FieldId, occurrence: i32) -> Result<Value<'a>, UbfError> {
        stored(id.field_type(), self.find(id, occurrence)?)
    }

    /// The bytes of a value as they stand in the memory of a C program: a string with its NUL.
    ///
    /// They start at a multiple of 8 when the region does.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline]
    pub fn find(&self, id: FieldId, occurrence: i32) -> Result<&'a [u8], UbfError> {
        Ok(self.entry(id, occurrence)?.value(self.used))
    }

    /// Copies those bytes to `out`; their number.
    ///
    /// # Errors
    /// As [`get`](Self::get), and [`UbfError::NoSpace`] with the length that is needed.
    #[inline]
    pub fn copy_to(&self, id: FieldId, occurrence: i32, out: &mut [u8]) -> Result<usize, UbfError> {
        let value = self.find(id, occurrence)?;
        let room = out.len();
        let Some(out) = out.get_mut(..value.len()) else {
            return Err(UbfError::NoSpace { needed: value.len(), room });
        };
        out.copy_from_slice(value);
        Ok(value.len())
    }

    /// Bytes of a value, as [`find`](Self::find) gives them.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn len_of(&self, id: FieldId, occurrence: i32) -> Result<usize, UbfError> {
        Ok(self.entry(id, occurrence)?.len)
    }

    /// The value, converted to another type; texts of numbers are written into `scratch`.
    ///
    /// # Errors
    /// As [`get`](Self::get), and [`UbfError::NotConverted`].
    pub fn get_as<'s>(
        &self,
        id: FieldId,
        occurrence: i32,
        wanted: FieldType,
        scratch: &'s mut Scratch,
    ) -> Result<Value<'s>, UbfError>
    where
        'a: 's,
    {
        self.get(id, occurrence)?.convert(wanted, scratch)
    }

    /// The value as a whole number.
    ///
    /// # Errors
    /// As [`get_as`](Self::get_as).
    pub fn long(&self, id: FieldId, occurrence: i32) -> Result<i64, UbfError> {
        self.get(id, occurrence)?.to_long()
    }

    /// The value as a floating number.
    ///
    /// # Errors
    /// As [`get_as`](Self::get_as).
    pub fn double(&self, id: FieldId, occurrence: i32) -> Result<f64, UbfError> {
        self.get(id, occurrence)?.to_double()
    }

    /// The bytes of a string without its NUL, or of a carray.
    ///
    /// # Errors
    /// As [`get`](Self::get), and [`UbfError::NotConverted`] for other types.
    pub fn bytes(&self, id: FieldId, occurrence: i32) -> Result<&'a [u8], UbfError> {
        match self.get(id, occurrence)? {
            Value::String(bytes) | Value::Carray(bytes) => Ok(bytes),
            other => {
                Err(UbfError::NotConverted { from: other.field_type(), to: FieldType::Carray })
            }
        }
    }

    /// Whether there is such a field; a damaged region has none.
    #[must_use]
    pub fn is_present(&self, id: FieldId, occurrence: i32) -> bool {
        self.entry(id, occurrence).is_ok()
    }

    /// How often the field occurs.
    ///
    /// # Errors
    /// [`UbfError::NotFielded`] for a damaged region.
    pub fn occurrences(&self, id: FieldId) -> Result<usize, UbfError> {
        Ok(layout::run(self.used, id.raw())?.count)
    }

    /// The first occurrence of the field that has this value.
    ///
    /// # Errors
    /// [`UbfError::NotPresent`] when none has, [`UbfError::OtherType`] when none can.
    pub fn find_occurrence(&self, id: FieldId, value: Value<'_>) -> Result<i32, UbfError> {
        let wanted = id.field_type();
        let given = value.field_type();
        if wanted != given {
            return Err(UbfError::OtherType { wanted, given });
        }
        self.find_occurrence_by(id, |found| *found == value)
    }

    /// The first occurrence of the field whose value `is_wanted`.
    ///
    /// # Errors
    /// [`UbfError::NotPresent`] when there is none.
    pub fn find_occurrence_by(
        &self,
        id: FieldId,
        is_wanted: impl Fn(&Value<'_>) -> bool,
    ) -> Result<i32, UbfError> {
        let found = self.iter().find(|field| field.id == id && is_wanted(&field.value));
        let missing = UbfError::NotPresent { id: id.raw(), occurrence: LAST };
        found.map(|field| field.occurrence).ok_or(missing)
    }

    /// The field behind another, whether or not that one exists; `None` stands before the first.
    ///
    /// # Errors
    /// [`UbfError::NotFielded`] for a damaged region, [`UbfError::Invalid`] for an occurrence
    /// below 0.
    pub fn next(&self, after: Option<(FieldId, i32)>) -> Result<Option<Field<'a>>, UbfError> {
        let Some((id, occurrence)) = after else { return self.field_at(HEADER_BYTES, 0) };
        let Ok(mut left) = usize::try_from(occurrence) else {
            return Err(UbfError::Invalid {
                reason: "expected an occurrence of 0 or above to iterate from",
            });
        };
        let mut at = layout::seek(self.used, id.raw())?;
        while at < self.used.len() {
            let entry = Entry::read(self.used, at)?;
            if entry.id != id.raw() {
                break;
            }
            at = entry.end();
            if left == 0 {
                return self.field_at(at, occurrence.saturating_add(1)).map(|next| match next {
                    Some(next) if next.id != id => Some(Field { occurrence: 0, ..next }),
                    next => next,
                });
            }
            left -= 1;
        }
        self.field_at(at, 0)
    }

    /// All fields in their order. It ends early where a region turns out to be damaged, which
    /// [`check`](Self::check) finds beforehand.
    #[must_use]
    pub fn iter(&self) -> Iter<'a> {
        Iter { fields: *self, at: HEADER_BYTES, before: None }
    }

    /// Buffers within buffers: 0 when no field holds one; it looks down to `most`.
    pub(super) fn depth(&self, most: usize) -> usize {
        let inner = self.iter().filter_map(|field| match field.value {
            Value::Ubf(_) if most == 0 => Some(1),
            Value::Ubf(inner) => Some(inner.depth(most - 1) + 1),
            _ => None,
        });
        inner.max().unwrap_or(0)
    }

    /// Its used bytes, as a region of just this size. `out` has [`used`](Self::used) bytes.
    pub(super) fn write_compact(&self, out: &mut [u8]) {
        out.copy_from_slice(self.used);
        Header { size: self.used.len(), used: self.used.len(), fields: self.fields }.write(out);
    }

    #[inline]
    fn entry(&self, id: FieldId, occurrence: i32) -> Result<Entry, UbfError> {
        let found = match usize::try_from(occurrence) {
            Ok(number) => layout::nth(self.used, id.raw(), number)?,
            Err(_) if occurrence == LAST => layout::run(self.used, id.raw())?.last,
            Err(_) => return Err(UbfError::Invalid { reason: "an occurrence is -1 or above" }),
        };
        found.ok_or(UbfError::NotPresent { id: id.raw(), occurrence })
    }

    fn field_at(&self, at: usize, occurrence: i32) -> Result<Option<Field<'a>>, UbfError> {
        if at >= self.used.len() {
            return Ok(None);
        }
        let entry = Entry::read(self.used, at)?;
        let id = FieldId::from_raw(entry.id).map_err(|_| damaged("a field's id is wrong"))?;
        let value = stored(id.field_type(), entry.value(self.used))?;
        Ok(Some(Field { id, occurrence, value }))
    }
}

impl fmt::Debug for UbfRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The check limits how deep this goes into buffers within buffers.
        match Self::check(self.used) {
            Ok(fields) => f.debug_list().entries(fields.iter()).finish(),
            Err(error) => error.fmt(f),
        }
    }
}

/// All fields of a buffer; see [`UbfRef::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    fields: UbfRef<'a>,
    at: usize,
    before: Option<(FieldId, i32)>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        let field = self.fields.field_at(self.at, 0).ok().flatten()?;
        let occurrence = match self.before {
            Some((id, occurrence)) if id == field.id => occurrence + 1,
            _ => 0,
        };
        self.at = Entry::read(self.fields.used, self.at).ok()?.end();
        self.before = Some((field.id, occurrence));
        Some(Field { occurrence, ..field })
    }
}

impl<'a> IntoIterator for UbfRef<'a> {
    type Item = Field<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Which of two stored views stands first.
pub type ViewOrder<'a> = dyn Fn(&[u8], &[u8]) -> Ordering + 'a;

/// Order and inclusion: `Bcmp`, `Bsubset` and `==`. All values compare, NaN too, so buffers can be sorted.
impl UbfRef<'_> {
    /// Which of two buffers stands first: by ids, then by values, then by number of fields. Of two carrays the shorter one
    /// does.
    ///
    /// Inner buffers below [`NESTING_MAX`], which no sound buffer has, count as equal.
    #[must_use]
    pub fn compare(&self, other: UbfRef<'_>) -> Ordering {
        self.compare_by(other, &<[u8]>::cmp)
    }

    /// The same, with views compared by `views`: what stands between members is part of the bytes, not of the values.
    #[must_use]
    pub fn compare_by(&self, other: UbfRef<'_>, views: &ViewOrder<'_>) -> Ordering {
        self.compare_within(other, views, 0)
    }

    /// Whether each occurrence of each field of `other` stands here too with the same value; of an
    /// inner buffer it is enough that its fields are in the one here.
    ///
    /// Inner buffers below [`NESTING_MAX`], which no sound buffer has, count as contained.
    #[must_use]
    pub fn contains_all(&self, other: UbfRef<'_>) -> bool {
        self.contains_all_by(other, &<[u8]>::cmp)
    }

    /// The same, with views compared by `views`.
    #[must_use]
    pub fn contains_all_by(&self, other: UbfRef<'_>, views: &ViewOrder<'_>) -> bool {
        self.contains_within(other, views, 0)
    }

    fn contains_within(&self, other: UbfRef<'_>, views: &ViewOrder<'_>, depth: usize) -> bool {
        if depth > NESTING_MAX {
            return true;
        }
        let mut mine = self.iter();
        // Both are in order, so one walk over each is enough.
        other.iter().all(|wanted| {
            let key = (wanted.id, wanted.occurrence);
            let found = mine.find(|field| (field.id, field.occurrence) >= key);
            found.filter(|field| (field.id, field.occurrence) == key).is_some_and(|field| {
                match (&field.value, &wanted.value) {
                    (Value::Ubf(one), Value::Ubf(two)) => {
                        one.contains_within(*two, views, depth + 1)
                    }
                    (one, two) => one.compare_within(two, views, depth).is_eq(),
                }
            })
        })
    }

    fn compare_within(&self, other: UbfRef<'_>, views: &ViewOrder<'_>, depth: usize) -> Ordering {
        if depth > NESTING_MAX {
            return Ordering::Equal;
        }
        let mut mine = self.iter();
        let mut theirs = other.iter();
        loop {
            let (one, two) = match (mine.next(), theirs.next()) {
                (Some(one), Some(two)) => (one, two),
                (one, two) => return one.is_some().cmp(&two.is_some()),
            };
            let by_id = one.id.cmp(&two.id);
            let order = by_id.then_with(|| one.value.compare_within(&two.value, views, depth));
            if order.is_ne() {
                return order;
            }
        }
    }
}

impl PartialEq for UbfRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.compare(*other).is_eq()
    }
}

impl Value<'_> {
    /// Which of two values of one type stands first; values of two types go by their codes.
    /// `depth` is that of the buffers they stand in.
    fn compare_within(&self, other: &Value<'_>, views: &ViewOrder<'_>, depth: usize) -> Ordering {
        match (self, other) {
            (Self::Short(one), Value::Short(two)) => one.cmp(two),
            (Self::Long(one), Value::Long(two)) => one.cmp(two),
            (Self::Char(one), Value::Char(two)) => one.cmp(two),
            (Self::Float(one), Value::Float(two)) => one.total_cmp(two),
            (Self::Double(one), Value::Double(two)) => one.total_cmp(two),
            (Self::String(one), Value::String(two)) => one.cmp(two),
            (Self::Carray(one), Value::Carray(two)) => {
                one.len().cmp(&two.len()).then_with(|| one.cmp(two))
            }
            (Self::Ptr(one), Value::Ptr(two)) => one.cmp(two),
            (Self::Ubf(one), Value::Ubf(two)) => one.compare_within(*two, views, depth + 1),
            (Self::View(one), Value::View(two)) => views(one, two),
            _ => self.field_type().code().cmp(&other.field_type().code()),
        }
    }
}

/// The value that a region holds; what cannot be one means that the region is damaged.
#[inline]
fn stored(field_type: FieldType, bytes: &[u8]) -> Result<Value<'_>, UbfError> {
    Value::from_raw(field_type, bytes).map_err(|error| match error {
        UbfError::Invalid { .. } => damaged("a value is not of its type"),
        other => other,
    })
}

fn check_value(entry: &Entry, used: &[u8], depth: usize) -> Result<(), UbfError> {
    let id = FieldId::from_raw(entry.id).map_err(|_| damaged("a field's id is wrong"))?;
    let bytes = entry.value(used);
    match stored(id.field_type(), bytes) {
        Ok(Value::String(text)) if text.contains(&0) => Err(damaged("a string has a NUL in it")),
        Ok(Value::Ubf(inner)) if inner.size != bytes.len() || inner.used() != bytes.len() => {
            Err(damaged("an inner buffer has another length than its field"))
        }
        Ok(Value::Ubf(_)) => UbfRef::check_within(bytes, depth + 1).map(drop),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}
