//! `ndebug.h`: lines of programs with a level, to a file or to standard error; `userlog.h`: lines in the log of
//! the day.
//!
//! What is written is decided by the process (`[@debug]` of NDRX_CCONFIG or the file of NDRX_DEBUG_CONF, above that
//! NDRX_DEBUG_STR, tplogconfig) and by the thread above it. A file is opened for each line, so that it may be moved away; a line is one write to a file
//! that is opened for appending. Programs log before they look at the error of a call: what writes a line leaves that
//! error, even where the line cannot be written.

use std::cell::RefCell;
use std::env;
use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_long, c_void};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use pollux_xatmi::common_config::{DEBUG_VARIABLE, debug_words_of_file};
use pollux_xatmi::error::Code;
use pollux_xatmi::{ubf, view};

use crate::fault::{self, Fault};
use crate::fields::reading;
use crate::{caller, fields, startup};

/// The level of a process that says nothing: all lines but dumps.
const LEVEL_DEFAULT: c_int = 5;
const LEVEL_MAX: c_int = 6;
/// Bytes that a dump shows at most.
const DUMP_BYTES_MAX: usize = 64 << 10;

/// Parts of a program that log, as flags of tplogconfig; those of the library log nothing.
const OF_PROCESS: c_int = 0x4;
const OF_THREAD: c_int = 0x8;
const OF_REQUEST: c_int = 0x10;
const OF_LIBRARY: c_int = 0x1e3;

/// What is said of lines in one place.
#[derive(Clone, Debug, Default)]
struct Settings {
    level: Option<c_int>,
    /// Empty for standard error.
    path: Option<PathBuf>,
}

thread_local! {
    static OF_THIS_THREAD: RefCell<Settings> = const { RefCell::new(Settings { level: None, path: None }) };
    static REQUEST_FILE: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// What was said of the lines of one thread, and the file of the request at hand.
#[derive(Debug, Default)]
pub(crate) struct OfThread(Settings, Option<PathBuf>);

/// Makes these those of the thread; the ones before.
pub(crate) fn exchange_of_thread(OfThread(settings, file): OfThread) -> OfThread {
    OfThread(OF_THIS_THREAD.replace(settings), REQUEST_FILE.replace(file))
}

fn process() -> &'static Mutex<Settings> {
    static SETTINGS: OnceLock<Mutex<Settings>> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        // What makes no sense there is passed over: a program does not end for its log.
        let mut settings = Settings::of_words(&words_of_files());
        settings.take_over(Settings::of_words(&env::var("NDRX_DEBUG_STR").unwrap_or_default()));
        Mutex::new(settings)
    })
}

/// What files say of the log of this program: `[@debug]` of NDRX_CCONFIG, else the file of NDRX_DEBUG_CONF.
fn words_of_files() -> String {
    let variable = |name: &str| env::var(name).ok();
    let program = program_name();
    if let Ok(Some(config)) = startup::common_config()
        && let Some(words) = config.debug_words(&program, &variable)
    {
        return words;
    }
    let Some(file) = variable(DEBUG_VARIABLE).filter(|file| !file.is_empty()) else {
        return String::new();
    };
    debug_words_of_file(Path::new(&file), &program, &variable).unwrap_or_else(|why| {
        // Once, as this is read once; lines go to standard error then.
        let _ = writeln!(io::stderr(), "pollux: {DEBUG_VARIABLE}: {why}");
        String::new()
    })
}

/// The file name of the program.
fn program_name() -> String {
    let program = env::args_os().next().unwrap_or_default();
    Path::new(&program).file_name().unwrap_or(OsStr::new("?")).display().to_string()
}

impl Settings {
    /// `tp=LEVEL file=PATH`, in any order; words of other parts are passed over.
    fn read(text: &str) -> Result<Self, String> {
        let mut settings = Self::default();
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some(("tp", level)) => settings.level = Some(level_of(level.trim_matches('"'))?),
                Some(("file", path)) => {
                    settings.path = Some(PathBuf::from(path.trim_matches('"')));
                }
                Some(_) => {}
                None => return Err(format!("`{word}`: words are NAME=VALUE, as in tp=5 file=log")),
            }
        }
        Ok(settings)
    }

    /// The same, of which words are passed over that make no sense.
    fn of_words(text: &str) -> Self {
        let mut settings = Self::default();
        for word in text.split_whitespace() {
            settings.take_over(Self::read(word).unwrap_or_default());
        }
        settings
    }

    fn take_over(&mut self, newer: Self) {
        self.level = newer.level.or(self.level);
        self.path = newer.path.or(self.path.take());
    }
}

