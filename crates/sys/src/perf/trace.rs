//! What threads do, call by call: tracepoints with their raw fields, and context switches.
//!
//! `pollux run --attach` opens a [`Trace`] on the threads of a process that already runs, drains it some
//! fifty times a second and follows each thread through its records. Nothing is stopped and nothing is
//! changed in the process: the kernel writes a record where a thread passes a tracepoint. A trace that
//! is not drained in time loses records, and says so at the place where they are missing.
//!
//! Every event is opened for each thread on each CPU and inherited by threads and processes that those
//! start. All events of a CPU share one buffer, so its records are in order; those of several CPUs are
//! merged by their time.
//!
//! Sources: `perf_event_open(2)`; `include/uapi/linux/perf_event.h` for the layout of records.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::counter::positive;
use super::event::{self, Attribute, DISABLE, ENABLE, KIND_TRACEPOINT, Ring, SET_OUTPUT, flag};
use super::sampler::online_cpus;
use super::tracepoint::{Tracepoint, tracepoint_ids};

/// Data bytes of each CPU's buffer: some 40,000 records of a system call.
const RING_BYTES: usize = 4 << 20;
/// Words that a record keeps of a tracepoint's fields: a number and six arguments.
const WORDS: usize = 7;

/// `PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_IDENTIFIER`: what every record has.
const SAMPLE_COMMON: u64 = 1 << 1 | 1 << 2 | 1 << 16;
/// `PERF_SAMPLE_CALLCHAIN`.
const SAMPLE_CALLCHAIN: u64 = 1 << 5;
/// `PERF_SAMPLE_RAW`.
const SAMPLE_RAW: u64 = 1 << 10;
/// `PERF_CONTEXT_USER`: what follows in a call chain is the program's.
const CONTEXT_USER: u64 = -512_i64 as u64;
/// Below this a value in a call chain is a marker, not an address.
const CONTEXT_MAX: u64 = -4095_i64 as u64;

/// `PERF_RECORD_LOST`.
const RECORD_LOST: u32 = 2;
/// `PERF_RECORD_SAMPLE`.
const RECORD_SAMPLE: u32 = 9;
/// `PERF_RECORD_SWITCH`.
const RECORD_SWITCH: u32 = 14;
/// `PERF_RECORD_MISC_SWITCH_OUT`.
const MISC_OUT: u16 = 1 << 13;
/// `PERF_RECORD_MISC_SWITCH_OUT_PREEMPT`.
const MISC_PREEMPTED: u16 = 1 << 14;

/// Where a thread goes to sleep: its call chain names the place in the program.
const SLEEP: Tracepoint = Tracepoint { group: "sched", name: "sched_switch" };
/// `TASK_REPORT` without running and preempted: the thread waits for something.
const SLEEP_FILTER: &str = "prev_state & 255";

/// A tracepoint to be followed.
#[derive(Clone, Copy, Debug)]
pub struct Followed {
    /// Which one.
    pub point: Tracepoint,
    /// What the kernel asks of its fields before it writes a record; the language is that of the trace
    /// file system's `filter` files.
    pub filter: Option<&'static str>,
    /// Whether there is no trace without it. Others are left out where the kernel has no such call.
    pub is_required: bool,
    /// Whether it is recorded only while [`Trace::sample`] has it so.
    pub is_sampled: bool,
}

/// A thing that a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// On the kernel's scheduler clock, in nanoseconds: to be compared with those of other records only.
    pub time_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// What.
    pub what: What,
}

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It passed a tracepoint: its place among those that are followed, and the words behind the common
    /// fields. Of a system call: its number, then its arguments on entry or its result on exit.
    Passed(usize, [u64; WORDS]),
    /// It goes to sleep; where its program was, if the kernel could say.
    Sleeps(Option<u64>),
    /// It left the CPU; it kept waiting for it, if it was preempted.
    Left {
        /// It was still runnable.
        is_preempted: bool,
    },
    /// It has a CPU again.
    Came,
    /// So many records found no room, of any thread. What threads did meanwhile is not known.
    Lost(u64),
}

