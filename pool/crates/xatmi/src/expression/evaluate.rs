//! A tree and the fields of a buffer to a value.
//!
//! `Expression` calls it. Whatever the tree and the fields are, it ends: each comparison counts,
//! and long texts count more than once.
//!
//! | operands | compared as |
//! |---|---|
//! | two texts | bytes, one by one |
//! | two whole numbers | whole numbers |
//! | a number and a text of the expression | texts: the number with 13 digits behind the point, if it has one |
//! | anything else | floating numbers, which are equal where they differ by less than a millionth; a text is the number at its start |
//!
//! A missing value makes arithmetic missing and a comparison false, and is itself false.

use std::cell::Cell;
use std::cmp::Ordering;

use super::{Binary, Call, FieldPath, Node, Step, Unary};
use crate::ubf::{UbfError, UbfRef, VIEW_NAME_BYTES, Value};
use crate::view;

/// Most comparisons of one evaluation; only `[?]` on both sides, or a very large buffer, comes near.
pub const COMPARISONS_MAX: usize = 1_000_000;

/// Floating numbers that differ by less are equal.
const EQUAL_WITHIN: f64 = 1e-6;

/// Bytes of a text that count as one more comparison.
const BYTES_EACH: usize = 64;

/// # Errors
/// As `Expression::is_true`.
pub(super) fn is_true(root: &Node, fields: UbfRef<'_>, call: &Call<'_>) -> Result<bool, UbfError> {
    Evaluation { fields, call, comparisons: Cell::new(0) }.is_true(root)
}

/// # Errors
/// As `Expression::is_true`.
pub(super) fn number(root: &Node, fields: UbfRef<'_>, call: &Call<'_>) -> Result<f64, UbfError> {
    let evaluation = Evaluation { fields, call, comparisons: Cell::new(0) };
    // A field by itself is its value here; where a truth is asked for, it is whether it is there.
    Ok(evaluation.value(root)?.floating().unwrap_or(0.0))
}

#[derive(Clone, Copy)]
enum Operand<'v> {
    Missing,
    Long(i64),
    Double(f64),
    Text(&'v [u8]),
    /// A text that stands in the expression.
    Constant(&'v [u8]),
}

/// One side of a comparison.
enum Side<'v> {
    One(Operand<'v>),
    /// Any occurrence.
    Any(Option<UbfRef<'v>>, &'v FieldPath),
}

struct Evaluation<'v> {
    fields: UbfRef<'v>,
    call: &'v Call<'v>,
    comparisons: Cell<usize>,
}

impl<'v> Evaluation<'v> {
    fn is_true(&self, node: &'v Node) -> Result<bool, UbfError> {
        match node {
            Node::Field(path) if path.member.is_none() => Ok(self
                .within(path)?
                .is_some_and(|fields| fields.is_present(path.id, path.occurrence.unwrap_or(0)))),
            Node::Field(_) => Ok(!matches!(self.value(node)?, Operand::Missing)),
            _ => Ok(self.value(node)?.is_true()),
        }
    }

    fn value(&self, node: &'v Node) -> Result<Operand<'v>, UbfError> {
        match node {
            Node::Long(number) => Ok(Operand::Long(*number)),
            Node::Double(number) => Ok(Operand::Double(*number)),
            Node::Text(text) => Ok(Operand::Constant(text)),
            Node::Pattern(pattern) => Ok(Operand::Text(pattern.text().as_bytes())),
            Node::Field(path) => match self.within(path)? {
                Some(fields) => {
                    let value = fields.get(path.id, path.occurrence.unwrap_or(0));
                    match (&path.member, value) {
                        (Some(member), Ok(Value::View(stored))) => of_member(stored, member),
                        (_, value) => found(value),
                    }
                }
                None => Ok(Operand::Missing),
            },
            Node::Function(name, text) => (self.call)(name, text.as_deref()).map(Operand::Long),
            // The complement of a field is that of whether it is there.
            Node::Unary(Unary::Complement, operand) if matches!(**operand, Node::Field(_)) => {
                Ok(Operand::from(self.is_true(operand)?).unary(Unary::Complement))
            }
            Node::Unary(unary, operand) => Ok(self.value(operand)?.unary(*unary)),
            Node::Chain(first, rest) => self.chain(first, rest),
        }
    }

    fn chain(&self, first: &'v Node, rest: &'v [(Binary, Node)]) -> Result<Operand<'v>, UbfError> {
        let Some(((binary, second), rest)) = rest.split_first() else { return self.value(first) };
        let mut left = if binary.is_logical() {
            Operand::from(self.logical(self.is_true(first)?, *binary, second)?)
        } else if binary.is_comparison() {
            Operand::from(self.compare(&self.side(first)?, *binary, second)?)
        } else {
            self.value(first)?.arithmetic(*binary, self.value(second)?)
        };
        for (binary, operand) in rest {
            left = if binary.is_logical() {
                Operand::from(self.logical(left.is_true(), *binary, operand)?)
            } else if binary.is_comparison() {
                Operand::from(self.compare(&Side::One(left), *binary, operand)?)
            } else {
                left.arithmetic(*binary, self.value(operand)?)
            };
        }
        Ok(left)
    }

