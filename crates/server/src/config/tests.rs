//! The table of the server's settings: its page, defaults, and mistakes with their places.

use pollux_settings::Given;

use super::*;

fn build(text: &str) -> Result<ServeConfig, String> {
    Given::from_toml(text, "p").read().map_err(|mistakes| mistakes.to_string())
}

#[test]
fn the_page_in_docs_is_the_one_of_the_table() {
    let page = pollux_settings::reference::<ServeConfig>();
    pollux_settings::kept("serve-settings.md", "settings", &page).expect("that of the table");
}

#[test]
fn the_defaults_of_the_table_are_right() {
    let config = build("reply = 128").expect("defaults");
    assert_eq!(config.answer, Answer::Reply { len_bytes: 128, is_split: false });
    assert_eq!(config.listen, [ListenAddress::Tcp("127.0.0.1:8080".parse().expect("an address"))]);
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.limits.header_timeout, Duration::from_secs(10));
    assert_eq!(config.limits.body_bytes_max, 1 << 20);
    assert_eq!((config.loops.threads, config.loops.listeners), (1, Listeners::Reuseport));
    assert!(
        config.monitoring.stats.is_none()
            && config.monitoring.control.is_none()
            && config.loops.poller.is_none()
    );
}

#[test]
fn addresses_that_take_the_connections_of_each_other_are_refused_with_both() {
    for (listen, message) in [
        ("\":81\", \"127.0.0.1:81\"", "[::]:81 takes connections to 127.0.0.1:81 as well"),
        ("\"0.0.0.0:81\", \"[::]:81\"", "[::]:81 takes connections to 0.0.0.0:81 as well"),
        ("\"127.0.0.1:81\", \"0.0.0.0:81\"", "0.0.0.0:81 takes connections to 127.0.0.1:81 as"),
        ("\"[::1]:81\", \"[::1]:81\"", "[::1]:81 is given twice; expected each address once"),
        ("\"unix:a\", \"unix:a\"", "unix:a is given twice"),
    ] {
        let wrong = build(&format!("reply = 1\nlisten = [{listen}]")).expect_err(listen);
        assert!(wrong.contains(message), "{wrong}");
    }
    for listen in [
        "\":0\", \":0\"",
        "\"127.0.0.1:81\", \"127.0.0.2:81\", \"[::1]:81\"",
        "\"0.0.0.0:81\", \"[::1]:81\"",
        "\":81\", \":82\", \"unix:a\", \"unix:b\"",
    ] {
        build(&format!("reply = 1\nlisten = [{listen}]")).expect(listen);
    }
}

#[test]
fn a_file_can_say_everything() {
    let text = "dir = \"/srv\"\nlisting = true\nlisten = [\"[::1]:0\", \"unix:/s\"]\n\
                poller = \"epoll-et\"\nthreads = 2\nlisteners = \"single\"\npin = \"0-1\"\n\
                busy_poll = true\nmax_connections = 9\nidle_timeout = \"500ms\"\n\
                max_body = \"64KiB\"\naccess_log = \"-\"\naccess_log_format = \"json\"\n\
                stats = \"127.0.0.1:0\"\ncontrol = \"unix:/c\"\nquiet = true";
    let config = build(text).expect("right");
    assert_eq!(config.listen.len(), 2);
    assert_eq!(config.loops.pin.expect("given").as_slice(), [0, 1]);
    assert_eq!(config.limits.connections_max, Some(9));
    assert_eq!(config.monitoring.access_log, Some(LogTarget::Stdout));
    assert_eq!(config.loops.poller.map(Driver::name), Some("epoll-et"));
    let Answer::Files(Files { has_listing, has_precompressed, .. }) = config.answer else {
        panic!("files were asked for");
    };
    assert!(has_listing && !has_precompressed);
}

#[test]
fn the_error_log_has_warnings_on_standard_error_unless_it_is_to_be_quiet() {
    let of = |text: &str| {
        let config = build(&format!("reply = 1\n{text}")).expect("right");
        (config.monitoring.error_log, config.monitoring.log_level)
    };
    assert_eq!(of(""), (LogTarget::Stderr, LogLevel::Warn));
    assert_eq!(of("quiet = true"), (LogTarget::Stderr, LogLevel::Error));
    assert_eq!(of("quiet = true\nlog_level = \"info\"").1, LogLevel::Info);
    let file = of("error_log = \"/e\"\nlog_level = \"debug\"");
    assert_eq!(file, (LogTarget::File("/e".into()), LogLevel::Debug));
    assert!(build("reply = 1\nlog_level = \"loud\"").is_err());
}

#[test]
fn every_wrong_value_is_reported_at_once() {
    let message = build("reply = 1\nthreads = 0\nidle_timeout = \"5\"\npoller = \"kqueue\"");
    assert_eq!(
        message.expect_err("three mistakes"),
        "p:2:11: threads = 0: expected a whole number from 1 to 1,024\n\
         p:3:16: idle_timeout = \"5\": a number without its unit; expected a duration from 1ms to \
         24h, such as 500ms, 10s or 1m30s\n\
         p:4:10: poller = \"kqueue\": no such poller; expected select, poll, aio, epoll, \
         epoll-et, epoll-oneshot, uring-poll, uring"
    );
}

#[test]
fn exactly_one_answer_is_wanted() {
    assert!(build("").expect_err("none").starts_with("nothing to answer with"));
    assert!(build("echo = false").expect_err("none").starts_with("nothing to answer with"));
    let two = build("dir = \"x\"\nreply = 1").expect_err("two");
    assert_eq!(two, "p:1:7: dir: can't stand beside reply; expected one of them");
    assert!(build("reply = 1\necho = true").expect_err("two").contains("can't stand beside"));
    let message = build("echo = true\nlisting = true").expect_err("no files");
    assert_eq!(message, "p:2:11: listing: it is about files; expected dir as well");
    let message = build("echo = true\nsplit_reply = true").expect_err("no fixed reply");
    assert!(message.contains("expected reply as well"), "{message}");
}

#[test]
fn a_flag_for_the_answer_replaces_every_answer_of_the_file() {
    let file = "dir = \"/srv\"\nlisting = true\nthreads = 2\nlisten = \"127.0.0.1:1\"";
    let mut flags = Given::default();
    flags.flag("echo", vec!["true".to_owned()]);
    flags.flag("threads", vec!["3".to_owned()]);
    let config: ServeConfig = flags.over(Given::from_toml(file, "p")).read().expect("right");
    assert_eq!((config.answer, config.loops.threads), (Answer::Echo, 3));
    assert_eq!(config.listen[0].to_string(), "127.0.0.1:1");
}
