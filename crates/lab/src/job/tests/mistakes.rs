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

/// A file with these lines in one of its places.
fn text(place: &str, lines: &str) -> String {
    let job = |name: &str| format!("[[job]]\nexperiment = \"{name}\"\n");
    match place {
        "global" => format!("[global]\n{lines}\n{}", job("pipes")),
        "job" => format!("{}{lines}\n", job("streams")),
        "http" => format!("{}{lines}\n", job("http")),
        "arm" => format!("{}arms = [\"poll\",\n{{ {lines} }}]\n", job("http")),
        _ => lines.to_owned(),
    }
}

#[test]
fn a_mistake_is_answered_with_its_place_and_what_is_expected() {
    let experiments = experiments::names().join(", ");
    for case in include_str!("mistakes.txt").split("\n\n") {
        let mut lines = case.lines();
        let place = lines.next().and_then(|line| line.strip_prefix("in ")).expect("a place");
        let (file, told): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("| "));
        let file: Vec<_> = file.iter().map(|line| &line[2..]).collect();
        let told = told.join("\n").replace("EXPERIMENTS", &experiments);
        assert_eq!(answer(&text(place, &file.join("\n"))), [format!("x.toml:{told}")], "{case}");
    }
    let names = arm_names().join(", ");
    let unknown = answer(&text("global", "arms = [\"epoll\", \"epol-et\"]"));
    let near = "did you mean \"epoll-et\"?";
    let expected =
        format!("x.toml:2:18: arms = \"epol-et\": no such arm; expected {names}; {near}");
    assert_eq!(unknown, [expected]);
    let old = answer("[[job]]\nexperiment = \"streams\"\n[[job.arm]]\nname = \"a\"\n");
    assert!(old.len() == 1 && old[0].contains("was replaced by arms = [{ name = "), "{old:?}");
}

#[test]
fn a_wrong_global_setting_is_reported_once_for_all_jobs() {
    let text = "[global]\ninterval = \"3s\"\n[[job]]\nexperiment = \"streams\"\n[[job]]\n\
                experiment = \"pipes\"\n";
    let expected = "x.toml:2:12: an interval of 3s is longer than the runtime of 500ms; expected \
                    at most 500ms";
    assert_eq!(answer(text), [expected]);
}

#[test]
fn all_mistakes_of_a_file_are_reported_at_once_and_in_its_order() {
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
