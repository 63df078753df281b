//! What an operator sees and changes of servers in C while they run: the service that one is inside of, the level that
//! it logs, files that were moved away.

use std::fs;
use std::io::Write as _;

use pollux_testing::{Process, succeeded, wait_for, wait_until};
use serde_json::Value;

use crate::workshop::{POLLUX_POOL, Pool, Workshop};

/// `HOLD` answers when another process has opened the pipe `gate`; `SPEAK` writes a line of each kind; `MOVE` has standard
/// output go into a file of the program's own.
const SERVER: &str = r#"
#include <atmi.h>
#include <ndebug.h>
#include <stdio.h>
void HOLD(TPSVCINFO *call) {
  FILE *gate = fopen("gate", "r");
  if (gate != NULL) { (void)getc(gate); fclose(gate); }
  tpreturn(TPSUCCESS, 0, call->data, 0, 0);
}
void SPEAK(TPSVCINFO *call) {
  TP_LOG(log_error, "an error");
  TP_LOG(log_debug, "a detail");
  fprintf(stderr, "on standard error\n");
  printf("on standard output\n");
  fflush(stdout);
  tpreturn(TPSUCCESS, 0, call->data, 0, 0);
}
void MOVE(TPSVCINFO *call) {
  int ok = freopen("own.out", "w", stdout) != NULL;
  tpreturn(ok ? TPSUCCESS : TPFAIL, 0, call->data, 0, 0);
}
"#;

fn rows(pool: &Pool<'_>) -> Value {
    let printed = succeeded(pool.tool(POLLUX_POOL).args(["ps", "--json"])).stdout;
    serde_json::from_str(&printed).expect("JSON")
}

fn speak(pool: &Pool<'_>) {
    succeeded(pool.tool(POLLUX_POOL).args(["call", "SPEAK", "--string", "x"]));
}

fn order(pool: &Pool<'_>, words: &[&str]) -> String {
    succeeded(pool.tool(POLLUX_POOL).arg("log").args(words)).stderr
}

fn workshop() -> Option<Workshop> {
    let workshop = Workshop::open()?;
    workshop.write("opsv.c", SERVER);
    workshop.pollux(&["build-server", "-o", "opsv", "-s", "HOLD,SPEAK,MOVE", "opsv.c"]);
    Some(workshop)
}

#[test]
fn a_busy_worker_is_shown_with_its_service_and_since_when() {
    let Some(workshop) = workshop() else { return };
    let made = workshop.command("mkfifo", &["gate"]).status().expect("coreutils");
    assert!(made.success());
    for transport in ["memory", "queues"] {
        let pool = Pool::start(
            &workshop,
            &format!(
                "<endurox><appconfig transport=\"{transport}\"/><servers><server name=\"opsv\"><srvid>1</srvid>\
                 <min>1</min><max>1</max></server></servers></endurox>"
            ),
        );
        assert_eq!(rows(&pool)[0]["service"], Value::Null);
        let mut call = pool.tool(POLLUX_POOL);
        let mut caller = Process::start(call.args(["call", "HOLD", "--string", "x"]));
        let busy = wait_for("the service", || {
            let row = rows(&pool)[0].clone();
            (row["service"] == "HOLD").then_some(row)
        });
        assert_eq!(busy["is_busy"], true);
        let first = busy["busy_ms"].as_u64().expect("a number");
        wait_until("time passes", || rows(&pool)[0]["busy_ms"].as_u64() > Some(first));
        let table = succeeded(pool.tool(POLLUX_POOL).arg("ps")).stdout;
        assert!(
            table.lines().next().is_some_and(|heading| heading.contains("SERVICE  ")),
            "{table}"
        );
        assert!(table.contains(" busy ") && table.contains(" HOLD "), "{table}");
        // The other end of the pipe lets the service continue.
        let mut gate =
            fs::OpenOptions::new().write(true).open(workshop.path("gate")).expect("a reader");
        gate.write_all(b"x").expect("read");
        drop(gate);
        assert!(caller.wait().success());
        wait_until("it is idle", || rows(&pool)[0]["service"] == Value::Null);
        pool.stop();
    }
}

