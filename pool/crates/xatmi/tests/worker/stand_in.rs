//! A stand-in for the manager: makes queues and slots, starts workers, reads their links; and a client on bare
//! queues.
//!
//! One thread, no policy: each test does what the manager would.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pollux_sys::mqueue::{MessageQueue, QueueSize};
use pollux_xatmi::buffer::BufferType;
use pollux_xatmi::error::Code;
use pollux_xatmi::link::{PeerLink, Received, ToManager, ToWorker};
use pollux_xatmi::priority::Priority;
use pollux_xatmi::queue::{Prefix, ServiceName};
use pollux_xatmi::slots::{Slot, Slots, State, Total};
use pollux_xatmi::wire::{Body, ClientAddress, Payload, Reply, Request};
use pollux_xatmi::worker::{LINK_VARIABLE, WAKE_VARIABLE};
use rustix::event::{PollFd, PollFlags};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

pub(crate) const MESSAGE_LEN_BYTES: u32 = 1024;
/// Longer than anything takes here, even on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

const GATE_NAME: &str = "gate";

/// Descriptors are passed on to a child by number, so only one child may be made at a time.
static SPAWN: Mutex<()> = Mutex::new(());

static CONTEXTS: AtomicU32 = AtomicU32::new(1 << 20);

/// A pool without a manager.
pub(crate) struct StandIn {
    pub(crate) prefix: Prefix,
    pub(crate) slots: Slots,
    pub(crate) workers: Vec<WorkerProcess>,
    pub(crate) depth: u32,
    pub(crate) wake: &'static str,
    pub(crate) arguments: String,
    queues: HashMap<ServiceName, MessageQueue>,
    folder: tempfile::TempDir,
}

/// One worker, seen from the manager.
pub(crate) struct WorkerProcess {
    pub(crate) child: Child,
    pub(crate) link: PeerLink,
    pub(crate) received: Vec<ToManager>,
    is_linked: bool,
}

impl StandIn {
    /// A pool named after its test, for up to `workers` workers.
    pub(crate) fn new(subject: &str, workers: usize) -> Self {
        let prefix = Prefix::new(&format!("/t-{subject}-{}", std::process::id())).expect("short");
        let folder = tempfile::tempdir().expect("a folder");
        File::create(folder.path().join(GATE_NAME)).expect("a file");
        Self {
            prefix,
            slots: Slots::create(workers).expect("memory"),
            workers: Vec::new(),
            depth: 10,
            wake: "one",
            arguments: String::new(),
            queues: HashMap::new(),
            folder,
        }
    }

    /// A pool with one worker for `services`, and a client with room for `depth` replies.
    pub(crate) fn serving(subject: &str, services: &str, depth: u32) -> (Self, Caller) {
        let mut pool = Self::new(subject, 1);
        pool.start(services, 1);
        let caller = Caller::new(&pool.prefix, depth);
        (pool, caller)
    }

    /// Starts `count` workers and waits until all are ready.
    pub(crate) fn start(&mut self, services: &str, count: usize) {
        let first = self.workers.len();
        for _ in 0..count {
            self.spawn(services);
        }
        self.wait_for("all workers to be ready", |pool| {
            pool.workers[first..].iter().all(|worker| worker.received.contains(&ToManager::Ready))
        });
    }

    /// Starts one worker; its number.
    pub(crate) fn spawn(&mut self, services: &str) -> usize {
        let index = self.workers.len();
        self.slot(index).start();
        let (ours, theirs) = PeerLink::pair().expect("a pair");
        let slots = self.slots.as_fd().try_clone_to_owned().expect("a descriptor");
        let link = format!("{},{},{index}", theirs.as_raw_fd(), slots.as_raw_fd());
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command
            .args(["--exact", "a_worker_process", "--nocapture", "--test-threads=1"])
            .env(LINK_VARIABLE, link)
            .env(WAKE_VARIABLE, self.wake)
            .env("NDRX_QPREFIX", self.prefix.as_str())
            .env(crate::SERVICES, services)
            .env(crate::GATE, self.gate_path())
            .env(crate::ARGUMENTS, format!("-i {index} {}", self.arguments))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = {
            let _one_at_a_time = SPAWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            [&theirs, &slots].into_iter().for_each(pass_on);
            let child = command.spawn().expect("a process");
            [&theirs, &slots].into_iter().for_each(keep_back);
            child
        };
        let worker = WorkerProcess {
            child,
            link: PeerLink::new(ours),
            received: Vec::new(),
            is_linked: true,
        };
        self.workers.push(worker);
        index
    }

