//! Other people's load generators: figures of servers can be repeated with them.

use std::path::PathBuf;

use super::check::{Check, Concern, Judgement, Subject};
use super::readings::Readings;
use super::remedy::Remedy;
use crate::host::Reading;

use Concern::{Churn, Dead, Servers, Sweep};

pub(super) fn checks(readings: &Readings) -> Vec<Check> {
    vec![wrk(readings), ab(readings)]
}

fn wrk(readings: &Readings) -> Check {
    let subject = Subject { name: "wrk", unit: None, concerns: &[Servers, Dead, Sweep, Churn] };
    subject.judge(found(readings.wrk.as_ref()), "installed", |found| match found.as_str() {
        "installed" => Judgement::ok(),
        _ => Judgement::limits("`--generator wrk`: no figure can be repeated with it")
            .mended_by(Remedy::of_command("sudo apt-get install wrk")),
    })
}

fn ab(readings: &Readings) -> Check {
    let subject = Subject { name: "ab", unit: None, concerns: &[Servers, Sweep, Churn] };
    subject.judge(found(readings.ab.as_ref()), "installed", |found| {
        let what = "`--generator ab`: no figure can be repeated with it";
        Judgement::unless(found == "installed", what)
            .mended_by(Remedy::of_command("sudo apt-get install apache2-utils"))
    })
}

/// No path: output is meant to be shown to others.
fn found(program: Option<&PathBuf>) -> Reading<String> {
    Reading::Value(if program.is_some() { "installed" } else { "not installed" }.to_owned())
}
