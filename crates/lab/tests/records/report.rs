//! The reports of a sample record, read the way a strict reader would.

use std::sync::OnceLock;

use pollux_lab::record::{Ending, Record, ResultRow, Verdict};
use pollux_lab::report::{html, markdown, table};

use crate::{FAILURE, GAP, HOSTILE, NO_PMU, sample};

/// The sample's page without style and script; made once, as it is large.
fn bare_page() -> &'static str {
    static PAGE: OnceLock<String> = OnceLock::new();
    PAGE.get_or_init(|| without_scripts(&html(&sample())))
}

/// The page with style and script taken out, as XML.
fn without_scripts(page: &str) -> String {
    let mut out = page.strip_prefix("<!DOCTYPE html>\n").expect("a document type").to_owned();
    for element in ["style", "script"] {
        while let Some(start) = out.find(&format!("<{element}")) {
            let close = format!("</{element}>");
            let end =
                start + out[start..].find(&close).expect("an end of the element") + close.len();
            out.replace_range(start..end, "");
        }
    }
    out
}

fn all_text(document: &roxmltree::Document<'_>) -> String {
    document.descendants().filter(roxmltree::Node::is_text).filter_map(|node| node.text()).collect()
}

#[test]
fn the_page_is_well_formed_and_kept_to_be_looked_at() {
    let page = html(&sample());
    let bare = without_scripts(&page);
    let document = roxmltree::Document::parse(&bare).expect("a well-formed page");
    let mut ids: Vec<_> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id is used once");
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/report.html"), page)
        .expect("a file in target");
}

/// A drawing by itself, not a stretch of one in a row of a table, whose cells say the same.
fn is_whole_chart(node: &roxmltree::Node<'_, '_>) -> bool {
    node.has_tag_name("svg") && node.attribute("aria-hidden").is_none()
}

#[test]
fn a_verdict_is_text_in_the_row_of_its_mark() {
    let document = roxmltree::Document::parse(bare_page()).expect("a well-formed page");
    let rows = document.descendants().filter(|node| node.has_tag_name("tr"));
    let drawn = rows.filter(|row| row.descendants().any(|node| node.has_tag_name("circle")));
    let mut count = 0;
    for row in drawn {
        count += 1;
        let words: Vec<_> = row.children().filter_map(|cell| cell.text()).collect();
        let verdict = row.children().find(|cell| {
            cell.attribute("class").is_some_and(|class| class.starts_with("verdict "))
        });
        assert!(verdict.and_then(|cell| cell.text()).is_some(), "{words:?}");
        assert!(words.last().is_some_and(|ratio| ratio.contains('[')), "{words:?}");
        let shares = row.descendants().filter_map(|node| node.attribute("cx"));
        for share in shares.map(|share| share.strip_suffix('%').expect("a share").parse::<f64>()) {
            assert!((0.0..=100.0).contains(&share.expect("a number")), "{words:?}");
        }
    }
    assert!(count > 10, "{count} rows with a mark");
}

#[test]
fn a_caption_names_no_method_and_no_heading_has_a_bare_part_name() {
    let record = sample();
    let document = roxmltree::Document::parse(bare_page()).expect("a well-formed page");
    let of = |tag: &'static str| {
        document.descendants().filter(move |node| node.has_tag_name(tag)).filter_map(|n| n.text())
    };
    let methods = record.results.iter().map(|row| row.method.as_str()).chain(["none"]);
    for method in methods.filter(|method| !method.is_empty()) {
        assert!(of("figcaption").all(|caption| !caption.contains(method)), "{method}");
    }
    assert!(
        of("h2").any(|heading| heading.starts_with("HTTP: ")),
        "{:?}",
        of("h2").collect::<Vec<_>>()
    );
    assert!(of("h2").all(|heading| !heading.starts_with("Http")));
    assert!(of("h2").any(|heading| heading.starts_with("Dead connections: ")));
}

#[test]
fn boxes_that_scroll_are_reached_by_the_keyboard_and_have_a_name() {
    let document = roxmltree::Document::parse(bare_page()).expect("a well-formed page");
    let boxes = document.descendants().filter(|node| node.attribute("class") == Some("scroll"));
    for scrolled in boxes {
        assert_eq!(
            (scrolled.attribute("tabindex"), scrolled.attribute("role")),
            (Some("0"), Some("group"))
        );
        assert!(scrolled.attribute("aria-label").is_some_and(|name| name.contains("scrolls")));
    }
}

