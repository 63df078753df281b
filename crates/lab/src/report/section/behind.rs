//! What is behind the results, the end of the page: counts for each event, times inside the server (by its own clock,
//! in a pass of its own, where a job asked for them), every run; what could not be read, what was left out, the
//! machine, the job: all that a reader needs to repeat the run or to doubt it.
//!
//! For jobs that repeat a document, what it published stands there beside ours, and whether they agree. Absolute
//! figures are shown and never compared: machines and kernels lie between; what is judged is direction and shape, in
//! `published::agree`.

use pollux_host::Reading;
use pollux_report::markup::{card, card_of, details, escape, escape_json, notes, section};
use pollux_report::{Cell, Table, Tone};
use pollux_stats::agree::Agreement;

use super::super::chart::{self, intervals};
use super::super::words::{self, figure_of};
use super::super::{Arms, glossary, grouped, in_order, number};
use super::{folded, panels};
use crate::published::checks::Outcome;
use crate::published::{self, Beside, PublishedSeries};
use crate::record::{
    CountingRun, Fact, Measurement, Record, RequestTimesRun, Run, Source, SteadyKind, WhyRow,
};

/// How the times were taken.
const ABOUT: &str = "From a request's head that is in memory to its answer handed over, without the system \
                     calls that bring the one and take the other. By the server's own clock in runs of their \
                     own, as reading it costs something; a time is known to a fifth.";
/// Points with runs in two regimes that are drawn beside the first point.
const ODD_POINTS_MAX: usize = 6;

const HEADINGS: [&str; 13] = [
    "arm",
    "#system calls/event",
    "#events/wait",
    "#updates/event",
    "#switches/event",
    "#wakeups/event",
    "#page faults/event",
    "#descriptors/wait",
    "#completions/enter",
    "#buffers/event",
    "#starved/event",
    "#bytes of memory/connection",
    "in words",
];

/// The section; empty when nothing was counted.
pub(crate) fn why(record: &Record, arms: &Arms<'_>) -> String {
    let experiments = record.why.iter().map(|row| row.experiment.as_str());
    let counted = record.counting.iter().map(|run| run.experiment.as_str());
    let mut body = String::new();
    for (index, experiment) in in_order(experiments.chain(counted)).into_iter().enumerate() {
        body.push_str(&counts(record, experiment));
        body.push_str(&histograms(record, experiment, arms, index));
    }
    body.push_str(&profiles(record, arms));
    if body.is_empty() { body } else { section("why", "why", &body) }
}

fn counts(record: &Record, experiment: &str) -> String {
    let rows: Vec<_> = record.why.iter().filter(|row| row.experiment == experiment).collect();
    let points = in_order(rows.iter().map(|row| row.point.as_str()));
    let tables = folded(&points, |points, _| count_table(&rows, points));
    let heading = format!("{}: counts per event", words::part(record, experiment));
    if tables.is_empty() { tables } else { card_of(&heading, "", &tables) }
}

fn count_table(rows: &[&WhyRow], points: &[&str]) -> String {
    let mut table = Table::new(HEADINGS).hinted(glossary::heading);
    for point in points {
        table.group(point);
        for row in rows.iter().filter(|row| row.point == *point) {
            let figure = |reading| figure_of(reading, number::si);
            table.row([
                Cell::text(&row.arm),
                figure(&row.system_calls_per_event),
                figure(&row.events_per_wait),
                figure(&row.updates_per_event),
                figure(&row.switches_per_event),
                figure(&row.wakeups_per_event),
                figure(&row.page_faults_per_event),
                figure(&row.descriptors_per_wait),
                figure(&row.completions_per_enter),
                figure(&row.receive_buffers_per_event),
                figure(&row.out_of_buffers_per_event),
                figure(&row.memory_per_connection),
                Cell::text(&row.sentence).wide().tone(Tone::Dim),
            ]);
        }
    }
    table.html()
}

