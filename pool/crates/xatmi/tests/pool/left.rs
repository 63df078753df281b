//! What must not be left: processes that workers have started, queues, callers without an answer.

use std::time::{Duration, Instant};

use pollux_testing::{DEADLINE, await_end, is_running, skip};
use pollux_xatmi::client::{CallFlags, Which};
use pollux_xatmi::control::{MailboxRow, Request};
use pollux_xatmi::error::Code;
use pollux_xatmi::events::{Mailbox, Subscriptions, mailboxes, subscribers};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::support::{ONE, TestPool, kill_and_wait, number, text};

pub(crate) const TESTS: &[crate::Test] = &[
    ("a_child_of_a_worker_is_not_taken_for_it_and_ends_with_it", a_child_of_a_worker),
    ("a_worker_of_another_program_is_replaced_at_once", a_worker_of_another_program),
    ("more_callers_than_a_reply_queue_holds_are_answered_at_the_end", more_callers_than_fit),
    ("a_queue_that_filled_while_no_process_lived_is_served", a_queue_that_filled_is_served),
    ("a_start_that_hangs_and_heeds_no_signal_is_killed", a_start_that_hangs_is_killed),
    ("a_pipe_without_a_reader_delays_no_other_worker", a_pipe_without_a_reader),
    ("mailboxes_and_subscriptions_come_to_the_next_manager", subscriptions_come_along),
];

/// Those that speak of queues themselves.
pub(crate) const QUEUE_TESTS: &[crate::Test] = &[
    ("queues_that_no_worker_took_over_are_removed", queues_that_no_worker_took_over),
    ("a_worker_that_cant_report_keeps_its_queues", a_worker_that_cant_report),
    ("callers_of_a_pool_that_was_killed_are_answered", callers_of_a_pool_that_was_killed),
];

/// Processes that workers of the pool have started so far.
fn children(pool: &TestPool) -> Vec<u32> {
    let log = pool.log();
    let lines = log.lines().filter_map(|line| line.strip_prefix("child ")?.strip_suffix(" begins"));
    lines.map(|pid| pid.parse().expect("a process")).collect()
}

fn a_child_of_a_worker() {
    let servers = "<server name='testsv'><srvid>1</srvid><appopt>fork</appopt></server>";
    let mut pool = TestPool::start("<restart_to_check>50</restart_to_check>", servers);
    pool.until("its child runs", |pool| children(pool).len() == 1);
    let before = pool.pid(1);
    let child = children(&pool)[0];
    pool.kill_manager();
    pool.begin();
    pool.ask(&Request::Settle).expect("it is up");
    assert_eq!((pool.pid(1), pool.count("worker_adoptions")), (before, 1));
    assert!(is_running(number(child)));
    // One that was taken over, then one that was started.
    kill_and_wait(before);
    pool.until("it is replaced", |pool| pool.worker(1).state == "up" && children(pool).len() == 2);
    pool.until("its child is gone", |_| !is_running(number(child)));
    pool.end();
    children(&pool).into_iter().map(number).for_each(await_end);
}

fn queues_that_no_worker_took_over() {
    let other = "<server name='testsv'><srvid>2</srvid><appopt>other</appopt></server>";
    let mut pool = TestPool::new("", &format!("{ONE}{other}"));
    let place = pool.folder.path().join("queues");
    std::fs::create_dir(&place).expect("a folder");
    if let Err(errno) = mount("none", &place, "mqueue", MountFlags::empty(), None) {
        // Without the list of queues it is not known which ones are left.
        return skip(format_args!("mount: {errno}"));
    }
    pool.queues = Some(place.clone());
    pool.begin();
    pool.ask(&Request::Settle).expect("all are up");
    let kept = pool.pid(1);
    let gone = pool.pid(2);
    pool.kill_manager();
    kill_and_wait(gone);
    pool.configure("", ONE);
    pool.begin();
    pool.ask(&Request::Settle).expect("it is up");
    assert_eq!(pool.pid(1), kept);
    pool.until("the queue is removed", |pool| !pool.has_queue("OTHER"));
    assert!(pool.has_queue("ECHO"));
    pool.end();
    unmount(&place, UnmountFlags::DETACH).expect("it was mounted");
}

