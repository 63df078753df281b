//! Every kind of mistake in a job file, with the exact line that answers it.

use crate::job::Job;

/// The lines that answer `text` as the file `x.toml`.
fn answer(text: &str) -> Vec<String> {
    let error = Job::parse(text, "x.toml").expect_err("the text is wrong");
    error.to_string().lines().map(str::to_owned).collect()
}

/// A job of one experiment with `line` in `[global]`, as line 2.
fn in_global(line: &str) -> String {
    format!("[global]\n{line}\n[[job]]\nexperiment = \"pipes\"\n")
}

/// A job with `line` in its `[[job]]`, as line 3.
fn in_job(line: &str) -> String {
    format!("[[job]]\nexperiment = \"streams\"\n{line}\n")
}

/// A job with these entries in a table of its `arms`, as line 4.
fn in_arm(entries: &str) -> String {
    format!("[[job]]\nexperiment = \"http\"\narms = [\"poll\",\n{{ {entries} }}]\n")
}

#[test]
fn a_key_of_schema_1_is_answered_with_what_is_written_now() {
    for (line, now) in [
        ("pollers = [\"epoll\"]", "arms = [\"epoll\", ...]"),
        ("waits = \"all\"", "arms = [\"exclusive\", ...]"),
        ("peers = \"none\"", "their names in arms = [...]"),
        ("binaries = [\"old=a\"]", "arms = [{ name = \"old\", pollux = \"PATH\" }, ...]"),
    ] {
        let key = line.split(' ').next().expect("a key");
        let expected = format!("x.toml:2:1: the key \"{key}\" is of schema 1; expected {now}");
        let answers = answer(&in_global(line));
        assert_eq!((answers.len(), answers[0].starts_with(&expected)), (1, true), "{answers:?}");
    }
    let arm = answer("[[job]]\nexperiment = \"streams\"\n[[job.arm]]\nname = \"a\"\n");
    assert_eq!(arm.len(), 1, "{arm:?}");
    assert!(arm[0].contains("expected arms = [{ name = \"mine\", command ="), "{arm:?}");
    let schema = answer("schema = 1\n[[job]]\nexperiment = \"streams\"\n");
    let expected =
        "x.toml:1:10: schema = 1: out of bounds; expected 2, version 1 had other keys for arms";
    assert_eq!(schema, [expected]);
}

#[test]
fn a_mistake_in_global_is_answered_with_its_place_and_the_right_way() {
    for (line, expected) in [
        ("blcoks = 12", "x.toml:2:1: unknown key \"blcoks\" in [global]; did you mean \"blocks\"?"),
        ("colour = 1", "x.toml:2:1: unknown key \"colour\" in [global]"),
        (
            "schema = 1",
            "x.toml:2:1: the key \"schema\" is not for [global]; it belongs to the top of the file",
        ),
        (
            "nfds = 100",
            "x.toml:2:1: the axis \"nfds\" is not for this [global]; it belongs to a [[job]] with \
             streams",
        ),
        (
            "blocks = \"12\"",
            "x.toml:2:10: blocks = \"12\": this is a text; expected a whole number from 1 to 1000, \
             such as 12",
        ),
        (
            "blocks = 0",
            "x.toml:2:10: blocks = 0: out of bounds; expected a whole number from 1 to 1000, such \
             as 12",
        ),
        (
            "seed = -1",
            "x.toml:2:8: seed = -1: not a whole number in bounds; expected a whole number from 0 \
             to 9223372036854775807, such as 20061106",
        ),
        (
            "blocks = 9\nmax_blocks = 8",
            "x.toml:2:10: 9 blocks are more than max_blocks = 8; expected at most that",
        ),
        (
            "min_effect = 3",
            "x.toml:2:14: min_effect = 3: this is a whole number; expected a share from 0.1% to \
             100%, such as \"3%\"",
        ),
        (
            "precision = \"three\"",
            "x.toml:2:13: precision = \"three\": not a share; expected a share from 0.1% to 50%, \
             such as \"1.5%\"",
        ),
        (
            "runtime = 2",
            "x.toml:2:11: runtime = 2: this is a whole number; expected a duration from 10ms to \
             10m, such as \"2s\"",
        ),
        (
            "budget = \"20\"",
            "x.toml:2:10: budget = \"20\": not a duration; expected a duration from 1s to 168h, \
             such as \"20m\"",
        ),
        (
            "ramp_time = \"1h\"",
            "x.toml:2:13: ramp_time = \"1h\": out of bounds; expected a duration from 0s to 10m, \
             such as \"500ms\"",
        ),
        (
            "runtime = \"1s\"\ninterval = \"2s\"",
            "x.toml:3:12: an interval of 2s is longer than the runtime of 1s; expected at most 1s",
        ),
        (
            "profile = \"cycles:99\"",
            "x.toml:2:11: profile = \"cycles:99\": the event \"cycles\" is not known, only \
             cpu-clock; expected samples per second from 1 to 10000, such as \"cpu-clock:999\"",
        ),
        (
            "show_intervals = \"yes\"",
            "x.toml:2:18: show_intervals = \"yes\": this is a text; expected true or false, such \
             as true",
        ),
        (
            "require = \"perf\"",
            "x.toml:2:11: require = \"perf\": not a list; expected a list of texts, such as \
             [\"tracepoint raw_syscalls:sys_enter\"]",
        ),
        (
            "name = \"a/b\"",
            "x.toml:2:8: name = \"a/b\": not a usable name; expected a name of at most 60 letters, \
             digits, \"-\", \"_\" or \".\" that begins with a letter or digit, such as \"quick\"",
        ),
        (
            "question = \"\"",
            "x.toml:2:12: question = \"\": not one line of text; expected one line of text, such \
             as \"Which event mechanism for which load?\"",
        ),
        (
            "arms = [\"poll\", \"poll\"]",
            "x.toml:2:17: arms = \"poll\": stands here twice; expected once",
        ),
        (
            "arms = [\"nginx\"]",
            "x.toml:3:1: no arm is left of pipes, which has select, poll, aio, epoll, \
            epoll-et, epoll-oneshot, uring-poll",
        ),
        (
            "arms = [\"poll\", \"select\"]\nbaseline = \"pol\"",
            "x.toml:3:12: baseline \"pol\" is none of the arms, which are poll, select; did you \
             mean \"poll\"?",
        ),
    ] {
        assert_eq!(answer(&in_global(line)), [expected], "{line}");
    }
}

