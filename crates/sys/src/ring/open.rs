//! Opening a ring: which set-up flags and sizes this kernel and its limits allow, and what
//! forbids io_uring where it is forbidden.
//!
//! A ring is restricted to the requests that this crate makes, before its first one
//! (`IORING_REGISTER_RESTRICTIONS`): filters of system calls do not see the requests of a ring, so a process that
//! gets hold of one could open files and connect by it. That the call succeeded proves nothing: each ring tries
//! whether a request and a registration that are not allowed are refused ([`try_restriction`]).

use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;
use std::time::Duration;
use std::{fmt, fs, io, ptr};

use io_uring::register::Restriction;
use io_uring::squeue::Flags;
use io_uring::types::Timespec;
use io_uring::{Builder, EnterFlags, IoUring, opcode};

use crate::descriptors::NONE_LEFT;
use crate::poll_select::{MASK_BYTES, SignalMask};

/// Entries of the two queues; both are powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Requests that fit between two system calls.
    pub submission: u32,
    /// Completions that fit before the kernel has to keep some back; not less than
    /// `submission`.
    pub completion: u32,
}

/// The smallest submission queue tried when memory is short: below it every few requests cost
/// a system call, and another mechanism is the better choice.
const SUBMISSION_MIN: u32 = 64;

/// What was granted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// Names of the set-up flags in force.
    pub flags: &'static [&'static str],
    /// Queue sizes in force.
    pub sizes: Sizes,
    /// Whether the kernel refuses every request and registration of a kind that this crate does not make (EACCES),
    /// as was tried with one of each.
    pub is_restricted: bool,
    /// Better flags and faster ways that the kernel refused, and sizes that memory did not allow.
    pub refused: Vec<String>,
}

/// How the note of [`Setup::notes`] begins that says why a ring is not restricted.
pub const UNRESTRICTED: &str = "no restriction of its requests";
/// What [`Setup::notes`] says of a ring that is restricted.
pub const RESTRICTED: &str =
    "requests of other kinds than the loop makes are refused by the kernel";

impl Setup {
    /// What was granted and what was not, a line each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let Self { flags, sizes: Sizes { submission, completion }, is_restricted, refused } = self;
        let flags = if flags.is_empty() { "none".to_owned() } else { flags.join("+") };
        let granted = [
            format!("ring flags {flags}"),
            format!("{submission} submissions, {completion} completions"),
        ];
        let restricted = is_restricted.then(|| RESTRICTED.to_owned());
        granted.into_iter().chain(restricted).chain(refused.iter().cloned()).collect()
    }
}

/// The requests that a ring takes once it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Allowed {
    /// Kinds of requests.
    pub(super) requests: &'static [u8],
    /// Calls of `io_uring_register(2)`; never none, as Linux 7.0 and later take that for all.
    pub(super) registrations: &'static [u8],
    /// What is said on a kernel that lacks what such a ring needs.
    pub(super) too_old: &'static str,
}

/// What may stand beside a kind in a request of this crate.
const FLAGS: Flags = Flags::SKIP_SUCCESS.union(Flags::BUFFER_SELECT);

/// Of rings whose requests reference no memory.
pub(super) const NUMBERS: Allowed = Allowed {
    requests: &[opcode::PollAdd::CODE, opcode::PollRemove::CODE, opcode::AsyncCancel::CODE],
    registrations: &[UNREGISTER_EVENTFD],
    too_old: "this kernel's io_uring is too old: Linux 5.17 or newer is needed",
};

/// Of rings that receive, accept and send. Nothing opens, connects or runs anything.
pub(super) const STREAMS: Allowed = Allowed {
    requests: &[
        opcode::PollAdd::CODE,
        opcode::AsyncCancel::CODE,
        opcode::Accept::CODE,
        opcode::Recv::CODE,
        opcode::Send::CODE,
        opcode::Close::CODE,
    ],
    registrations: &[REGISTER_RING_FDS as u8, UNREGISTER_RING_FDS as u8, REGISTER_BUFFER_RING],
    too_old: "this kernel's io_uring is too old to receive and send: Linux 6.1 or newer is needed",
};

/// `IORING_UNREGISTER_EVENTFD` of the kernel's interface, which finds nothing to do (ENXIO): no ring of this crate
/// has an eventfd.
const UNREGISTER_EVENTFD: u8 = 5;
/// `IORING_REGISTER_PBUF_RING` of the kernel's interface.
const REGISTER_BUFFER_RING: u8 = 22;