fn a_worker_of_another_program() {
    let app = "<restart_to_check>50</restart_to_check><restart_min>50</restart_min>\
               <restart_max>50</restart_max>";
    let mut pool = TestPool::start(app, ONE);
    let before = pool.pid(1);
    pool.kill_manager();
    let folder = pool.folder.path();
    std::os::unix::fs::symlink("testsv", folder.join("othersv")).expect("a link");
    pool.configure(app, "<server name='othersv'><srvid>1</srvid></server>");
    pool.begin();
    pool.ask(&Request::Settle).expect("it is replaced");
    assert!(pool.pid(1) != before && !is_running(number(before)));
    assert_eq!(pool.count("worker_signals"), 0, "{}", pool.log());
    pool.end();
}

/// It is inside a call when the time to report is over, and may not be killed.
fn a_worker_that_cant_report() {
    let app = "<restart_to_check>1</restart_to_check>";
    let limits = "<srvid>1</srvid><min>2</min><max>2</max><autokill>0</autokill>";
    let mut pool = TestPool::start(app, &format!("<server name='testsv'>{limits}</server>"));
    let mut client = pool.client();
    client.call_async("HANG", &text("x"), CallFlags::NONE).expect("room");
    pool.until("one is inside the call", |pool| pool.workers().iter().any(|row| row.is_busy));
    let (busy, idle): (Vec<_>, Vec<_>) = pool.workers().into_iter().partition(|row| row.is_busy);
    let echo = pollux_xatmi::queue::ServiceName::new("ECHO").expect("a name");
    let echo = pollux_sys::mqueue::MessageQueue::open(&pool.prefix.service_queue(&echo));
    let echo = echo.expect("it stands");
    pool.kill_manager();
    kill_and_wait(idle[0].pid.expect("it runs"));
    pool.begin();
    pool.ask(&Request::Settle).expect("the other one is replaced");
    let late = pool.worker(busy[0].srvid);
    assert_eq!((late.state.as_str(), late.pid), ("silent", busy[0].pid));
    let named = rustix::fs::fstat(&echo).expect("open").st_nlink;
    assert_eq!(named, 1, "another queue would never reach it");
    client.call("ECHO", &text("x"), CallFlags::NONE).expect("the other one serves");
    let mut control = pollux_xatmi::control::Control::connect(&pool.prefix).expect("it runs");
    let now = Request::End { now: true };
    control.ask(&now, DEADLINE, |_| {}).expect("it ends");
    pool.ended();
}

fn callers_of_a_pool_that_was_killed() {
    let mut pool = TestPool::start("", ONE);
    let worker = pool.pid(1);
    let mut client = pool.client();
    pool.kill_manager();
    kill_and_wait(worker);
    let caller = std::thread::spawn(move || {
        client.call("ECHO", &text("x"), CallFlags::NONE).expect_err("no worker serves it").code()
    });
    let queue = pollux_xatmi::queue::ServiceName::new("ECHO").expect("a name");
    let queue = pool.prefix.service_queue(&queue);
    let queue = pollux_sys::mqueue::MessageQueue::open(&queue).expect("it was not removed");
    let mut wait = [rustix::event::PollFd::new(&queue, rustix::event::PollFlags::IN)];
    let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut wait, Some(&limit)), Ok(1), "the request is there");
    drop(queue);
    let began = Instant::now();
    pool.begin();
    assert_eq!(caller.join().expect("no panic"), Code::NoEntry);
    // The time-out of the call is a minute.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    pool.end();
}

fn more_callers_than_fit() {
    const CALLS: usize = 8;
    let mut pool = TestPool::start("", ONE);
    let mut client = pool.client();
    let calls: Vec<_> = (0..CALLS)
        .map(|_| client.call_async("HANG", &text("x"), CallFlags::NONE).expect("room"))
        .collect();
    pool.until("the worker is inside the call", |pool| pool.worker(1).is_busy);
    let caller = std::thread::spawn(move || {
        let answers = calls.into_iter().map(|call| {
            client.answer(Which::One(call), CallFlags::NONE).expect_err("it hangs").code()
        });
        answers.collect::<Vec<_>>()
    });
    let mut control = pollux_xatmi::control::Control::connect(&pool.prefix).expect("it runs");
    let now = Request::End { now: true };
    control.ask(&now, DEADLINE, |_| {}).expect("it ends");
    pool.ended();
    let codes = caller.join().expect("no panic");
    assert_eq!(codes[0], Code::ServiceError);
    assert_eq!(codes[1..], [Code::NoEntry; CALLS - 1]);
}

