//! What is wrong with a job file alone, with the exact line that answers it. Forms of values and of
//! files are held by the tests of `pollux-settings`.

use pollux_settings::Given;

use crate::experiments;
use crate::job::Job;
use crate::job::arms::arm_names;

/// The lines that answer `text` as the file `x.toml`.
fn answer(text: &str) -> Vec<String> {
    let error = Given::from_toml(text, "x.toml").read::<Job>().expect_err("the text is wrong");
    error.to_string().lines().map(str::to_owned).collect()
}

/// Where a line stands.
#[derive(Clone, Copy)]
enum In {
    /// `[global]` of a job of pipes, as line 2.
    Global,
    /// `[[job]]` of streams, as line 3.
    Job,
    /// The same of http.
    Http,
    /// A table in `arms`, as line 4.
    Arm,
    /// The whole file.
    File,
}

impl In {
    fn text(self, line: &str) -> String {
        let job = |name: &str| format!("[[job]]\nexperiment = \"{name}\"\n");
        match self {
            Self::Global => format!("[global]\n{line}\n{}", job("pipes")),
            Self::Job => format!("{}{line}\n", job("streams")),
            Self::Http => format!("{}{line}\n", job("http")),
            Self::Arm => format!("{}arms = [\"poll\",\n{{ {line} }}]\n", job("http")),
            Self::File => line.to_owned(),
        }
    }
}