    pub(crate) fn slot(&self, index: usize) -> Slot<'_> {
        self.slots.slot(index).expect("within the pool")
    }

    /// The sum of a total over all workers.
    pub(crate) fn total(&self, total: Total) -> u64 {
        (0..self.slots.len()).map(|index| self.slot(index).totals()[total]).sum()
    }

    /// How many workers are inside a service.
    pub(crate) fn busy(&self) -> usize {
        let is_busy = |index: &usize| self.slot(*index).occupation().state == State::Busy;
        (0..self.slots.len()).filter(is_busy).count()
    }

    pub(crate) fn queue(&self, service: &str) -> &MessageQueue {
        &self.queues[&ServiceName::new(service).expect("a name")]
    }

    pub(crate) fn waiting(&self, service: &str) -> u32 {
        self.queue(service).state().expect("open").messages_waiting
    }

    pub(crate) fn say(&self, worker: usize, what: &ToWorker) {
        self.workers[worker].link.send(what).expect("a worker that reads");
    }

    /// Closes the gate: services that pass it wait until what is returned is dropped.
    pub(crate) fn gate(&self) -> File {
        let gate = File::open(self.gate_path()).expect("made at the start");
        rustix::fs::flock(&gate, rustix::fs::FlockOperation::LockExclusive).expect("a lock");
        gate
    }

    fn gate_path(&self) -> PathBuf {
        self.folder.path().join(GATE_NAME)
    }

    /// Reads the links until `is_so`; the test fails if it takes too long.
    pub(crate) fn wait_for(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < end, "waited in vain for {what}; {}", self.picture());
            self.read_links();
        }
    }

    /// A socket that listens where the pool's manager would.
    pub(crate) fn control_socket(&self) -> OwnedFd {
        let family = AddressFamily::UNIX;
        let kind = SocketType::SEQPACKET;
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
        let name = self.prefix.control_socket();
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("short");
        bind(&socket, &address).expect("free");
        listen(&socket, 8).expect("bound");
        socket
    }

    /// The exit code of a worker that ends, none after a signal.
    pub(crate) fn exit_code(&mut self, worker: usize) -> Option<i32> {
        let mut code = None;
        self.wait_for("a worker to end", |pool| {
            code = pool.workers[worker].child.try_wait().expect("a child");
            code.is_some()
        });
        code.expect("waited for").code()
    }

    /// Stops all workers; each must end well.
    pub(crate) fn stop(&mut self) {
        for worker in 0..self.workers.len() {
            // One that ended already is asked for its exit code all the same.
            let _ = self.workers[worker].link.send(&ToWorker::Stop);
        }
        for worker in 0..self.workers.len() {
            assert_eq!(self.exit_code(worker), Some(0), "{}", self.log(worker));
            // Its last messages may not be read yet.
            while self.workers[worker].is_linked && self.read_link(worker) {}
        }
    }

    /// What a worker that ended wrote to its log.
    pub(crate) fn log(&mut self, worker: usize) -> String {
        let mut text = String::new();
        if let Some(stderr) = &mut self.workers[worker].child.stderr {
            stderr.read_to_string(&mut text).expect("text");
        }
        text
    }

    /// Waits a little for messages of the workers, and answers them.
    fn read_links(&mut self) {
        let wait = Duration::from_millis(5).try_into().expect("short");
        let mut fds: Vec<_> = self
            .workers
            .iter()
            .filter(|worker| worker.is_linked)
            .map(|worker| PollFd::new(&worker.link, PollFlags::IN))
            .collect();
        rustix::event::poll(&mut fds, Some(&wait)).expect("poll");
        for index in 0..self.workers.len() {
            while self.workers[index].is_linked && self.read_link(index) {}
        }
    }

    fn read_link(&mut self, index: usize) -> bool {
        let said = match self.workers[index].link.receive() {
            Ok(Received::Message(said, _)) => said,
            Ok(Received::Nothing) => return false,
            Ok(Received::Ended) => {
                self.workers[index].is_linked = false;
                return false;
            }
            Err(error) => panic!("worker {index}: {error}"),
        };
        if let ToManager::Advertise { services } = &said {
            let names = services.iter().map(|advert| advert.name.clone());
            names.for_each(|name| self.make_queue(&name));
            self.say(index, &ToWorker::Advertised);
        }
        self.workers[index].received.push(said);
        true
    }

    /// Makes the queue of a service, as the first offer of it does.
    pub(crate) fn make_queue(&mut self, name: &str) {
        let service = ServiceName::new(name).expect("a name");
        let size = QueueSize { messages_max: self.depth, message_len_bytes: MESSAGE_LEN_BYTES };
        let name = self.prefix.service_queue(&service);
        self.queues
            .entry(service)
            .or_insert_with(|| MessageQueue::create(&name, size).expect("a queue"));
    }

    fn picture(&self) -> String {
        let states = (0..self.workers.len()).map(|i| self.slot(i).occupation().state);
        let states: Vec<_> = states.collect();
        let waiting =
            self.queues.iter().map(|(name, q)| (name, q.state().map(|s| s.messages_waiting)));
        format!("workers {states:?}, queues {:?}", waiting.collect::<Vec<_>>())
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // Those that ended are only reaped.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
        for service in self.queues.keys() {
            let _ = MessageQueue::unlink(&self.prefix.service_queue(service));
        }
    }
}

fn pass_on(fd: &OwnedFd) {
    let flags = fcntl_getfd(fd).expect("open");
    fcntl_setfd(fd, flags - FdFlags::CLOEXEC).expect("open");
}

