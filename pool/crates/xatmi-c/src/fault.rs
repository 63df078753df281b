//! The thread's errors: `tperrno` and `Berror` with their texts; no panic leaves the interface.
//!
//! Every function of the interface runs inside `atmi` or `ubf`. Nothing here has a destructor,
//! so a thread that is ending, whose other storage is gone, still has its errors.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_long};
use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pollux_xatmi::ubf::{UbfError, describe};

use crate::caller;

/// `tperrno` when something inside failed.
const TPESYSTEM: c_int = 12;

/// The greatest number that tperrordetail may give by the interface.
const TPED_MAXVAL: c_int = 16;

/// Longer than any message here; the rest of one can only be a name that a caller made up.
const TEXT_BYTES: usize = 512;

/// Where a function that is to be called is NULL.
pub(crate) const NO_FUNCTION: &str = "the function is NULL";

/// An error of `atmi.h`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What `tperrno` becomes.
    pub(crate) number: c_int,
    /// What was wrong and what would be right.
    pub(crate) detail: String,
    /// What tperrordetail says about it.
    pub(crate) cause: Cause,
}

/// Causes of errors that have a number of their own: `TPED_*` of `atmi.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Cause {
    /// Nothing beyond the text.
    Unnamed = 0,
    /// The thread has no handler of unsolicited messages.
    NoHandler = 3,
    /// No context with a handler has this address.
    NoClient = 4,
    /// The pool is that of another user.
    NoPermission = 7,
}

impl Fault {
    pub(crate) fn new(number: c_int, detail: impl Into<String>) -> Self {
        Self { number, detail: detail.into(), cause: Cause::Unnamed }
    }

    /// The same with a cause that has a number.
    pub(crate) fn by(self, cause: Cause) -> Self {
        Self { cause, ..self }
    }

    /// An argument that is not valid.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(4, detail)
    }
}

/// An error of `ubf.h`.
#[derive(Debug, PartialEq)]
pub(crate) enum UbfFault {
    /// What the fields said.
    Ubf(UbfError),
    /// Anything else: its number and what was wrong.
    Other(c_int, String),
}

impl UbfFault {
    /// BMALLOC: there is no memory for what a function gives out.
    pub(crate) fn no_memory() -> Self {
        const BMALLOC: c_int = 10;
        Self::Other(BMALLOC, "no memory for the value".to_owned())
    }
}

impl From<UbfError> for UbfFault {
    fn from(error: UbfError) -> Self {
        Self::Ubf(error)
    }
}

/// Room for one message with its NUL; what is longer is cut.
///
/// Its address is given out as that of a text of C, so the bytes come first.
#[derive(Clone, Debug)]
#[repr(C)]
struct Text {
    bytes: [u8; TEXT_BYTES],
    len: usize,
}

/// The errors of a thread, or of a context of its own (`tpnewctxt`), with the texts that were given out last.
///
/// Addresses in it are given out, so it stays where it is.
#[derive(Debug)]
pub(crate) struct Errors {
    tperrno: Cell<c_int>,
    /// What tperrordetail gives.
    cause: Cell<c_int>,
    tpurcode: Cell<c_long>,
    detail: RefCell<Text>,
    berror: Cell<c_int>,
    /// `Nerror`, as it was looked at last.
    nerror: Cell<c_int>,
    /// What `Berror` says, kept until it is asked for in words: a missing field is nothing special.
    ubf_error: Cell<Option<UbfError>>,
    ubf_detail: RefCell<Text>,
    /// What tpstrerror, tpecodestr, Bstrerror and tpstrerrordetail gave out last.
    given: [RefCell<Text>; 4],
}

impl Errors {
    pub(crate) const fn new() -> Self {
        Self {
            tperrno: Cell::new(0),
            cause: Cell::new(0),
            tpurcode: Cell::new(0),
            detail: RefCell::new(Text::new()),
            berror: Cell::new(0),
            nerror: Cell::new(0),
            ubf_error: Cell::new(None),
            ubf_detail: RefCell::new(Text::new()),
            given: [const { RefCell::new(Text::new()) }; 4],
        }
    }