/// io_uring can't be used by this process.
#[derive(Debug)]
pub struct RingUnavailable {
    /// What forbids it, and what would allow it.
    pub reason: String,
    /// What the kernel said.
    pub cause: io::Error,
}

impl fmt::Display for RingUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for RingUnavailable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Set-ups from the best to the one that every kernel knows.
///
/// * SINGLE_ISSUER with DEFER_TASKRUN (6.1): completions are finished by the thread that asks
///   for them, when it asks; nothing interrupts it.
/// * COOP_TASKRUN (5.19): no interrupt either, but any system call of the thread does the work.
/// * TASKRUN_FLAG (5.19): shows in shared memory that such work is waiting.
/// * SUBMIT_ALL (5.18): a faulty request does not hold up those behind it.
/// * NO_SQARRAY (6.6): saves one indirection for each request.
const CHAIN: [&[&str]; 4] = [
    &["SINGLE_ISSUER", "DEFER_TASKRUN", "TASKRUN_FLAG", "SUBMIT_ALL", "NO_SQARRAY"],
    &["SINGLE_ISSUER", "DEFER_TASKRUN", "TASKRUN_FLAG", "SUBMIT_ALL"],
    &["COOP_TASKRUN", "TASKRUN_FLAG", "SUBMIT_ALL"],
    &[],
];

/// Set-ups in which any thread may enter, and what another thread has armed completes without it.
const SHARED_CHAIN: [&[&str]; 2] = [&["SUBMIT_ALL"], &[]];

pub(super) fn open(wanted: Sizes, allowed: Allowed) -> Result<(IoUring, Setup), RingUnavailable> {
    open_first(&CHAIN, wanted, allowed)
}

pub(super) fn open_shared(wanted: Sizes) -> Result<(IoUring, Setup), RingUnavailable> {
    open_first(&SHARED_CHAIN, wanted, NUMBERS)
}

fn open_first(
    chain: &[&'static [&'static str]],
    wanted: Sizes,
    allowed: Allowed,
) -> Result<(IoUring, Setup), RingUnavailable> {
    assert!(wanted.completion >= wanted.submission, "more requests than completions fit");
    let mut refused = Vec::new();
    for &flags in chain {
        match open_sized(flags, wanted, &mut refused) {
            Ok((io, sizes)) => {
                require_features(&io, allowed.too_old)?;
                let (mut io, is_asked_for) = match restrict(&io, allowed) {
                    Ok(()) => (io, true),
                    // A ring that waits for its restrictions takes nothing without them.
                    Err(error) => {
                        refused.push(format!("{UNRESTRICTED}: {error}"));
                        drop(io);
                        let again = builder(flags, sizes).build(sizes.submission);
                        let explained = |cause| RingUnavailable { reason: explain(&cause), cause };
                        (again.map_err(explained)?, false)
                    }
                };
                require_enter(&io)?;
                let passed = if is_asked_for { try_restriction(&mut io) } else { None };
                refused.extend(passed.map(|what| {
                    format!(
                        "no restriction of its requests: the kernel accepted it and takes {what}"
                    )
                }));
                let is_restricted = is_asked_for && passed.is_none();
                return Ok((io, Setup { flags, sizes, is_restricted, refused }));
            }
            Err(cause) if cause.raw_os_error() == Some(libc::EINVAL) => {
                refused.push(format!("this kernel does not know {}", flags.join("+")));
            }
            Err(cause) => return Err(RingUnavailable { reason: explain(&cause), cause }),
        }
    }
    let cause = io::Error::from_raw_os_error(libc::EINVAL);
    Err(RingUnavailable { reason: allowed.too_old.to_owned(), cause })
}

/// Opens with `flags`, with half the size again and again while memory is short.
fn open_sized(
    flags: &[&str],
    wanted: Sizes,
    refused: &mut Vec<String>,
) -> io::Result<(IoUring, Sizes)> {
    let mut sizes = wanted;
    loop {
        match builder(flags, sizes).setup_r_disabled().build(sizes.submission) {
            Err(error) if is_short_of_memory(&error) && sizes.submission > SUBMISSION_MIN => {
                let Sizes { submission, completion } = sizes;
                refused.push(format!("no memory for {submission} + {completion} entries"));
                sizes = Sizes { submission: submission / 2, completion: completion / 2 };
            }
            outcome => return outcome.map(|io| (io, sizes)),
        }
    }
}