#[test]
fn every_chart_has_a_title_a_description_and_its_data() {
    let document = roxmltree::Document::parse(bare_page()).expect("a well-formed page");
    let charts: Vec<_> = document.descendants().filter(is_whole_chart).collect();
    assert!(charts.len() > 20, "{} charts", charts.len());
    for chart in charts {
        assert_eq!(chart.attribute("role"), Some("img"));
        for part in ["title", "desc"] {
            let said =
                chart.children().find(|node| node.has_tag_name(part)).and_then(|node| node.text());
            assert!(said.is_some_and(|text| text.len() > 5), "{part}: {said:?}");
        }
        let figure = chart.ancestors().find(|node| node.has_tag_name("figure")).expect("a figure");
        assert!(
            figure.descendants().any(|node| node.has_tag_name("td")),
            "a table under the chart"
        );
    }
}

#[test]
fn the_page_loads_nothing() {
    let page = html(&sample());
    assert!(page.contains("default-src 'none'"), "the content policy");
    for load in ["http://", "https://", "src=", "@import", "url(", "<link", "<iframe", "<img"] {
        assert!(!page.contains(load), "{load}");
    }
}

#[test]
fn text_of_the_record_never_becomes_markup() {
    let page = html(&sample());
    assert!(!page.contains("<script>alert"));
    assert!(!page.contains("<b>not bold"));
    let scripts = page.matches("</script").count();
    assert_eq!(scripts, 2, "the embedded record and the page's own script");
    let bare = without_scripts(&page);
    let document = roxmltree::Document::parse(&bare).expect("a well-formed page");
    assert!(all_text(&document).contains(HOSTILE), "shown as it is");
}

#[test]
fn the_embedded_record_is_the_sample() {
    let record = sample();
    let page = html(&record);
    let start = page.find("id=\"record\">").expect("the element") + "id=\"record\">".len();
    let end = start + page[start..].find("</script>").expect("its end");
    let embedded: Record = serde_json::from_str(&page[start..end]).expect("JSON");
    assert_eq!(embedded, record);
}

#[test]
fn every_arm_and_every_reason_is_on_the_page() {
    let record = sample();
    let bare = without_scripts(&html(&record));
    let document = roxmltree::Document::parse(&bare).expect("a well-formed page");
    let text = all_text(&document);
    let arms = record.results.iter().map(|row| row.arm.as_str());
    let reasons = record.left_out.iter().map(|left| left.reason.as_str());
    let sources = record
        .sources
        .iter()
        .flat_map(|source| [source.reason.as_deref(), source.enable.as_deref()])
        .flatten();
    let disturbances =
        record.blocks.iter().flat_map(|block| block.disturbances.iter().map(String::as_str));
    let cuts = record.cuts.iter().map(String::as_str);
    let more = [FAILURE, NO_PMU, "cpu-clock sampling needs CAP_PERFMON", "no cpufreq directory"];
    for words in arms.chain(reasons).chain(sources).chain(disturbances).chain(cuts).chain(more) {
        assert!(text.contains(words), "{words}");
    }
    for words in
        ["n/a", "two regimes", "about 9 more blocks would decide", "1 outlying block, kept"]
    {
        assert!(text.contains(words), "{words}");
    }
}

#[test]
fn missing_figures_carry_their_reason() {
    let document = roxmltree::Document::parse(bare_page()).expect("a well-formed page");
    let cells =
        document.descendants().filter(|node| node.has_tag_name("td") && node.text() == Some("n/a"));
    let mut count = 0;
    for cell in cells {
        count += 1;
        assert!(cell.attribute("title").is_some_and(|reason| !reason.is_empty()));
    }
    assert!(count > 10, "{count} missing figures");
}

