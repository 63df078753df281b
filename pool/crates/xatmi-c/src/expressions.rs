//! `Bboolco`, `Bboolev`, `Bfloatev`, `Bboolpr`, `Btreefree`: Boolean expressions over fields.
//!
//! What they mean stands in `pollux_xatmi::expression`. A tree is one piece of memory, so that
//! programs may copy it and free it by free(3): a length, a mark and the expression's text. What a
//! text compiles to is kept by each thread for the expressions that it used last.
//!
//! ```text
//!   0 length of the whole (16 bits, low byte first)   2 'p' 'X'   4 text   NUL
//! ```

use std::cell::RefCell;
use std::ffi::{c_char, c_double, c_int};
use std::rc::Rc;

use pollux_xatmi::expression::{BYTES_MAX, Expression, ExpressionError};
use pollux_xatmi::ubf::UbfError;

use crate::buffers::write_text;
use crate::fault::{self, UbfFault};
use crate::fields::reading;
use crate::{caller, fields};

const MARK: [u8; 2] = *b"pX";
const HEAD_BYTES: usize = 4;

/// Most expressions that a thread keeps compiled.
const KEPT_MAX: usize = 32;

/// A text and what it compiles to.
type Kept = (Box<[u8]>, Rc<Expression>);

thread_local! {
    /// The one used last comes first.
    static KEPT: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

impl From<ExpressionError> for UbfFault {
    fn from(error: ExpressionError) -> Self {
        Self::Other(error.number(), error.to_string())
    }
}

fn compiled(text: &[u8]) -> Result<Rc<Expression>, UbfFault> {
    let known = KEPT.try_with(|kept| {
        let kept = &mut *kept.borrow_mut();
        let at = kept.iter().position(|(known, _)| **known == *text)?;
        kept[..=at].rotate_right(1);
        Some(Rc::clone(&kept[0].1))
    });
    if let Ok(Some(known)) = known {
        return Ok(known);
    }
    let expression = match Expression::compile(text, fields::table_or_empty()) {
        Ok(expression) => Rc::new(expression),
        Err(error @ ExpressionError::UnknownField { .. }) => {
            // Tables that cannot be read are the cause rather than the name.
            fields::check_tables()?;
            return Err(error.into());
        }
        Err(error) => return Err(error.into()),
    };
    // A thread that is ending has no place to keep it.
    let _ = KEPT.try_with(|kept| {
        let kept = &mut *kept.borrow_mut();
        kept.truncate(KEPT_MAX - 1);
        kept.insert(0, (text.into(), Rc::clone(&expression)));
    });
    Ok(expression)
}

/// The expression behind a tree.
///
/// # Safety
/// A sound `tree` is that of a tree of Bboolco, or of a copy of one.
unsafe fn expression(tree: *const c_char) -> Result<Rc<Expression>, UbfFault> {
    const NO_TREE: UbfError = UbfError::Invalid { reason: "the tree was not returned by Bboolco" };
    if !caller::is_sound(tree) {
        return Err(NO_TREE.into());
    }
    // SAFETY: the caller's promise; every tree has a head.
    let head = unsafe { caller::bytes(tree, HEAD_BYTES) };
    let len = usize::from(u16::from_le_bytes([head[0], head[1]]));
    if head[2..] != MARK || !(HEAD_BYTES + 1..=HEAD_BYTES + BYTES_MAX + 1).contains(&len) {
        return Err(NO_TREE.into());
    }
    // SAFETY: the caller's promise; the head says that so many bytes belong to it.
    let whole = unsafe { caller::bytes(tree, len) };
    match whole.split_last() {
        Some((0, whole)) => compiled(&whole[HEAD_BYTES..]),
        _ => Err(NO_TREE.into()),
    }
}

/// Compiles an expression; the tree is freed by Btreefree or free(3). NULL for an error.
///
/// # Safety
/// A sound `text` is that of a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bboolco(text: *const c_char) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let text = unsafe { caller::text(text) }
            .ok_or(UbfError::Invalid { reason: "the pointer to the expression is null" })?;
        let text = text.to_bytes_with_nul();
        compiled(&text[..text.len() - 1])?;
        let len = HEAD_BYTES + text.len();
        // SAFETY: malloc takes any size.
        let memory = unsafe { libc::malloc(len) }.cast::<c_char>();
        if memory.is_null() {
            return Err(UbfFault::no_memory());
        }
        // SAFETY: so many bytes were just allocated, and no other thread knows them.
        let tree = unsafe { caller::bytes_mut(memory, len) };
        let short = u16::try_from(len).expect("BYTES_MAX is below it");
        tree[..2].copy_from_slice(&short.to_le_bytes());
        tree[2..HEAD_BYTES].copy_from_slice(&MARK);
        tree[HEAD_BYTES..].copy_from_slice(text);
        Ok(memory)
    })
}

/// 1 when the expression holds for the fields, else 0; -1 for an error.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread changes it meanwhile; a sound `tree` is that of
/// a tree of Bboolco.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bboolev(ubf: *const c_char, tree: *const c_char) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let fields = unsafe { reading(ubf) }?;
        // SAFETY: the caller's promise.
        Ok(c_int::from(unsafe { expression(tree) }?.is_true(fields)?))
    })
}

/// The expression as a number; -1 for an error, which `Berror` tells from a number.
///
/// # Safety
/// As for [`Bboolev`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bfloatev(ubf: *const c_char, tree: *const c_char) -> c_double {
    fault::ubf(-1.0, || {
        // SAFETY: the caller's promise.
        let fields = unsafe { reading(ubf) }?;
        // SAFETY: the caller's promise.
        Ok(unsafe { expression(tree) }?.number(fields)?)
    })
}

/// Prints an expression with all its parentheses, and a new line.
///
/// # Safety
/// As for [`Bboolev`]; a sound `file` is that of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bboolpr(tree: *const c_char, file: *mut libc::FILE) -> c_int {
    fault::ubf(-1, || {
        if !caller::is_sound(file) {
            return Err(UbfError::Invalid { reason: "the file is null" }.into());
        }
        // SAFETY: the caller's promise.
        let text = format!("{}\n", unsafe { expression(tree) }?);
        // SAFETY: the caller's promise.
        unsafe { write_text(file, text.as_bytes()) }.map(|()| 0)
    })
}

/// Frees a tree. NULL is fine.
///
/// # Safety
/// A pointer that is not NULL is that of a tree that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Btreefree(tree: *mut c_char) {
    // SAFETY: Bboolco allocated it by malloc(3), by the caller's promise.
    unsafe { libc::free(tree.cast()) };
}