/// Has the process write lines up to this level, as an operator asked for.
pub(crate) fn set_level_of_process(level: c_int) {
    process().lock().unwrap_or_else(PoisonError::into_inner).level = Some(level);
}

fn level_of(text: &str) -> Result<c_int, String> {
    let level = text.parse().ok().filter(|level| (0..=LEVEL_MAX).contains(level));
    level.ok_or_else(|| format!("level `{text}`: 0 (nothing) to 6 (dumps) are expected"))
}

/// What holds for this thread: its level and its file, empty for standard error.
fn holds() -> (c_int, PathBuf) {
    let of_thread = OF_THIS_THREAD.try_with(|own| own.borrow().clone()).unwrap_or_default();
    let request = REQUEST_FILE.try_with(|path| path.borrow().clone()).ok().flatten();
    let of_process = process().lock().unwrap_or_else(PoisonError::into_inner);
    let level = of_thread.level.or(of_process.level).unwrap_or(LEVEL_DEFAULT);
    let path = request.or(of_thread.path).or_else(|| of_process.path.clone());
    (level, path.unwrap_or_default())
}

/// The highest level that is written for this thread, and its file, empty for standard error; none where a line of `level`
/// is not written. -1 is any level.
pub(crate) fn file_for(level: c_int) -> Option<(c_int, PathBuf)> {
    let (wanted, path) = holds();
    (level == -1 || level <= wanted).then_some((wanted, path))
}

/// The highest level that is written for this thread.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pollux_log_level() -> c_int {
    fault::by_result(0, || Ok(holds().0))
}

/// What holds for this thread where a line of this level is written.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tplogqinfo(level: c_int, flags: c_long) -> c_long {
    const OF_ANY: c_long = 0x7;
    const OF_DETAILS: c_long = 0x8;
    const EVEN_IF_NOT_WRITTEN: c_long = 0x10;
    fault::atmi_if_failed(-1, || {
        if flags & OF_ANY == 0 || flags & !(OF_ANY | OF_DETAILS | EVEN_IF_NOT_WRITTEN) != 0 {
            return Err(Fault::invalid(
                "flags are TPLOGQI_GET_NDRX, TPLOGQI_GET_UBF or TPLOGQI_GET_TP, and TPLOGQI_EVAL_...",
            ));
        }
        let (wanted, _) = holds();
        if level > wanted && flags & EVEN_IF_NOT_WRITTEN == 0 {
            return Ok(0);
        }
        let is_of_request = REQUEST_FILE.try_with(|path| path.borrow().is_some()).unwrap_or(false);
        let of_thread = OF_THIS_THREAD.try_with(|own| own.borrow().clone()).unwrap_or_default();
        let facility = if is_of_request {
            OF_REQUEST
        } else if of_thread.level.is_some() || of_thread.path.is_some() {
            OF_THREAD
        } else {
            OF_PROCESS
        };
        Ok(c_long::from(facility) | c_long::from(wanted) << 24)
    })
}