/// Why a trace could not be opened.
#[derive(Debug)]
pub enum TraceError {
    /// The numbers of tracepoints could not be read.
    Tracepoints(io::Error),
    /// The kernel has no such tracepoint, without which there is no trace.
    Missing(Tracepoint),
    /// The threads may not be followed.
    Refused(io::Error),
    /// All of the threads ended meanwhile.
    Gone,
}

/// Threads that are followed, with all that they start. Any thread may own it.
#[derive(Debug)]
pub struct Trace {
    rings: Vec<Ring>,
    events: Vec<OwnedFd>,
    /// Those of tracepoints that are sampled.
    sampled: Vec<OwnedFd>,
    /// What the kernel's number of an event means.
    kinds: HashMap<u64, Kind>,
    bytes: Vec<u8>,
    /// Taken out, and not handed on yet: records of another CPU may belong between them.
    pending: Vec<Record>,
    /// All records up to here have been taken out.
    horizon_ns: u64,
}

/// What is in a sample of an event.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Raw fields of a followed tracepoint.
    Point(usize),
    /// A call chain.
    Sleep,
}

/// An event that is opened on each thread and CPU.
struct Opening {
    kind: Kind,
    attribute: Attribute,
    filter: Option<&'static str>,
    is_sampled: bool,
}

impl Trace {
    /// Opens every event on the given threads; nothing is recorded before [`Trace::enable`].
    /// It takes a descriptor for each tracepoint on each thread and CPU.
    ///
    /// # Errors
    /// See [`TraceError`]; `EMFILE` where there are too few descriptors.
    pub fn of_threads(tids: &[u32], followed: &[Followed]) -> Result<Self, TraceError> {
        let openings = openings(followed)?;
        let mut trace = Self {
            rings: Vec::new(),
            events: Vec::new(),
            sampled: Vec::new(),
            kinds: HashMap::new(),
            bytes: Vec::new(),
            pending: Vec::new(),
            horizon_ns: 0,
        };
        for cpu in online_cpus().map_err(TraceError::Refused)? {
            let cpu = i32::try_from(cpu).expect("the kernel numbers CPUs below 2^13");
            trace.add_cpu(tids, cpu, &openings).map_err(TraceError::Refused)?;
        }
        if trace.rings.is_empty() { Err(TraceError::Gone) } else { Ok(trace) }
    }

    /// Starts to record all that is not sampled.
    ///
    /// # Errors
    /// Those of `ioctl(2)`.
    pub fn enable(&self) -> io::Result<()> {
        request_all(&self.events, ENABLE)
    }

    /// Starts or ends to record what is sampled: a call whose event is off costs the program a fourth.
    ///
    /// # Errors
    /// Those of `ioctl(2)`.
    pub fn sample(&self, is_on: bool) -> io::Result<()> {
        request_all(&self.sampled, if is_on { ENABLE } else { DISABLE })
    }

    /// Ends recording; what was recorded stays for [`Trace::finish`].
    ///
    /// # Errors
    /// Those of `ioctl(2)`.
    pub fn disable(&self) -> io::Result<()> {
        request_all(&self.events, DISABLE).and(self.sample(false))
    }

    /// Hands on, in order of time, all records that no other record can still come before: those up to
    /// the newest one of the drain before.
    pub fn drain(&mut self, each: impl FnMut(Record)) {
        let horizon_ns = self.horizon_ns;
        self.take();
        self.horizon_ns =
            self.pending.iter().map(|record| record.time_ns).fold(horizon_ns, u64::max);
        self.hand_on(horizon_ns, each);
    }

    /// Hands on all that is left.
    pub fn finish(&mut self, each: impl FnMut(Record)) {
        self.take();
        self.hand_on(u64::MAX, each);
    }

    fn take(&mut self) {
        for ring in &mut self.rings {
            self.bytes.clear();
            ring.drain_into(&mut self.bytes);
            parse(&self.bytes, &self.kinds, &mut self.pending);
        }
    }

    fn hand_on(&mut self, horizon_ns: u64, each: impl FnMut(Record)) {
        // Stable: records of one CPU with the same time stay in their order.
        self.pending.sort_by_key(|record| record.time_ns);
        let end = self.pending.partition_point(|record| record.time_ns <= horizon_ns);
        self.pending.drain(..end).for_each(each);
    }