fn histograms(record: &Record, experiment: &str, arms: &Arms<'_>, index: usize) -> String {
    let runs: Vec<_> = record.counting.iter().filter(|run| run.experiment == experiment).collect();
    let points = in_order(runs.iter().map(|run| run.point.as_str()));
    let body = folded(&points, |points, more| {
        let charts = points.iter().enumerate().map(|(place, point)| {
            histogram(&runs, point, arms, &format!("waits-{index}{more}-{place}"))
        });
        charts.collect()
    });
    let heading = format!("{}: share of waits by events returned", words::part(record, experiment));
    if body.is_empty() { body } else { card_of(&heading, "", &body) }
}

fn histogram(runs: &[&CountingRun], point: &str, arms: &Arms<'_>, key: &str) -> String {
    let here: Vec<_> = runs.iter().copied().filter(|run| run.point == point).collect();
    let heading = escape(point);
    chart::events_per_wait(&here, arms, key)
        .map_or_else(String::new, |chart| format!("<h4>{heading}</h4>{chart}"))
}

fn profiles(record: &Record, arms: &Arms<'_>) -> String {
    if record.profiles.is_empty() {
        return String::new();
    }
    let draw = |(index, profile)| chart::profile(profile, arms, &format!("profile-{index}"));
    let charts: String = record.profiles.iter().enumerate().map(draw).collect();
    let panels = format!("<div class=\"panels\">{charts}</div>");
    card_of("Where the time went: samples of the CPU clock", "", &panels)
}

/// Whether anything was timed.
pub(crate) fn has_times(record: &Record) -> bool {
    timed(record).next().is_some()
}

fn timed(record: &Record) -> impl Iterator<Item = &RequestTimesRun> {
    record.request_times.iter().filter(|run| run.times.requests > 0)
}

/// The section; empty where nothing was timed.
pub(crate) fn times(record: &Record, arms: &Arms<'_>) -> String {
    if !has_times(record) {
        return String::new();
    }
    let mut body = format!("<p class=\"dim\">{ABOUT}</p>");
    let experiments = grouped(timed(record).map(|run| (run.experiment.as_str(), run)));
    for (index, (_, runs)) in experiments.into_iter().enumerate() {
        let points = in_order(runs.iter().map(|run| run.point.as_str()));
        body += &folded(&points, |points, more| {
            panels(points, |place, point| {
                let here: Vec<_> = runs.iter().copied().filter(|run| run.point == point).collect();
                chart::times(&here, arms, &format!("times-{index}{more}-{place}"))
            })
        });
    }
    section("times", "inside the server: the time of a request", &card(&body))
}

/// The same as a heading, how it is to be read, and a table; none where nothing was timed.
pub(crate) fn summary(record: &Record) -> Option<(&'static str, &'static str, Table)> {
    let place = |run: &RequestTimesRun| format!("{}, {}", run.experiment, run.point);
    let places = grouped(timed(record).map(|run| (place(run), run)));
    let mut table = chart::quantiles(&[]);
    for (place, runs) in &places {
        table.group(place);
        chart::add(&mut table, runs);
    }
    (!table.is_empty()).then_some(("Inside the server: the time of a request", ABOUT, table))
}

pub(crate) fn runs(record: &Record, arms: &Arms<'_>) -> String {
    let mut body = String::new();
    let experiments = in_order(record.runs.iter().map(|run| run.experiment.as_str()));
    for (index, experiment) in experiments.into_iter().enumerate() {
        let strip = intervals::strip(record, experiment, arms, &format!("strip-{index}"));
        let heading = "every run against the median of its own arm and point";
        body += &card_of(&format!("{}: {heading}", words::part(record, experiment)), "", &strip);
        body.push_str(&inside(record, experiment, arms, index));
    }
    if body.is_empty() { body } else { section("runs", "every run", &body) }
}

