//! The server of all pools in these tests: what it offers are the words of its `<appopt>`.

use std::ffi::OsString;
use std::process::ExitCode;

use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::client::{CallFlags, Client};
use pollux_xatmi::environment::Environment;
use pollux_xatmi::queue::ServiceName;
use pollux_xatmi::worker::{Done, Incoming, RVAL_EXIT, RVAL_SUCCESS, Registry, Return, Worker};

/// What the reply of `EXIT` has for tpurcode.
pub(crate) const EXIT_URCODE: i64 = 77;

/// A worker, until the pool stops.
pub(crate) fn run() -> ExitCode {
    let worker = Worker::from_environment().expect("a manager started it");
    let registry = worker.registry();
    let ended = worker.run(
        std::env::args_os(),
        |options| options.iter().try_for_each(|option| offer(&registry, option)),
        || {},
    );
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `NAME` echoes, unless it is one of those below; `HOLD=FIFO` waits until something is written there.
fn offer(registry: &Registry, option: &OsString) -> Result<(), String> {
    let option = option.to_string_lossy();
    let (name, path) = option.split_once('=').unwrap_or((&option, ""));
    let path = path.to_owned();
    let offered = match name {
        "FAIL" => registry.advertise(name, "fail", |request| Done::failure(request.buffer)),
        "EXIT" => registry.advertise(name, "exit", exit),
        "GROW" => registry.advertise(name, "grow", grow),
        "PASS" => registry.advertise(name, "pass", pass),
        "NEST" => registry.advertise(name, "nest", nest),
        "HOLD" => registry.advertise(name, "hold", move |request| {
            // Opened when the test opens the other end, read when it writes.
            std::fs::read(&path).expect("a pipe");
            Done::success(request.buffer)
        }),
        _ => registry.advertise(name, "echo", |request| Done::success(request.buffer)),
    };
    offered.map_err(|error| error.to_string())
}

/// Ends this worker after the reply.
fn exit(request: Incoming) -> Done {
    Done::Return(Return {
        rval: RVAL_SUCCESS | RVAL_EXIT,
        urcode: EXIT_URCODE,
        len_bytes: request.len_bytes,
        buffer: request.buffer,
        call_info: None,
        soft_error: None,
        is_abort_only: false,
    })
}

/// As many bytes as the text says.
fn grow(request: Incoming) -> Done {
    let buffer = request.buffer.expect("a number");
    let text = String::from_utf8_lossy(&buffer.as_bytes()[..request.len_bytes]);
    let len = text.trim_end_matches('\0').parse().expect("a number");
    Done::success(Buffer::carray(&vec![9; len]).expect("bytes"))
}

/// Leaves the answer to the service of another host.
fn pass(request: Incoming) -> Done {
    let service = ServiceName::new("ECHO").expect("a name");
    Done::Forward {
        service,
        buffer: request.buffer,
        len_bytes: request.len_bytes,
        call_info: None,
        priority: None,
    }
}

/// Asks the service of another host and answers by itself.
fn nest(request: Incoming) -> Done {
    let environment = Environment::of_process().expect("a pool's");
    let mut client = Client::open(&environment).expect("the pool runs");
    let buffer = request.buffer.expect("data");
    match client.call("ECHO", &buffer, CallFlags::NONE) {
        Ok(answer) => Done::success(answer.buffer),
        Err(_) => Done::failure(None),
    }
}
