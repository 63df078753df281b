//! A pool without processes: a control socket that welcomes every client, and threads that serve real queues;
//! a service whose requests the test answers; calls with texts.
//!
//! The tests of the calling side use it. Everything ends when the pool is dropped, and a wait
//! that lasts longer than [`PATIENCE`] fails the test.

use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pollux_sys::mqueue::{MessageQueue, QueueSize};
use pollux_xatmi::buffer::{Buffer, BufferType};
use pollux_xatmi::client::{CallFlags, Client, Descriptor, Which};
use pollux_xatmi::environment::Environment;
use pollux_xatmi::error::Code;
use pollux_xatmi::priority::Priority;
use pollux_xatmi::queue::{Prefix, ServiceName, is_withdrawn};
use pollux_xatmi::wire::{Body, ClientAddress, Payload, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    listen, recv, send, socket_with,
};
use rustix::process::Pid;

/// How long anything may take that is sure to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of a message: small, so that many pools fit the limits at once.
pub(crate) const MESSAGE_LEN_BYTES: u32 = 1024;

/// No flags.
pub(crate) const NONE: CallFlags = CallFlags::NONE;
/// A time-out that is meant to pass.
pub(crate) const SHORT: Duration = Duration::from_millis(60);

/// A pool; its queues go when it does.
pub(crate) struct Pool {
    pub(crate) prefix: Prefix,
    made: Mutex<Vec<ServiceName>>,
    /// Closed to end every thread.
    stop: Option<PipeWriter>,
    stopped: PipeReader,
    threads: Vec<JoinHandle<()>>,
    /// One for each client that lives, as the manager holds them.
    pub(crate) greeted: Arc<Mutex<Vec<(String, OwnedFd)>>>,
}

impl Pool {
    /// A pool whose clients may take a minute for a call.
    pub(crate) fn start() -> Self {
        Self::welcoming(
            r#"{"Welcome":{"message_len_bytes":1024,"reply_depth":2,"timeout_s":60,"pool":"test"}}"#,
        )
    }

    /// A pool that answers every greeting with `answer`.
    pub(crate) fn welcoming(answer: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = Prefix::new(&format!("/pollux-test-{}-{number}", std::process::id()));
        let prefix = prefix.expect("a prefix");
        let (stopped, stop) = std::io::pipe().expect("a pipe");
        let greeted = Arc::default();
        let listener = listener(&prefix);
        let (until, clients, answer) =
            (stopped.try_clone().expect("a pipe"), Arc::clone(&greeted), answer.to_owned());
        let control = std::thread::spawn(move || welcome(&listener, &until, &answer, &clients));
        let made = Mutex::default();
        Self { prefix, made, stop: Some(stop), stopped, threads: vec![control], greeted }
    }

    pub(crate) fn environment(&self) -> Environment {
        Environment {
            prefix: self.prefix.clone(),
            timeout: None,
            messages_max: None,
            message_len_bytes: None,
            transport: None,
            group: None,
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::open(&self.environment()).expect("a pool runs")
    }

    /// Makes the queue of a service, as the manager would.
    pub(crate) fn queue(&self, service: &str, messages_max: u32) -> MessageQueue {
        let service = ServiceName::new(service).expect("a name");
        let size = QueueSize { messages_max, message_len_bytes: MESSAGE_LEN_BYTES };
        let name = self.prefix.service_queue(&service);
        let queue = MessageQueue::create(&name, size).expect("a queue");
        self.made.lock().expect("no panic").push(service);
        queue
    }

    /// Removes the queue of a service, as the manager would when it is offered no more.
    pub(crate) fn withdraw(&self, service: &str) {
        let service = ServiceName::new(service).expect("a name");
        MessageQueue::unlink(&self.prefix.service_queue(&service)).expect("it stands");
        self.made.lock().expect("no panic").retain(|made| *made != service);
    }

    /// Serves a service by a thread of its own.
    pub(crate) fn serve(
        &mut self,
        service: &str,
        mut handle: impl FnMut(&Request<'_>, &Replier) + Send + 'static,
    ) {
        let queue = self.queue(service, 10);
        let until = self.stopped.try_clone().expect("a pipe");
        let replier = Replier { prefix: self.prefix.clone() };
        self.threads.push(std::thread::spawn(move || {
            while let Some(message) = next(&queue, &until) {
                let request = Request::decode(&message).expect("clients send requests");
                handle(&request, &replier);
            }
        }));
    }

    /// Serves `ECHO`: the data back.
    pub(crate) fn serve_echo(&mut self) {
        self.serve("ECHO", |request, replier| replier.answer(request, request.payload));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "a thread of the pool panicked");
        }
        for service in self.made.lock().expect("no panic").drain(..) {
            let _ = MessageQueue::unlink(&self.prefix.service_queue(&service));
        }
    }
}

/// Sends replies.
#[derive(Clone)]
pub(crate) struct Replier {
    pub(crate) prefix: Prefix,
}

impl Replier {
    /// Answers with success and this data.
    pub(crate) fn answer(&self, request: &Request<'_>, payload: Payload<'_>) {
        let nonce = request.client.nonce;
        let call_id = request.call_id;
        let error = None;
        let rval = 2;
        let urcode = 0;
        let is_abort_only = false;
        let reply = Reply { nonce, call_id, error, rval, urcode, is_abort_only, payload };
        self.send(request, &reply);
    }