/// The first point, and each point at which some run changed its regime.
fn inside(record: &Record, experiment: &str, arms: &Arms<'_>, index: usize) -> String {
    let runs: Vec<_> = record.runs.iter().filter(|run| run.experiment == experiment).collect();
    let points = in_order(runs.iter().map(|run| run.point.as_str()));
    let is_odd = |point: &str| runs.iter().any(|run| run.point == point && is_two_regime(run));
    let mut shown = String::new();
    let odd = points.iter().skip(1).filter(|point| is_odd(point)).take(ODD_POINTS_MAX);
    for (place, point) in points.iter().take(1).chain(odd).enumerate() {
        let key = format!("inside-{index}-{place}");
        let chart = intervals::intervals(record, experiment, point, arms, &key);
        if !chart.is_empty() {
            shown.push_str(&format!("<h4>{}</h4>{chart}", escape(point)));
        }
    }
    let heading = format!("{}: inside the runs", words::part(record, experiment));
    if shown.is_empty() { shown } else { card_of(&heading, "", &shown) }
}

fn is_two_regime(run: &Run) -> bool {
    let of_kind = |m: &Measurement| m.steadiness.kind == SteadyKind::TwoRegime;
    run.measured().is_some_and(of_kind)
}

/// The sources that do not work here, each with its reason and remedy.
pub(in crate::report) fn sources(record: &Record) -> String {
    let (readable, missing): (Vec<_>, Vec<_>) =
        record.sources.iter().partition(|source| source.available);
    let mut body = if missing.is_empty() {
        "<p>Every source could be read.</p>".to_owned()
    } else {
        missing_table(&missing)
    };
    if !readable.is_empty() {
        let mut table = Table::new(["source", "gives"]);
        for source in &readable {
            table.row([Cell::text(&source.name), Cell::text(&source.gives)]);
        }
        body.push_str(&details(
            &format!("{} sources that could be read", readable.len()),
            &table.html(),
        ));
    }
    section("unread", "could not be read", &card(&body))
}

fn missing_table(missing: &[&Source]) -> String {
    let mut table = Table::new(["source", "would give", "why not", "enable with"]);
    for source in missing {
        let enable = source.enable.as_deref().map_or_else(
            || Cell::text("–").tone(Tone::Missing),
            |command| Cell::code(command).wide(),
        );
        table.row([
            Cell::text(&source.name),
            Cell::text(&source.gives),
            Cell::text(source.reason.as_deref().unwrap_or("no reason was recorded")).wide(),
            enable,
        ]);
    }
    table.html()
}

/// What first looks at servers of the user found.
pub(in crate::report) fn looks(record: &Record) -> String {
    if record.looks.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["experiment", "arm", "found before anything was planned"]);
    for look in &record.looks {
        table.row([
            Cell::text(&look.experiment),
            Cell::text(&look.arm),
            Cell::text(&look.in_words()).wide(),
        ]);
    }
    section("looks", "a look before the plan", &card(&table.html()))
}

/// What was planned and not run, and how the plan was cut.
pub(in crate::report) fn left_out(record: &Record) -> String {
    if record.left_out.is_empty() && record.cuts.is_empty() {
        return String::new();
    }
    let mut body = notes(&record.cuts);
    if !record.left_out.is_empty() {
        let mut table = Table::new(["experiment", "arm", "points", "why"]);
        let word = |text: &str| if text == "*" { "all".to_owned() } else { text.to_owned() };
        let left_out = record.left_out.iter();
        let left_out =
            left_out.map(|left| ((&left.experiment, &left.arm, &left.reason), word(&left.point)));
        for ((experiment, arm, reason), points) in grouped(left_out) {
            table.row([
                Cell::text(experiment),
                Cell::text(&word(arm)),
                Cell::text(&points.join(" · ")).wide(),
                Cell::text(reason).wide(),
            ]);
        }
        body.push_str(&table.html());
    }
    section("left-out", "left out and cut", &card(&body))
}