    fn add_cpu(&mut self, tids: &[u32], cpu: i32, openings: &[Opening]) -> io::Result<()> {
        let mut owner = None;
        for tid in tids {
            for opening in openings {
                let event = match event::open(opening.attribute, positive(*tid)?, cpu) {
                    Ok(event) => event,
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => break,
                    Err(error) => return Err(error),
                };
                if let Some(filter) = opening.filter {
                    event::filter(event.as_fd(), filter)?;
                }
                self.kinds.insert(event::id(event.as_fd())?, opening.kind);
                self.join(&mut owner, event.as_fd())?;
                if opening.is_sampled {
                    self.sampled.push(event);
                } else {
                    self.events.push(event);
                }
            }
        }
        Ok(())
    }

    /// The first event of a CPU has the buffer, which the others write to.
    fn join(&mut self, owner: &mut Option<i32>, event: BorrowedFd<'_>) -> io::Result<()> {
        if let Some(first) = *owner {
            // Descriptors are never negative, so the conversion keeps the number.
            return event::request(event, SET_OUTPUT, first as libc::c_ulong);
        }
        self.rings.push(Ring::map(event, RING_BYTES)?);
        *owner = Some(event.as_raw_fd());
        Ok(())
    }
}

fn request_all(events: &[OwnedFd], request: libc::Ioctl) -> io::Result<()> {
    events.iter().try_for_each(|event| event::request(event.as_fd(), request, 0))
}

fn openings(followed: &[Followed]) -> Result<Vec<Opening>, TraceError> {
    let points: Vec<_> = followed.iter().map(|one| one.point).chain([SLEEP]).collect();
    let ids = tracepoint_ids(&points).map_err(TraceError::Tracepoints)?;
    let mut openings = Vec::with_capacity(points.len());
    for (place, (point, id)) in points.into_iter().zip(ids).enumerate() {
        let id = match id {
            Ok(id) => id,
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(TraceError::Tracepoints(error));
            }
            Err(_) if followed.get(place).is_some_and(|one| !one.is_required) => continue,
            Err(_) => return Err(TraceError::Missing(point)),
        };
        let flags = flag::DISABLED | flag::INHERIT | flag::SAMPLE_ID_ALL;
        let common = Attribute {
            kind: KIND_TRACEPOINT,
            config: id,
            sample_frequency_hz: 1, // without the frequency flag: a period of one
            sample_type: SAMPLE_COMMON,
            flags,
            ..Attribute::default()
        };
        openings.push(match followed.get(place) {
            Some(one) => Opening {
                kind: Kind::Point(place),
                attribute: Attribute { sample_type: SAMPLE_COMMON | SAMPLE_RAW, ..common },
                filter: one.filter,
                is_sampled: one.is_sampled,
            },
            // The same event reports every switch, to and from the CPU.
            None => Opening {
                kind: Kind::Sleep,
                attribute: Attribute {
                    sample_type: SAMPLE_COMMON | SAMPLE_CALLCHAIN,
                    flags: flags | flag::CONTEXT_SWITCH | flag::EXCLUDE_CALLCHAIN_KERNEL,
                    ..common
                },
                filter: Some(SLEEP_FILTER),
                is_sampled: false,
            },
        });
    }
    Ok(openings)
}

/// Appends the records among `bytes`.
fn parse(mut bytes: &[u8], kinds: &HashMap<u64, Kind>, records: &mut Vec<Record>) {
    while let Some((header, _)) = bytes.split_first_chunk::<8>() {
        let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let misc = u16::from_ne_bytes([header[4], header[5]]);
        let len_bytes = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        let Some((record, rest)) = bytes.split_at_checked(len_bytes.max(8)) else { return };
        let body = record[8..].as_chunks::<8>().0;
        records.extend(match kind {
            RECORD_SAMPLE => sample(body, kinds),
            RECORD_SWITCH => {
                let is_out = misc & MISC_OUT != 0;
                let left = What::Left { is_preempted: misc & MISC_PREEMPTED != 0 };
                with_trailer(body, if is_out { left } else { What::Came })
            }
            RECORD_LOST => body.get(1).and_then(|lost| with_trailer(body, What::Lost(word(lost)))),
            _ => None,
        });
        bytes = rest;
    }
}