    /// The right side is not evaluated once the left one decides.
    fn logical(&self, left: bool, binary: Binary, right: &'v Node) -> Result<bool, UbfError> {
        Ok(match binary {
            Binary::Or => left || self.is_true(right)?,
            Binary::And => left && self.is_true(right)?,
            _ => left != self.is_true(right)?,
        })
    }

    fn side(&self, node: &'v Node) -> Result<Side<'v>, UbfError> {
        Ok(match node {
            Node::Field(path) if path.occurrence.is_none() => Side::Any(self.within(path)?, path),
            _ => Side::One(self.value(node)?),
        })
    }

    fn compare(&self, left: &Side<'v>, binary: Binary, right: &'v Node) -> Result<bool, UbfError> {
        if let Node::Pattern(pattern) = right {
            return left.any(&|operand| {
                self.count(operand, Operand::Missing)?;
                let fits = |text: &[u8]| pattern.fits(text) == (binary == Binary::Matches);
                Ok(!matches!(operand, Operand::Missing) && operand.with_text(fits))
            });
        }
        let right = self.side(right)?;
        left.any(&|left| {
            right.any(&|right| {
                self.count(left, right)?;
                let order = left.compare(right);
                Ok(order.is_some_and(|order| holds(binary, order)))
            })
        })
    }

    fn count(&self, left: Operand<'_>, right: Operand<'_>) -> Result<(), UbfError> {
        let bytes = |operand| match operand {
            Operand::Text(text) | Operand::Constant(text) => text.len(),
            Operand::Missing | Operand::Long(_) | Operand::Double(_) => 0,
        };
        let cost = 1 + bytes(left).max(bytes(right)) / BYTES_EACH;
        self.comparisons.set(self.comparisons.get().saturating_add(cost));
        if self.comparisons.get() > COMPARISONS_MAX {
            let reason = "the expression takes more than 1000000 comparisons on this buffer";
            return Err(UbfError::Invalid { reason });
        }
        Ok(())
    }

    /// The buffer in which the last field of a path stands.
    fn within(&self, path: &FieldPath) -> Result<Option<UbfRef<'v>>, UbfError> {
        let mut fields = self.fields;
        for Step { id, occurrence, .. } in &path.outer {
            match fields.get(*id, *occurrence) {
                Ok(Value::Ubf(inner)) => fields = inner,
                Ok(_) | Err(UbfError::NotPresent { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(fields))
    }
}

impl<'v> Side<'v> {
    fn any(&self, holds: &dyn Fn(Operand<'v>) -> Result<bool, UbfError>) -> Result<bool, UbfError> {
        match self {
            Self::One(Operand::Missing) | Self::Any(None, _) => Ok(false),
            Self::One(operand) => holds(*operand),
            Self::Any(Some(fields), path) => {
                let all = fields.iter().skip_while(|field| field.id < path.id);
                for field in all.take_while(|field| field.id == path.id) {
                    if holds(Operand::from(field.value))? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}

impl<'v> Operand<'v> {
    fn is_true(self) -> bool {
        match self {
            Self::Long(number) => number != 0,
            Self::Constant(_) => true,
            other => other.floating().is_some_and(|number| number != 0.0),
        }
    }

    fn floating(self) -> Option<f64> {
        match self {
            Self::Missing => None,
            Self::Long(number) => Some(number as f64),
            Self::Double(number) => Some(number),
            Self::Text(text) | Self::Constant(text) => Value::String(text).to_double().ok(),
        }
    }

    fn whole(self) -> Option<i64> {
        match self {
            Self::Long(number) => Some(number),
            // It stops at the limits.
            other => other.floating().map(|number| number as i64),
        }
    }

    /// The value as the text that a match looks at.
    fn with_text<T>(self, look: impl FnOnce(&[u8]) -> T) -> T {
        self.with_digits(6, look)
    }

    /// The value as a text, with so many digits behind the point of a floating number.
    fn with_digits<T>(self, digits: usize, look: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Missing => look(b""),
            Self::Text(text) | Self::Constant(text) => look(text),
            Self::Long(number) => look(number.to_string().as_bytes()),
            Self::Double(number) => look(format!("{number:.digits$}").as_bytes()),
        }
    }

    fn compare(self, other: Self) -> Option<Ordering> {
        use Operand::{Constant, Text};
        match (self, other) {
            (Self::Missing, _) | (_, Self::Missing) => None,
            (Text(one) | Constant(one), Text(other) | Constant(other)) => Some(one.cmp(other)),
            // Against a text of the expression a number is the text that it is printed as.
            (Constant(text), number) => Some(number.with_digits(13, |other| text.cmp(other))),
            (number, Constant(text)) => Some(number.with_digits(13, |one| one.cmp(text))),
            (Self::Long(one), Self::Long(other)) => Some(one.cmp(&other)),
            (one, other) => {
                let one = one.floating()?;
                let other = other.floating()?;
                // What was computed of decimals: 100.51 - 100.49 is 0.02.
                let is_near = (one - other).abs() < EQUAL_WITHIN;
                if is_near { Some(Ordering::Equal) } else { one.partial_cmp(&other) }
            }
        }
    }

    fn unary(self, unary: Unary) -> Self {
        match (unary, self) {
            (Unary::Not, operand) => Self::from(!operand.is_true()),
            (_, Self::Missing) => Self::Missing,
            (Unary::Complement, Self::Constant(_)) => Self::Long(!1),
            (Unary::Complement, operand) => {
                operand.whole().map_or(Self::Missing, |n| Self::Long(!n))
            }
            (Unary::Plus, Self::Text(_) | Self::Constant(_)) => {
                self.floating().map_or(Self::Missing, Self::Double)
            }
            (Unary::Plus, operand) => operand,
            (Unary::Minus, Self::Long(number)) => Self::Long(number.wrapping_neg()),
            (Unary::Minus, operand) => {
                operand.floating().map_or(Self::Missing, |n| Self::Double(-n))
            }
        }
    }

    /// Whole numbers wrap around; a remainder is that of whole numbers. By 0 a quotient is 0, and the remainder all.
    fn arithmetic(self, binary: Binary, other: Self) -> Self {
        if binary == Binary::Remainder {
            let (Some(one), Some(other)) = (self.whole(), other.whole()) else {
                return Self::Missing;
            };
            // What is left of the least number by -1 is 0, too.
            return Self::Long(if other == 0 { one } else { one.checked_rem(other).unwrap_or(0) });
        }
        if let (Self::Long(one), Self::Long(other)) = (self, other) {
            return Self::Long(match binary {
                Binary::Plus => one.wrapping_add(other),
                Binary::Minus => one.wrapping_sub(other),
                Binary::Times => one.wrapping_mul(other),
                _ if other == 0 => 0,
                _ => one.wrapping_div(other),
            });
        }
        let (Some(one), Some(other)) = (self.floating(), other.floating()) else {
            return Self::Missing;
        };
        Self::Double(match binary {
            Binary::Plus => one + other,
            Binary::Minus => one - other,
            Binary::Times => one * other,
            _ if other == 0.0 => 0.0,
            _ => one / other,
        })
    }
}

impl From<bool> for Operand<'_> {
    fn from(is_true: bool) -> Self {
        Self::Long(i64::from(is_true))
    }
}

impl<'v> From<Value<'v>> for Operand<'v> {
    fn from(value: Value<'v>) -> Self {
        match value {
            Value::Short(number) => Self::Long(number.into()),
            Value::Long(number) => Self::Long(number),
            Value::Float(number) => Self::Double(number.into()),
            Value::Double(number) => Self::Double(number),
            // A NUL is an empty text.
            Value::Char(0) => Self::Text(&[]),
            Value::Char(byte) => Self::Text(character(byte)),
            Value::String(text) | Value::Carray(text) => Self::Text(text),
            // Expressions with these types are not compiled.
            Value::Ptr(_) | Value::Ubf(_) | Value::View(_) => Self::Missing,
        }
    }
}

/// A value of a buffer; one that is not there is missing.
fn found(value: Result<Value<'_>, UbfError>) -> Result<Operand<'_>, UbfError> {
    match value {
        Ok(value) => Ok(Operand::from(value)),
        Err(UbfError::NotPresent { .. }) => Ok(Operand::Missing),
        Err(error) => Err(error),
    }
}

/// A member of a view that a field holds; a null value, and one beyond the count, is missing.
fn of_member<'v>(
    stored: &'v [u8],
    (name, occurrence): &(String, i32),
) -> Result<Operand<'v>, UbfError> {
    let Some((view, data)) = stored.split_at_checked(VIEW_NAME_BYTES) else {
        return Ok(Operand::Missing);
    };
    let view = view.split(|byte| *byte == 0).next().unwrap_or_default();
    if view.is_empty() {
        return Ok(Operand::Missing);
    }
    let value = view::value_of_process(&String::from_utf8_lossy(view), data, name, *occurrence)?;
    Ok(value.map_or(Operand::Missing, Operand::from))
}

/// A byte as a text that stays.
fn character(byte: u8) -> &'static [u8] {
    static ALL: [u8; 256] = {
        let mut all = [0; 256];
        let mut at = 0;
        while at < all.len() {
            all[at] = at as u8;
            at += 1;
        }
        all
    };
    let at = usize::from(byte);
    &ALL[at..=at]
}

fn holds(binary: Binary, order: Ordering) -> bool {
    match binary {
        Binary::Equal => order.is_eq(),
        Binary::NotEqual => order.is_ne(),
        Binary::Less => order.is_lt(),
        Binary::LessOrEqual => order.is_le(),
        Binary::Greater => order.is_gt(),
        _ => order.is_ge(),
    }
}
