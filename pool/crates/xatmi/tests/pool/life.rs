//! Pools that are well: start, calls, orders, output files, metrics, reload, end.

use std::ffi::CString;
use std::fs::File;
use std::process::Stdio;
use std::time::Instant;

use pollux_testing::{Process, get};
use pollux_xatmi::client::CallFlags;
use pollux_xatmi::control::Request;
use pollux_xatmi::error::Code;
use pollux_xatmi::supervisor::Selection;

use crate::death::alone;
use crate::support::{ONE, TestPool, copies, echoes, exists, say, text};

pub(crate) const TESTS: &[crate::Test] = &[
    ("copies_start_serve_and_leave_nothing_behind", copies_start_serve_and_leave_nothing_behind),
    ("two_hundred_and_fifty_copies_start_and_stop", two_hundred_and_fifty_copies),
    ("output_goes_to_the_files_of_e_and_o", output_goes_to_the_files_of_e_and_o),
    ("a_second_pool_with_the_prefix_is_refused", a_second_pool_with_the_prefix_is_refused),
    ("standby_copies_start_and_stop_by_hand", standby_copies_start_and_stop_by_hand),
    ("a_restart_gives_every_worker_a_new_process", a_restart_gives_every_worker_a_new_process),
    ("a_reload_starts_and_stops_what_changed", a_reload_starts_and_stops_what_changed),
    ("metrics_are_served_over_http", metrics_are_served_over_http),
    ("a_worker_that_does_not_start_is_reported", a_worker_that_does_not_start_is_reported),
    ("a_client_comes_to_a_pool_with_other_sizes", a_client_comes_to_a_pool_with_other_sizes),
    ("a_log_at_the_limit_on_file_sizes_ends_no_pool", a_log_at_the_limit_on_file_sizes),
];

/// Those that speak of queues themselves.
pub(crate) const QUEUE_TESTS: &[crate::Test] = &[
    ("a_client_that_is_killed_leaves_no_queue", a_client_that_is_killed_leaves_no_queue),
    ("workers_let_go_of_queues_of_clients_that_ended", workers_let_go_of_queues),
];

fn copies_start_serve_and_leave_nothing_behind() {
    let servers = "<server name='testsv'><srvid>5</srvid><min>4</min><max>4</max></server>";
    let mut pool = TestPool::start("<gather_pq_stats>Y</gather_pq_stats>", servers);
    let rows = pool.workers();
    let ids: Vec<u32> = rows.iter().map(|row| row.srvid).collect();
    assert_eq!(ids, [5, 6, 7, 8]);
    assert!(rows.iter().all(|row| row.state == "up" && row.restarts == 0), "{rows:?}");
    let mut client = pool.client();
    for _ in 0..100 {
        echoes(&mut client, "hello");
    }
    let calls: u64 = pool.workers().iter().map(|row| row.calls).sum();
    assert_eq!(calls, 100);
    pool.until("a mean depth is known", |pool| {
        pool.queues().iter().any(|row| row.service == "ECHO" && row.average == Some(0.0))
    });
    let echo: Vec<_> = pool.services().into_iter().filter(|row| row.service == "ECHO").collect();
    assert_eq!(echo.len(), 4);
    assert_eq!(echo.iter().map(|row| row.ok).sum::<u64>(), 100);
    assert!(echo.iter().all(|row| row.function == "ECHO" && row.program == "testsv"), "{echo:?}");
    let unknown =
        client.call("NONE", &text("x"), CallFlags::NONE).expect_err("no worker offers it");
    assert_eq!(unknown.code(), Code::NoEntry);
    drop(client);
    pool.end();
}

/// The times are printed and not judged: the machine may be busy.
fn two_hundred_and_fifty_copies() {
    let mut pool = TestPool::new("", &copies(250));
    let began = Instant::now();
    pool.begin();
    let said = pool.ask(&Request::Settle).expect("all are up");
    say(&format!("250 copies: {said} after {:.2} s", began.elapsed().as_secs_f64()));
    assert_eq!(said, "250 of 250 workers up");
    assert_eq!(pool.workers().len(), 250);
    assert_eq!(pool.services().len(), 1000);
    echoes(&mut pool.client(), "hello");
    let began = Instant::now();
    pool.end();
    say(&format!("250 copies: stopped after {:.2} s", began.elapsed().as_secs_f64()));
}

fn output_goes_to_the_files_of_e_and_o() {
    let mut pool = TestPool::new("", "");
    let path = |name: &str| pool.folder.path().join(name);
    let error = path("error");
    let out = path("out");
    std::fs::write(&error, "kept\n").expect("a file");
    let server = |id: u32, options: &str| {
        format!("<server name='testsv'><srvid>{id}</srvid><sysopt>{options}</sysopt></server>")
    };
    let both = format!("-e '{}' -r", error.display());
    let apart = format!("-e '{}' -o '{}'", path("error2").display(), out.display());
    pool.configure("", &(server(1, &both) + &server(2, &apart)));
    pool.begin();
    pool.ask(&Request::Settle).expect("all are up");
    pool.end();
    let read = |name: &str| std::fs::read_to_string(pool.folder.path().join(name)).expect("a file");
    let first = read("error");
    assert!(first.starts_with("kept\n"), "it is appended to: {first}");
    for line in ["begins\n", "worker prints\n", "worker ends\n"] {
        assert!(first.contains(line), "{first}");
    }
    assert_eq!(read("out"), "worker prints\n");
    assert!(read("error2").contains("worker ends\n") && !read("error2").contains("prints"));
}