/// Identifier, process and thread, time; then a call chain or raw fields.
fn sample(body: &[[u8; 8]], kinds: &HashMap<u64, Kind>) -> Option<Record> {
    let [identifier, ids, time, rest @ ..] = body else { return None };
    let what = match kinds.get(&word(identifier))? {
        Kind::Sleep => {
            let (len, chain) = rest.split_first()?;
            let chain = chain.get(..usize::try_from(word(len)).ok()?)?;
            let mut user = chain.iter().map(word).skip_while(|ip| *ip != CONTEXT_USER).skip(1);
            What::Sleeps(user.next().filter(|ip| *ip < CONTEXT_MAX))
        }
        Kind::Point(place) => {
            // Four bytes of length, then eight of fields that all tracepoints have, then their own.
            let raw = rest.as_flattened().get(4 + 8..)?;
            let mut words = [0; WORDS];
            for (to, from) in words.iter_mut().zip(raw.as_chunks::<8>().0) {
                *to = word(from);
            }
            // The number of a system call has four bytes; those behind it are not written.
            words[0] &= u64::from(u32::MAX);
            What::Passed(*place, words)
        }
    };
    Some(of_thread(word(ids), word(time), what))
}

/// A record that ends in process and thread, time, identifier.
fn with_trailer(body: &[[u8; 8]], what: What) -> Option<Record> {
    let [.., ids, time, _identifier] = body else { return None };
    Some(of_thread(word(ids), word(time), what))
}

fn of_thread(ids: u64, time_ns: u64, what: What) -> Record {
    // The kernel writes two numbers of 32 bits, the process first.
    Record { time_ns, pid: ids as u32, tid: (ids >> 32) as u32, what }
}