/// Appends a line if the level is wanted.
fn log(level: c_int, place: Option<(&CStr, c_long)>, text: &[u8]) -> Result<(), Fault> {
    let (wanted, path) = holds();
    if level > wanted {
        return Ok(());
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let failed = |error: io::Error| {
        Fault::new(Code::Os.number(), format!("the log {}: {error}", path.display()))
    };
    let local = local_time(now.as_secs()).map_err(failed)?;
    let program = program_name();
    // SAFETY: it has no conditions.
    let thread = unsafe { libc::gettid() };
    let year = local.tm_year + 1900;
    let month = local.tm_mon + 1;
    let day = local.tm_mday;
    let hour = local.tm_hour;
    let minute = local.tm_min;
    let second = local.tm_sec;
    let pid = std::process::id();
    let milli = now.subsec_millis();
    let mut line = format!(
        "t:{program}:{level}:{pid}:{thread}:{year:04}{month:02}{day:02}:\
         {hour:02}{minute:02}{second:02}{milli:03}:"
    )
    .into_bytes();
    if let Some((file, number)) = place {
        let file = Path::new(OsStr::from_bytes(file.to_bytes())).file_name().unwrap_or_default();
        line.extend(file.as_bytes());
        line.extend(format!(":{number}:").bytes());
    }
    line.extend(text.strip_suffix(b"\n").unwrap_or(text));
    line.push(b'\n');
    if path.as_os_str().is_empty() {
        return io::stderr().write_all(&line).map_err(failed);
    }
    let file = OpenOptions::new().create(true).append(true).open(&path);
    file.and_then(|mut file| file.write_all(&line)).map_err(failed)
}

/// # Safety
/// A sound `text` is that of a text that stays while the result is used.
unsafe fn message<'a>(text: *const c_char) -> Result<&'a CStr, Fault> {
    // SAFETY: the caller's promise.
    unsafe { caller::text(text) }.ok_or_else(|| Fault::invalid("the pointer to the text is null"))
}

/// Logs a text.
///
/// # Safety
/// A sound `text` is that of a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tplog(level: c_int, text: *const c_char) -> c_int {
    fault::by_result(-1, || {
        // SAFETY: the caller's promise.
        log(level, None, unsafe { message(text) }?.to_bytes()).map(|()| 0)
    })
}

/// Logs a text with the place in the source.
///
/// # Safety
/// Sound `file` and `text` are those of texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tplogex(
    level: c_int,
    file: *const c_char,
    line: c_long,
    text: *const c_char,
) -> c_int {
    fault::by_result(-1, || {
        // SAFETY: the caller's promise.
        let place = unsafe { caller::text(file) }.map(|file| (file, line));
        // SAFETY: the caller's promise.
        log(level, place, unsafe { message(text) }?.to_bytes()).map(|()| 0)
    })
}

/// The bytes of a dump.
///
/// # Safety
/// A sound `data` is that of `len` bytes that no other thread writes while the result is used.
unsafe fn dumped<'a>(data: *const c_void, len: c_int) -> Result<&'a [u8], Fault> {
    let len = usize::try_from(len).map_err(|_| Fault::invalid("the length is below 0"))?;
    if !caller::is_sound(data) && len > 0 {
        return Err(Fault::invalid("the pointer to the bytes is null"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { caller::bytes(data.cast(), len.min(DUMP_BYTES_MAX)) })
}

/// One line of a dump: where, 16 bytes, and what of them can be printed.
fn dump_line(out: &mut String, sign: &str, at: usize, bytes: &[u8]) {
    let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let print = |byte: &u8| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' };
    let text: String = bytes.iter().map(print).collect();
    let _ = write!(out, "\n{sign}{at:06x}  {:<47}  {text}", hex.join(" "));
}

/// Logs bytes.
///
/// # Safety
/// A sound `comment` is that of a text, a sound `data` that of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tplogdump(
    level: c_int,
    comment: *const c_char,
    data: *const c_void,
    len: c_int,
) -> c_int {
    fault::by_result(-1, || {
        // SAFETY: the caller's promise.
        let mut text = unsafe { message(comment) }?.to_string_lossy().into_owned();
        // SAFETY: the caller's promise.
        for (row, bytes) in unsafe { dumped(data, len) }?.chunks(16).enumerate() {
            dump_line(&mut text, "  ", row * 16, bytes);
        }
        log(level, None, text.as_bytes()).map(|()| 0)
    })
}

/// Logs where two pieces of memory of the same length differ.
///
/// # Safety
/// As for [`tplogdump`], with two pieces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tplogdumpdiff(
    level: c_int,
    comment: *const c_char,
    one: *const c_void,
    other: *const c_void,
    len: c_int,
) -> c_int {
    fault::by_result(-1, || {
        // SAFETY: the caller's promise.
        let mut text = unsafe { message(comment) }?.to_string_lossy().into_owned();
        // SAFETY: the caller's promise.
        let one = unsafe { dumped(one, len) }?;
        // SAFETY: the caller's promise.
        let other = unsafe { dumped(other, len) }?;
        for (row, (one, other)) in one.chunks(16).zip(other.chunks(16)).enumerate() {
            if one != other {
                dump_line(&mut text, "< ", row * 16, one);
                dump_line(&mut text, "> ", row * 16, other);
            }
        }
        log(level, None, text.as_bytes()).map(|()| 0)
    })
}

