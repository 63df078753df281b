//! Passwords of users of sites: checked in threads of their own, as a check takes 20 to 500 ms, never in a loop's.
//!
//! ```text
//!  loop: Authorization ──► verified of late? ──► yes: the request continues at once
//!                              │ no: charged to its client, queued ──► 429, or 503 where too many wait
//!                              ▼
//!  threads: argon2id, bcrypt ──► ticket of each request that waits ──► its loop is woken
//! ```
//!
//! | part | one job |
//! |---|---|
//! | `file` | the users of a file, and whether a password is theirs |
//! | `throttle` | how often each client may try |
//!
//! A right password is kept for five minutes as a keyed hash of list, name, password and what that is held against; passwords
//! themselves are kept no longer than their check takes. Requests with the same password share a check. One whose client is
//! gone by its turn is not made. The threads get little of the processor where loops want it.

mod file;
mod throttle;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{
    AtomicU8, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use base64ct::{Base64, Encoding};
use pollux_engine::{ConnectionId, Moment};
use ring::hmac;

use crate::ServerError;
use crate::backends::shared_upstreams::{Notice, SharedUpstreams};
use crate::config::users::UsersConfig;
use crate::ids::UsersId;
use crate::random::random;

pub use file::password_line;
use file::{NAME_BYTES_MAX, PASSWORD_BYTES_MAX, UserList};
use throttle::Throttle;

/// Checks that wait for a thread.
const QUEUE_MAX: usize = 64;
/// Requests that wait for those, and for the checks under way.
const WAITING_MAX: usize = 1024;
/// How long a request waits for its check.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a password is taken without a check.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// So many of them.
const KEPT_MAX: usize = 4096;
/// Threads: one for so many processors.
const PROCESSORS_EACH: usize = 4;
const THREADS_MAX: usize = 4;
/// Their niceness: a loop gets the processor first, and they some of it whatever the loops do.
const NICENESS: i32 = 15;
/// Longest value of Authorization that is looked at.
const VALUE_BYTES_MAX: usize =
    4 * (NAME_BYTES_MAX + 1 + PASSWORD_BYTES_MAX).div_ceil(3) + "Basic ".len();

/// The users of a proxy's sites.
pub(crate) struct Passwords {
    lists: Box<[List]>,
    /// Of this process alone: what is kept says nothing of passwords without it.
    key: hmac::Key,
    state: Mutex<State>,
    changed: Condvar,
    /// Whose loops are woken, once they are there.
    loops: OnceLock<Weak<SharedUpstreams>>,
    counts: [AtomicU64; PasswordCount::ALL.len()],
}

/// The users of a file, as sites know them.
struct List {
    config: UsersConfig,
    users: UserList,
    /// The value of WWW-Authenticate.
    challenge: String,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PasswordCount {
    Kept,
    Right,
    Wrong,
    Throttled,
    Full,
    Abandoned,
}

impl PasswordCount {
    /// Each with the word that metrics have for it.
    pub(crate) const ALL: [(Self, &str); 6] = [
        (Self::Kept, "kept"),
        (Self::Right, "right"),
        (Self::Wrong, "wrong"),
        (Self::Throttled, "throttled"),
        (Self::Full, "queue_full"),
        (Self::Abandoned, "abandoned"),
    ];
}

struct State {
    /// Until when passwords are taken, by their hashes, and the order in which those came.
    kept: HashMap<Digest, Moment>,
    kept_order: VecDeque<Digest>,
    throttle: Throttle,
    queue: VecDeque<Job>,
    /// Those that a thread has.
    under_way: Vec<Job>,
    has_ended: bool,
}

type Digest = [u8; 32];

/// A check.
struct Job {
    digest: Digest,
    list: UsersId,
    credentials: Arc<Credentials>,
    /// Who is charged for it.
    client: u64,
    asked: Moment,
    tickets: Vec<Arc<Ticket>>,
}

/// A request that waits for a check.
#[derive(Debug)]
pub(crate) struct Ticket {
    state: AtomicU8,
    caller: Caller,
    /// By when it has waited too long.
    pub(crate) end: Moment,
}

const WAITS: u8 = 0;
const RIGHT: u8 = 1;
const WRONG: u8 = 2;

/// The connection that is woken, of the loop of this number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) of_loop: u32,
    pub(crate) connection: ConnectionId,
}

/// What a client says of itself.
pub(crate) struct Credentials {
    text: String,
    name_bytes: usize,
}

/// What became of a password.
#[derive(Debug)]
pub(crate) enum Checked {
    /// It is right, by a check of late.
    Right,
    /// It is looked at.
    Later(Arc<Ticket>),
    /// Its client has tried too often, and may again after so many seconds.
    TooOften(u64),
    /// Too many wait.
    Full,
}

impl Ticket {
    /// Whether the password is right, once that is known.
    pub(crate) fn verdict(&self) -> Option<bool> {
        match self.state.load(Acquire) {
            WAITS => None,
            state => Some(state == RIGHT),
        }
    }
}

impl Credentials {
    /// Those of a value of Authorization; none where it has none of the scheme Basic (RFC 7617).
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let value = str::from_utf8(value).ok().filter(|value| value.len() <= VALUE_BYTES_MAX)?;
        let (scheme, token) = value.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let text = String::from_utf8(Base64::decode_vec(token.trim()).ok()?).ok()?;
        let name_bytes = text.find(':')?;
        let password_bytes = text.len() - name_bytes - 1;
        (name_bytes <= NAME_BYTES_MAX && password_bytes <= PASSWORD_BYTES_MAX)
            .then_some(Self { text, name_bytes })
    }