fn a_second_pool_with_the_prefix_is_refused() {
    let mut first = TestPool::start("", ONE);
    let mut second = TestPool::new("", ONE);
    second.prefix = first.prefix.clone();
    let said = second.try_begin().expect_err("one is enough");
    assert!(said.contains("runs already, as process"), "{said}");
    assert!(said.contains("pollux pool stop"), "{said}");
    assert_eq!(first.worker(1).state, "up");
    first.end();
}

fn standby_copies_start_and_stop_by_hand() {
    let servers = "<server name='testsv'><srvid>1</srvid><min>1</min><max>3</max></server>";
    let mut pool = TestPool::start("", servers);
    assert_eq!(pool.worker(3).state, "down");
    pool.ask(&Request::Start { what: Selection::Id(3) }).expect("it starts");
    assert_eq!(pool.worker(3).state, "up");
    pool.ask(&Request::Stop { what: Selection::Id(1) }).expect("it stops");
    assert_eq!((pool.worker(1).state.as_str(), pool.worker(1).pid), ("down", None));
    assert!(pool.has_queue("ECHO"), "worker 3 offers it");
    pool.ask(&Request::Stop { what: Selection::Program("testsv".to_owned()) }).expect("stops");
    pool.until("the service is withdrawn", |pool| !pool.has_queue("ECHO"));
    let unknown = pool.ask(&Request::Start { what: Selection::Id(4) }).expect_err("no such id");
    assert!(unknown.to_string().contains("id 4"), "{unknown}");
    pool.end();
}

fn a_restart_gives_every_worker_a_new_process() {
    let mut pool = TestPool::start("", &copies(3));
    let before = [1, 2, 3].map(|id| pool.pid(id));
    let said = pool
        .ask(&Request::Restart { what: Selection::All, is_for_running: false })
        .expect("they come back");
    assert!(said.starts_with("3 of 3"), "{said}");
    let after = [1, 2, 3].map(|id| pool.pid(id));
    assert!(before.iter().all(|pid| !after.contains(pid)), "{before:?} {after:?}");
    assert!(pool.has_queue("ECHO"));
    let mut client = pool.client();
    client.call("ECHO", &text("again"), CallFlags::NONE).expect("it serves");
    pool.end();
}

fn a_reload_starts_and_stops_what_changed() {
    let first = ONE;
    let second = "<server name='testsv'><srvid>10</srvid><appopt>other</appopt></server>";
    let mut pool = TestPool::start("", first);
    let kept = pool.pid(1);
    pool.configure("", &format!("{first}{second}"));
    pool.ask(&Request::Reload).expect("it is right");
    pool.ask(&Request::Settle).expect("all are up");
    assert_eq!((pool.pid(1), pool.worker(10).state.as_str()), (kept, "up"));
    assert!(pool.has_queue("OTHER"));
    pool.configure("", "<server name='a/b'><srvid>1</srvid></server>");
    let said = pool.ask(&Request::Reload).expect_err("it is wrong").to_string();
    assert!(said.contains("pool.xml:1"), "{said}");
    pool.configure("", second);
    pool.ask(&Request::Reload).expect("it is right");
    pool.until("worker 1 is gone", |pool| pool.workers().len() == 1);
    assert!(pool.has_queue("OTHER") && !pool.has_queue("ECHO"));
    pool.end();
}

/// A client context in a process of its own.
pub(crate) struct Context {
    process: Process,
    queues: Vec<CString>,
}

impl Context {
    /// One that has greeted the manager.
    pub(crate) fn begin(pool: &TestPool) -> Self {
        let mut process = Process::start(pool.role("client").stdin(Stdio::piped()));
        process.wait_for_stderr_line(crate::CONNECTED);
        let queue = |context| pool.prefix.reply_queue(process.id(), context);
        let queues = (0..10).map(queue).collect();
        let context = Self { process, queues };
        assert!(context.has_queue(), "it has a reply queue");
        context
    }

    pub(crate) fn has_queue(&self) -> bool {
        self.queues.iter().any(exists)
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }
}

fn a_client_that_is_killed_leaves_no_queue() {
    let mut pool = TestPool::start("", ONE);
    let mut client = Context::begin(&pool);
    client.kill();
    pool.until("its queue is removed", |_| !client.has_queue());
    pool.end();
}