#[test]
fn levels_change_and_moved_files_are_begun_anew_while_servers_run() {
    let Some(workshop) = workshop() else { return };
    for transport in ["memory", "queues"] {
        for file in ["opsv.log", "opsv.err", "moved.err", "own.out"] {
            let _ = fs::remove_file(workshop.path(file));
        }
        let folder = workshop.path("").display().to_string();
        let pool = Pool::start(
            &workshop,
            &format!(
                "<endurox><appconfig transport=\"{transport}\"/><servers><server name=\"opsv\"><srvid>1</srvid>\
                 <min>1</min><max>1</max><sysopt>-e opsv.err</sysopt>\
                 <envs><env name=\"NDRX_DEBUG_STR\">tp=2 file={folder}/opsv.log</env></envs>\
                 </server></servers></endurox>"
            ),
        );
        let log = || fs::read_to_string(workshop.path("opsv.log")).unwrap_or_default();
        speak(&pool);
        assert!(log().contains("an error") && !log().contains("a detail"), "{}", log());
        assert_eq!(order(&pool, &["--level", "5", "--name", "opsv"]), "level 5: 1 workers\n");
        // The worker takes the order between two requests.
        wait_until("the level is another", || {
            speak(&pool);
            log().contains("a detail")
        });
        fs::rename(workshop.path("opsv.err"), workshop.path("moved.err")).expect("moved");
        assert_eq!(order(&pool, &["--reopen"]), "logs opened again: 1 workers\n");
        let fresh = || fs::read_to_string(workshop.path("opsv.err")).unwrap_or_default();
        wait_until("the file is another", || {
            speak(&pool);
            fresh().contains("on standard error")
        });
        let old = fs::read_to_string(workshop.path("moved.err")).expect("it is there");
        speak(&pool);
        assert_eq!(fs::read_to_string(workshop.path("moved.err")).expect("there"), old);
        // What the program has put in the place of one of them is its own.
        succeeded(pool.tool(POLLUX_POOL).args(["call", "MOVE", "--string", "x"]));
        for again in ["reload", "log"] {
            let own = || fs::read_to_string(workshop.path("own.out")).unwrap_or_default();
            let seen = [own().len(), fresh().len()];
            let words: &[&str] = if again == "log" { &["log", "--reopen"] } else { &["reload"] };
            succeeded(pool.tool(POLLUX_POOL).args(words));
            // The order has come by then: it came before these requests.
            speak(&pool);
            speak(&pool);
            assert!(own().len() > seen[0], "{again}: {}", own());
            assert!(fresh().len() > seen[1] && !fresh()[seen[1]..].contains("output"), "{again}");
        }
        // What could not be opened is said to the one who orders it.
        fs::remove_file(workshop.path("opsv.err")).expect("it is there");
        fs::create_dir(workshop.path("opsv.err")).expect("a folder in its place");
        let said = succeeded(pool.tool(POLLUX_POOL).arg("reload")).stderr;
        assert!(said.contains("; logs: ") && said.contains("opsv.err"), "{said}");
        fs::remove_dir(workshop.path("opsv.err")).expect("it is empty");
        for (words, code, said) in [
            (&["--level", "7"][..], 2, "--level 7: expected a whole number from 0 to 6"),
            (&[], 2, "--level"),
            (&["--reopen", "--id", "9"], 1, "no worker that runs is meant"),
        ] {
            let refused = Process::run(pool.tool(POLLUX_POOL).arg("log").args(words));
            assert_eq!(refused.status.code(), Some(code), "{}", refused.stderr);
            assert!(refused.stderr.contains(said), "{}", refused.stderr);
        }
        pool.stop();
    }
}
