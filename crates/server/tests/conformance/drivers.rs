//! The table put before real servers, one for each driver and set-up.
//!
//! Every case is sent whole over TCP; those that are refused also with more bytes behind them, as
//! by a client that has not seen the refusal yet. Over unix sockets every case is sent whole, byte
//! by byte (in pieces of 997 bytes when it has more than 2048) and split in two. Up to
//! [`EVERY_OFFSET_MAX`] bytes that is at every offset, and most of the table is no longer; longer
//! requests are split at about [`OFFSETS`] offsets and around the end of their first head, for the
//! time: a megabyte has a million offsets. `rehearsed.rs` splits more, without a kernel.
//!
//! What comes has to be what the rehearsal gave, byte for byte, but for what [`compare`] names.

use std::collections::VecDeque;
use std::sync::Mutex;

use pollux_engine::{Counter, Driver, GroupError};
use pollux_server::{Server, ServerError};

use crate::case::Setup;
use crate::lockstep::{Job, Lockstep};
use crate::sending::{Came, Way, compare, references};
use crate::stage::{SETUPS, Scene, Stage};

const EVERY_OFFSET_MAX: usize = 512;
const OFFSETS: usize = 50;
/// Bytes that follow a refused request, twice.
const MORE: usize = 1000;
/// Connections at once. Both ends are in this process, and `select` knows 1024 descriptors.
const BATCH: usize = 100;
/// Drivers at once, for a server and its clients take turns.
const DRIVERS_AT_ONCE: usize = 2;

#[test]
fn every_driver_keeps_the_table_however_it_is_sent() {
    let stage = Stage::new();
    let references = references(&stage);
    let waiting: Mutex<VecDeque<Driver>> = Mutex::new(Driver::ALL.into());
    let faults = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..DRIVERS_AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("no panic under it").pop_front();
                    let Some(driver) = next else { break };
                    let found = faults_of(driver, &stage, &references);
                    faults.lock().expect("no panic under it").extend(found);
                }
            });
        }
    });
    let faults = faults.into_inner().expect("no panic under it");
    let shown = faults.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(faults.is_empty(), "{} faults:\n{shown}", faults.len());
}

/// Starts a server with a TCP and a unix address; none where the driver is not to be had.
pub(crate) fn start(stage: &Stage, setup: Setup, driver: Driver) -> Option<Server> {
    let path = stage.folder().join(format!("{driver}-{setup:?}"));
    let listen = format!("listen = [\"127.0.0.1:0\", \"unix:{}\"]", path.display());
    let config = stage.config(setup, &format!("poller = \"{driver}\"\n{listen}"));
    match Server::start(&config) {
        Ok(server) => Some(server),
        Err(ServerError::Group { cause: GroupError::Loop(reason), .. }) => {
            skip(driver, &reason.to_string());
            None
        }
        Err(error) => panic!("{driver}: {error}"),
    }
}

#[expect(clippy::print_stdout, reason = "a skipped driver is named")]
fn skip(driver: Driver, reason: &str) {
    assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "{driver}: {reason}");
    println!("{driver} is skipped: {reason}");
}

/// Ends a server, which has to end well.
pub(crate) fn end(driver: Driver, server: Server) {
    server.abort();
    server.join().unwrap_or_else(|error| panic!("{driver}: {error}"));
}

fn faults_of(driver: Driver, stage: &Stage, references: &[Came]) -> Vec<String> {
    let mut faults = Vec::new();
    for setup in SETUPS {
        let Some(server) = start(stage, setup, driver) else { break };
        let [tcp, unix] = server.addresses() else { panic!("two were asked for") };
        let probe_answer = stage.answer_to_probe(setup);
        let scenes = stage.scenes.iter().zip(references);
        let scenes: Vec<_> = scenes.filter(|(scene, _)| scene.case.setup == setup).collect();
        let mut over_tcp = Lockstep::new(&server, tcp, 0, probe_answer);
        faults.extend(play(&mut over_tcp, &jobs(&scenes, |_| vec![Way::Whole])));
        let refused = scenes.iter().filter(|(scene, _)| scene.case.is_refused());
        let refused: Vec<_> = refused.map(|&(scene, came)| (scene.followed(MORE), came)).collect();
        let refused: Vec<_> = refused.iter().map(|(scene, came)| (scene, *came)).collect();
        faults.extend(play(&mut over_tcp, &jobs(&refused, |_| vec![Way::Followed(MORE)])));
        let ways = |scene: &Scene| Way::all(&scene.request, EVERY_OFFSET_MAX, OFFSETS);
        let mut over_unix = Lockstep::new(&server, unix, over_tcp.connects(), probe_answer);
        faults.extend(play(&mut over_unix, &jobs(&scenes, ways)));
        let engine = &server.overview().loops[0].engine;
        let reads = engine.value(Counter::Receives) - engine.value(Counter::ReceivesEmpty);
        let pieces = over_tcp.pieces() + over_unix.pieces();
        assert!(reads >= pieces, "{driver}: {pieces} pieces were read at {reads} times");
        end(driver, server);
    }
    faults.iter().map(|fault| format!("{driver}, {fault}")).collect()
}

/// Plays all jobs, so many at once; what is wrong with what came.
fn play(lockstep: &mut Lockstep<'_>, jobs: &[Job<'_>]) -> Vec<String> {
    let mut faults = Vec::new();
    for jobs in jobs.chunks(BATCH) {
        for (job, came) in jobs.iter().zip(lockstep.play(jobs)) {
            let Job { scene: Scene { case, .. }, reference, way } = job;
            if let Err(fault) = compare(&way.judged(case), reference, &came) {
                faults.push(format!("{} ({}), {way:?}: {fault}", case.name, case.rfc));
            }
        }
    }
    faults
}

/// The jobs of all scenes; those of as many steps stand together, for they wait for each other.
fn jobs<'a>(scenes: &[(&'a Scene, &'a Came)], ways: impl Fn(&Scene) -> Vec<Way>) -> Vec<Job<'a>> {
    let of = |&(scene, reference): &(&'a Scene, &'a Came)| {
        ways(scene).into_iter().map(move |way| Job { scene, reference, way })
    };
    let mut jobs: Vec<_> = scenes.iter().flat_map(of).collect();
    jobs.sort_by_key(|job| match job.way {
        Way::Pieces(bytes) => job.scene.request.len().div_ceil(bytes),
        Way::Whole | Way::Split(_) | Way::Followed(_) => 0,
    });
    jobs
}
