//! Settings of times and amounts.

use pollux_settings::{Keys, Table, bytes, duration, one_of, whole};

use super::IDLE_MAX;
use crate::config::table::{BODY_BYTES_MAX, CONNECTIONS_MAX, TIMEOUT_MAX, TIMEOUT_MIN};
use crate::proxy::config::ProxyLimits;

/// Most requests that wait for a connection to a backend.
const QUEUE_MAX: u64 = 100_000;

impl Table for ProxyLimits {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        let timeout = duration(TIMEOUT_MIN..=TIMEOUT_MAX);
        let connections_max = keys
            .key("max_connections", "Most client connections at once, and as many to backends")
            .otherwise("what the descriptor limit allows, at most 100000")
            .optional(&whole(1..=CONNECTIONS_MAX));
        let mut time = |name, about, default| keys.key(name, about).default(default).one(&timeout);
        let header_timeout = time("header_timeout", "Time for a whole request head", "10s");
        let idle_timeout = time("idle_timeout", "Time between two requests of a connection", "60s");
        let connect_timeout =
            time("connect_timeout", "Time for a connection to a backend to come about", "5s");
        let first_byte_timeout = time(
            "first_byte_timeout",
            "Time from a request that was sent whole to the first byte of its answer",
            "60s",
        );
        let body_timeout = time(
            "body_timeout",
            "Longest time without a byte in the middle of a body, in either direction",
            "30s",
        );
        let request_timeout =
            time("request_timeout", "Time for a request and its answer together", "1h");
        let tunnel_timeout = time(
            "tunnel_timeout",
            "Longest time without a byte in either direction after an upgrade (WebSocket)",
            "1h",
        );
        let upstream_idle_timeout = time(
            "upstream_idle_timeout",
            "Time that a connection to a backend is kept without a request; shorter than the \
             backend's own",
            "20s",
        );
        let write_timeout = time(
            "write_timeout",
            "Longest time in which a peer takes nothing of what was sent to it",
            "60s",
        );
        let drain_timeout = time(
            "drain_timeout",
            "Time that connections have to end after a first SIGTERM or SIGINT",
            "10s",
        );
        let body_bytes_max = keys
            .key("max_body", "Largest request body")
            .default("1GiB")
            .one(&bytes(0..=BODY_BYTES_MAX));
        let upstream_idle_max = keys
            .key(
                "upstream_idle_max",
                "Most connections to each backend that are kept without a request",
            )
            .default("1024")
            .one(&whole(0..=IDLE_MAX));
        let upstream_idle_total = keys
            .key(
                "upstream_idle_total",
                "Most connections to all backends together that are kept without a request",
            )
            .default("16384")
            .one(&whole(0..=IDLE_MAX));
        let pipes_max = keys
            .key(
                "pipes_max",
                "Most pipes that bytes of TCP mode go through in the kernel, two for each connection while \
                 something is under way; others go through buffers, as all do with 0 and in TLS",
            )
            .default("1024")
            .one(&whole(0..=IDLE_MAX));
        let queue_max = keys
            .key(
                "queue_max",
                "Most requests that wait for a connection to each backend; others get 503",
            )
            .default("1024")
            .one(&whole(0..=QUEUE_MAX));
        let queue_timeout = keys
            .key("queue_timeout", "Time for a request to wait for a connection, then it gets 503")
            .default("5s")
            .one(&timeout);
        let half_close = keys
            .key("half_close", "What becomes of a request whose client ends its side meanwhile")
            .default("answer")
            .one(&one_of(
                "way",
                [
                    (
                        "answer",
                        "it is answered: the client may only have nothing more to ask",
                        true,
                    ),
                    ("drop", "it is dropped: the client is taken for gone", false),
                ],
            ));
        Some(Self {
            header_timeout: header_timeout?,
            idle_timeout: idle_timeout?,
            connect_timeout: connect_timeout?,
            first_byte_timeout: first_byte_timeout?,
            body_timeout: body_timeout?,
            request_timeout: request_timeout?,
            tunnel_timeout: tunnel_timeout?,
            upstream_idle_timeout: upstream_idle_timeout?,
            write_timeout: write_timeout?,
            drain_timeout: drain_timeout?,
            body_bytes_max: body_bytes_max?,
            connections_max: connections_max?,
            upstream_idle_max: upstream_idle_max?,
            upstream_idle_total: upstream_idle_total?,
            pipes_max: pipes_max?,
            queue_max: queue_max?,
            queue_timeout: queue_timeout?,
            answers_half_closed: half_close?,
        })
    }
}