fn builder(flags: &[&str], sizes: Sizes) -> Builder {
    let mut builder = IoUring::builder();
    // Not `dontfork`: a child would have a gap where the ring was, and dropping its copy would
    // unmap whatever the child had put there.
    builder.setup_cqsize(sizes.completion);
    for &flag in flags {
        match flag {
            "SINGLE_ISSUER" => builder.setup_single_issuer(),
            "DEFER_TASKRUN" => builder.setup_defer_taskrun(),
            "COOP_TASKRUN" => builder.setup_coop_taskrun(),
            "TASKRUN_FLAG" => builder.setup_taskrun_flag(),
            "SUBMIT_ALL" => builder.setup_submit_all(),
            "NO_SQARRAY" => builder.setup_no_sqarray(),
            other => unreachable!("{other} stands in CHAIN only"),
        };
    }
    builder
}

/// Leaves a ring that is not in use yet only what it is meant for, and puts it to use.
fn restrict(io: &IoUring, allowed: Allowed) -> io::Result<()> {
    let requests = allowed.requests.iter().map(|code| Restriction::sqe_op(*code));
    let registrations = allowed.registrations.iter().map(|code| Restriction::register_op(*code));
    let flags = std::iter::once(Restriction::sqe_flags_allowed(FLAGS.bits()));
    let mut all: Vec<Restriction> = requests.chain(registrations).chain(flags).collect();
    io.submitter().register_restrictions(&mut all)?;
    io.submitter().register_enable_rings()
}

/// What a restricted ring takes that it should refuse: tries a request and a registration that no ring of this
/// crate makes, and that do nothing where they are taken. The ring is empty again afterwards.
fn try_restriction(io: &mut IoUring) -> Option<&'static str> {
    let is_refused = |errno: Option<i32>| errno == Some(libc::EACCES);
    let registered = io.submitter().unregister_buffers();
    if !registered.is_err_and(|error| is_refused(error.raw_os_error())) {
        return Some("registrations of every kind");
    }
    let nothing = opcode::Nop::new().build();
    // SAFETY: the request references no memory.
    let pushed = unsafe { io.submission().push(&nothing) };
    pushed.expect("an empty queue takes one");
    // An interrupted wait may have submitted it already: then only its completion is missing.
    let entered = loop {
        match io.submit_and_wait(1) {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            outcome => break outcome,
        }
    };
    let result = io.completion().next().map(|completion| completion.result());
    let is_refused = entered.is_ok() && is_refused(result.map(|result| -result));
    (!is_refused).then_some("requests of every kind")
}

fn is_short_of_memory(error: &io::Error) -> bool {
    // mmap(2) says EAGAIN where locked memory is bounded for mappings too.
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN))
}

/// Polls are updated (5.13), waits have a timeout (5.11), and what went well stays silent
/// (5.17, the newest of the three).
fn require_features(io: &IoUring, too_old: &str) -> Result<(), RingUnavailable> {
    let params = io.params();
    if params.is_feature_skip_cqe_on_success() && params.is_feature_ext_arg() {
        return Ok(());
    }
    let cause = io::Error::from_raw_os_error(libc::EINVAL);
    Err(RingUnavailable { reason: too_old.to_owned(), cause })
}

/// Filters forbid calls one by one, and a ring that can't be entered is none. With nothing to
/// submit and nothing to wait for the call has no other reason to fail.
fn require_enter(io: &IoUring) -> Result<(), RingUnavailable> {
    let tried = Door::of(io).enter(0, 0, EnterFlags::empty(), None);
    tried.map(drop).map_err(|cause| {
        let call = "io_uring_enter";
        let reason =
            if is_forbidden(&cause) { forbidden(call) } else { format!("{call}: {cause}") };
        RingUnavailable { reason, cause }
    })
}

/// What `io_uring_setup(2)` means by its errno, with the remedy.
fn explain(cause: &io::Error) -> String {
    match cause.raw_os_error() {
        Some(libc::EPERM) => explain_eperm(&sysctl()),
        Some(libc::ENOSYS) if has_seccomp_filter() => forbidden("io_uring_setup"),
        Some(libc::ENOSYS) => "the kernel was built without CONFIG_IO_URING".to_owned(),
        Some(libc::ENOMEM) => format!(
            "RLIMIT_MEMLOCK is too low for a ring of {SUBMISSION_MIN} entries, which counts as \
             locked memory: raise it (ulimit -l) or grant CAP_IPC_LOCK"
        ),
        Some(libc::EMFILE | libc::ENFILE) => NONE_LEFT.to_owned(),
        _ => format!("io_uring_setup: {cause}"),
    }
}