    pub(crate) fn tperrno(&self) -> c_int {
        self.tperrno.get()
    }
}

thread_local! {
    static OF_THREAD: Errors = const { Errors::new() };
    /// Those of the context that a function with a context in front works in; NULL for the thread's.
    static OF_CONTEXT: Cell<*const Errors> = const { Cell::new(std::ptr::null()) };
}

/// Lets `work` use the errors that count at the moment.
fn errors<T>(work: impl FnOnce(&Errors) -> T) -> T {
    let of_context = OF_CONTEXT.get();
    if of_context.is_null() {
        return OF_THREAD.with(work);
    }
    // SAFETY: they stay until others count, and no other thread uses them: the promise of `exchange`.
    work(unsafe { &*of_context })
}

/// Has other errors count on this thread, NULL for its own; those that did.
///
/// # Safety
/// Until others count they stay where they are, and no other thread uses them.
pub(crate) unsafe fn exchange(errors: *const Errors) -> *const Errors {
    OF_CONTEXT.replace(errors)
}

/// Does the work of a function of `atmi.h`; an error becomes `tperrno`, and the result `failed`.
pub(crate) fn atmi<T>(failed: T, work: impl FnOnce() -> Result<T, Fault>) -> T {
    errors(|errors| {
        errors.tperrno.set(0);
        errors.cause.set(0);
    });
    match caught(work) {
        Ok(Ok(done)) => done,
        Ok(Err(fault)) => {
            set_fault(&fault);
            failed
        }
        Err(panicked) => {
            set_fault(&Fault::new(TPESYSTEM, panicked));
            failed
        }
    }
}

/// Does the work of a function that programs call between a call and their look at its error: success leaves the
/// thread's last error as it was.
pub(crate) fn atmi_if_failed<T>(failed: T, work: impl FnOnce() -> Result<T, Fault>) -> T {
    let fault = match caught(work) {
        Ok(Ok(done)) => return done,
        Ok(Err(fault)) => fault,
        Err(panicked) => Fault::new(TPESYSTEM, panicked),
    };
    set_fault(&fault);
    failed
}

/// Does the work of a function that says by its result alone whether it succeeded, and leaves the error of the one
/// before in any case: a line for the log must not decide what the program does next.
pub(crate) fn by_result<T>(failed: T, work: impl FnOnce() -> Result<T, Fault>) -> T {
    match caught(work) {
        Ok(Ok(done)) => done,
        Ok(Err(_)) | Err(_) => failed,
    }
}

/// Lets functions of the program run in between, whose calls are not those that it asks the error of.
pub(crate) fn keeping(work: impl FnOnce()) {
    let (number, cause, urcode, detail) = errors(|errors| {
        let detail = errors.detail.borrow().clone();
        (errors.tperrno.get(), errors.cause.get(), errors.tpurcode.get(), detail)
    });
    work();
    errors(|errors| {
        errors.tperrno.set(number);
        errors.cause.set(cause);
        errors.tpurcode.set(urcode);
        errors.detail.replace(detail);
    });
}

/// Does the work of a function that cannot fail, and leaves the error of the one before.
pub(crate) fn quietly(work: impl FnOnce()) {
    // There is no report of a panic; the hook has printed it.
    let _ = caught(work);
}

/// Does the work of a function of `ubf.h`; an error becomes `Berror`, and the result `failed`.
pub(crate) fn ubf<T>(failed: T, work: impl FnOnce() -> Result<T, UbfFault>) -> T {
    const BEUNIX: c_int = 8;
    errors(|errors| errors.berror.set(0));
    let fault = match caught(work) {
        Ok(Ok(done)) => return done,
        Ok(Err(fault)) => fault,
        Err(panicked) => UbfFault::Other(BEUNIX, panicked),
    };
    errors(|errors| match fault {
        UbfFault::Ubf(error) => {
            errors.berror.set(error.number());
            errors.ubf_error.set(Some(error));
        }
        UbfFault::Other(number, detail) => {
            errors.berror.set(number);
            errors.ubf_error.set(None);
            errors.ubf_detail.borrow_mut().replace(format_args!("{detail}"));
        }
    });
    failed
}