/// A queue that is held open is charged to its user, without a name as well.
fn workers_let_go_of_queues() {
    let mut pool = TestPool::start("", ONE);
    let worker = pool.pid(1);
    let held = |_: &TestPool| {
        let files = std::fs::read_dir(format!("/proc/{worker}/fd")).expect("it runs");
        let names = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        names.filter(|name| name.to_string_lossy().contains(",clt,reply,")).count()
    };
    let mut clients: Vec<_> = (0..5).map(|_| pool.client()).collect();
    for client in &mut clients {
        client.call("ECHO", &text("x"), CallFlags::NONE).expect("it serves");
    }
    assert_eq!(held(&pool), 5, "they are kept for the next call");
    drop(clients);
    pool.until("they are let go", |pool| held(pool) == 0);
    assert!((1..=5).contains(&pool.count("worker_sweeps")), "one for many ends");
    pool.end();
}

fn metrics_are_served_over_http() {
    let mut pool = TestPool::new("", &copies(2)).with_metrics();
    pool.begin();
    pool.ask(&Request::Settle).expect("all are up");
    pool.client().call("ECHO", &text("x"), CallFlags::NONE).expect("it serves");
    let address = pool.metrics_address().parse().expect("an address");
    let wanted = "pollux_pool_workers{program=\"testsv\",state=\"up\"} 2";
    pool.until("the page has both workers", |_| get(address, "/metrics").contains(wanted));
    let page = get(address, "/metrics");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("pollux_pool_worker_starts_total 2\n"), "{page}");
    let helps: Vec<(&str, &str)> =
        page.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' ')).collect();
    assert!(helps.len() > 10, "{page}");
    let listed = include_str!("../../../../../docs/reference/metrics.md");
    for (name, help) in helps {
        assert!(
            listed.contains(&format!("| `{name}` |")),
            "{name} is not in docs/reference/metrics.md"
        );
        assert!(!help.ends_with('.'), "{name}: {help}");
        let has_unit = help.to_lowercase().contains("seconds");
        assert_eq!(name.contains("_seconds"), has_unit, "{name}: {help}");
    }
    assert!(page.contains("pollux_pool_queue_messages{service=\"ECHO\"} 0\n"), "{page}");
    assert!(get(address, "/").starts_with("HTTP/1.1 404 "));
    pool.end();
}

fn a_worker_that_does_not_start_is_reported() {
    let servers = "<server name='testsv'><srvid>1</srvid><appopt>refuse</appopt></server>\
                   <server name='nosuch'><srvid>2</srvid></server>\
                   <server name='testsv'><srvid>3</srvid></server>";
    let mut pool = TestPool::new("<restart_max>1</restart_max>", servers);
    pool.begin();
    let said = pool.ask(&Request::Settle).expect_err("two fail").to_string();
    assert!(said.starts_with("2 of 3 workers are not up"), "{said}");
    pool.until("the reasons are listed", |pool| {
        let cause = |id| pool.worker(id).cause.unwrap_or_default();
        cause(1).contains("no database") && cause(2).contains("no executable nosuch in PATH")
    });
    assert_eq!(pool.worker(3).state, "up");
    pool.until("they are tried again", |pool| pool.worker(1).restarts > 0);
    pool.end();
}

fn a_client_comes_to_a_pool_with_other_sizes() {
    let _alone = alone();
    let mut pool = TestPool::new("", ONE);
    pool.message_len_bytes = 2_048;
    pool.begin();
    pool.ask(&Request::Settle).expect("it is up");
    let mut client = pool.client();
    echoes(&mut client, "as before");
    for message_len_bytes in [512, 2_048] {
        pool.end();
        pool.message_len_bytes = message_len_bytes;
        pool.begin();
        pool.ask(&Request::Settle).expect("it is up");
        for len_bytes in [10, 1_000, 1_900, 10_000] {
            echoes(&mut client, &"x".repeat(len_bytes));
        }
        let row = pool.queues().into_iter().find(|row| row.service == "ECHO");
        assert_eq!(row.expect("it is offered").message_len_bytes, message_len_bytes);
    }
    assert_eq!(client.counters().managers_followed, 2);
    pool.end();
}

fn a_log_at_the_limit_on_file_sizes() {
    // Above the memory of the pool, and room for no line.
    const LIMIT: u64 = 64 << 20;
    let mut pool = TestPool::new("", "");
    let output = pool.folder.path().join("worker.out");
    let sysopt = format!("<sysopt>-e {} -r</sysopt>", output.display());
    pool.configure("", &format!("<server name='testsv'><srvid>1</srvid>{sysopt}</server>"));
    let log = File::create(pool.config().with_extension("log")).expect("a log");
    log.set_len(LIMIT - 10).expect("a file with a hole");
    pool.file_size_max = Some(LIMIT);
    pool.begin();
    pool.ask(&Request::Settle).expect("it is up");
    echoes(&mut pool.client(), "the log has no reader");
    assert!(pool.count("log_lines_lost") > 0);
    log.set_len(0).expect("there is room again");
    pool.end();
    assert!(pool.log().contains(" lines before this one could not be written"), "{}", pool.log());
}
