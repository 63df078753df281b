//! New settings while requests are under way: none of them fails, and nothing is counted twice or lost.

use std::sync::atomic::Ordering::SeqCst;

use rustix::process::{Signal, kill_process};

use crate::stage::{Backend, Client, Clients, Outcome, Proxy, told};

/// How many requests are asked for at least while settings are read anew.
fn requests_min() -> u64 {
    let given = std::env::var("POLLUX_PROXY_REQUESTS").ok();
    given.map_or(0, |given| given.parse().expect("POLLUX_PROXY_REQUESTS is a number"))
}

#[test]
#[expect(clippy::print_stdout, reason = "figures for those who ask for more requests")]
fn no_request_fails_while_settings_are_read_anew_again_and_again() {
    let backend = Backend::start();
    let mut proxy = Proxy::start(&[backend.address], "threads = 2");
    let clients = Clients::start(proxy.address, 4);
    let mut workers = vec![proxy.one_worker(&[])];
    let mut round = 0;
    while round < 6 || clients.right.load(SeqCst) < requests_min() {
        clients.await_right(200);
        // With another number of threads each time.
        proxy.write_settings(&[backend.address], &format!("threads = {}", 1 + round % 3));
        if round % 2 == 0 {
            proxy.signal(Signal::HUP);
            proxy.says("reloaded: process ");
        } else {
            assert_eq!(proxy.reload(), (true, "reloaded\n".to_owned()));
        }
        clients.await_right(50);
        workers.push(proxy.one_worker(&workers));
        round += 1;
    }
    let (right, failed) = clients.end();
    println!("{right} requests and {round} reloads: {} failed", failed.len());
    assert!(right >= 1500, "{right}");
    assert!(failed.is_empty(), "of {right}: {failed:?}");
    // What the workers that have ended counted is on the page of the one that runs.
    proxy.await_metric("pollux_http_requests_total", "\"get\"", right);
    proxy.await_metric("pollux_http_answers_total", "2xx", right);
    proxy.await_metric("pollux_proxy_backend_in_use", "", 0);
    proxy.signal(Signal::TERM);
    assert!(proxy.ended().success());
}

#[test]
fn a_server_that_was_drained_stays_drained_while_workers_come_and_go() {
    let (stays, drained) = (Backend::start(), Backend::start());
    let mut proxy = Proxy::start(&[stays.address, drained.address], "threads = 2");
    let name = drained.address;
    let shown =
        proxy.control(&format!("set server {name} drain\nset server {name} weight 9\nquit\n"));
    assert!(shown.contains("drain"), "{shown}");
    let mut workers = vec![proxy.one_worker(&[])];
    let goes_to_the_other_one = |proxy: &Proxy, when: &str| {
        for path in ["/a", "/b", "/c", "/d"] {
            assert_eq!(Client::default().ask(proxy.address, path).0, Outcome::Right, "{when}");
        }
        assert_eq!(drained.asked(), 0, "{when}");
        let shown = proxy.control("show servers\nquit\n");
        let line = shown.lines().find(|line| line.starts_with(&name.to_string()));
        let words: Vec<_> = line.unwrap_or_default().split_whitespace().collect();
        assert_eq!(words[1..3], ["9", "drain"], "{when}: {shown}");
    };
    goes_to_the_other_one(&proxy, "when it was drained");
    assert!(proxy.reload().0);
    workers.push(proxy.one_worker(&workers));
    goes_to_the_other_one(&proxy, "behind a reload");
    kill_process(workers[1], Signal::KILL).expect("it runs");
    proxy.says("another one is started in ");
    workers.push(proxy.one_worker(&workers));
    goes_to_the_other_one(&proxy, "behind a worker that was killed");
    proxy.control(&format!("set server {name} ready\nquit\n"));
    assert!(proxy.reload().0);
    proxy.one_worker(&workers);
    for path in ["/a", "/b", "/c", "/d"] {
        assert_eq!(Client::default().ask(proxy.address, path).0, Outcome::Right);
    }
    assert!(drained.asked() > 0, "it is ready again");
}

#[test]
fn wrong_settings_are_reported_and_the_old_ones_stay() {
    let backend = Backend::start();
    let mut proxy = Proxy::start(&[backend.address], "threads = 1");
    let worker = proxy.one_worker(&[]);
    proxy.write_settings(&[backend.address], "threads = 0");
    let (is_well, told) = proxy.reload();
    assert!(!is_well && told.contains("p.toml:4:11: threads = 0: expected"), "{told}");
    proxy.signal(Signal::HUP);
    proxy.says("not reloaded, the old settings stay: p.toml:4:11: threads = 0");
    // What is found only when the worker opens it.
    proxy.write_settings(&[backend.address], "access_log = \"no/such/folder/log\"");
    let (is_well, told) = proxy.reload();
    assert!(!is_well && told.contains("no/such/folder/log"), "{told}");
    assert_eq!(proxy.one_worker(&[]), worker);
    assert_eq!(Client::default().ask(proxy.address, "/a").0, Outcome::Right);
    proxy.write_settings(&[backend.address], "threads = 2");
    assert!(proxy.reload().0);
    proxy.one_worker(&[worker]);
}

#[test]
fn who_asks_for_a_reload_is_answered_when_it_is_over() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[backend.address], "threads = 1");
    let worker = proxy.one_worker(&[]);
    proxy.write_settings(&[backend.address], "threads = 0");
    let answers = proxy.control("reload\nshow reloads\nquit\n");
    let lines: Vec<_> = answers.split("\n\n").collect();
    assert!(lines[0].starts_with("not reloaded, the old settings stay: p.toml:4:11"), "{answers}");
    assert!(lines[1].starts_with("0 done, 1 failed\np.toml:4:11"), "{answers}");
    assert_eq!(proxy.one_worker(&[]), worker);
    proxy.write_settings(&[backend.address], "threads = 2");
    // The worker that is asked ends because of it, and answers before.
    assert_eq!(proxy.control("reload\n"), "reloaded\n\n");
    let worker = proxy.one_worker(&[worker]);
    // All ask at once: some for the reload that is under way, some for the one behind it.
    let asking: Vec<_> = (0..6).map(|_| proxy.begin_reload()).collect();
    for each in asking {
        assert_eq!(told(each), (true, "reloaded\n".to_owned()));
    }
    proxy.one_worker(&[worker]);
    assert_eq!(Client::default().ask(proxy.address, "/a").0, Outcome::Right);
}