    /// Sends a reply, waiting for room; a client that is gone is ignored.
    pub(crate) fn send(&self, request: &Request<'_>, reply: &Reply<'_>) {
        let mut message = [0; MESSAGE_LEN_BYTES as usize];
        let len = reply.encode(&mut message).expect("it fits");
        self.send_bytes(request, &message[..len]);
    }

    /// Sends any bytes to the reply queue of the caller.
    pub(crate) fn send_bytes(&self, request: &Request<'_>, bytes: &[u8]) {
        let name = self.prefix.reply_queue(request.client.pid, request.client.context);
        let Ok(queue) = MessageQueue::open(&name) else { return };
        let by = Instant::now() + PATIENCE;
        while let Err(error) = queue.send(bytes, 0) {
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
            if is_withdrawn(&queue) {
                return;
            }
            assert!(Instant::now() < by, "the reply queue stays full");
            let slice = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            poll(&mut [PollFd::new(&queue, PollFlags::OUT)], Some(&slice)).expect("polled");
        }
    }
}

/// Waits until something is true, and fails if it never is.
pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        pollux_testing::pause(begun);
    }
}

/// Whether the thread sleeps in the kernel; one that has ended does not.
pub(crate) fn sleeps(tid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", tid.as_raw_nonzero()))
        .unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" S"))
}

fn listener(prefix: &Prefix) -> OwnedFd {
    let address = SocketAddrUnix::new_abstract_name(prefix.control_socket().as_bytes());
    let kind = SocketType::SEQPACKET;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    bind(&socket, &address.expect("it fits")).expect("bound");
    listen(&socket, 64).expect("listening");
    socket
}

/// Waits for `watched` to be readable; `false` when the pool ends first.
fn is_ready(watched: impl AsFd, until: &PipeReader) -> bool {
    let mut both = [PollFd::new(&watched, PollFlags::IN), PollFd::new(until, PollFlags::IN)];
    poll(&mut both, None).expect("polled");
    both[1].revents().is_empty()
}

fn welcome(
    listener: &OwnedFd,
    until: &PipeReader,
    answer: &str,
    clients: &Mutex<Vec<(String, OwnedFd)>>,
) {
    while is_ready(listener, until) {
        let socket = accept(listener).expect("a client");
        let mut hello = [0; 4096];
        let (len, _) = recv(&socket, &mut hello[..], RecvFlags::empty()).expect("a greeting");
        let hello = String::from_utf8_lossy(&hello[..len]).into_owned();
        // Held before it is answered, so that a test sees it as soon as the client is open.
        let answering = socket.try_clone().expect("a descriptor");
        clients.lock().expect("no panic").push((hello, socket));
        let _ = send(&answering, answer.as_bytes(), SendFlags::NOSIGNAL);
    }
}

/// The next request; `None` when the pool ends.
fn next(queue: &MessageQueue, until: &PipeReader) -> Option<Vec<u8>> {
    let mut message = vec![0; MESSAGE_LEN_BYTES as usize];
    while is_ready(queue, until) {
        if let Ok((len, _)) = queue.receive(&mut message) {
            message.truncate(len);
            return Some(message);
        }
    }
    None
}

/// A buffer with this text.
pub(crate) fn text(text: &str) -> Buffer {
    Buffer::string(text).expect("no zero byte")
}

/// The text in a buffer.
pub(crate) fn said(buffer: Option<Buffer>) -> String {
    let buffer = buffer.expect("a buffer");
    let len = buffer.used_len(0).expect("text");
    String::from_utf8(buffer.as_bytes()[..len - 1].to_vec()).expect("text")
}

/// A request that came, with what is needed to answer it.
pub(crate) struct Held {
    client: ClientAddress,
    call_id: u64,
    text: Vec<u8>,
}

/// Serves a service by handing every request to the test.
pub(crate) fn serve_held(pool: &mut Pool, service: &str) -> mpsc::Receiver<Held> {
    let (sender, held) = mpsc::channel();
    pool.serve(service, move |request, _| {
        let Body::Inline(bytes) = request.payload.body else { return };
        let client = request.client;
        let call_id = request.call_id;
        let _ = sender.send(Held { client, call_id, text: bytes.to_vec() });
    });
    held
}

impl Held {
    fn request(&self) -> Request<'_> {
        Request {
            client: self.client,
            call_id: self.call_id,
            cd: 0,
            deadline_ns: 0,
            is_without_reply: false,
            is_in_transaction: false,
            priority: Priority::USUAL,
            service: ServiceName::new("HELD").expect("a name"),
            payload: self.payload(),
        }
    }

    fn payload(&self) -> Payload<'_> {
        Payload {
            buffer_type: Some(BufferType::String),
            buffer_size_bytes: self.text.len() as u64,
            has_info: false,
            body: Body::Inline(&self.text),
        }
    }

    pub(crate) fn answer(&self, pool: &Pool) {
        let replier = Replier { prefix: pool.prefix.clone() };
        replier.answer(&self.request(), self.payload());
    }
}

/// The next request that came.
pub(crate) fn next_held(held: &mpsc::Receiver<Held>) -> Held {
    held.recv_timeout(PATIENCE).expect("a request")
}

/// The next answer: its call and its text.
pub(crate) fn get(client: &mut Client, which: Which) -> Result<(Descriptor, String), Code> {
    match client.answer(which, NONE) {
        Ok(answer) => Ok((answer.descriptor, said(answer.buffer))),
        Err(error) => Err(error.code()),
    }
}