/// Logs the fields of a buffer.
///
/// # Safety
/// A sound `title` is that of a text; when `fields` is that of a buffer of fields, no other thread changes it
/// meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tplogprintubf(
    level: c_int,
    title: *const c_char,
    fields: *const c_char,
) -> c_int {
    fault::by_result(-1, || {
        // SAFETY: the caller's promise.
        let title = unsafe { message(title) }?.to_string_lossy().into_owned();
        // SAFETY: the caller's promise.
        let printed =
            ubf::print(unsafe { reading(fields) }?, fields::table_or_empty(), &view::LINES)?;
        log(level, None, format!("{title}\n{printed}").as_bytes()).map(|()| 0)
    })
}

/// Changes what is logged and where: of the process, the thread, or the request at hand. A level of
/// -1 stays as it is, and so does a file for NULL.
///
/// # Safety
/// Sound texts are those of texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tplogconfig(
    parts: c_int,
    level: c_int,
    settings: *const c_char,
    _module: *const c_char,
    file: *const c_char,
) -> c_int {
    fault::atmi_if_failed(-1, || {
        if parts == 0 || parts & !(OF_PROCESS | OF_THREAD | OF_REQUEST | OF_LIBRARY) != 0 {
            return Err(Fault::invalid(format!("{parts:#x}: give LOG_FACILITY_ flags")));
        }
        // SAFETY: the caller's promise.
        let words = unsafe { caller::text(settings) }.unwrap_or_default().to_string_lossy();
        let mut newer = Settings::read(&words).map_err(Fault::invalid)?;
        if level != -1 {
            newer.level = Some(level_of(&level.to_string()).map_err(Fault::invalid)?);
        }
        // SAFETY: the caller's promise.
        if let Some(file) = unsafe { caller::text(file) }.filter(|file| !file.is_empty()) {
            newer.path = Some(PathBuf::from(OsStr::from_bytes(file.to_bytes())));
        }
        if let Some(path) = newer.path.as_ref().filter(|path| !path.as_os_str().is_empty()) {
            check_file(path)?;
        }
        if parts & OF_REQUEST != 0 {
            REQUEST_FILE.set(newer.path.clone().filter(|path| !path.as_os_str().is_empty()));
        }
        if parts & OF_THREAD != 0 {
            OF_THIS_THREAD.with_borrow_mut(|own| own.take_over(newer.clone()));
        }
        if parts & OF_PROCESS != 0 {
            process().lock().unwrap_or_else(PoisonError::into_inner).take_over(newer);
        }
        Ok(0)
    })
}

fn check_file(path: &Path) -> Result<(), Fault> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    let failed = |error| format!("the log {}: {error}", path.display());
    opened.map(drop).map_err(|error| Fault::new(Code::Os.number(), failed(error)))
}

/// Lines of this thread go to a file.
pub(crate) fn begin_request(path: PathBuf) -> Result<(), Fault> {
    check_file(&path)?;
    REQUEST_FILE.set(Some(path));
    Ok(())
}

/// Lines of this thread go to a file until tplogclosereqfile.
///
/// # Safety
/// A sound `file` is that of a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tplogsetreqfile_direct(file: *const c_char) -> c_int {
    fault::atmi_if_failed(-1, || {
        // SAFETY: the caller's promise.
        let path = PathBuf::from(OsStr::from_bytes(unsafe { message(file) }?.to_bytes()));
        begin_request(path).map(|()| 0)
    })
}

