//! Workers as processes, with a small stand-in for the manager.
//!
//! Each worker is this binary, started again: [`a_worker_process`] is its main function, and
//! [`function`] its services.

mod calls;
mod ends_and_wakes;
mod stand_in;

use std::ffi::OsString;
use std::fs::File;

use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::client::{CallFlags, Client, Outgoing};
use pollux_xatmi::environment::Environment;
use pollux_xatmi::error::Code;
use pollux_xatmi::queue::ServiceName;
use pollux_xatmi::worker::{
    Done, Ending, Incoming, RVAL_EXIT, RVAL_SUCCESS, Registry, Return, Worker,
};

/// Not a test of its own: the body of the processes that the tests start.
#[test]
fn a_worker_process() {
    if std::env::var_os(pollux_xatmi::worker::LINK_VARIABLE).is_some() {
        std::process::exit(run());
    }
}

/// Which services the process offers, with commas between them.
const SERVICES: &str = "POLLUX_TEST_SERVICES";
/// A file that keeps services busy as long as the test has it locked.
const GATE: &str = "POLLUX_TEST_GATE";
/// What to add to the command line.
const ARGUMENTS: &str = "POLLUX_TEST_ARGUMENTS";

/// The exit code of a worker that the start function refused.
const REFUSED: i32 = 3;
/// The exit code of a worker that panicked.
const PANICKED: i32 = 4;
/// The exit code of a worker that returned with TPEXIT.
const EXITED: i32 = 5;

/// Runs a worker to its end; its exit code.
fn run() -> i32 {
    let worker = Worker::from_environment().expect("started by a test");
    let registry = worker.registry();
    let services = std::env::var(SERVICES).expect("set by the test");
    let more = std::env::var(ARGUMENTS).unwrap_or_default();
    let arguments = ["worker"].into_iter().chain(more.split_whitespace()).map(OsString::from);
    let init = |_: &[OsString]| {
        if services == "REFUSE" {
            return Err("not today".to_owned());
        }
        for service in services.split(',') {
            let offered = registry.advertise(service, service, function(service, &registry));
            offered.map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    match worker.run(arguments, init, || {}) {
        Ok(Ending::Stopped) => 0,
        Ok(Ending::Exited) => EXITED,
        Ok(Ending::Panicked { .. }) => PANICKED,
        Ok(Ending::Abandoned) => 6,
        Err(error) if error.code() == Code::Init => REFUSED,
        Err(error) => panic!("{error}"),
    }
}

fn function(service: &str, registry: &Registry) -> Box<dyn FnMut(Incoming) -> Done> {
    let (registry, mut client) = (registry.clone(), None);
    match service {
        "FAIL" => Box::new(|request| Done::failure(request.buffer)),
        "NOTHING" => Box::new(|_| Done::NoReturn),
        "PANIC" => Box::new(|_| panic!("the service is broken")),
        "EXIT" => Box::new(|request| returning(request, RVAL_SUCCESS | RVAL_EXIT, 0)),
        "HOLD" => Box::new(|request| {
            pass_gate();
            Done::success(request.buffer)
        }),
        "RELAY" => Box::new(|request| forward(request, "ECHO")),
        "TWICE" => Box::new(|request| forward(request, "RELAY")),
        "ASTRAY" => Box::new(|request| forward(request, "NOBODY")),
        "ADVERTISE" => Box::new(move |request| {
            let name = text(&request);
            let offered = registry.advertise(&name, "echo", |later| Done::success(later.buffer));
            let code = offered.map_or_else(|error| error.code().number(), |()| 0);
            returning(request, RVAL_SUCCESS, code.into())
        }),
        "WITHDRAW" => Box::new(move |request| {
            let code = registry.unadvertise(&text(&request));
            let code = code.map_or_else(|error| error.code().number(), |()| 0);
            returning(request, RVAL_SUCCESS, code.into())
        }),
        "NESTED" => Box::new(move |request| {
            let environment = Environment::of_process().expect("set by the test");
            let client = client.get_or_insert_with(|| Client::open(&environment).expect("a pool"));
            let mut room = [0; 64];
            let bytes = &request.buffer.as_ref().expect("sent with one").as_bytes()[..4];
            let sent = Outgoing {
                buffer_type: Some(pollux_xatmi::buffer::BufferType::Carray),
                buffer_size_bytes: 64,
                bytes,
            };
            let arrived = client.call_into("ECHO", sent, CallFlags::NONE, |arriving| {
                Ok(&mut room[..arriving.len_bytes])
            });
            let len = arrived.expect("answered").payload.len_bytes;
            Done::success(Buffer::carray(&room[..len]).expect("small"))
        }),
        _ => Box::new(|request| returning(request, RVAL_SUCCESS, 42)),
    }
}

/// The request's data, sent back as it came.
fn returning(request: Incoming, rval: i32, urcode: i64) -> Done {
    let Incoming { buffer, len_bytes, .. } = request;
    Done::Return(Return { rval, urcode, buffer, len_bytes, soft_error: None })
}

fn forward(request: Incoming, service: &str) -> Done {
    let service = ServiceName::new(service).expect("a name");
    let Incoming { buffer, len_bytes, .. } = request;
    Done::Forward { service, buffer, len_bytes }
}

fn text(request: &Incoming) -> String {
    let buffer = request.buffer.as_ref().expect("sent with one");
    String::from_utf8(buffer.as_bytes()[..request.len_bytes].to_vec()).expect("text")
}

fn pass_gate() {
    let path = std::env::var_os(GATE).expect("set by the test");
    let gate = File::open(path).expect("made by the test");
    rustix::fs::flock(gate, rustix::fs::FlockOperation::LockShared).expect("a lock");
}