/// What filters answer with: neither is an answer of the kernel's own to an open ring.
pub(super) fn is_forbidden(cause: &io::Error) -> bool {
    matches!(cause.raw_os_error(), Some(libc::EPERM | libc::ENOSYS))
}

pub(super) fn forbidden(call: &str) -> String {
    format!(
        "a seccomp filter forbids {call}, as container runtimes do by default: allow \
         io_uring_setup, io_uring_enter and io_uring_register in its profile"
    )
}

const SYSCTL: &str = "/proc/sys/kernel/io_uring_disabled";

/// The status of the calling thread (`proc_pid_status(5)`).
const STATUS: &str = "/proc/thread-self/status";

/// What may forbid rings, by `/proc`.
#[derive(Debug)]
struct Reasons {
    io_uring_disabled: String,
    /// Whether the kernel filters the system calls of this thread.
    has_seccomp_filter: bool,
}

/// As they were before a sandbox: [`note_reasons`].
static NOTED: OnceLock<Reasons> = OnceLock::new();

/// Notes what may forbid rings in a process that is about to give up its sight of `/proc`: a ring that is refused
/// later is explained by it. Called before the sandbox. What can still be read then wins over it.
pub fn note_reasons() {
    let noted = Reasons {
        io_uring_disabled: sysctl_in(fs::read_to_string(SYSCTL).ok()).unwrap_or_default(),
        has_seccomp_filter: is_filtered_in(fs::read_to_string(STATUS).ok()).unwrap_or_default(),
    };
    // A second call finds the same, or what a sandbox hides.
    let _ = NOTED.set(noted);
}

/// What the sysctl says, or said when it could be read.
fn sysctl() -> String {
    let noted = || NOTED.get().map(|noted| noted.io_uring_disabled.clone());
    sysctl_in(fs::read_to_string(SYSCTL).ok()).or_else(noted).unwrap_or_default()
}

fn sysctl_in(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned())
}

fn explain_eperm(io_uring_disabled: &str) -> String {
    match io_uring_disabled {
        "2" => "the sysctl kernel.io_uring_disabled = 2 forbids it to every process: set it to 0"
            .to_owned(),
        "1" => "the sysctl kernel.io_uring_disabled = 1 forbids it without CAP_SYS_ADMIN: set \
                it to 0, or join the group in kernel.io_uring_group"
            .to_owned(),
        _ => forbidden("io_uring_setup"),
    }
}

/// Whether the kernel filters the system calls of this thread, or did when that could be read.
fn has_seccomp_filter() -> bool {
    let noted = || NOTED.get().map(|noted| noted.has_seccomp_filter);
    is_filtered_in(fs::read_to_string(STATUS).ok()).or_else(noted).unwrap_or_default()
}

fn is_filtered_in(status: Option<String>) -> Option<bool> {
    let is_filter = |line: &str| line.starts_with("Seccomp:") && line.ends_with('2');
    status.map(|status| status.lines().any(is_filter))
}

/// The way into one ring, for the thread that opened it.
///
/// Both kinds of ring enter by it: by descriptor or by a registered index, which spares the kernel the look-up
/// and the reference count of the descriptor, which threads of one process share. It holds the ring open,
/// though: the owner must give it back before it drops the ring.
#[derive(Debug)]
pub(super) struct Door {
    ring: RawFd,
    registered: Option<u32>,
    /// Flags of every call.
    flags: EnterFlags,
}

/// `struct io_uring_rsrc_update` of the kernel's interface.
#[repr(C)]
struct Registration {
    index: u32,
    reserved: u32,
    ring: u64,
}

/// `struct io_uring_getevents_arg` of the kernel's interface: addresses as numbers.
#[repr(C)]
struct Extended {
    mask: u64,
    mask_len_bytes: u32,
    reserved: u32,
    time: u64,
}

const REGISTER_RING_FDS: libc::c_uint = 20;
const UNREGISTER_RING_FDS: libc::c_uint = 21;
/// The first argument of the call is a registered index.
const ENTER_REGISTERED_RING: u32 = 1 << 4;
/// Asks the kernel to choose the index.
const ANY_INDEX: u32 = u32::MAX;