#[test]
fn labels_at_the_ends_of_lines_do_not_touch() {
    let document = roxmltree::Document::parse(bare_page()).expect("a well-formed page");
    let charts = document.descendants().filter(|node| node.has_tag_name("svg"));
    let mut labelled = 0;
    for chart in charts {
        let labels =
            chart.descendants().filter(|node| node.attribute("class") == Some("end-label"));
        let place =
            |node: roxmltree::Node<'_, '_>| node.attribute("y").and_then(|y| y.parse::<f64>().ok());
        let mut places: Vec<f64> = labels.map(|node| place(node).expect("a place")).collect();
        places.sort_by(f64::total_cmp);
        labelled += places.len();
        // Letters are 12 high; places are written to a tenth.
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 14.7), "{places:?}");
    }
    assert!(labelled >= 12, "{labelled} labels");
}

#[test]
fn nothing_is_drawn_outside_the_paper() {
    let document = roxmltree::Document::parse(bare_page()).expect("a well-formed page");
    for chart in document.descendants().filter(is_whole_chart) {
        let frame = chart.attribute("viewBox").expect("a frame");
        let size: Vec<f64> = frame.split(' ').filter_map(|number| number.parse().ok()).collect();
        for node in chart.descendants() {
            for (names, limit) in [(["x", "x1", "x2"], size[2]), (["y", "y1", "y2"], size[3])] {
                let places =
                    names.iter().filter_map(|name| node.attribute(*name)?.parse::<f64>().ok());
                assert!(places.into_iter().all(|place| (0.0..=limit).contains(&place)), "{node:?}");
            }
        }
        let has_bad_number = chart
            .descendants()
            .any(|n| n.attribute("d").is_some_and(|d| d.contains("NaN") || d.contains("inf")));
        assert!(!has_bad_number, "{chart:?}");
    }
}

#[test]
fn the_same_record_gives_the_same_bytes() {
    let record = sample();
    assert_eq!(html(&record), html(&record.clone()));
    assert_eq!(table(&record, 100, true), table(&record, 100, true));
    assert_eq!(markdown(&record), markdown(&record));
}

#[test]
fn a_record_without_anything_still_makes_reports() {
    let mut record = sample();
    record.ending = Ending::Interrupted;
    record.results.clear();
    record.runs.clear();
    record.counting.clear();
    record.profiles.clear();
    record.request_times.clear();
    record.why.clear();
    record.answers.clear();
    record.environment.clear();
    record.sources.clear();
    record.blocks.clear();
    record.trust.noise = None;
    let page = html(&record);
    roxmltree::Document::parse(&without_scripts(&page)).expect("a well-formed page");
    assert!(page.contains("Stopped by the user: 7 blocks (7 blocks planned, at most 7)"));
    assert!(page.contains("n/a: no A/A arm with an interval"));
    assert!(table(&record, 80, false).contains("Stopped by the user"));
    assert!(markdown(&record).contains("Stopped by the user"));
}

#[test]
fn figures_that_are_not_numbers_are_shown_as_missing() {
    let mut record = sample();
    for row in &mut record.results {
        row.value = row.value.map(|_| f64::NAN);
        row.ratio = row.ratio.map(|_| f64::INFINITY);
        row.ci_low = Some(0.0);
    }
    let page = html(&record);
    roxmltree::Document::parse(&without_scripts(&page)).expect("a well-formed page");
    assert!(!without_scripts(&page).contains("NaN"));
}

#[test]
fn the_terminal_table_has_the_shape_of_benchstat() {
    let text = table(&sample(), 200, false);
    let at = text.find("streams · pipe\n").expect("a block for the point");
    let lines: Vec<_> = text[at..].lines().collect();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(lines[1]), words("arm events/s (95% CI) vs epoll verdict why"));
    let epoll = lines.iter().find(|line| line.starts_with("epoll ")).expect("the baseline");
    assert!(
        epoll.contains(" M ± ") && epoll.contains("baseline") && epoll.contains(" ev/wait"),
        "{epoll}"
    );
    let edge = lines.iter().find(|line| line.starts_with("epoll-et ")).expect("an arm");
    assert!(edge.contains("1.11 [1.10, 1.12]") && edge.contains("faster"), "{edge}");
    let select = lines.iter().find(|line| line.starts_with("select ")).expect("the failed arm");
    assert!(select.contains("failed"), "{select}");
    assert!(text.contains(&format!("select failed: {FAILURE}")));
    let text = words(&text).join(" ");
    assert!(text.contains(
        "quiet machine · A/A, same program twice 1.00 [0.99, 1.02] · disturbed blocks 1 of 7"
    ));
    assert!(text.contains("Could not be read: sched:sched_waking, hardware counters"));
}