    pub(crate) fn name(&self) -> &str {
        &self.text[..self.name_bytes]
    }

    fn password(&self) -> &str {
        &self.text[self.name_bytes + 1..]
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passwords")
    }
}

impl Passwords {
    /// Reads the files of all users; none where there are none.
    ///
    /// # Errors
    /// [`ServerError::Users`].
    pub(crate) fn read(configs: &[UsersConfig]) -> Result<Option<Arc<Self>>, ServerError> {
        if configs.is_empty() {
            return Ok(None);
        }
        let read = |config: &UsersConfig| {
            let users = UserList::read(&config.file);
            let users = users.map_err(|why| ServerError::Users { why })?;
            let challenge = format!("Basic realm=\"{}\", charset=\"UTF-8\"", config.realm);
            Ok(List { config: config.clone(), users, challenge })
        };
        let lists = configs.iter().map(read).collect::<Result<_, ServerError>>()?;
        Ok(Some(Arc::new(Self {
            lists,
            key: hmac::Key::new(hmac::HMAC_SHA256, &random::<32>()),
            state: Mutex::new(State {
                kept: HashMap::new(),
                kept_order: VecDeque::new(),
                throttle: Throttle::new(),
                queue: VecDeque::new(),
                under_way: Vec::new(),
                has_ended: false,
            }),
            changed: Condvar::new(),
            loops: OnceLock::new(),
            counts: Default::default(),
        })))
    }

    /// Starts the threads, which wake these loops, and end with what is returned.
    ///
    /// # Errors
    /// There is no thread.
    pub(crate) fn start(
        self: &Arc<Self>,
        loops: &Arc<SharedUpstreams>,
    ) -> std::io::Result<PasswordThreads> {
        assert!(self.loops.set(Arc::downgrade(loops)).is_ok(), "a proxy is started once");
        let threads = PasswordThreads(Arc::clone(self));
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..(processors / PROCESSORS_EACH).clamp(1, THREADS_MAX) {
            let passwords = Arc::clone(self);
            let thread = std::thread::Builder::new().name("passwords".to_owned());
            thread.spawn(move || passwords.run())?;
        }
        Ok(threads)
    }

    /// What a client is asked for, as the value of WWW-Authenticate.
    pub(crate) fn challenge(&self, list: UsersId) -> &str {
        &self.lists[list.place()].challenge
    }

