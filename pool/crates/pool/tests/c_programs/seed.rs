//! The bank of seed 4: its client, server and configuration, taken from the document as they are.
//!
//! Only paths are changed, and in the ordinary tests two numbers: copies and calls. The whole run,
//! 250 copies and 1,000,000 calls, is for release builds.

use std::fs;
use std::path::{Path, PathBuf};

use pollux_testing::{skip, succeeded};

use crate::workshop::{CLIENT_LIBRARIES, Pool, SERVER_LIBRARIES, Workshop, repository};

/// The document with the sources.
const DOCUMENT: &str = "004_1aefc34da9e286d5.txt";
/// Client, server and configuration of the document.
struct Seed {
    client: String,
    server: String,
    xml: String,
}

impl Seed {
    fn read() -> Option<Self> {
        let folder = std::env::var_os("POLLUX_SEEDS").map_or_else(beside, PathBuf::from);
        let path = folder.join(DOCUMENT);
        let Ok(text) = fs::read_to_string(&path) else {
            skip(format_args!("{}: not there; POLLUX_SEEDS names the folder", path.display()));
            return None;
        };
        let between = |from: &str, to: &str| {
            let rest = text.split_once(from).expect("a heading").1;
            rest.split_once(to).expect("the next heading").0.to_owned()
        };
        let server = between("Test server app", "Enduro/X runtime config");
        let code = server.find("#include").expect("a first line");
        Some(Self {
            client: between("Client source code:", "Test server app"),
            server: server[code..].to_owned(),
            xml: format!("<?xml{}</endurox>", between("<?xml", "</endurox>")),
        })
    }

    /// Builds both programs with the seed's link lines, and starts the pool.
    fn pool<'a>(&self, workshop: &'a Workshop, copies: u32) -> Pool<'a> {
        let bank = repository("examples/bank/bank.fd").display().to_string();
        workshop.pollux(&["fld", &bank, "-d", "."]);
        build(workshop, "banksv", &self.server, SERVER_LIBRARIES);
        build(workshop, "bankcl", &self.client, CLIENT_LIBRARIES);
        let logs = workshop.path("").display().to_string();
        let xml = self.xml.replace("/opt/app1/log/", &logs).replace("250<", &format!("{copies}<"));
        Pool::start(workshop, &xml)
    }
}

/// The folder beside the repository.
fn beside() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/seeds")
}

/// Warnings of the seed's own code are its own; none may point at a header of ours.
fn build(workshop: &Workshop, name: &str, source: &str, libraries: &str) {
    workshop.write(&format!("{name}.c"), source);
    let said = workshop.linked(name, libraries).stderr;
    let ours = |line: &&str| ["atmi.h:", "ubf.h:", "bank.fd.h:"].iter().any(|h| line.contains(h));
    assert_eq!(said.lines().find(ours), None, "a warning from our headers");
}

/// The client's ten lines, and nothing else.
fn assert_ten_balances(printed: &str) {
    let is_balance =
        |line: &str| line.starts_with("Account balance is: ") && line.ends_with(" USD");
    assert!(printed.lines().count() == 10 && printed.lines().all(is_balance), "{printed}");
}

#[test]
fn the_bank_of_the_seed_runs_with_fewer_copies_and_calls() {
    let Some(seed) = Seed::read() else { return };
    let Some(workshop) = Workshop::open() else { return };
    let fewer = seed.client.replace("1000000/THREADCOUNT", "1000/THREADCOUNT");
    assert_ne!(fewer, seed.client, "the seed's number of calls");
    let seed = Seed { client: fewer, ..seed };
    let pool = seed.pool(&workshop, 20);
    assert_ten_balances(&succeeded(&mut pool.client("bankcl")).stdout);
    pool.stop();
    // Each copy's tpsvrdone writes to the file of -e.
    let log = fs::read_to_string(workshop.path("BANKSV")).expect("the servers' output");
    assert_eq!(log.matches("tpsvrdone called").count(), 20, "{log}");
}

/// Half a minute even when optimised: `cargo test --release -p pollux-pool --test c_programs`.
#[cfg(not(debug_assertions))]
#[test]
fn the_bank_of_the_seed_runs_as_it_is() {
    let Some(seed) = Seed::read() else { return };
    let Some(workshop) = Workshop::open() else { return };
    let pool = seed.pool(&workshop, 250);
    assert_ten_balances(&succeeded(&mut pool.client("bankcl")).stdout);
    pool.stop();
    let log = fs::read_to_string(workshop.path("BANKSV")).expect("the servers' output");
    assert_eq!(log.matches("tpsvrdone called").count(), 250);
}