fn word(bytes: &[u8; 8]) -> u64 {
    u64::from_ne_bytes(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u16, body: &[u64]) -> Vec<u8> {
        let len = u16::try_from(8 + 8 * body.len()).expect("short");
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(len.to_ne_bytes());
        bytes.extend(body.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    fn kinds() -> HashMap<u64, Kind> {
        HashMap::from([(70, Kind::Point(3)), (71, Kind::Sleep)])
    }

    const IDS: u64 = 7 | 9 << 32;

    fn parsed(bytes: &[u8]) -> Vec<(u64, What)> {
        let mut records = Vec::new();
        parse(bytes, &kinds(), &mut records);
        assert!(records.iter().all(|record| (record.pid, record.tid) == (7, 9)), "{records:?}");
        records.into_iter().map(|record| (record.time_ns, record.what)).collect()
    }

    #[test]
    fn fields_of_a_tracepoint_are_read_behind_those_of_all() {
        // The length, the type of four bytes; process; the number; six arguments; four bytes of filling.
        let mut raw = 60_u32.to_ne_bytes().to_vec();
        raw.extend([1, 2, 3, 4, 7, 0, 0, 0]);
        raw.extend(233_u32.to_ne_bytes());
        raw.extend([0xff; 4]);
        raw.extend([10_u64, 11, 12, 13, 14, 15].iter().flat_map(|word| word.to_ne_bytes()));
        raw.extend([0; 4]);
        let words = raw.as_chunks::<8>().0;
        assert_eq!(words.len() * 8, raw.len());
        let body: Vec<u64> = [70, IDS, 500].into_iter().chain(words.iter().map(word)).collect();
        let found = parsed(&record(RECORD_SAMPLE, 0, &body));
        assert_eq!(found, [(500, What::Passed(3, [233, 10, 11, 12, 13, 14, 15]))]);
    }

    #[test]
    fn a_sleep_has_the_first_address_of_the_program() {
        let chain = [71, IDS, 5, 4, 0xffff_ffff_8000_0000, CONTEXT_USER, 0x1234, 0x99];
        let mut bytes = record(RECORD_SAMPLE, 0, &chain);
        bytes.extend(record(RECORD_SAMPLE, 0, &[71, IDS, 6, 0]));
        bytes.extend(record(RECORD_SAMPLE, 0, &[71, IDS, 7, 99, 1]));
        bytes.extend(record(RECORD_SAMPLE, 0, &[12, IDS, 8, 0]));
        let sleeps = [(5, What::Sleeps(Some(0x1234))), (6, What::Sleeps(None))];
        assert_eq!(
            parsed(&bytes),
            sleeps,
            "one longer than its record and one without an owner are left out"
        );
    }

    #[test]
    fn switches_and_losses_end_in_time_and_thread() {
        let mut bytes = record(RECORD_SWITCH, MISC_OUT, &[IDS, 1, 71]);
        bytes.extend(record(RECORD_SWITCH, MISC_OUT | MISC_PREEMPTED, &[IDS, 2, 71]));
        bytes.extend(record(RECORD_SWITCH, 0, &[IDS, 3, 71]));
        bytes.extend(record(RECORD_LOST, 0, &[71, 12, IDS, 4, 71]));
        bytes.extend(record(3, 0, &[IDS, 5, 71]));
        bytes.extend([1, 2, 3]);
        let expected = [
            (1, What::Left { is_preempted: false }),
            (2, What::Left { is_preempted: true }),
            (3, What::Came),
            (4, What::Lost(12)),
        ];
        assert_eq!(parsed(&bytes), expected);
    }

    const GETPPID: Tracepoint = Tracepoint { group: "syscalls", name: "sys_enter_getppid" };
    const NONE: Tracepoint = Tracepoint { group: "syscalls", name: "no_such_call" };

    fn followed(point: Tracepoint) -> Followed {
        Followed { point, filter: None, is_required: true, is_sampled: false }
    }

    /// Follows the calling thread; nothing where this user may not.
    fn of_this_thread(followed: &[Followed]) -> Option<Result<Trace, TraceError>> {
        // SAFETY: the call takes no arguments.
        let tid = unsafe { libc::gettid() }.unsigned_abs();
        match Trace::of_threads(&[tid], followed) {
            Err(TraceError::Tracepoints(_) | TraceError::Refused(_)) => None,
            opened => Some(opened),
        }
    }

    #[test]
    fn calls_of_a_thread_come_in_order_with_their_arguments() {
        let followed =
            [NONE, GETPPID].map(|point| Followed { is_required: false, ..followed(point) });
        let Some(trace) = of_this_thread(&followed) else { return };
        let mut trace = trace.expect("what is missing is left out");
        trace.enable().expect("enabled");
        let mut found = Vec::new();
        for round in 0..100_u64 {
            // SAFETY: the call ignores its arguments, which the tracepoint has none of either.
            unsafe { libc::syscall(libc::SYS_getppid) };
            if round % 10 == 0 {
                trace.drain(|record| found.push(record));
            }
        }
        trace.disable().expect("disabled");
        trace.finish(|record| found.push(record));
        assert!(found.is_sorted_by_key(|record| record.time_ns));
        let is_call = |record: &&Record| {
            matches!(record.what, What::Passed(1, [number, ..])
            if number == libc::SYS_getppid.cast_unsigned())
        };
        assert_eq!(found.iter().filter(is_call).count(), 100);
    }

    #[test]
    fn a_sampled_tracepoint_is_recorded_only_while_sampling() {
        const GETUID: Tracepoint = Tracepoint { group: "syscalls", name: "sys_enter_getuid" };
        let sampled = Followed { is_sampled: true, ..followed(GETPPID) };
        let Some(trace) = of_this_thread(&[followed(GETUID), sampled]) else { return };
        let mut trace = trace.expect("both are there");
        trace.enable().expect("enabled");
        for is_on in [false, true, false] {
            trace.sample(is_on).expect("switched");
            for _ in 0..10 {
                for call in [libc::SYS_getppid, libc::SYS_getuid] {
                    // SAFETY: neither call takes arguments.
                    unsafe { libc::syscall(call) };
                }
            }
        }
        trace.disable().expect("disabled");
        let mut found = [0; 2];
        trace.finish(|record| {
            if let What::Passed(place, _) = record.what {
                found[place] += 1;
            }
        });
        assert_eq!(found, [30, 10]);
    }

    #[test]
    fn a_required_tracepoint_that_is_missing_is_named() {
        let followed = [followed(NONE)];
        let Some(refused) = of_this_thread(&followed) else { return };
        assert!(matches!(refused, Err(TraceError::Missing(point)) if point == NONE));
    }
}
