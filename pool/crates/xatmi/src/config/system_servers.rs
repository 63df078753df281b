//! Servers that come with Enduro/X, which configurations of it name beside their own.
//!
//! There are no such programs here: their work is the manager's, another program's, or is not done. A
//! configuration is read as it is, so these entries are passed over with a word of who does their work.

/// Each program, and who does its work.
const SYSTEM_SERVERS: [(&str, &str); 15] = [
    ("tpevsrv", "events need no server: subscriptions are kept by the manager"),
    ("cconfsrv", "each program reads the file of NDRX_CCONFIG by itself"),
    ("cpmsrv", "<clients> is not read: a service manager starts client processes"),
    ("tmsrv", "transactions are over no resource and need no server"),
    ("tmrecoversv", "transactions are over no resource: nothing is to be recovered"),
    ("tprecover", "a service manager starts the manager again, which takes its workers over"),
    ("tmqueue", "there are no persistent queues: tpenqueue and tpdequeue are refused"),
    ("tpbrdcstsv", "tpbroadcast needs no server: it reaches the clients of this pool"),
    ("tpadmsv", "there is no .TMIB: `pollux pool ps --json` and --metrics have the figures"),
    ("tpcachesv", "replies are not cached"),
    ("tpcached", "replies are not cached"),
    ("exsinglesv", "groups of which one runs on several machines are not known: all servers start"),
    (
        "exsingleckl",
        "groups of which one runs on several machines are not known: all servers start",
    ),
    (
        "exsingleckr",
        "groups of which one runs on several machines are not known: all servers start",
    ),
    ("tpcachebtsv", "replies are not cached"),
];

/// Why a server is passed over, if it is. `options` are those behind `--`.
pub(super) fn passed_over(program: &str, options: &[String]) -> Option<&'static str> {
    // Options of ours have two dashes.
    let is_of_tcp = |word: &String| word.starts_with('-') && !word.starts_with("--");
    if program == "tpbridge" && options.iter().any(is_of_tcp) {
        return Some(
            "its options are those of a bridge over TCP, and bridges go over a NATS broker here: \
             <appopt>--nats nats://HOST:PORT</appopt>",
        );
    }
    SYSTEM_SERVERS.iter().find(|(known, _)| *known == program).map(|(_, who)| *who)
}