#[test]
fn a_record_that_was_called_quiet_is_not_where_the_same_program_twice_is_far_apart() {
    let mut record = sample();
    record.trust.noise = Some([1.0, 0.83, 1.38]);
    for text in [markdown(&record), table(&record, 200, false), html(&record)] {
        assert!(text.contains("noisy machine: A/A up to 38 % apart"), "{text}");
        assert!(!text.contains("quiet machine"), "{text}");
    }
}

#[test]
fn curves_are_a_matrix_on_the_terminal() {
    let text = table(&sample(), 110, false);
    let at = text.find("pipes · rule fixed\n").expect("a block for the panel");
    let lines: Vec<_> = text[at..].lines().collect();
    let axis: Vec<_> = lines[2].split_whitespace().collect();
    assert_eq!(axis, ["pipes", "100", "1,000", "9,000"]);
    let poll = lines.iter().find(|line| line.starts_with("poll ")).expect("an arm");
    assert_eq!(poll.matches('▼').count(), 3, "{poll}");
    assert!(text.contains(&format!("select: {GAP}")));
}

#[test]
fn no_line_of_the_terminal_table_is_too_wide() {
    for width in [40, 60, 80, 100, 160] {
        for line in table(&sample(), width, false).lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn nothing_that_is_read_through_a_pipe_is_cut() {
    let mut record = sample();
    let long = "an-arm-with-a-name-beyond-twenty-letters";
    record.results[1].arm = long.into();
    record.results[1].notes = vec!["a remark ".repeat(40)];
    let text = table(&record, usize::MAX, false);
    assert!(!text.contains('…'), "{text}");
    assert!(text.contains(long) && text.contains(record.results[1].notes[0].trim()));
}

#[test]
fn on_a_narrow_terminal_the_reasons_stand_below_and_are_not_cut() {
    let text = table(&sample(), 60, false);
    assert!(!text.lines().any(|line| line.ends_with('…')), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("1 outlying block, kept"), "{text}");
    assert!(text.lines().any(|line| line.ends_with(", unconfirmed")), "{text}");
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let mut record = sample();
    record.results[0].arm = "\u{1b}]0;owned\u{7}".into();
    record.job.question = "why\u{1b}[2J?".into();
    let plain = table(&record, 100, false);
    assert!(plain.chars().all(|c| c == '\n' || !c.is_control()), "{plain}");
    let coloured = table(&record, 100, true);
    assert!(coloured.contains("\u{1b}[38;5;2m") && !coloured.contains("\u{1b}[2J"));
}

#[test]
fn markdown_holds_the_answers_the_tables_and_the_reasons() {
    let text = markdown(&sample());
    assert!(text.starts_with("## Which event mechanism for which load?\n"));
    assert!(text.contains("- 2000 streams, all active (pipes): **not decided** –"));
    assert!(text.contains("| arm | events/s (95 % CI) | vs epoll | verdict | notes |"));
    assert!(!text.contains("<script>") && text.contains("&lt;script&gt;"));
    assert!(text.contains("- failed: descriptor 1024"));
    assert!(text.contains("The time budget of 2 min 30 s ended"), "{text}");
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| ")).collect();
    assert!(rows.iter().all(|row| row.ends_with('|')), "each row is closed");
}

#[test]
fn times_inside_the_server_are_drawn_over_each_other_with_their_quantiles() {
    let document = roxmltree::Document::parse(bare_page()).expect("a well-formed page");
    let section = document.descendants().find(|node| node.attribute("id") == Some("times"));
    let section = section.expect("the sample has times");
    let charts: Vec<_> = section.descendants().filter(|node| node.has_tag_name("svg")).collect();
    assert_eq!(charts.len(), 2, "a chart for each point");
    for chart in charts {
        let series = chart.descendants().filter(|node| node.attribute("data-series").is_some());
        assert_eq!(series.count(), 2, "both arms");
    }
    let text = all_text(&document);
    for words in ["p99.9", "1.17 µs", "2.1 µs", "48.7 µs"] {
        assert!(text.contains(words), "{words}");
    }
    let mut record = sample();
    let summary = markdown(&record);
    let (_, section) = summary.split_once("### Inside the server").expect("a section");
    let (section, _) = section.split_once("\n- ").expect("remarks behind it");
    let rows = section.lines().filter(|line| line.starts_with("| epoll"));
    assert_eq!(rows.count(), 4, "both arms at both points: {section}");
    assert!(section.contains(" | 1.17 µs |"), "{section}");
    record.request_times.clear();
    assert!(!html(&record).contains("id=\"times\""));
    assert!(!markdown(&record).contains("Inside the server"));
}

/// The sample as the job of a document.
fn published_record(job: &str) -> Record {
    let mut record = sample();
    record.job.name = job.into();
    for row in &mut record.results {
        let place = match &*row.experiment {
            "streams" => ("cpus", "free"),
            "dead" if row.axes["dead"] != "0" => ("dead", "18000"),
            _ => continue,
        };
        row.axes.insert(place.0.into(), place.1.into());
    }
    record
}

#[test]
fn a_document_stands_beside_the_job_that_repeats_it_and_no_other() {
    let page = without_scripts(&html(&published_record("published-epoll-bench")));
    let document = roxmltree::Document::parse(&page).expect("a well-formed page");
    let section = document.descendants().find(|node| node.attribute("id") == Some("published"));
    let section = section.expect("a section");
    let texts: Vec<&str> = section.descendants().filter_map(|node| node.text()).collect();
    let text = texts.join(" ");
    for words in [
        "epoll_bench, 6 November 2006",
        "Of 3 series that it published",
        "260 k · 170 k · 58.8 k",
        "agrees in direction only: there it falls (×0.23), here it falls (×0.11)",
        "no figure here for AF_UNIX, no epoll: not part of this run",
        "Linux 2.6.18",
        "6.18.44",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    let summary = markdown(&published_record("published-epoll-bench"));
    assert!(summary.contains("### Beside the published epoll-bench: epoll\\_bench"), "{summary}");
    assert!(summary.contains("agrees in direction only: there it falls"), "{summary}");
    assert!(!bare_page().contains("id=\"published\""));
}

#[test]
fn a_document_without_figures_is_judged_by_its_words() {
    let text = markdown(&published_record("published-sys-epoll"));
    assert!(text.contains("by its words it rises, here it rises"), "{text}");
    assert!(!text.contains("passes/s over pipes"), "of pipes it says no level curve: {text}");
}

#[test]
fn a_cost_is_less_or_more_and_never_faster() {
    let document = roxmltree::Document::parse(bare_page()).expect("a well-formed page");
    let section = document.descendants().find(|node| node.attribute("id") == Some("result-3"));
    let section = section.expect("the dead connections");
    let texts = section.descendants().filter_map(|node| node.text());
    let words: Vec<&str> = texts.map(str::trim).collect();
    for word in ["less", "more", "← less", "more →"] {
        assert!(words.contains(&word), "{word}");
    }
    for word in ["faster", "slower", "← slower", "faster →"] {
        assert!(!words.contains(&word), "{word}");
    }
    let terminal = table(&sample(), 120, false);
    assert!(terminal.contains("µs/request (95% CI)"), "{terminal}");
}

/// A kept run whose arms took turns.
fn in_turns() -> Record {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../runs/2026-11-22-quick-turns");
    pollux_lab::store::load(kept.as_ref()).expect("a kept result")
}

#[test]
fn a_noisy_herd_takes_the_badge_from_its_own_table_alone() {
    let mut record = in_turns();
    let tables = html(&record)
        .matches("<p class=\"judged\"><span class=\"badge good\">A/A control holds within ")
        .count();
    assert_eq!(tables, 5);
    let is_control =
        |row: &&mut ResultRow| row.experiment == "herd" && row.verdict == Verdict::NoiseLevel;
    for row in record.results.iter_mut().filter(is_control) {
        (row.ci_low, row.ci_high) = (Some(0.89), Some(1.25));
    }
    let noisy = "noisy machine: A/A up to 19 % apart";
    let page = html(&record);
    assert_eq!(page.matches(noisy).count(), 1, "the badge of the herd");
    assert_eq!(page.matches("<span class=\"badge good\">").count(), 4);
    let all = "A/A control holds in 4 of 5 tables, not in: Herd";
    assert!(page.contains(&format!("<span class=\"badge open\">{all}</span>")));
    let terminal = table(&record, usize::MAX, false);
    assert!(
        terminal.contains(all) && terminal.contains(&format!("Herd (CPU time per call): {noisy}")),
        "{terminal}"
    );
    let summary = markdown(&record);
    assert!(
        summary.contains(all) && summary.matches("**A/A control holds within").count() == 4,
        "{summary}"
    );
    assert_eq!(summary.matches(noisy).count(), 1);
}

#[test]
fn a_card_has_its_own_figure_the_saving_and_what_to_do_in_every_form() {
    let mut record = in_turns();
    let answer = &mut record.answers[0];
    assert_eq!(
        (answer.load.as_str(), answer.choice.as_str()),
        ("2000 streams, all active (pipes)", "uring-poll")
    );
    (answer.place, answer.better) =
        (Some(["streams".into(), "pipe".into()]), vec!["uring-poll".into()]);
    // The ratio of the row, on one value of the baseline.
    let figures = "uring-poll: 1,923 ns/event, saves 229 [189, 269] of 2,152";
    let page = html(&record).replace('\u{a0}', " ");
    let card = format!(
        "<p class=\"figures\">{figures}</p><p class=\"action\">To do: <b>--poller uring-poll</b></p>"
    );
    let there = page.find("<p class=\"figures\">").map(|at| &page[at..at + 250]);
    assert!(page.contains(&card), "{there:?}");
    let terminal = table(&record, usize::MAX, false);
    assert!(terminal.contains(&format!("→ --poller uring-poll: {figures}\n")), "{terminal}");
    let summary = markdown(&record).replace('\\', "");
    let lines: Vec<&str> = summary.lines().filter(|line| line.contains("To do")).collect();
    assert_eq!(lines, [format!("  To do: --poller uring-poll – {figures}")]);
}

#[test]
fn words_are_explained_where_they_stand_and_at_the_end() {
    let page = html(&in_turns());
    assert!(page.contains("<dt title=\"the baseline a second time"), "the strip");
    assert!(page.contains("title=\"CPU time in billionths"), "headings");
    assert!(
        page.contains("<td class=\"arm\" title=\"io_uring(7) that is asked for readiness"),
        "arms"
    );
    for word in ["A/A", "interval", "set", "turn", "decided", "ns, µs", "uring-poll", "aio"] {
        assert!(page.contains(&format!("<dt>{word}</dt><dd>")), "{word}");
        assert!(markdown(&in_turns()).contains(&format!("- **{word}**: ")), "{word}");
    }
    assert!(table(&in_turns(), usize::MAX, false).contains("A/A: the baseline a second time;"));
}

#[test]
fn of_turns_no_rates_are_shown_and_no_column_is_empty() {
    let page = html(&in_turns());
    let start = page.find("what the load generator saw").expect("the table");
    let table = &page[start..start + page[start..].find("</table>").expect("its end")];
    let headings: Vec<&str> = table.split("<th scope=\"col\"").skip(1).collect();
    assert!(headings.len() > 1, "{table}");
    for gone in ["requests/s", "p50", "p99", "rate ×"] {
        assert!(!headings.iter().any(|heading| heading.contains(gone)), "{gone} in {headings:?}");
    }
    let said = "Left out, as no row has a value: requests/s: turns show what a request costs";
    assert!(page.contains(said));
}

#[test]
fn what_the_load_generator_saw_is_shown_and_only_where_there_was_one() {
    for text in ["server and load", "pollux 0.1.0", "as perf stat prints it"] {
        assert!(bare_page().contains(text), "{text}");
    }
    let mut record = sample();
    record.runs.retain(|run| ["streams", "pipes"].contains(&&*run.experiment));
    assert!(!html(&record).contains("what the load generator saw"));
}