impl Door {
    /// The way in by the descriptor of `io`. A thread that waits there waits for the network, not for a disk: where
    /// the kernel tells them apart (Linux 6.15) an idle server puts no pressure on I/O.
    pub(super) fn of(io: &IoUring) -> Self {
        let has_flag = io.params().is_feature_no_iowait();
        let flags = if has_flag { EnterFlags::NO_IOWAIT } else { EnterFlags::empty() };
        Self { ring: io.as_raw_fd(), registered: None, flags }
    }

    /// The way in by a descriptor of anything.
    #[cfg(test)]
    pub(super) fn to(ring: RawFd) -> Self {
        Self { ring, registered: None, flags: EnterFlags::empty() }
    }

    /// Changes to a registered index (Linux 5.18; a thread has 16 of them).
    ///
    /// # Errors
    /// EINVAL: the kernel is too old. EBUSY: no index is free. The descriptor stays in use.
    pub(super) fn register(&mut self) -> io::Result<()> {
        let mut wanted = Registration { index: ANY_INDEX, reserved: 0, ring: self.ring as u64 };
        self.registration(REGISTER_RING_FDS, &mut wanted)?;
        self.registered = Some(wanted.index);
        Ok(())
    }

    /// Changes back to the descriptor, so that closing it closes the ring.
    pub(super) fn unregister(&mut self) {
        let Some(index) = self.registered.take() else { return };
        let mut gone = Registration { index, reserved: 0, ring: 0 };
        // A fork's child has no registered index, and there is nothing to undo then.
        let _ = self.registration(UNREGISTER_RING_FDS, &mut gone);
    }

    /// `io_uring_enter(2)`: hands `queued` requests over and says how many were taken.
    ///
    /// Safe, because what the queued requests reference was answered for when they were queued.
    pub(super) fn enter(
        &self,
        queued: u32,
        completions_min: u32,
        flags: EnterFlags,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        self.enter_by(queued, completions_min, flags, timeout, None)
    }

    /// As `enter`, with a signal mask for the time of the call.
    pub(super) fn enter_masked(
        &self,
        queued: u32,
        completions_min: u32,
        flags: EnterFlags,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        self.enter_by(queued, completions_min, flags, timeout, Some(mask))
    }

    fn enter_by(
        &self,
        queued: u32,
        completions_min: u32,
        flags: EnterFlags,
        timeout: Option<Duration>,
        mask: Option<&SignalMask>,
    ) -> io::Result<usize> {
        if timeout.is_none() && mask.is_none() {
            return self.call(queued, completions_min, flags, None);
        }
        let time = timeout.map(Timespec::from);
        let extended = Extended {
            mask: SignalMask::pointer(mask) as u64,
            mask_len_bytes: MASK_BYTES as u32,
            reserved: 0,
            time: time.as_ref().map_or(ptr::null(), ptr::from_ref) as u64,
        };
        self.call(queued, completions_min, flags | EnterFlags::EXT_ARG, Some(&extended))
    }

    fn call(
        &self,
        queued: u32,
        completions_min: u32,
        flags: EnterFlags,
        extended: Option<&Extended>,
    ) -> io::Result<usize> {
        let flags = flags | self.flags;
        let (ring, flags) = match self.registered {
            Some(index) => (libc::c_long::from(index), flags.bits() | ENTER_REGISTERED_RING),
            None => (libc::c_long::from(self.ring), flags.bits()),
        };
        let (args, size) = match extended {
            Some(extended) => (ptr::from_ref(extended), size_of::<Extended>()),
            None => (ptr::null(), 0),
        };
        let number = libc::SYS_io_uring_enter;
        // SAFETY: the call's own argument is null, or with EXT_ARG the very structure that the
        // flag announces, which with its time and mask lives in the frames above until the call is
        // over. What queued requests reference is kept valid by the rings that queued them.
        let taken =
            unsafe { libc::syscall(number, ring, queued, completions_min, flags, args, size) };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }

    fn registration(&self, code: libc::c_uint, what: &mut Registration) -> io::Result<()> {
        let what = ptr::from_mut(what);
        // SAFETY: both codes read and write one `io_uring_rsrc_update`, which is what `what`
        // points to, during the call only.
        let done =
            unsafe { libc::syscall(libc::SYS_io_uring_register, self.ring, code, what, 1_u32) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use io_uring::squeue;
    use pollux_testing::or_skip;

    use super::*;

    /// `IORING_UNREGISTER_BUFFERS` of the kernel's interface.
    const UNREGISTER_BUFFERS: u8 = 1;

    #[test]
    fn eperm_names_the_sysctl_or_the_filter() {
        assert!(explain_eperm("2").contains("every process"));
        assert!(explain_eperm("1").contains("io_uring_group"));
        assert!(explain_eperm("0").contains("seccomp"));
    }

    #[test]
    fn granted_sizes_and_flags_are_named() {
        let wanted = Sizes { submission: 64, completion: 256 };
        let Some((io, setup)) = or_skip(open(wanted, NUMBERS)) else { return };
        assert_eq!(setup.sizes, wanted);
        assert_eq!(io.params().sq_entries(), 64);
        assert_eq!(io.params().cq_entries(), 256);
        assert_eq!(io.params().is_setup_single_issuer(), setup.flags.contains(&"SINGLE_ISSUER"));
    }

    #[test]
    fn a_restriction_that_lets_something_through_is_not_claimed() {
        let leaky_calls = Allowed { registrations: &[UNREGISTER_BUFFERS], ..NUMBERS };
        let leaky_requests = Allowed { requests: &[opcode::Nop::CODE], ..NUMBERS };
        for (allowed, passes) in [
            (NUMBERS, None),
            (leaky_calls, Some("registrations of every kind")),
            (leaky_requests, Some("requests of every kind")),
        ] {
            for chain in [&CHAIN[..], &SHARED_CHAIN[..]] {
                let sizes = Sizes { submission: 8, completion: 32 };
                let opened = open_first(chain, sizes, allowed);
                let Some((mut io, setup)) = or_skip(opened) else { return };
                assert_eq!(setup.is_restricted, passes.is_none(), "{setup:?}");
                assert_eq!(setup.notes().iter().any(|note| note == RESTRICTED), passes.is_none());
                let said = setup.refused.iter().find(|line| line.contains("accepted it and takes"));
                assert_eq!(said.is_some(), passes.is_some(), "{setup:?}");
                assert!(passes.is_none_or(|passes| said.is_some_and(|said| said.contains(passes))));
                assert!(io.submission().is_empty() && io.completion().is_empty());
            }
        }
    }

    /// Each of them has a rule that no code here keeps: memory that is read until a second completion, a descriptor
    /// that is not one, a worker thread, a request that breaks when the one in front is cut short.
    #[test]
    fn a_ring_that_receives_and_sends_refuses_every_other_request_and_flag() {
        let sizes = Sizes { submission: 64, completion: 256 };
        let Some((mut io, setup)) = or_skip(open(sizes, STREAMS)) else { return };
        assert!(setup.flags.contains(&"DEFER_TASKRUN"), "{setup:?}");
        assert!(!io.params().is_setup_sqpoll(), "{setup:?}");
        if !setup.is_restricted {
            return pollux_testing::skip("this kernel restricts no ring");
        }
        // All that Linux 6.1 knows.
        let all = 0..=opcode::SendMsgZc::CODE;
        let others = all.filter(|code| !STREAMS.requests.contains(code)).map(|code| (code, 0));
        let refused = Flags::all().difference(FLAGS).iter();
        let flagged = refused.map(|flag| (opcode::Send::CODE, flag.bits()));
        for (code, flags) in others.chain(flagged) {
            let mut bytes = [0_u8; size_of::<squeue::Entry>()];
            (bytes[0], bytes[1]) = (code, flags);
            // No descriptor.
            bytes[4..8].copy_from_slice(&(-1_i32).to_ne_bytes());
            // SAFETY: an entry consists of integers and unions of integers: all bytes are one.
            let entry = unsafe { std::mem::transmute::<[u8; 64], squeue::Entry>(bytes) };
            // SAFETY: the request references no memory: address and length are 0.
            unsafe { io.submission().push(&entry) }.expect("an empty queue takes one");
            io.submit_and_wait(1).expect("entered");
            let result = io.completion().next().map(|completion| completion.result());
            assert_eq!(result, Some(-libc::EACCES), "request {code} with flags {flags:#x}");
        }
    }

    #[test]
    fn every_kind_of_ring_names_a_registration() {
        // A list without any restricts none from Linux 7.0 on.
        assert!(!NUMBERS.registrations.is_empty() && !STREAMS.registrations.is_empty());
    }
}