/// The machine, as it was found, and the blocks as the gates saw them.
pub(in crate::report) fn environment(record: &Record) -> String {
    let mut table = Table::new(["fact", "value"]);
    for Fact { name, reading } in &record.environment {
        let value = match (reading.value(), reading) {
            (Some(value), _) => Cell::text(value).wide(),
            (None, Reading::Unavailable { enable: Some(command), .. }) => {
                let why = words::missing(reading.reason());
                Cell::text(&format!("{why}; enable with: {command}")).wide().tone(Tone::Missing)
            }
            (None, _) => Cell::text(&words::missing(reading.reason())).wide().tone(Tone::Missing),
        };
        table.row([Cell::text(name), value]);
    }
    let gates =
        details(&format!("What the gates read, {0} by {0}", words::unit(record)), &gates(record));
    section("environment", "environment", &card(&(table.html() + &gates)))
}

fn gates(record: &Record) -> String {
    let unit = format!("#{}", words::unit(record));
    let mut table = Table::new([
        unit.as_str(),
        "#repeats",
        "#from",
        "#for",
        "#stolen",
        "#other CPU",
        "#pressure",
        "disturbed by",
    ]);
    for block in &record.blocks {
        let share = |reading| figure_of(reading, number::percent);
        let time = |seconds| Cell::number(&number::duration(seconds), seconds);
        table.row([
            Cell::count(block.block),
            block.repeats.map_or_else(|| Cell::missing("", ""), Cell::count),
            time(block.start_s),
            time(block.duration_s),
            share(&block.steal),
            share(&block.foreign_cpu),
            share(&block.pressure),
            Cell::text(&block.disturbances.join("; ")).wide(),
        ]);
    }
    table.html()
}

/// The command, the job file and the record itself.
pub(in crate::report) fn job(record: &Record) -> String {
    let job = &record.job;
    let rules = format!(
        "Seed {} · {} {}s planned, at most {}{} · smallest effect that counts {} · wanted half-width {} · {}",
        job.seed,
        job.blocks,
        words::unit(record),
        job.blocks_max,
        job.budget_s.map_or_else(String::new, |s| format!(", within {}", number::duration(s))),
        number::percent(job.min_effect),
        number::percent(job.target_ci),
        record.tool,
    );
    let body = format!(
        "<h3>Repeat it</h3><pre class=\"command\">{}</pre>\
         <h3>Job <code>{}</code></h3><p class=\"dim\">{}</p><pre>{}</pre>\
         <p><a id=\"download\" class=\"js\" href=\"#record\" download=\"result.json\">Download result.json</a> \
         <span class=\"dim\">Every raw run stands in this page as JSON, in the script element with the id \
         <code>record</code>.</span></p>",
        escape(&shell_words::join(&record.command)),
        escape(&job.name),
        escape(&rules),
        escape(&job.toml),
    );
    section("job", "the job, and how to repeat it", &card(&body))
}

/// The record itself, for the download link and for other programs.
///
/// # Panics
/// If the record cannot be written as JSON, which its types rule out.
pub(in crate::report) fn embedded(record: &Record) -> String {
    let json = serde_json::to_string(record).expect("a record has text keys only");
    format!("<script type=\"application/json\" id=\"record\">{}</script>\n", escape_json(&json))
}

/// Whether the record's job repeats a document.
pub(in crate::report) fn is_there(record: &Record) -> bool {
    published::beside(record).is_some()
}

/// The section; empty for other jobs.
pub(in crate::report) fn published(record: &Record) -> String {
    let Some(beside) = published::beside(record) else { return String::new() };
    let head = format!(
        "<h3>{}</h3><p>{}</p>{}<h4>What one should know of it</h4>{}",
        escape(&beside.document.title),
        escape(&beside_summary(&beside)),
        settings(&beside).html(),
        notes(&beside.document.remarks)
    );
    let mut body = card(&head) + &card(&(overview(&beside).html() + &notes(&gaps(&beside))));
    if !beside.checks.is_empty() {
        body += &card(&format!("<h3>Behaviours</h3>{}", checks(&beside).html()));
    }
    section("published", &format!("beside the published {}", beside.document.name), &body)
}