/// Makes `fault` the thread's last one.
fn set_fault(fault: &Fault) {
    errors(|errors| {
        errors.tperrno.set(fault.number);
        errors.cause.set(fault.cause as c_int);
        errors.detail.borrow_mut().replace(format_args!("{}", fault.detail));
    });
}

/// `tperrno` of this thread in words.
pub(crate) fn stderr_tail() -> String {
    errors(|errors| {
        format!("{}: {}", name_of(errors.tperrno.get()), errors.detail.borrow().words())
    })
}

/// The service's own code, which `tpurcode` shows.
pub(crate) fn set_urcode(code: c_long) {
    errors(|errors| errors.tpurcode.set(code));
}

fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // What the work was about may be half done, as after any error; nothing of it is kept here.
    catch_unwind(AssertUnwindSafe(work)).map_err(|panicked| {
        let said = panicked.downcast_ref::<&str>().copied();
        let said = said.or_else(|| panicked.downcast_ref::<String>().map(String::as_str));
        format!("a fault in the library: {}", said.unwrap_or("no words"))
    })
}

impl Text {
    const fn new() -> Self {
        Self { bytes: [0; TEXT_BYTES], len: 0 }
    }

    fn replace(&mut self, words: fmt::Arguments<'_>) {
        self.len = 0;
        // It takes what fits and never refuses.
        let _ = self.write_fmt(words);
        self.bytes[self.len] = 0;
    }

    fn words(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..self.len]).into_owned()
    }
}

impl Write for Text {
    fn write_str(&mut self, words: &str) -> fmt::Result {
        let room = TEXT_BYTES - 1 - self.len;
        let taken = &words.as_bytes()[..words.len().min(room)];
        self.bytes[self.len..self.len + taken.len()].copy_from_slice(taken);
        self.len += taken.len();
        Ok(())
    }
}

/// Puts `words` into one of the texts that are given out; it stays until the next of its kind.
fn given(kind: usize, words: fmt::Arguments<'_>) -> *mut c_char {
    errors(|errors| {
        errors.given[kind].borrow_mut().replace(words);
        errors.given[kind].as_ptr().cast()
    })
}

/// Numbers and names of `tperrno`.
const NAMES: [(c_int, &str); 27] = [
    (0, "TPMINVAL"),
    (1, "TPEABORT"),
    (2, "TPEBADDESC"),
    (3, "TPEBLOCK"),
    (4, "TPEINVAL"),
    (5, "TPELIMIT"),
    (6, "TPENOENT"),
    (7, "TPEOS"),
    (8, "TPEPERM"),
    (9, "TPEPROTO"),
    (10, "TPESVCERR"),
    (11, "TPESVCFAIL"),
    (12, "TPESYSTEM"),
    (13, "TPETIME"),
    (14, "TPETRAN"),
    (15, "TPGOTSIG"),
    (16, "TPERMERR"),
    (17, "TPEITYPE"),
    (18, "TPEOTYPE"),
    (19, "TPERELEASE"),
    (20, "TPEHAZARD"),
    (21, "TPEHEURISTIC"),
    (22, "TPEEVENT"),
    (23, "TPEMATCH"),
    (24, "TPEDIAGNOSTIC"),
    (25, "TPEMIB"),
    (30, "TPINITFAIL"),
];

fn name_of(number: c_int) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == number).map_or("unknown", |(_, name)| name)
}

/// Where `tperrno` of this thread stands.
#[unsafe(no_mangle)]
pub extern "C" fn pollux_tperrno_address() -> *mut c_int {
    errors(|errors| errors.tperrno.as_ptr())
}

/// Where `tpurcode` of this thread stands.
#[unsafe(no_mangle)]
pub extern "C" fn pollux_tpurcode_address() -> *mut c_long {
    errors(|errors| errors.tpurcode.as_ptr())
}

