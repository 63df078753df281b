//! The table played without a kernel: whole, in pieces, and split in two at every offset.

use crate::case::{After, find};
use crate::sending::{Came, Way, compare, references};
use crate::stage::{PROBE, Scene, Stage, masked};
use crate::verdict;

/// Requests up to here are split at every offset, longer ones at about [`OFFSETS`].
const EVERY_OFFSET_MAX: usize = 2048;
const OFFSETS: usize = 100;

/// Plays a scene on a connection of its own.
pub(crate) fn rehearse(stage: &Stage, Scene { case, request }: &Scene, way: Way) -> Came {
    let mut play = stage.rehearsal(case.setup);
    let mut stream = Vec::new();
    for piece in (0..).map_while(|step| way.piece(step, request.len())) {
        play.feed(&request[piece]);
        stream.append(&mut play.take_output());
    }
    let is_awaited = !case.after_continue.is_empty();
    if is_awaited && find(&stream, b"HTTP/1.1 100 Continue\r\n").is_some() {
        play.feed(&case.after_continue);
    }
    let has_ended = play.closed().is_some();
    if case.after == After::Kept && !has_ended {
        play.feed(PROBE);
    }
    stream.append(&mut play.take_output());
    if case.after == After::Kept && !has_ended {
        return Came::before_probe(&stream, stage.answer_to_probe(case.setup));
    }
    Came { stream: masked(&stream), has_ended, has_broken: false }
}

#[test]
fn sessions_keep_the_table_however_it_is_sent() {
    let stage = Stage::new();
    let mut faults = Vec::new();
    for (scene, reference) in stage.scenes.iter().zip(references(&stage)) {
        let case = &scene.case;
        if let Err(fault) =
            verdict::judge(&Way::Whole.judged(case), &reference.stream, reference.has_ended)
        {
            faults.push(format!("{} ({}), whole: {fault}", case.name, case.rfc));
        }
        for way in Way::all(&scene.request, EVERY_OFFSET_MAX, OFFSETS) {
            if let Err(fault) = compare(case, &reference, &rehearse(&stage, scene, way)) {
                faults.push(format!("{} ({}), {way:?}: {fault}", case.name, case.rfc));
            }
        }
    }
    let shown = faults.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(faults.is_empty(), "{} faults:\n{shown}", faults.len());
}