fn keep_back(fd: &OwnedFd) {
    fcntl_setfd(fd, FdFlags::CLOEXEC).expect("open");
}

/// The queue is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// A client context made of bare queues.
pub(crate) struct Caller {
    prefix: Prefix,
    pub(crate) address: ClientAddress,
    replies: MessageQueue,
    calls: u64,
}

/// A reply, with its data copied.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) call_id: u64,
    pub(crate) error: Option<Code>,
    pub(crate) urcode: i64,
    pub(crate) bytes: Vec<u8>,
}

/// What is special about a call.
#[derive(Clone, Copy, Default)]
pub(crate) struct How {
    pub(crate) deadline_ns: u64,
    pub(crate) is_without_reply: bool,
}

impl Caller {
    /// A context with room for `depth` replies.
    pub(crate) fn new(prefix: &Prefix, depth: u32) -> Self {
        Self::with_messages(prefix, depth, MESSAGE_LEN_BYTES)
    }

    /// The same, whose messages are of another length than those of the services.
    pub(crate) fn with_messages(prefix: &Prefix, depth: u32, message_len_bytes: u32) -> Self {
        let context = CONTEXTS.fetch_add(1, Ordering::Relaxed);
        let address =
            ClientAddress { pid: std::process::id(), context, nonce: 7 << 32 | u64::from(context) };
        let size = QueueSize { messages_max: depth, message_len_bytes };
        let name = prefix.reply_queue(address.pid, context);
        let replies = MessageQueue::create(&name, size).expect("a reply queue");
        Self { prefix: prefix.clone(), address, replies, calls: 0 }
    }

    /// Sends a request as it is; its call id, or the error of a full queue.
    pub(crate) fn try_send(
        &mut self,
        service: &str,
        payload: Payload<'_>,
        how: How,
    ) -> io::Result<u64> {
        let service = ServiceName::new(service).expect("a name");
        let queue = MessageQueue::open(&self.prefix.service_queue(&service)).expect("advertised");
        self.calls += 1;
        let request = Request {
            client: self.address,
            call_id: self.calls,
            cd: 1,
            deadline_ns: how.deadline_ns,
            is_without_reply: how.is_without_reply,
            is_in_transaction: false,
            priority: Priority::USUAL,
            service,
            payload,
        };
        let mut out = vec![0; MESSAGE_LEN_BYTES as usize];
        let len = request.encode(&mut out).expect("it fits");
        queue.send(&out[..len], 0).map(|()| self.calls)
    }

    /// Sends bytes, waiting for room as a client does.
    pub(crate) fn send(&mut self, stand_in: &mut StandIn, service: &str, bytes: &[u8]) -> u64 {
        self.send_how(stand_in, service, bytes, How::default())
    }

    pub(crate) fn send_how(
        &mut self,
        stand_in: &mut StandIn,
        service: &str,
        bytes: &[u8],
        how: How,
    ) -> u64 {
        let mut sent = None;
        stand_in.wait_for("room in a service queue", |_| {
            sent = self.try_send(service, carray(bytes), how).ok();
            sent.is_some()
        });
        sent.expect("waited for")
    }

    /// The next reply, if one is there.
    pub(crate) fn take(&self) -> Option<Answer> {
        let mut message = vec![0; MESSAGE_LEN_BYTES as usize];
        let (len, _) = self.replies.receive(&mut message).ok()?;
        let reply = Reply::decode(&message[..len]).expect("a reply");
        assert_eq!(reply.nonce, self.address.nonce, "the reply of another context");
        let bytes = match reply.payload.body {
            Body::Inline(bytes) => bytes.to_vec(),
            Body::Large(large) => {
                let mut room = vec![0; large.len_bytes as usize];
                pollux_xatmi::large::fetch(&large, &mut room).expect("held by the worker");
                room
            }
        };
        Some(Answer { call_id: reply.call_id, error: reply.error, urcode: reply.urcode, bytes })
    }

    /// The next reply, waited for.
    pub(crate) fn answer(&self, stand_in: &mut StandIn) -> Answer {
        let mut answer = None;
        stand_in.wait_for("a reply", |_| {
            answer = self.take();
            answer.is_some()
        });
        answer.expect("waited for")
    }

    /// A call from end to end.
    pub(crate) fn call(&mut self, stand_in: &mut StandIn, service: &str, bytes: &[u8]) -> Answer {
        let call_id = self.send(stand_in, service, bytes);
        let answer = self.answer(stand_in);
        assert_eq!(answer.call_id, call_id);
        answer
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let name = self.prefix.reply_queue(self.address.pid, self.address.context);
        // Some tests take the name away themselves.
        let _ = MessageQueue::unlink(&name);
    }
}

pub(crate) fn carray(bytes: &[u8]) -> Payload<'_> {
    let buffer_type = Some(BufferType::Carray);
    let buffer_size_bytes = 64.max(bytes.len() as u64);
    Payload { buffer_type, buffer_size_bytes, has_info: false, body: Body::Inline(bytes) }
}
