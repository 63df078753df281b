//! Which of two buffers, or of two values, stands first.
//!
//! `Bcmp`, `Bsubset` and `==` end here. Every two compare, NaN too, so buffers can be sorted.

use std::cmp::Ordering;

use super::{NESTING_MAX, UbfRef, Value};

impl UbfRef<'_> {
    /// Which of two buffers stands first: by ids, then by values, then by number of fields.
    ///
    /// Inner buffers below [`NESTING_MAX`], which no sound buffer has, count as equal.
    #[must_use]
    pub fn compare(&self, other: UbfRef<'_>) -> Ordering {
        self.compare_within(other, 0)
    }

    /// Whether each occurrence of each field of `other` stands here too with the same value; of an
    /// inner buffer it is enough that its fields are in the one here.
    ///
    /// Inner buffers below [`NESTING_MAX`], which no sound buffer has, count as contained.
    #[must_use]
    pub fn contains_all(&self, other: UbfRef<'_>) -> bool {
        self.contains_within(other, 0)
    }

    fn contains_within(&self, other: UbfRef<'_>, depth: usize) -> bool {
        if depth > NESTING_MAX {
            return true;
        }
        let mut mine = self.iter();
        // Both are in order, so one walk over each is enough.
        other.iter().all(|wanted| {
            let place = (wanted.id, wanted.occurrence);
            let found = mine.find(|field| (field.id, field.occurrence) >= place);
            found.filter(|field| (field.id, field.occurrence) == place).is_some_and(|field| match (
                &field.value,
                &wanted.value,
            ) {
                (Value::Ubf(one), Value::Ubf(two)) => one.contains_within(*two, depth + 1),
                (one, two) => one.compare_within(two, depth).is_eq(),
            })
        })
    }

    fn compare_within(&self, other: UbfRef<'_>, depth: usize) -> Ordering {
        if depth > NESTING_MAX {
            return Ordering::Equal;
        }
        let (mut mine, mut theirs) = (self.iter(), other.iter());
        loop {
            let (one, two) = match (mine.next(), theirs.next()) {
                (Some(one), Some(two)) => (one, two),
                (one, two) => return one.is_some().cmp(&two.is_some()),
            };
            let by_id = one.id.cmp(&two.id);
            let order = by_id.then_with(|| one.value.compare_within(&two.value, depth));
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
    fn compare_within(&self, other: &Value<'_>, depth: usize) -> Ordering {
        match (self, other) {
            (Self::Short(one), Value::Short(two)) => one.cmp(two),
            (Self::Long(one), Value::Long(two)) => one.cmp(two),
            (Self::Char(one), Value::Char(two)) => one.cmp(two),
            (Self::Float(one), Value::Float(two)) => one.total_cmp(two),
            (Self::Double(one), Value::Double(two)) => one.total_cmp(two),
            (Self::String(one), Value::String(two)) => one.cmp(two),
            (Self::Carray(one), Value::Carray(two)) => one.cmp(two),
            (Self::Ptr(one), Value::Ptr(two)) => one.cmp(two),
            (Self::Ubf(one), Value::Ubf(two)) => one.compare_within(*two, depth + 1),
            _ => self.field_type().code().cmp(&other.field_type().code()),
        }
    }
}
