//! `Bboolco`, `Bboolev`, `Bfloatev`, `Bboolpr`, `Btreefree`: Boolean expressions over fields. `Bboolsetcbf`,
//! `Bboolsetcbf2`: functions of the program in them, for all threads.
//!
//! What they mean stands in `pollux_xatmi::expression`. A tree is one piece of memory, so that
//! programs may copy it and free it by free(3): a length, a mark and the expression's text. What a
//! text compiles to is kept by each thread for the expressions that it used last.
//!
//! ```text
//!   0 length of the whole (16 bits, low byte first)   2 'p' 'X'   4 text   NUL
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_double, c_int, c_long};
use std::rc::Rc;
use std::sync::{PoisonError, RwLock};

use pollux_xatmi::expression::{BYTES_MAX, Expression, ExpressionError, FUNCTION_BYTES_MAX};
use pollux_xatmi::ubf::UbfError;

use crate::buffers::write_text;
use crate::fault::{self, UbfFault};
use crate::fields::reading;
use crate::{caller, fields};

const MARK: [u8; 2] = *b"pX";
const HEAD_BYTES: usize = 4;

/// Most expressions that a thread keeps compiled.
const KEPT_MAX: usize = 32;

/// Most functions of a program.
const FUNCTIONS_MAX: usize = 1024;

/// A function of the program, without a text and with one.
type WithoutText = unsafe extern "C" fn(*mut c_char, *mut c_char) -> c_long;
type WithText = unsafe extern "C" fn(*mut c_char, *mut c_char, *mut c_char) -> c_long;

#[derive(Clone, Copy)]
enum Function {
    Plain(WithoutText),
    OfText(WithText),
}

/// By their names; of the process, as the interface says.
static FUNCTIONS: RwLock<BTreeMap<String, Function>> = RwLock::new(BTreeMap::new());

fn function(name: &str) -> Option<Function> {
    FUNCTIONS.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
}

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
    let takes_text = |name: &str| function(name).map(|of| matches!(of, Function::OfText(_)));
    // The tables are read when the first field is named.
    let field_of = |name: &str| fields::table_or_empty().id(name);
    let compiled = Expression::with_functions(text, &field_of, &takes_text);
    let expression = match compiled {
        Ok(expression) => Rc::new(expression),
        Err(error @ ExpressionError::UnknownField { .. }) => {
            // Tables that cannot be read are the cause rather than the name.
            fields::check_tables()?;
            return Err(error.into());
        }
        Err(error) => return Err(error.into()),
    };
    // A thread that is ending has no place to keep it; a function may be set anew.
    if expression.calls_functions() {
        return Ok(expression);
    }
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
pub(crate) unsafe fn expression(tree: *const c_char) -> Result<Rc<Expression>, UbfFault> {
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

/// Calls a function of the program with the buffer at hand. It may call functions of `ubf.h` itself.
fn call(ubf: *const c_char, name: &str, text: Option<&[u8]>) -> Result<i64, UbfError> {
    const GONE: UbfError =
        UbfError::Invalid { reason: "a function of the expression was taken back by Bboolsetcbf" };
    let given = CString::new(name).map_err(|_| GONE)?;
    let text = text.map(CString::new).transpose().map_err(|_| GONE)?;
    let ubf = ubf.cast_mut();
    let given = given.as_ptr().cast_mut();
    let value = match (function(name), text) {
        // SAFETY: Bboolsetcbf was given it for this.
        (Some(Function::Plain(function)), None) => unsafe { function(ubf, given) },
        (Some(Function::OfText(function)), Some(text)) => {
            // SAFETY: Bboolsetcbf2 was given it for this.
            unsafe { function(ubf, given, text.as_ptr().cast_mut()) }
        }
        _ => return Err(GONE),
    };
    // The errors that it met are its own.
    fault::ubf(Ok(value), || Ok(Ok(value)))
}

/// Sets a function of expressions, or takes it back.
///
/// # Safety
/// A sound `name` is that of a text.
unsafe fn set_function(name: *const c_char, to: Option<Function>) -> c_int {
    const BBADNAME: c_int = 9;
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let name = unsafe { caller::text(name) }.and_then(|name| name.to_str().ok());
        let is_name = |name: &&str| {
            (1..=FUNCTION_BYTES_MAX).contains(&name.len())
                && !name.as_bytes()[0].is_ascii_digit()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let name = name.filter(is_name).ok_or_else(|| {
            let detail = "a function has a name of 1 to 64 letters, digits and _, as a field has";
            UbfFault::Other(BBADNAME, detail.to_owned())
        })?;
        let mut all = FUNCTIONS.write().unwrap_or_else(PoisonError::into_inner);
        match to {
            None => {
                all.remove(name);
            }
            Some(_) if all.len() >= FUNCTIONS_MAX && !all.contains_key(name) => {
                let reason = "1024 functions are set: take some back";
                return Err(UbfError::Invalid { reason }.into());
            }
            Some(function) => {
                all.insert(name.to_owned(), function);
            }
        }
        Ok(0)
    })
}

/// Sets what `NAME()` is in expressions; NULL takes it back.
///
/// # Safety
/// A sound `name` is that of a text; `function` may be called by any thread that evaluates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bboolsetcbf(name: *const c_char, function: Option<WithoutText>) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { set_function(name, function.map(Function::Plain)) }
}

/// The same for `NAME('text')`.
///
/// # Safety
/// As for [`Bboolsetcbf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bboolsetcbf2(name: *const c_char, function: Option<WithText>) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { set_function(name, function.map(Function::OfText)) }
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
        let expression = unsafe { expression(tree) }?;
        let call = |name: &str, text: Option<&[u8]>| call(ubf, name, text);
        Ok(c_int::from(expression.is_true_by(fields, &call)?))
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
        let expression = unsafe { expression(tree) }?;
        let call = |name: &str, text: Option<&[u8]>| call(ubf, name, text);
        Ok(expression.number_by(fields, &call)?)
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