/// Where `Berror` of this thread stands.
#[unsafe(no_mangle)]
pub extern "C" fn pollux_berror_address() -> *mut c_int {
    errors(|errors| errors.berror.as_ptr())
}

/// Where `Nerror` of this thread stands: the last error of `atmi.h` as one of `nerror.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pollux_nerror_address() -> *mut c_int {
    const NEUNIX: c_int = 3;
    const NEINVAL: c_int = 4;
    const NESYSTEM: c_int = 5;
    const TPEINVAL: c_int = 4;
    const TPEOS: c_int = 7;
    errors(|errors| {
        errors.nerror.set(match errors.tperrno.get() {
            0 => 0,
            TPEINVAL => NEINVAL,
            TPEOS => NEUNIX,
            _ => NESYSTEM,
        });
        errors.nerror.as_ptr()
    })
}

/// The text of such a number, with what was wrong.
#[unsafe(no_mangle)]
pub extern "C" fn Nstrerror(error: c_int) -> *mut c_char {
    let name = match error {
        0 => "NMINVAL",
        3 => "NEUNIX",
        4 => "NEINVAL",
        5 => "NESYSTEM",
        _ => "unknown",
    };
    if error == 0 {
        return given(0, format_args!("{error}:{name}"));
    }
    let detail = errors(|errors| errors.detail.borrow().words());
    given(0, format_args!("{error}:{name} (last error {error}: {detail})"))
}

/// The cause of the thread's last error as a number, 0 where it has none; that error stays.
#[unsafe(no_mangle)]
pub extern "C" fn tperrordetail(flags: c_long) -> c_int {
    if flags == 0 {
        return errors(|errors| errors.cause.get());
    }
    atmi(-1, || Err(Fault::invalid(format!("flags {flags:#x}: there are none, give 0"))))
}

/// The text of such a number.
#[unsafe(no_mangle)]
pub extern "C" fn tpstrerrordetail(detail: c_int, flags: c_long) -> *mut c_char {
    if flags != 0 || !(0..=TPED_MAXVAL).contains(&detail) {
        set_fault(&Fault::invalid(format!(
            "{detail} with flags {flags:#x}: expected 0 to {TPED_MAXVAL}, and flags 0"
        )));
        return std::ptr::null_mut();
    }
    let words = match detail {
        0 => "no further cause",
        3 => "the thread has no handler of unsolicited messages: tpsetunsol sets one",
        4 => "the client has ended, or it has no handler of unsolicited messages",
        7 => "the pool is that of another user, and not open to a group of this one",
        _ => "pollux does not give this cause",
    };
    given(3, format_args!("{detail}: {words}"))
}

/// `<n>:<NAME> (last error <n>: detail)`; the brackets only when the thread's last error is `error`.
#[unsafe(no_mangle)]
pub extern "C" fn tpstrerror(error: c_int) -> *mut c_char {
    let name = name_of(error);
    if error == 0 || errors(Errors::tperrno) != error {
        return given(0, format_args!("{error}:{name}"));
    }
    let detail = errors(|errors| errors.detail.borrow().words());
    given(0, format_args!("{error}:{name} (last error {error}: {detail})"))
}

/// The name of an error number.
#[unsafe(no_mangle)]
pub extern "C" fn tpecodestr(error: c_int) -> *mut c_char {
    given(1, format_args!("{}", name_of(error)))
}

/// `<n>:<NAME> (last error <n>: detail)`; in the brackets the meaning when it is not the last one.
#[unsafe(no_mangle)]
pub extern "C" fn Bstrerror(error: c_int) -> *mut c_char {
    let (name, meaning) = describe(error).unwrap_or(("unknown", "no error of ubf.h"));
    if error == 0 || errors(|errors| errors.berror.get()) != error {
        return given(2, format_args!("{error}:{name} ({meaning})"));
    }
    match errors(|errors| errors.ubf_error.get()) {
        Some(detail) => given(2, format_args!("{error}:{name} (last error {error}: {detail})")),
        None => {
            let detail = errors(|errors| errors.ubf_detail.borrow().words());
            given(2, format_args!("{error}:{name} (last error {error}: {detail})"))
        }
    }
}