/// More callers than the queue holds, so that some wait for room.
fn a_queue_that_filled_is_served() {
    const CALLERS: usize = 14;
    let app = "<restart_min>3</restart_min><restart_max>3</restart_max>";
    let mut pool = TestPool::start(app, ONE);
    kill_and_wait(pool.pid(1));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let mut client = pool.client();
            std::thread::spawn(move || {
                let words = caller.to_string();
                let answer = client.call("ECHO", &text(&words), CallFlags::NONE);
                let buffer = answer.expect("it is served").buffer.expect("with data");
                assert!(buffer.as_bytes().starts_with(words.as_bytes()));
            })
        })
        .collect();
    pool.until("it is back", |pool| pool.worker(1).state == "up");
    for caller in callers {
        caller.join().expect("its own answer");
    }
    pool.end();
}

fn a_start_that_hangs_is_killed() {
    let mut pool = TestPool::new("", "");
    let script = pool.folder.path().join("stubborn");
    let text = "#!/bin/sh\ntrap '' INT TERM\nwhile :; do /bin/sleep 1; done\n";
    std::fs::write(&script, text).expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("ours");
    let limits = "<srvid>1</srvid><start_max>1</start_max><killtime>1</killtime>";
    pool.configure("", &format!("<server name='stubborn'>{limits}</server>"));
    pool.begin();
    let said = pool.ask(&Request::Settle).expect_err("it never gets ready").to_string();
    assert!(said.contains("was not ready within start_max"), "{said}");
    pool.until("it is tried again", |pool| pool.worker(1).restarts == 1);
    let log = pool.log();
    let signals = log.lines().filter_map(|line| line.split_once("is sent signal ")?.1.parse().ok());
    assert_eq!(signals.take(3).collect::<Vec<u32>>(), [2, 15, 9], "{log}");
    let mut control = pollux_xatmi::control::Control::connect(&pool.prefix).expect("it runs");
    let now = Request::End { now: true };
    control.ask(&now, DEADLINE, |_| {}).expect("it ends");
    pool.ended();
}

fn a_pipe_without_a_reader() {
    let mut pool = TestPool::new("", "");
    let pipe = pool.folder.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("a pipe");
    let options = format!("<sysopt>-e {}</sysopt>", pipe.display());
    pool.configure("", &format!("<server name='testsv'><srvid>1</srvid>{options}</server>"));
    pool.begin();
    let said = pool.ask(&Request::Settle).expect_err("it can't start").to_string();
    assert!(said.contains("without a reader"), "{said}");
    pool.end();
}

fn subscriptions_come_along() {
    let mut pool = TestPool::start("", ONE);
    let environment = pool.environment();
    let row = MailboxRow { pid: std::process::id(), context: 7, nonce: 8, ..MailboxRow::default() };
    let mut subscriptions = Subscriptions::open(&environment).expect("a manager");
    let _mailbox = Mailbox::open(&environment, &row, subscriptions.owner()).expect("a socket");
    subscriptions.mailbox(row.clone()).expect("registered");
    let own = subscriptions.subscribe("PRICE", "", None).expect("a mailbox");
    let service = subscriptions.subscribe("PRICE", "a>1", Some("ECHO")).expect("subscribed");
    pool.kill_manager();
    pool.begin();
    // Without a further call of the context, which may wait for its messages.
    pool.until("the mailbox is known", |pool| {
        mailboxes(&pool.environment()).expect("a manager") == [row.clone()]
    });
    pool.until("both subscriptions are known", |pool| {
        subscribers(&pool.environment(), "PRICE").expect("a manager").len() == 2
    });
    assert_eq!(subscriptions.unsubscribe(Some(service)).expect("a manager"), 1);
    let rows = subscribers(&environment, "PRICE").expect("a manager");
    assert!(matches!(&rows[..], [only] if only.mailbox.as_ref() == Some(&row)), "{rows:?}");
    let another = subscriptions.subscribe("OTHER", "", None).expect("a mailbox");
    assert!(another != own && another != service);
    pool.kill_manager();
    pool.begin();
    // A request follows at once, also where the thread has not come to the manager yet.
    assert_eq!(subscriptions.unsubscribe(Some(own)).expect("a manager"), 1);
    drop(subscriptions);
    pool.until("the mailbox is gone", |pool| {
        mailboxes(&pool.environment()).expect("a manager").is_empty()
    });
    pool.end();
}
