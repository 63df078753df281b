//! What an agent gives up, and what it offers to a scraper; it carries out orders as before.

use pollux_engine::Driver;
use pollux_load::{Outcome, Plan};
use pollux_sys::sandbox::{try_calls, try_files};
use pollux_testing::{addresses, get, wait_until};

use crate::broker::Broker;
use crate::driven::{Driven, agent, counted};
use crate::server::Counting;

/// On every mechanism, with names to look up, results to write and a page to offer.
pub(crate) fn orders_are_carried_out_in_the_sandbox() -> Result<(), String> {
    let available = try_files().map(drop).and_then(|()| try_calls());
    available.map_err(|error| error.to_string())?;
    let broker = Broker::start(&[]);
    let server = Counting::start();
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().to_str().expect("text");
    let free = ["--no-sandbox", "--group", "free"];
    let mut free = agent(&broker, "a", &free);
    let flags = ["--require-sandbox", "--allow", "localhost", "--results", results];
    let flags = [&flags[..], &["--prometheus", "127.0.0.1:0", "--source", "127.0.0.1"]].concat();
    let mut confined = agent(&broker, "a", &flags);
    let said = confined.stderr_lines().join("\n");
    assert!(said.contains("sandbox: no new privileges, landlock (ABI"), "{said}");
    assert!(said.contains("), seccomp"), "{said}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", confined.id()));
    let status = status.expect("it runs");
    assert!(status.contains("Seccomp:\t2\n") && status.contains("NoNewPrivs:\t1\n"), "{status}");
    let mut orders = 0;
    for driver in Driver::ALL {
        let plan = Plan { driver, ..counted(&server.url(), 120) };
        let ended = |flags: &[&str]| Driven::start_named(&broker, &plan, flags).end();
        match ended(&[]) {
            Ok(outcome) => {
                let Outcome { totals, setting, .. } = outcome;
                assert_eq!((totals.answered, &*setting.driver), (120, driver.name()));
                orders += 1;
            }
            // A machine may forbid it to all.
            Err(why) => {
                let free = ended(&["--group", "free"]);
                assert!(free.is_err(), "{driver}: {why}");
            }
        }
    }
    assert!(orders > 0, "no mechanism works here");
    assert_eq!(std::fs::read_dir(folder.path()).expect("it was made").count(), orders);
    let page = addresses(&said)[0];
    let shows = |line: &str| get(page, "/metrics").contains(line);
    wait_until("the page has all orders", || {
        shows(&format!("pollux_agent_orders_finished_total {orders}\n"))
    });
    assert!(shows("pollux_agent_broker_connected 1\n") && shows("pollux_agent_busy 0\n"));
    // An order whose target no name allows is counted there as well, and one that asks for too much.
    let away = counted("http://192.0.2.1/", 120);
    Driven::start(&broker, &away, 1).end().expect_err("it is not allowed");
    wait_until("the page has it", || shows("pollux_agent_orders_failed_total 1\n"));
    let crowded = Plan { connections: 20_000, ..counted(&server.url(), 20_000) };
    Driven::start(&broker, &crowded, 1).end().expect_err("it is too much");
    wait_until("the page has it", || shows("pollux_agent_orders_refused_total 1\n"));
    for agent in [&mut free, &mut confined] {
        agent.signal(pollux_testing::Signal::TERM);
        assert!(agent.wait().success());
    }
    Ok(())
}
