//! What a plan may not have beside HTTP/2.

use super::{Plan, refuse};
use crate::protocol::{CONNECTION_WINDOW, STREAM_WINDOW, STREAMS_MAX, has_not};
use crate::{LoadError, Protocol};

/// Says what is wrong with what `plan` asks of the protocol.
pub(super) fn check(plan: &Plan) -> Result<(), LoadError> {
    let Plan { http, streams, stream_window, connection_window, .. } = *plan;
    let is_encrypted = plan.targets[0].tls_name.is_some();
    if !(1..=STREAMS_MAX).contains(&streams) {
        return refuse("--streams", format!("it is {streams}, not 1 to {STREAMS_MAX}"));
    }
    if !STREAM_WINDOW.contains(&stream_window) {
        return refuse("--window", format!("it is {stream_window}, not 1 to 2^31 - 1"));
    }
    if !CONNECTION_WINDOW.contains(&connection_window) {
        let why = format!("it is {connection_window}, not 65,535 to 2^31 - 1 (RFC 9113 6.9.2)");
        return refuse("--connection-window", why);
    }
    if !http.may_be_http2(is_encrypted) {
        return match (streams, http) {
            (1, _) => Ok(()),
            (_, Protocol::Auto) => refuse(
                "--streams",
                "with --http auto an http:// URL is asked by HTTP/1.1, which has no streams; expected --http 2",
            ),
            _ => refuse("--streams", "HTTP/1.1 has no streams; expected --http 2 as well"),
        };
    }
    if plan.pipeline > 1 {
        return refuse(
            "--pipeline",
            format!(
                "it is for HTTP/1.1, and --http {} may speak HTTP/2, whose requests need not wait for each other; \
                 expected --streams",
                http.name()
            ),
        );
    }
    if streams > 1 && !plan.think_time.is_zero() {
        let why = "with --streams it is not clear after which answer to think; use one of both";
        return refuse("--think", why);
    }
    if plan.crowd.dead > 0 || plan.crowd.slow > 0 {
        let flag = if plan.crowd.dead > 0 { "--dead" } else { "--slow" };
        let why = "these connections ask by HTTP/1.1; expected --http 1.1, or --silent";
        return refuse(flag, why);
    }
    let of_list = plan.list.as_ref().and_then(|(list, _)| list.has_not_http2());
    let of_targets = plan.targets.iter().find_map(|target| has_not(&target.fields));
    match of_list.map(str::to_owned).or(of_targets) {
        None => Ok(()),
        Some(why) => refuse("--http", format!("{why}; leave it out, or use --http 1.1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Crowd, RequestList, Target};
    use std::sync::Arc;
    use std::time::Duration;

    fn checked(url: &str, http: Protocol, change: impl FnOnce(&mut Plan)) -> Result<(), String> {
        let target = Target::parse(url, None).expect("a URL");
        let mut plan = Plan { http, ..Plan::new(vec![target], "poll".parse().expect("a driver")) };
        change(&mut plan);
        check(&plan).map_err(|error| error.to_string())
    }

    const PLAIN: &str = "http://127.0.0.1:1/";
    const SECURE: &str = "https://127.0.0.1:1/";

    #[test]
    fn streams_are_of_http2_alone() {
        let many = |plan: &mut Plan| plan.streams = 16;
        assert!(checked(PLAIN, Protocol::Http2, many).is_ok());
        assert!(checked(SECURE, Protocol::Auto, many).is_ok());
        for (url, http) in
            [(PLAIN, Protocol::Http1), (SECURE, Protocol::Http1), (PLAIN, Protocol::Auto)]
        {
            let why = checked(url, http, many).expect_err("no streams");
            assert!(why.contains("--streams") && why.contains("--http 2"), "{why}");
        }
        let too_many = |plan: &mut Plan| plan.streams = STREAMS_MAX + 1;
        assert!(checked(PLAIN, Protocol::Http2, too_many).is_err());
    }

    #[test]
    fn what_http2_has_not_is_refused_with_a_reason() {
        let pipelined = |plan: &mut Plan| plan.pipeline = 2;
        for (url, http) in [(PLAIN, Protocol::Http2), (SECURE, Protocol::Auto)] {
            let why = checked(url, http, pipelined).expect_err("a pipeline");
            assert!(why.contains("--pipeline") && why.contains("--streams"), "{why}");
        }
        assert!(checked(PLAIN, Protocol::Auto, pipelined).is_ok());
        let field = |name: &'static str, value: &'static str| {
            move |plan: &mut Plan| plan.targets[0].fields.push((name.to_owned(), value.to_owned()))
        };
        for (name, value) in
            [("Connection", "x"), ("keep-alive", "5"), ("Upgrade", "h2c"), ("TE", "gzip")]
        {
            let why = checked(PLAIN, Protocol::Http2, field(name, value)).expect_err(name);
            assert!(why.contains(name) && why.contains("RFC 9113 8.2.2"), "{why}");
            assert!(checked(PLAIN, Protocol::Http1, field(name, value)).is_ok());
        }
        assert!(checked(PLAIN, Protocol::Http2, field("te", "trailers")).is_ok());
        let listed = |plan: &mut Plan| {
            let mut target = plan.targets[0].clone();
            target.fields.push(("Upgrade".to_owned(), "x".to_owned()));
            let mut list = RequestList::new(false);
            list.push(&plan.targets[0]).expect("it fits");
            list.push(&target).expect("it fits");
            plan.list = Some((Arc::new(list), crate::RequestOrder::InTurn));
        };
        assert!(checked(PLAIN, Protocol::Http2, listed).expect_err("a field").contains("Upgrade"));
        let dead = |plan: &mut Plan| plan.crowd = Crowd { dead: 1, ..Crowd::default() };
        assert!(checked(PLAIN, Protocol::Http2, dead).expect_err("a crowd").contains("--dead"));
        let silent = |plan: &mut Plan| plan.crowd = Crowd { silent: 1, ..Crowd::default() };
        assert!(checked(PLAIN, Protocol::Http2, silent).is_ok());
        let thinks = |plan: &mut Plan| {
            (plan.streams, plan.think_time) = (2, Duration::from_millis(1));
        };
        assert!(checked(PLAIN, Protocol::Http2, thinks).expect_err("thought").contains("--think"));
    }

    #[test]
    fn windows_are_within_those_of_the_protocol() {
        for (stream, connection, is_right) in [
            (1, 65_535, true),
            (0, 65_535, false),
            (1, 65_534, false),
            ((1 << 31) - 1, (1 << 31) - 1, true),
            (1 << 31, 65_535, false),
            (1, 1 << 31, false),
        ] {
            let windows = |plan: &mut Plan| {
                (plan.stream_window, plan.connection_window) = (stream, connection);
            };
            let checked = checked(PLAIN, Protocol::Http2, windows);
            assert_eq!(checked.is_ok(), is_right, "{stream} {connection}");
        }
    }
}
