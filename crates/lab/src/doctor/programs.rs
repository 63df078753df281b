//! The load generators of the `http` experiments.

use std::path::PathBuf;

use super::check::{Check, Concern, Judgement, Subject};
use super::readings::Readings;
use super::remedy::Remedy;
use crate::host::Reading;

use Concern::{Churn, Http, Idle, Sweep};

pub(super) fn checks(readings: &Readings) -> Vec<Check> {
    vec![wrk(readings), ab(readings)]
}

fn wrk(readings: &Readings) -> Check {
    let subject = Subject { name: "wrk", unit: None, concerns: &[Http, Idle, Sweep, Churn] };
    subject.judge(found(readings.wrk.as_ref()), "installed", |found| match found.as_str() {
        "installed" => Judgement::ok(),
        _ => Judgement::blocks("the jobs `http` and `http-idle` have no load generator")
            .mended_by(Remedy::of_command("sudo apt-get install wrk")),
    })
}

fn ab(readings: &Readings) -> Check {
    let subject = Subject { name: "ab", unit: None, concerns: &[Churn] };
    subject.judge(found(readings.ab.as_ref()), "installed", |found| {
        let what = "connections for one request are made by wrk, which closes them less strictly";
        Judgement::unless(found == "installed", what)
            .mended_by(Remedy::of_command("sudo apt-get install apache2-utils"))
    })
}

/// No path: output is meant to be shown to others.
fn found(program: Option<&PathBuf>) -> Reading<String> {
    Reading::Value(if program.is_some() { "installed" } else { "not installed" }.to_owned())
}