    /// What is configured of each list, and how many users it has.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (&UsersConfig, usize)> {
        self.lists.iter().map(|list| (&list.config, list.users.len()))
    }

    /// How often it came to that.
    pub(crate) fn count(&self, of: PasswordCount) -> u64 {
        self.counts[of as usize].load(Relaxed)
    }

    /// Checks that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().queue.len()
    }

    fn note(&self, what: PasswordCount) {
        self.counts[what as usize].fetch_add(1, Relaxed);
    }

    /// Whether these are the name and password of a user; where that is not known yet, it is looked at, and `caller` woken then.
    pub(crate) fn check(
        &self,
        list: UsersId,
        credentials: Credentials,
        client: Option<IpAddr>,
        caller: Caller,
        now: Moment,
    ) -> Checked {
        let digest = self.digest(list, &credentials);
        let mut state = self.lock();
        if state.kept.get(&digest).is_some_and(|end| now < *end) {
            self.note(PasswordCount::Kept);
            return Checked::Right;
        }
        let ticket =
            || Arc::new(Ticket { state: AtomicU8::new(WAITS), caller, end: now + WAIT_MAX });
        let State { throttle, queue, under_way, .. } = &mut *state;
        let jobs = || under_way.iter().chain(&*queue);
        let is_full = jobs().map(|job| job.tickets.len()).sum::<usize>() >= WAITING_MAX;
        let has_place = queue.len() < QUEUE_MAX;
        let same = under_way.iter_mut().chain(&mut *queue).find(|job| job.digest == digest);
        match same {
            Some(job) if !is_full => {
                let ticket = ticket();
                job.tickets.push(Arc::clone(&ticket));
                return Checked::Later(ticket);
            }
            None if has_place && !is_full => {}
            _ => {
                self.note(PasswordCount::Full);
                return Checked::Full;
            }
        }
        let client = throttle.key(client);
        if let Err(wait_s) = throttle.charge(client, now) {
            self.note(PasswordCount::Throttled);
            return Checked::TooOften(wait_s);
        }
        let ticket = ticket();
        let tickets = vec![Arc::clone(&ticket)];
        let credentials = Arc::new(credentials);
        queue.push_back(Job { digest, list, credentials, client, asked: now, tickets });
        self.changed.notify_one();
        Checked::Later(ticket)
    }

    /// A keyed hash of all that a check depends on.
    fn digest(&self, list: UsersId, credentials: &Credentials) -> Digest {
        let stored = self.lists[list.place()].users.stored(credentials.name());
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&(list.place() as u64).to_le_bytes());
        context.update(&(credentials.name_bytes as u64).to_le_bytes());
        context.update(&(credentials.text.len() as u64).to_le_bytes());
        context.update(credentials.text.as_bytes());
        context.update(stored.as_bytes());
        context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// Makes checks until the end.
    fn run(&self) {
        // Of this thread alone; without it they take what they get.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        let mut state = self.lock();
        while !state.has_ended {
            let Some(job) = state.queue.pop_front() else {
                state = self.changed.wait(state).expect(UNDER_LOCK);
                continue;
            };
            let is_wanted = job.tickets.iter().any(|ticket| Arc::strong_count(ticket) > 1);
            if !is_wanted {
                self.note(PasswordCount::Abandoned);
                continue;
            }
            let digest = job.digest;
            let list = job.list;
            let credentials = Arc::clone(&job.credentials);
            state.under_way.push(job);
            drop(state);
            let lot = u64::from_le_bytes(*digest.first_chunk().expect("it is longer"));
            let users = &self.lists[list.place()].users;
            let is_right = users.is_right(credentials.name(), credentials.password(), lot);
            state = self.lock();
            self.end(&mut state, digest, is_right);
        }
    }

    /// A check has ended.
    fn end(&self, state: &mut State, digest: Digest, is_right: bool) {
        let place = state.under_way.iter().position(|job| job.digest == digest);
        let job = state.under_way.swap_remove(place.expect("it was put there"));
        self.note(if is_right { PasswordCount::Right } else { PasswordCount::Wrong });
        if is_right {
            state.throttle.give_back(job.client, job.asked);
            state.keep(digest, job.asked + KEPT_FOR);
        }
        let verdict = if is_right { RIGHT } else { WRONG };
        let loops = self.loops.get().and_then(Weak::upgrade);
        for ticket in job.tickets {
            ticket.state.store(verdict, Release);
            if let Some(loops) = &loops {
                let Caller { of_loop, connection } = ticket.caller;
                loops.notify(of_loop, Notice::Wake(connection));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(UNDER_LOCK)
    }
}

const UNDER_LOCK: &str = "nothing panics under this lock";

impl State {
    /// Takes a password without a check until then; the one that was kept first is forgotten for it.
    fn keep(&mut self, digest: Digest, end: Moment) {
        if self.kept.insert(digest, end).is_none() {
            self.kept_order.push_back(digest);
        }
        if self.kept_order.len() > KEPT_MAX
            && let Some(first) = self.kept_order.pop_front()
        {
            self.kept.remove(&first);
        }
    }
}

/// Threads that check passwords, until this is dropped.
#[derive(Debug)]
pub(crate) struct PasswordThreads(Arc<Passwords>);

impl Drop for PasswordThreads {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.changed.notify_all();
    }
}