/// The name of an error number of fields.
#[unsafe(no_mangle)]
pub extern "C" fn Becodestr(error: c_int) -> *mut c_char {
    given(1, format_args!("{}", describe(error).map_or("unknown", |(name, _)| name)))
}

/// Writes the thread's last error of fields to standard error, with a word of the program's in front.
///
/// # Safety
/// A sound `word` is that of a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn B_error(word: *const c_char) {
    let last = errors(|errors| errors.berror.get());
    // SAFETY: it gives out a text with a NUL that stays until the next call.
    let said = unsafe { CStr::from_ptr(Bstrerror(last)) }.to_string_lossy().into_owned();
    quietly(|| {
        // SAFETY: the caller's promise.
        let word = unsafe { caller::text(word) }.unwrap_or_default();
        // There is no report of a standard error that cannot be written.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("{}: {said}\n", word.to_string_lossy()),
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: *mut c_char) -> String {
        // SAFETY: the functions above give out texts with a NUL, and this thread asks for no other.
        unsafe { CStr::from_ptr(text) }.to_str().expect("utf-8").to_owned()
    }

    #[test]
    fn an_error_has_words_until_the_next_call() {
        let failed = atmi(-1, || Err(Fault::new(6, "no process offers service X")));
        assert_eq!((failed, errors(Errors::tperrno)), (-1, 6));
        let expected = "6:TPENOENT (last error 6: no process offers service X)";
        assert_eq!(words(tpstrerror(6)), expected);
        assert_eq!(words(tpstrerror(13)), "13:TPETIME");
        assert_eq!(words(tpecodestr(13)), "TPETIME");
        assert_eq!(words(tpstrerror(-7)), "-7:unknown");
        assert_eq!((atmi(-1, || Ok(3)), errors(Errors::tperrno)), (3, 0));
    }

    #[test]
    fn an_error_stays_while_lines_are_logged() {
        atmi(-1, || Err(Fault::new(6, "no process offers service X")));
        assert_eq!(by_result(-1, || Ok(3)), 3);
        assert_eq!(by_result(-1, || Err(Fault::new(7, "the disk is full"))), -1);
        assert_eq!(by_result(-1, || panic!("as tested")), -1);
        assert_eq!(atmi_if_failed(-1, || Ok(3)), 3);
        let expected = "6:TPENOENT (last error 6: no process offers service X)";
        assert_eq!(words(tpstrerror(6)), expected);
        assert_eq!(atmi_if_failed(-1, || Err(Fault::new(7, "the disk is full"))), -1);
        assert_eq!(errors(Errors::tperrno), 7);
    }

    #[test]
    fn a_panic_is_an_error_and_long_texts_are_cut() {
        let failed = atmi(-1, || -> Result<i32, Fault> { panic!("{}", "x".repeat(9_999)) });
        assert_eq!((failed, errors(Errors::tperrno)), (-1, TPESYSTEM));
        assert_eq!(words(tpstrerror(TPESYSTEM)).len(), TEXT_BYTES - 1);
    }

    #[test]
    fn errors_of_fields_keep_to_themselves() {
        assert_eq!(ubf(-1, || Err(UbfError::BadField { id: 0 }.into())), -1);
        assert_eq!((errors(|errors| errors.berror.get()), errors(Errors::tperrno)), (6, 0));
        assert!(words(Bstrerror(6)).starts_with("6:BBADFLD (last error 6: 0 is not a field id"));
        assert_eq!(words(Bstrerror(5)), "5:BNOTPRES (the field is not present)");
        assert_eq!(ubf(-1, || Err(UbfFault::Other(12, "gone".to_owned()))), -1);
        assert!(words(Bstrerror(12)).ends_with("(last error 12: gone)"));
    }
}