#[test]
fn a_wrong_list_of_arms_is_answered_with_what_it_may_hold() {
    let names = crate::job::arm_names().join(", ");
    for (line, expected) in [
        (
            "arms = [\"epoll\", \"epol-et\"]",
            format!(
                "x.toml:2:18: arms = \"epol-et\": no such arm; expected {names}; did you mean \
                 \"epoll-et\"?"
            ),
        ),
        (
            "arms = []",
            format!(
                "x.toml:2:8: arms = []: an empty list; expected a list of {names} or tables with a \
                 name, such as [\"epoll\", \"uring\", \"nginx\"]"
            ),
        ),
        (
            "arms = 7",
            format!(
                "x.toml:2:8: arms = 7: this is a whole number; expected a list of {names} or tables \
                 with a name, such as [\"epoll\", \"uring\", \"nginx\"]"
            ),
        ),
    ] {
        assert_eq!(answer(&in_global(line)), [expected], "{line}");
    }
}

#[test]
fn a_mistake_in_a_job_is_answered_with_its_place_and_the_right_way() {
    for (line, expected) in [
        (
            "trasnport = \"pipe\"",
            "x.toml:3:1: unknown key \"trasnport\" in [[job]]; did you mean \"transport\"?",
        ),
        (
            "pipes = 100",
            "x.toml:3:1: the axis \"pipes\" is not for this [[job]]; it belongs to the experiment \
             pipes",
        ),
        ("blocks = 3", "x.toml:3:1: the key \"blocks\" is not for [[job]]; it belongs to [global]"),
        (
            "transport = [\"pipe\", \"tpc\"]",
            "x.toml:3:22: transport = \"tpc\": not accepted; expected pipe, unix, tcp; did you \
             mean \"tcp\"?",
        ),
        ("transport = []", "x.toml:3:13: transport = []: an empty list; expected pipe, unix, tcp"),
        (
            "nfds = [100, 0]",
            "x.toml:3:14: nfds = 0: not accepted; expected a whole number from 1 to 500000",
        ),
        ("nfds = [100, 0x64]", "x.toml:3:14: nfds = 0x64: stands here twice; expected once"),
        (
            "nfds = \"100\"",
            "x.toml:3:8: nfds = \"100\": this is a text; expected a whole number from 1 to 500000",
        ),
        (
            "no_poller = [true]",
            "x.toml:3:13: no_poller = [true]: this is a list; expected true or false, once",
        ),
        ("arms = \"nginx\"", "x.toml:3:8: arms: nginx: no arm of streams; it belongs to http"),
        (
            "[[job]]\nexperiment = \"streams\"",
            "x.toml:3:1: two jobs are called \"streams\"; give one a name",
        ),
        (
            "[[job]]\nname = \"other\"",
            "x.toml:3:1: [[job]] lacks the key \"experiment\"; expected one of streams, pipes, chain, http, \
             herd, such as \"streams\"",
        ),
        (
            "[[job]]\nexperiment = \"pipe\"",
            "x.toml:4:14: experiment = \"pipe\": no such experiment; expected one of streams, \
             pipes, chain, http, herd; did you mean \"pipes\"?",
        ),
    ] {
        assert_eq!(answer(&in_job(line)), [expected], "{line}");
    }
}