#[test]
fn a_mistake_is_answered_with_its_place_and_what_is_expected() {
    let names = arm_names().join(", ");
    let cases: &[(In, &str, &str)] = &[
        (
            In::Global,
            "nfds = 100",
            "2:1: the key \"nfds\" is not for [global]; it belongs to [[job]]",
        ),
        (
            In::Global,
            "seed = -1",
            "2:8: seed = -1: expected a whole number from 0 to 9,223,372,036,854,775,807",
        ),
        (
            In::Global,
            "blocks = 9\nmax_blocks = 8",
            "2:10: 9 blocks are more than max_blocks = 8; expected at most that",
        ),
        (
            In::Global,
            "min_effect = 3",
            "2:14: min_effect = 3: this is a whole number; expected a share from 0.1% to 100%, such as \"2%\"",
        ),
        (
            In::Global,
            "budget = \"20\"",
            "2:10: budget = \"20\": a number without its unit; expected a duration from 1s to 168h, such \
             as 500ms, 10s or 1m30s",
        ),
        (
            In::Global,
            "runtime = \"1s\"\ninterval = \"2s\"",
            "3:12: an interval of 2s is longer than the runtime of 1s; expected at most 1s",
        ),
        (
            In::Global,
            "runtime = \"10m\"\ninterval = \"50ms\"",
            "3:12: intervals of 50ms cut the runtime of 10m into too many; expected at most 6000",
        ),
        (
            In::Global,
            "profile = \"cycles:99\"",
            "2:11: profile = \"cycles:99\": the event \"cycles\" is not known, only cpu-clock; expected \
             samples per second from 1 to 10000, such as \"cpu-clock:999\"",
        ),
        (
            In::Global,
            "arms = [\"poll\", \"poll\"]",
            "2:17: arms = \"poll\": stands here twice; expected once",
        ),
        (
            In::Global,
            "arms = [\"nginx\"]",
            "3:1: no arm is left of pipes, which has select, poll, aio, epoll, epoll-et, epoll-oneshot, \
             uring-poll",
        ),
        (
            In::Global,
            "arms = [\"poll\", \"select\"]\nbaseline = \"pol\"",
            "3:12: \"pol\" is none of the arms of pipes, which are poll, select; did you mean \"poll\"?",
        ),
        (
            In::Global,
            "pollers = [\"epoll\"]",
            "2:11: pollers: was replaced by arms = [\"epoll\", ...], or arms = \"mechanisms\" for all of them",
        ),
        (In::Job, "pipes = 100", "3:1: the axis \"pipes\" is one of pipes, not of this experiment"),
        (
            In::Job,
            "transport = [\"pipe\", \"tpc\"]",
            "3:22: transport = \"tpc\": no such value; expected pipe, unix, tcp; did you mean \"tcp\"?",
        ),
        (In::Job, "nfds = [100, 0x64]", "3:14: nfds = 0x64: stands here twice; expected once"),
        (
            In::Job,
            "ready = \"most\"",
            "3:9: ready = \"most\": expected all, free or a whole number from 1 to 500,000",
        ),
        (
            In::Job,
            "no_poller = [true]",
            "3:13: no_poller = [true]: this is a list; expected true or false",
        ),
        (
            In::Job,
            "arms = \"nginx\"",
            "3:8: nginx: no arm of streams; it belongs to http, proxy, poller",
        ),
        (
            In::Job,
            "[[job]]\nexperiment = \"streams\"",
            "3:1: two jobs are called \"streams\"; give one a name",
        ),
        (
            In::Job,
            "[[job]]\nname = \"other\"",
            "3:1: [[job]] lacks the key \"experiment\"; expected EXPERIMENTS, such as \"streams\"",
        ),
        (
            In::Job,
            "[[job]]\nexperiment = \"pipe\"",
            "4:14: experiment = \"pipe\": no such experiment; expected EXPERIMENTS; did you mean \"pipes\"?",
        ),
        (In::Http, "processes = 2", "3:1: unknown key \"processes\" in [[job]]"),
        (
            In::Http,
            "path = \"x\"",
            "3:8: path = \"x\": expected a path such as /x, in ASCII and without spaces",
        ),
        (
            In::Arm,
            "name = \"mine\", command = \"bench 'half\", pattern = '(.)'",
            "4:28: command = \"bench 'half\": does not split into words (missing closing quote); expected \
             a command line that splits into words, such as \"epoll_bench -n {nfds}\"",
        ),
        (
            In::Arm,
            "name = \"mine\", command = \"bench\", pattern = 'Avg: .*'",
            "4:47: pattern = 'Avg: .*': has no capture group, so no figure can be found; expected a regular \
             expression with a capture group, such as 'Avg: ([0-9.]+) evts/sec'",
        ),
        (
            In::Arm,
            "name = \"epoll\", server = \"a {port}\"",
            "4:1: arms = { name = \"epoll\", server = \"a {port}\" }: \"epoll\" is a name of the lab; \
             expected a name of its own",
        ),
        (
            In::Arm,
            "name = \"a\", server = \"b {port}\" }, { name = \"a\", server = \"c {port}\"",
            "4:38: arms = { name = \"a\", server = \"c {port}\" }: two arms are called \"a\"; expected a \
             name for each",
        ),
        (
            In::Arm,
            "name = \"mine\", command = \"bench\"",
            "4:28: command: a program prints more than its figure; expected pattern as well",
        ),
        (
            In::Arm,
            "name = \"mine\"",
            "4:1: nothing to run; expected one of server, pid with address, pollux, command with pattern",
        ),
        (
            In::Arm,
            "name = \"mine\", server = \"./mine\"",
            "4:27: server = \"./mine\": does not say where the server has to listen; expected a command \
             line with {port} or {address} in it, such as \"./mine --listen {address}\"",
        ),
        (
            In::Arm,
            "name = \"mine\", server = \"./mine {port}\", pollux = \"a\"",
            "4:27: server: can't stand beside pollux; expected one of them",
        ),
        (
            In::Arm,
            "name = \"old\", pollux = \"a\", driver = \"uting\"",
            "4:40: driver = \"uting\": no such driver; expected select, poll, aio, epoll, epoll-et, \
             epoll-oneshot, uring-poll, uring; did you mean \"uring\"?",
        ),
        (In::File, "", "1:1: 0 [[job]] sections; expected 1 to 64"),
        (
            In::File,
            "schema = 1\n[[job]]\nexperiment = \"streams\"\n",
            "1:10: schema = 1: expected the number 2",
        ),
    ];
    let experiments = experiments::names().join(", ");
    for (place, line, expected) in cases {
        let expected = format!("x.toml:{expected}").replace("EXPERIMENTS", &experiments);
        assert_eq!(answer(&place.text(line)), [expected], "{line}");
    }
    let unknown = answer(&In::Global.text("arms = [\"epoll\", \"epol-et\"]"));
    let near = "did you mean \"epoll-et\"?";
    let expected =
        format!("x.toml:2:18: arms = \"epol-et\": no such arm; expected {names}; {near}");
    assert_eq!(unknown, [expected]);
    let old = answer("[[job]]\nexperiment = \"streams\"\n[[job.arm]]\nname = \"a\"\n");
    assert!(old.len() == 1 && old[0].contains("was replaced by arms = [{ name = "), "{old:?}");
}

#[test]
fn a_wrong_global_setting_is_told_once_for_all_jobs() {
    let text = "[global]\ninterval = \"3s\"\n[[job]]\nexperiment = \"streams\"\n[[job]]\n\
                experiment = \"pipes\"\n";
    let expected = "x.toml:2:12: an interval of 3s is longer than the runtime of 500ms; expected \
                    at most 500ms";
    assert_eq!(answer(text), [expected]);
}

#[test]
fn all_mistakes_of_a_file_are_told_at_once_and_in_its_order() {
    let text = "schema = 3\n[global]\nblcoks = 2\nruntime = \"2 parsecs\"\ninterval = \"1s\"\n\
                arms = [\"epol\", \"pol\"]\nbaseline = \"x\"\n[[job]]\nexperiment = \"pipes\"\n\
                rule = \"jumping\"\narms = [{ name = \"a\" }]\n";
    let places: Vec<_> = answer(text)
        .iter()
        .map(|line| line.split(": ").next().unwrap_or_default().to_owned())
        .collect();
    let expected = ["1:10", "3:1", "4:11", "6:9", "6:17", "10:8", "11:9"];
    assert_eq!(places, expected.map(|place| format!("x.toml:{place}")));
}
