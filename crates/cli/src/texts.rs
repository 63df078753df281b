//! Which sections each command has, and those of the commands that have no file of their own.

use pollux_command::help::Section;
use pollux_pool_flags as pool;

use crate::{load, proxy, run};

/// The sections of the command at `path`, such as `pollux lab run`.
pub(crate) fn of(path: &str) -> &'static [Section] {
    use Section::Examples;
    match path {
        "pollux lab" => LAB,
        "pollux lab axes" => &[Examples("pollux lab axes\npollux lab axes http")],
        "pollux lab plan" => &[Examples("pollux lab plan quick --budget 1m")],
        "pollux lab run" => LAB_RUN,
        "pollux lab seed" => &[
            Examples(
                "pollux lab seed 0 --blocks 1 --runtime 5s\n\
                 pollux lab seed 1 --only dead\n\
                 pollux lab seed 3 --only registrations,takeovers",
            ),
            SEE_AXES,
            LAB_SIGNALS,
            LAB_EXIT_CODES,
        ],
        "pollux lab report" => {
            &[Examples("pollux lab report pollux-out/quick-20261121-140000 --markdown")]
        }
        "pollux lab compare" => {
            &[Examples("pollux lab compare before after --gate"), LAB_COMPARE_EXIT_CODES]
        }
        "pollux load" => load::NOTES,
        "pollux load compare" => load::COMPARE_NOTES,
        "pollux load merge" => load::MERGE_NOTES,
        "pollux serve" => SERVE,
        "pollux proxy" => proxy::NOTES,
        "pollux run" => run::NOTES,
        "pollux doctor" => DOCTOR,
        "pollux fld" => pool::fld::NOTES,
        "pollux completions" => &[Examples(
            "pollux completions bash > ~/.local/share/bash-completion/completions/pollux",
        )],
        "pollux man" => &[Examples("pollux man ~/.local/share/man/man1")],
        _ => path.strip_prefix("pollux pool").map_or(&[], pool::notes_of),
    }
}

const SEE_AXES: Section = Section::Text(
    "Axes",
    "Each experiment has flags for what it varies, such as --nfds or --connections; a list makes \
     a point of each value. `pollux lab axes` lists them, `pollux lab axes http` those of one.",
);

const LAB_SIGNALS: Section = Section::Signals(&[(
    "SIGINT, SIGTERM",
    "end the run after its block and report the blocks until then; a second one ends at once",
)]);

const LAB_EXIT_CODES: Section = Section::ExitCodes(&[
    ("0", "done"),
    ("1", "an arm could not be measured, or the lab itself failed"),
    ("2", "wrong flags or a wrong job file"),
    ("3", "an arm is worse than the baseline by more than --min-effect (only with --gate)"),
    ("4", "undecided, disturbed, biased or invalid (only with --strict)"),
    ("5", "a required source is missing (require = [...] in the job)"),
    ("130", "ended by SIGINT (Ctrl-C); the blocks until then were reported"),
    ("143", "ended by SIGTERM; the blocks until then were reported"),
]);

const LAB_COMPARE_EXIT_CODES: Section = Section::ExitCodes(&[
    ("0", "done"),
    ("1", "a result could not be read"),
    ("2", "wrong flags, or results that cannot be compared"),
    ("3", "an arm got worse in relation to its baseline, or is missing (only with --gate)"),
    ("4", "a row is unclear (only with --strict)"),
]);

const LAB: &[Section] = &[
    Section::Examples(
        "\
# the quick job: which mechanism for which load?
pollux lab
pollux lab run streams --transport pipe,tcp --arm epoll,epoll-et,uring-poll
pollux lab run http --connections 64,256
# Dumazet's epoll_bench as he ran it
pollux lab seed 0
pollux lab compare before after --gate",
    ),
    SEE_AXES,
    LAB_SIGNALS,
    LAB_EXIT_CODES,
];