/// How many agree, in one sentence.
pub(in crate::report) fn beside_summary(beside: &Beside) -> String {
    let [agree, in_direction, differ, unknown] = beside.tally();
    format!(
        "Of {} series that it published, {agree} agree in direction and shape, {in_direction} in \
         direction only, {differ} differ, {unknown} unknown here.",
        beside.series.len()
    )
}

/// How it was measured, there and here.
pub(in crate::report) fn settings(beside: &Beside) -> Table {
    let mut table = Table::new(["", "there", "here"]);
    for (name, theirs, ours) in &beside.settings {
        table.row([Cell::text(name), Cell::text(theirs).wide(), Cell::text(ours).wide()]);
    }
    table
}

/// A line for each behaviour that must show.
pub(in crate::report) fn checks(beside: &Beside) -> Table {
    let mut table = Table::new(["row", "behaviour", "required", "here", "outcome"]);
    for (check, outcome) in &beside.checks {
        let (figure, words, tone) = match outcome {
            Outcome::Met(figure) => (number::si(*figure), "holds".to_owned(), Tone::Good),
            Outcome::Missed(figure) => {
                (number::si(*figure), "does not hold here".to_owned(), Tone::Bad)
            }
            Outcome::Unknown(reason) => ("n/a".to_owned(), reason.clone(), Tone::Open),
            Outcome::Held(by) => ("–".to_owned(), format!("held by {by}"), Tone::Open),
        };
        table.row([
            Cell::text(&check.row),
            Cell::text(&check.behaviour).wide(),
            Cell::text(&check.bound()),
            Cell::text(&figure),
            Cell::text(&words).wide().tone(tone),
        ]);
    }
    table
}

/// A line for each series, grouped by what it is a series over.
pub(in crate::report) fn overview(beside: &Beside) -> Table {
    let mut table = Table::new(["series", "there", "here", "direction and shape"]);
    let places = |one: &PublishedSeries| {
        let names = one.series.points.iter().map(|place| number::axis_value(&place.name));
        names.collect::<Vec<_>>().join(" · ")
    };
    for (over, series) in grouped(beside.series.iter().map(|one| (places(one), one))) {
        table.group(&over);
        series.into_iter().for_each(|one| table.row(line(one)));
    }
    table
}

fn line(one: &PublishedSeries) -> [Cell; 4] {
    let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number::si);
    let all = |values: Vec<String>| Cell::text(&values.join(" · "));
    let theirs = one.series.points.iter().map(|place| shown(place.published));
    let ours = one.ours.iter().map(|ours| shown(ours.as_ref().ok().copied()));
    let (said, tone) = match one.judgement.agreement {
        Agreement::Agrees => ("agrees", Tone::Good),
        Agreement::SameDirection => ("agrees in direction only", Tone::Open),
        Agreement::Differs => ("differs", Tone::Bad),
        Agreement::Unknown => ("unknown here", Tone::Open),
    };
    let verdict = Cell::text(&format!("{said}: {}", one.judgement.words));
    let theirs = all(theirs.collect());
    let ours = all(ours.collect());
    [Cell::text(&name(one)), theirs, ours, verdict.wide().tone(tone)]
}

/// The series with its unit, where its name has none.
fn name(one: &PublishedSeries) -> String {
    let name = &one.series.name;
    let unit = &one.series.unit;
    if name.contains(unit.as_str()) { name.clone() } else { format!("{name} ({unit})") }
}

/// Why figures of ours are missing: one line for each reason, with the points.
pub(in crate::report) fn gaps(beside: &Beside) -> Vec<String> {
    let points = beside.series.iter().flat_map(|one| one.series.points.iter().zip(&one.ours));
    let missing =
        points.filter_map(|(point, ours)| Some((ours.as_ref().err()?.as_str(), &*point.name)));
    let line = |(reason, points): (&str, Vec<&str>)| {
        let points = in_order(points.into_iter()).into_iter().map(number::axis_value);
        format!("no figure here for {}: {reason}", points.collect::<Vec<_>>().join(", "))
    };
    grouped(missing).into_iter().map(line).collect()
}