#[test]
fn a_generator_or_dead_connections_that_cannot_be_are_answered() {
    for (line, expected) in [
        (
            "generator = [\"pollux\", \"wrk2\"]",
            "x.toml:3:24: generator = \"wrk2\": not accepted; expected pollux, wrk, ab; did you \
             mean \"wrk\"?",
        ),
        (
            "dead = 500001",
            "x.toml:3:8: dead = 500001: not accepted; expected a whole number from 0 to 500000",
        ),
        ("processes = 2", "x.toml:3:1: unknown key \"processes\" in [[job]]"),
    ] {
        let text = format!("[[job]]\nexperiment = \"http\"\n{line}\n");
        assert_eq!(answer(&text), [expected]);
    }
    let elsewhere = "x.toml:3:1: the axis \"generator\" is not for this [[job]]; it belongs to the \
                     experiment http";
    assert_eq!(answer(&in_job("generator = \"wrk\"")), [elsewhere]);
}

#[test]
fn a_mistake_in_an_arm_is_answered_with_its_place_and_the_right_way() {
    let arm = |name: &str, command: &str, pattern: &str| {
        format!("name = \"{name}\", command = \"{command}\", pattern = '{pattern}'")
    };
    for (entries, expected) in [
        (
            arm("mine", "bench 'half", "(.)"),
            "x.toml:4:28: command = \"bench 'half\": does not split into words",
        ),
        (arm("mine", "bench", "Avg: .*"), "x.toml:4:47: pattern = 'Avg: .*': has no capture group"),
        (arm("mine", "bench", "(Avg"), "x.toml:4:47: pattern = '(Avg': not a regular expression"),
        (arm("epoll", "bench", "(.)"), "x.toml:4:1: arms = { name = \"epoll\", "),
        (
            format!("{} }}, {{ {}", arm("a", "b", "(.)"), arm("a", "b", "(.)")),
            "x.toml:4:49: arms = { name = \"a\", command = \"b\", pattern = '(.)' }: two arms are \
             called \"a\"",
        ),
        (
            "name = \"mine\", command = \"bench\"".to_owned(),
            "x.toml:4:1: an arm lacks the key \"pattern\"",
        ),
        (
            "name = \"mine\"".to_owned(),
            "x.toml:4:1: 0 of them in an arm; expected one of server, pid with address, pollux",
        ),
        (
            "name = \"mine\", server = \"./mine\"".to_owned(),
            "x.toml:4:27: server = \"./mine\": does not say where the server has to listen; expected \
             a command line with {port} or {address} in it",
        ),
        (
            "name = \"live\", pid = 0, address = \"127.0.0.1:80\"".to_owned(),
            "x.toml:4:24: pid = 0: out of bounds",
        ),
        (
            "name = \"old\", pollux = \"a\", driver = \"uting\"".to_owned(),
            "x.toml:4:40: driver = \"uting\": no such driver; expected one of select, poll, aio, \
             epoll, epoll-et, epoll-oneshot, uring-poll, uring; did you mean \"uring\"?",
        ),
        (
            format!("{}, runtime = \"1s\"", arm("mine", "bench", "(.)")),
            "x.toml:4:54: the key \"runtime\" is not for an arm; it belongs to [global] or [[job]]",
        ),
    ] {
        let answers = answer(&in_arm(&entries));
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert!(answers[0].starts_with(expected), "{answers:?}\n{expected}");
    }
}

#[test]
fn a_mistake_in_the_outline_is_answered() {
    let job = "[[job]]\nexperiment = \"streams\"\n";
    for (text, expected) in [
        (String::new(), "x.toml:1:1: 0 [[job]] sections; expected from 1 to 64"),
        (
            format!("[globl]\n{job}"),
            "x.toml:1:2: unknown key \"globl\" at the top of the file; did you mean \"global\"?",
        ),
        (
            format!("schema = 3\n{job}"),
            "x.toml:1:10: schema = 3: out of bounds; expected 2, version 1 had other keys for arms",
        ),
        (
            format!("runtime = \"1s\"\n{job}"),
            "x.toml:1:1: the key \"runtime\" is not for the top of the file; it belongs to \
             [global] or [[job]]",
        ),
        (format!("[[global]]\n{job}"), "x.toml:1:3: \"global\" is written [global] in a job file"),
    ] {
        assert_eq!(answer(&text), [expected], "{text}");
    }
    let answers = answer("[job]\nexperiment = \"streams\"\n");
    assert_eq!(answers, ["x.toml:1:2: \"job\" is written [[job]] in a job file"]);
    let empty_list = answer("job = []\n");
    assert_eq!(empty_list, ["x.toml:1:1: 0 [[job]] sections; expected from 1 to 64"]);
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
fn a_file_that_is_no_job_file_is_not_answered_without_end() {
    let text: String = (0..5000).map(|at| format!("k{at} = 1\n")).collect();
    let answers = answer(&text);
    assert_eq!(answers.len(), 101);
    assert!(answers[100].ends_with("and 4901 mistakes more"), "{}", answers[100]);
}

#[test]
fn what_is_not_toml_is_answered_where_it_breaks() {
    for (text, place) in [
        ("[global\n", "x.toml:1:8: not TOML: "),
        ("[global]\nblocks = = 3\n", "x.toml:2:10: not TOML: "),
        ("[global]\nblocks = 1\nblocks = 2\n", "x.toml:3:1: not TOML: "),
    ] {
        let answers = answer(text);
        assert!(answers[0].starts_with(place), "{answers:?}");
    }
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