/// 1 with the file that tplogsetreqfile_direct set, else 0.
///
/// # Safety
/// A sound `file` is that of `size` bytes that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tploggetreqfile(file: *mut c_char, size: c_int) -> c_int {
    fault::atmi_if_failed(-1, || {
        let Some(path) = REQUEST_FILE.with_borrow(Clone::clone) else { return Ok(0) };
        let path = path.as_os_str().as_bytes();
        let room = usize::try_from(size).unwrap_or(0);
        if !caller::is_sound(file) {
            return Ok(1);
        }
        if path.len() >= room {
            let detail = format!("the name needs {} bytes, there are {room}", path.len() + 1);
            return Err(Fault::new(Code::Limit.number(), detail));
        }
        // SAFETY: the caller's promise; the name and its NUL are no more than that.
        let to = unsafe { caller::bytes_mut(file, path.len() + 1) };
        to[..path.len()].copy_from_slice(path);
        to[path.len()] = 0;
        Ok(1)
    })
}

/// Lines go to the file of the thread or the process again.
#[unsafe(no_mangle)]
pub extern "C" fn tplogclosereqfile() {
    fault::quietly(|| REQUEST_FILE.set(None));
}

/// What tplogconfig set for this thread holds no longer.
#[unsafe(no_mangle)]
pub extern "C" fn tplogclosethread() {
    fault::quietly(|| OF_THIS_THREAD.set(Settings::default()));
}

/// The name of the program in the log of the day, where it sets one, as `proc_name = argv[0]`.
#[unsafe(no_mangle)]
pub static proc_name: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Appends a line to the log of the day; the bytes that were written, or -1 with errno.
///
/// # Safety
/// A sound `text` is that of a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pollux_userlog(text: *const c_char) -> c_int {
    let mut written = Err(libc::EINVAL);
    fault::quietly(|| {
        // SAFETY: the caller's promise.
        if let Some(text) = unsafe { caller::text(text) } {
            written = append(text).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
        }
    });
    match written {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(errno) => {
            // SAFETY: it has no conditions.
            let place = unsafe { libc::__errno_location() };
            // SAFETY: the place is the thread's own errno.
            unsafe { *place = errno };
            -1
        }
    }
}

fn append(text: &CStr) -> io::Result<usize> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let local = local_time(now.as_secs())?;
    let year = local.tm_year + 1900;
    let month = local.tm_mon + 1;
    let day = local.tm_mday;
    let date = format!("{year:04}{month:02}{day:02}");
    let variable = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let path = match variable("ULOGPFX") {
        Some(mut prefix) => {
            prefix.push(format!(".{month:02}{day:02}{:02}", year.rem_euclid(100)));
            PathBuf::from(prefix)
        }
        None => {
            PathBuf::from(variable("NDRX_ULOG").unwrap_or_default()).join(format!("ULOG.{date}"))
        }
    };
    let hour = local.tm_hour;
    let minute = local.tm_min;
    let second = local.tm_sec;
    let time = format!("{hour:02}{minute:02}{second:02}{:03}", now.subsec_millis());
    // SAFETY: a program that sets it leaves a text there.
    let named = unsafe { caller::text(proc_name.load(Ordering::Relaxed)) };
    let program = named.map_or_else(program_name, |name| {
        Path::new(OsStr::from_bytes(name.to_bytes()))
            .file_name()
            .unwrap_or_default()
            .display()
            .to_string()
    });
    let mut line = format!("{}:{date}:{time}:{program}:", std::process::id()).into_bytes();
    let text = text.to_bytes();
    line.extend(text.strip_suffix(b"\n").unwrap_or(text));
    line.push(b'\n');
    OpenOptions::new().create(true).append(true).open(path)?.write_all(&line)?;
    Ok(line.len())
}

/// The local time of a second since 1970, by the time zone of the program.
fn local_time(second: u64) -> io::Result<libc::tm> {
    let second = libc::time_t::try_from(second).map_err(io::Error::other)?;
    let mut local = MaybeUninit::uninit();
    // SAFETY: the second is a live local, and so is what the time is written to.
    let found = unsafe { libc::localtime_r(&raw const second, local.as_mut_ptr()) };
    if found.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: localtime_r(3) has filled it, as it returned its address.
    Ok(unsafe { local.assume_init() })
}
