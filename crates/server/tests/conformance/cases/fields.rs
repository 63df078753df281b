//! Field lines: their syntax, white space, folding and line ends.

use crate::case::{Case, Setup, case, get, ok};

/// Field lines that are taken.
const SERVED: &[(&str, &str, &str)] = &[
    ("a field without a value", "RFC 9110 5.5", "X:\r\n"),
    ("no white space behind the colon", "RFC 9112 5.1", "X:y\r\n"),
    ("white space around a value", "RFC 9112 5.1", "X: \t y \t \r\n"),
    ("bytes above ASCII in a value", "RFC 9110 5.5", "X: \u{e4}\u{20ac}\r\n"),
    ("every token byte in a name", "RFC 9110 5.6.2", "!#$%&'*+-.^_`|~09aZ: y\r\n"),
    ("a colon in a value", "RFC 9110 5.5", "X: a:b:c\r\n"),
    ("an unknown field twice", "RFC 9110 5.3", "X: y\r\nX: y\r\n"),
    ("an unknown Upgrade", "RFC 9110 7.8", "Connection: upgrade\r\nUpgrade: h2c\r\n"),
];

/// Field lines that are refused with 400.
const REFUSED: &[(&str, &str, &str)] = &[
    ("a space before the colon", "RFC 9112 5.1", "X : y\r\n"),
    ("a tab before the colon", "RFC 9112 5.1", "X\t: y\r\n"),
    ("a space before the colon of Content-Length", "RFC 9112 5.1", "Content-Length : 0\r\n"),
    ("no colon", "RFC 9112 5", "X\r\n"),
    ("no name", "RFC 9110 5.1", ": y\r\n"),
    ("a space in a name", "RFC 9110 5.1", "X Y: z\r\n"),
    ("a bracket in a name", "RFC 9110 5.1", "X(Y): z\r\n"),
    ("a control byte in a name", "RFC 9110 5.1", "X\x01: y\r\n"),
    ("NUL in a name", "RFC 9110 5.1", "X\0: y\r\n"),
    ("a name that is not ASCII", "RFC 9110 5.1", "\u{e4}: y\r\n"),
    ("a folded line", "RFC 9112 5.2", "X: y\r\n z\r\n"),
    ("a line folded with a tab", "RFC 9112 5.2", "X: y\r\n\tz\r\n"),
    ("a folded line without content", "RFC 9112 5.2", "X: y\r\n \r\n"),
    ("NUL in a value", "RFC 9110 5.5", "X: a\0b\r\n"),
    ("DEL in a value", "RFC 9110 5.5", "X: a\x7fb\r\n"),
    ("a bell in a value", "RFC 9110 5.5", "X: \x07\r\n"),
    ("a vertical tab in a value", "RFC 9110 5.5", "X: a\x0bb\r\n"),
    ("a CR in a value", "RFC 9110 5.5", "X: a\rb\r\n"),
    ("a CR behind a value", "RFC 9112 2.2", "X: a\r\r\n"),
    ("a bare LF behind a value", "RFC 9112 2.2", "X: y\nZ: z\r\n"),
    ("a bare LF behind the last value", "RFC 9112 2.2", "X: y\n"),
    ("a bare LF behind an empty value", "RFC 9112 2.2", "X:\n"),
    ("a bare LF as the empty line", "RFC 9112 2.2", "\n"),
];

pub(crate) fn cases() -> Vec<Case> {
    let served = SERVED
        .iter()
        .map(|&(name, rfc, fields)| case(Setup::Reply, name, rfc, get(fields)).kept([ok()]));
    let refused = REFUSED
        .iter()
        .map(|&(name, rfc, fields)| case(Setup::Reply, name, rfc, get(fields)).refused(&[400]));
    let mut cases: Vec<Case> = served.chain(refused).collect();
    cases.push(
        case(
            Setup::Reply,
            "white space before the first field",
            "RFC 9112 2.2",
            "GET / HTTP/1.1\r\n X: y\r\nHost: h\r\n\r\n",
        )
        .refused(&[400]),
    );
    cases
}