const LAB_RUN: &[Section] = &[
    Section::Examples(
        "\
pollux lab run streams --transport pipe,tcp --arm epoll,epoll-et,uring-poll
pollux lab run pipes --pipes 10,100,1000,9000 --rule fixed --out results
# another program as an arm, and as what the others are compared with
pollux lab run streams --transport pipe --arm epoll-et \\
    --arm 'original=./epoll_bench -n 2000 -t 2' --arm-pattern 'Avg: (\\d+) evts/sec' \\
    --baseline original --blocks 6
# your own server beside another one, and beside one that runs already as process 4711
pollux lab run http --connections 64 --arm 'mine=./mine --port {port}' --arm raw-epoll \\
    --arm live=pid:4711@127.0.0.1:8080 --baseline mine
# two builds of pollux side by side
pollux lab version --arm old=../old/target/release/pollux \\
    --arm new=target/release/pollux
# the same as a gate in CI: 3 where the new build costs more by over 2 %
pollux lab version --arm old=../old/target/release/pollux \\
    --arm new=target/release/pollux --budget 2m --min-effect 2% --gate",
    ),
    SEE_AXES,
    LAB_SIGNALS,
    LAB_EXIT_CODES,
];

const SERVE: &[Section] = &[
    Section::Examples(
        "\
# the files of this folder at 127.0.0.1:8080
pollux serve .
# one fixed answer, as the lab measures it
pollux serve --reply 128 --poller epoll-et
pollux serve site --listen [::]:80 --threads 4 --pin 0-3 --precompressed \\
    --access-log /var/log/pollux.log --stats 127.0.0.1:9100
pollux serve --echo --listen unix:echo.sock
# https; after `kill -HUP` new connections see the certificate that the files have then
pollux serve site --listen :8443 --cert cert.pem --key key.pem
pollux serve --config pollux.toml --poller uring
# an application in one page, with a page of its own for 404 and fields for caches and browsers
pollux serve dist --spa index.html --error-page '404 404.html' --cors https://app.example \\
    --response-field 'set Cache-Control: max-age=60'
# text compressed for clients that take it
pollux serve site --compress
# what the settings of a file mean, or everything that is wrong with them
pollux serve --config pollux.toml --check
# ask a server that was started with --control unix:control.sock
echo 'show activity' | socat - unix:control.sock",
    ),
    Section::Lines(
        "Configuration file (the same names, with _ for -)",
        "\
dir = \"site\"
listen = [\"[::]:8080\", \"unix:/run/pollux.sock\"]
idle_timeout = \"30s\"
precompressed = true",
    ),
    Section::Signals(&[
        ("SIGTERM, SIGINT", "take no new connection, let open ones end; a second one ends at once"),
        (
            "SIGHUP",
            "read the settings, the certificate and the pages again: they hold from each loop's next turn \
             on, and no connection is touched; what is wrong, or fixed while the server runs, is told and \
             changes nothing. The logs are opened again",
        ),
    ]),
    Section::ExitCodes(&[
        ("0", "ended by a signal, or --check found nothing wrong"),
        ("1", "could not be started, or a loop failed"),
        (
            "2",
            "wrong flags or a wrong configuration file; with --check also a file that can't be used",
        ),
    ]),
    Section::Text(
        "Privileges",
        "Started by root, the server goes on as --user once its sockets are open. Without root, a port \
         below 1024 takes CAP_NET_BIND_SERVICE on the binary, or systemd (AmbientCapabilities=, User=); \
         sockets that systemd opened (LISTEN_FDS) are served in place of --listen, and it is told when the \
         server is ready (Type=notify-reload).",
    ),
];

const DOCTOR: &[Section] = &[
    Section::Examples(
        "\
# everything, problems first
pollux doctor
# what many dead connections would meet
pollux doctor --for dead
# what would change what, to be read before root runs it
pollux doctor --fix-script
pollux doctor --json | jq '.checks[] | select(.verdict != \"ok\")'
pollux doctor >/dev/null && pollux lab",
    ),
    Section::Text(
        "Remedies",
        "Commands are printed, never run. Those with sudo hold until the next boot, those with \
         prlimit or ulimit for this shell and what it starts.",
    ),
    Section::ExitCodes(&[
        ("0", "nothing blocks the default job (with --for: what was asked for)"),
        ("1", "something does"),
        ("2", "wrong flags"),
    ]),
];
