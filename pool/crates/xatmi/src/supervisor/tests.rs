//! Every element of the configuration against a virtual clock: what is done, and at which second.

use std::time::Duration;

use super::*;

const SPAWN: Action = Action::Spawn { id: 1 };
const QUIET: &str = "<pingtime>0</pingtime>";

/// A supervisor, a clock that only moves when the test moves it, and what was done at which second.
struct World {
    supervisor: Supervisor,
    start: Instant,
    now: Instant,
    done: Vec<(u64, Action)>,
}

const SANITY_S: u64 = 5;

impl World {
    /// `server` is the inside of one `<server>` with id 1; `app` that of `<appconfig>`.
    fn of(app: &str, server: &str) -> Self {
        let server = format!("<server name=\"a\"><srvid>1</srvid>{server}</server>");
        let mut world = Self::unbegun(app, &server);
        world.act(|supervisor, now, out| supervisor.begin(&[], now, out));
        world
    }

    fn unbegun(app: &str, servers: &str) -> Self {
        let start = Instant::now();
        let supervisor = Supervisor::new(&config(app, servers), start);
        Self { supervisor, start, now: start, done: Vec::new() }
    }

    /// Lets `second` come, with everything due until then, and gives back what was done.
    fn until(&mut self, second: u64) -> Vec<(u64, Action)> {
        let end = self.start + Duration::from_secs(second);
        while self.supervisor.next_moment() <= end {
            self.now = self.now.max(self.supervisor.next_moment());
            self.act(Supervisor::pass);
        }
        self.now = end;
        std::mem::take(&mut self.done)
    }

    fn act<T>(
        &mut self,
        change: impl FnOnce(&mut Supervisor, Instant, &mut Vec<Action>) -> T,
    ) -> T {
        let mut out = Vec::new();
        let result = change(&mut self.supervisor, self.now, &mut out);
        let second = (self.now - self.start).as_secs();
        self.done.extend(out.into_iter().map(|action| (second, action)));
        result
    }

    fn ready(&mut self, id: u32) {
        self.act(|s, now, out| s.event(Event::Ready { id }, now, out));
    }

    fn died(&mut self, id: u32) {
        let how = "signal 11".to_owned();
        self.act(|s, now, out| s.event(Event::Died { id, how }, now, out));
    }

    fn state(&self, id: u32) -> State {
        let mut members = self.supervisor.members(self.now);
        members.find(|member| member.id == id).expect("a member").state
    }

    fn spawned(&mut self) -> Vec<u32> {
        let done = std::mem::take(&mut self.done);
        done.iter()
            .filter_map(|(_, a)| if let Action::Spawn { id } = a { Some(*id) } else { None })
            .collect()
    }
}

fn config(app: &str, servers: &str) -> PoolConfig {
    let text = format!(
        "<endurox><appconfig><sanity>{SANITY_S}</sanity>{app}</appconfig><defaults><min>1</min>\
         <max>1</max></defaults><servers>{servers}</servers></endurox>"
    );
    PoolConfig::from_text("test.xml", &text, &|_| None).expect("a configuration")
}

fn signal(second: u64, signal: i32) -> (u64, Action) {
    (second, Action::Signal { id: 1, signal })
}

#[test]
fn pauses_before_a_restart_grow_from_min_by_step_to_max() {
    let app =
        "<restart_min>1</restart_min><restart_step>2</restart_step><restart_max>4</restart_max>";
    let mut world = World::of(app, "<start_max>0</start_max>");
    assert_eq!(world.until(0), [(0, SPAWN)]);
    // One cycle, then 3, then 4 for ever: each failure follows its start at once.
    let mut at = 0;
    for cycles in [1, 3, 4, 4] {
        world.died(1);
        assert_eq!(world.state(1), State::Waiting);
        at += cycles * SANITY_S;
        assert_eq!(world.until(at - 1), []);
        assert_eq!(world.until(at), [(at, SPAWN)]);
    }
}

#[test]
fn failures_are_forgotten_once_a_worker_was_up_for_a_cycle() {
    let app =
        "<restart_min>1</restart_min><restart_step>3</restart_step><restart_max>9</restart_max>";
    let mut world = World::of(app, QUIET);
    world.died(1);
    assert_eq!(world.until(5), [(0, SPAWN), (5, SPAWN)]);
    world.ready(1);
    world.until(12);
    world.died(1);
    assert_eq!(world.until(15), [(15, SPAWN)]);
    world.ready(1);
    // Up for less than a cycle: the next pause is longer.
    world.until(16);
    world.died(1);
    assert_eq!(world.until(34), []);
    assert_eq!(world.until(35), [(35, SPAWN)]);
}

#[test]
fn a_pause_of_nothing_is_only_for_a_worker_that_had_run() {
    let app = "<restart_min>0</restart_min><restart_step>0</restart_step>";
    let mut world = World::of(app, QUIET);
    world.ready(1);
    world.until(6);
    world.died(1);
    assert_eq!(world.until(6), [(6, SPAWN)]);
    world.died(1);
    assert_eq!(world.until(9), []);
    assert_eq!(world.until(10), [(10, SPAWN)]);
}

#[test]
fn a_slow_start_is_ended_by_2_15_9_9_in_steps_of_killtime() {
    let mut world = World::of("", "<start_max>2</start_max><killtime>1</killtime>");
    assert_eq!(
        world.until(30),
        [(0, SPAWN), signal(10, 2), signal(15, 15), signal(20, 9), signal(25, 9), signal(30, 9)]
    );
    assert_eq!(world.state(1), State::Killing);
    world.died(1);
    assert_eq!(world.until(35), [(35, SPAWN)]);
}

#[test]
fn killseq_names_the_signals_and_9_follows_them() {
    let mut world = World::of("", "<start_max>2</start_max><killseq>2,14,15</killseq>");
    assert_eq!(
        world.until(30),
        [(0, SPAWN), signal(10, 2), signal(15, 14), signal(20, 15), signal(25, 9), signal(30, 9)]
    );
}

#[test]
fn sleep_after_holds_back_what_stands_behind_and_nothing_else() {
    let servers = "<server name=\"a\"><srvid>1</srvid><sleep_after>12</sleep_after></server>\
                   <server name=\"b\"><srvid>10</srvid></server>";
    let mut world = World::unbegun("", servers);
    world.act(|s, now, out| s.begin(&[], now, out));
    assert_eq!(world.spawned(), [1]);
    world.until(1);
    world.ready(1);
    assert_eq!(world.until(12), []);
    assert!(!world.supervisor.is_settled());
    assert_eq!(world.until(13), [(13, Action::Spawn { id: 10 })]);
    world.ready(10);
    assert!(world.supervisor.is_settled());
    // A restart by hand waits for nothing.
    world.until(14);
    world.died(10);
    let started = world.act(|s, now, out| s.start(&Selection::Id(10), now, out));
    assert_eq!((started, world.spawned()), (Ok(1), vec![10]));
}

#[test]
fn killtime_counts_in_cycles() {
    let mut world = World::of("", "<start_max>1</start_max><killtime>3</killtime>");
    assert_eq!(
        world.until(50),
        [(0, SPAWN), signal(5, 2), signal(20, 15), signal(35, 9), signal(50, 9)]
    );
}

#[test]
fn without_start_max_a_start_may_take_its_time() {
    let mut world = World::of("", "<start_max>-1</start_max>");
    assert_eq!(world.until(500), [(0, SPAWN)]);
    assert_eq!(world.state(1), State::Starting);
}

#[test]
fn pings_go_out_each_pingtime_and_silence_ends_at_ping_max() {
    let mut world = World::of("", "<pingtime>2</pingtime><ping_max>4</ping_max>");
    world.ready(1);
    assert_eq!(world.until(10), [(0, SPAWN), (10, Action::Ping { id: 1, number: 1 })]);
    world.until(11);
    world.act(|s, now, out| s.event(Event::Pong { id: 1, number: 1 }, now, out));
    assert_eq!(world.until(20), [(20, Action::Ping { id: 1, number: 2 })]);
    // An answer to an earlier ping is none to this one.
    world.act(|s, now, out| s.event(Event::Pong { id: 1, number: 1 }, now, out));
    assert_eq!(world.until(39), []);
    assert_eq!(world.until(45), [signal(40, 2), signal(45, 15)]);
    world.died(1);
    assert_eq!(world.until(50), [(50, SPAWN)]);
}

#[test]
fn ping_max_of_zero_only_asks() {
    let mut world = World::of("", "<pingtime>1</pingtime><ping_max>0</ping_max>");
    world.ready(1);
    assert_eq!(world.until(100), [(0, SPAWN), (5, Action::Ping { id: 1, number: 1 })]);
    assert_eq!(world.state(1), State::Up);
}

#[test]
fn without_autokill_no_worker_is_sent_a_signal() {
    let mut world =
        World::of("", "<autokill>0</autokill><start_max>1</start_max><pingtime>1</pingtime>");
    assert_eq!(world.until(30), [(0, SPAWN)]);
    world.ready(1);
    world.until(60);
    assert_eq!(world.state(1), State::Silent);
    world.act(|s, now, out| s.stop(&Selection::All, now, out)).expect("one");
    let done = world.until(200);
    assert!(done.iter().all(|(_, action)| *action == Action::Stop { id: 1 }), "{done:?}");
}

#[test]
fn a_stop_that_takes_too_long_is_ended_by_signals_and_stays_stopped() {
    let mut world = World::of("", &format!("{QUIET}<end_max>5</end_max>"));
    world.ready(1);
    world.until(3);
    assert_eq!(world.act(|s, now, out| s.stop(&Selection::Id(1), now, out)), Ok(1));
    // A link that was full has lost it, so it is said in each cycle.
    let asked = [3, 5, 10, 15, 20, 25, 30].map(|second| (second, Action::Stop { id: 1 }));
    assert_eq!(
        world.until(40),
        [&asked[..], &[signal(30, 2), signal(35, 15), signal(40, 9)]].concat()
    );
    world.died(1);
    assert_eq!(world.until(100), []);
    assert_eq!(world.state(1), State::Down);
    assert!(!world.supervisor.is_expected(1));
}

#[test]
fn without_respawn_the_dead_stay_dead_until_an_order_starts_them() {
    let mut world = World::of("", &format!("{QUIET}<respawn>N</respawn>"));
    world.ready(1);
    world.died(1);
    assert_eq!(world.until(100), [(0, SPAWN)]);
    assert_eq!(world.state(1), State::Down);
    assert_eq!(world.act(|s, now, out| s.start(&Selection::All, now, out)), Ok(1));
    assert_eq!(world.until(101), [(100, SPAWN)]);
}

#[test]
fn copies_above_min_are_standby_and_started_by_id() {
    let mut world = World::of("", &format!("{QUIET}<min>2</min><max>4</max>"));
    assert_eq!(world.spawned(), [1, 2]);
    assert_eq!(
        [1, 2, 3, 4].map(|id| world.state(id)),
        [State::Starting, State::Starting, State::Down, State::Down]
    );
    assert_eq!(world.act(|s, now, out| s.start(&Selection::Id(4), now, out)), Ok(1));
    world.ready(1);
    world.ready(2);
    assert_eq!(world.spawned(), [4]);
    assert_eq!(world.act(|s, now, out| s.start(&Selection::Program("a".into()), now, out)), Ok(0));
    let unknown = world.act(|s, now, out| s.start(&Selection::Id(5), now, out));
    assert!(unknown.expect_err("no such id").to_string().contains("id 5"));
    let unknown = world.act(|s, now, out| s.stop(&Selection::Program("b".into()), now, out));
    assert!(unknown.expect_err("no such program").to_string().contains("\"b\""));
}

#[test]
fn entries_start_in_order_and_copies_together_64_at_once() {
    let servers = "<server name=\"a\"><srvid>1</srvid><min>100</min><max>100</max></server>\
                   <server name=\"b\"><srvid>500</srvid></server>";
    let mut world = World::unbegun("", servers);
    world.act(|s, now, out| s.begin(&[], now, out));
    assert_eq!(world.spawned(), (1..=64).collect::<Vec<_>>());
    for id in 1..=10 {
        world.ready(id);
    }
    assert_eq!(world.spawned(), (65..=74).collect::<Vec<_>>());
    // A copy that fails does not keep the others back.
    world.died(11);
    for id in 12..=100 {
        world.ready(id);
    }
    let spawned = world.spawned();
    assert_eq!(spawned.last(), Some(&500));
    assert_eq!(spawned.len(), 27);
    assert!(!world.supervisor.is_settled());
    world.ready(500);
    assert!(world.supervisor.is_settled());
}

#[test]
fn a_worker_that_refuses_is_tried_again_and_its_reason_kept() {
    let mut world = World::of("", QUIET);
    let why = "no database".to_owned();
    world.act(|s, now, out| s.event(Event::Refused { id: 1, why }, now, out));
    assert!(world.supervisor.is_settled());
    world.died(1);
    let view = world.supervisor.members(world.now).next().expect("one");
    assert_eq!((view.state, view.cause.as_deref()), (State::Waiting, Some("no database")));
    assert_eq!(world.until(5), [(0, SPAWN), (5, SPAWN)]);
}

#[test]
fn a_manager_that_comes_back_learns_before_it_checks_or_starts() {
    let servers = "<server name=\"a\"><srvid>1</srvid><min>3</min><max>3</max></server>";
    let mut world = World::unbegun("<restart_to_check>20</restart_to_check>", servers);
    world.act(|s, now, out| s.begin(&[1, 2, 77], now, out));
    assert_eq!(
        (world.until(3), world.state(1), world.state(3)),
        (vec![], State::Orphan, State::Queued)
    );
    assert!(world.act(|s, now, out| s.adopt(1, "a", now, out)));
    assert!(!world.act(|s, now, out| s.adopt(1, "a", now, out)), "it has a process");
    assert!(!world.act(|s, now, out| s.adopt(2, "b", now, out)), "another program");
    assert!(!world.act(|s, now, out| s.adopt(77, "a", now, out)), "no such id");
    assert_eq!(world.until(19), []);
    // Time is over: the one that did not report is ended, the missing one is started.
    let done = world.until(20);
    assert_eq!(done, [(20, Action::Signal { id: 2, signal: 2 }), (20, Action::Spawn { id: 3 })]);
    assert_eq!(world.state(1), State::Up);
}

#[test]
fn learning_ends_as_soon_as_all_have_reported_or_died() {
    let servers = "<server name=\"a\"><srvid>1</srvid><min>3</min><max>3</max></server>";
    let mut world = World::unbegun("", servers);
    world.act(|s, now, out| s.begin(&[1, 2], now, out));
    world.until(1);
    assert!(world.act(|s, now, out| s.adopt(1, "a", now, out)));
    world.died(2);
    assert!(!world.supervisor.is_learning());
    assert_eq!(world.spawned(), [3]);
    assert_eq!(world.state(2), State::Waiting);
}

#[test]
fn a_restart_starts_each_worker_as_soon_as_it_is_gone() {
    let mut world = World::of("", &format!("{QUIET}<min>2</min><max>2</max>"));
    world.ready(1);
    world.ready(2);
    world.done.clear();
    assert_eq!(world.act(|s, now, out| s.restart(&Selection::All, now, out)), Ok(2));
    assert_eq!(world.until(1), [(0, Action::Stop { id: 1 }), (0, Action::Stop { id: 2 })]);
    assert!(world.supervisor.is_expected(1), "its services stay");
    world.died(2);
    assert_eq!(world.until(1), [(1, Action::Spawn { id: 2 })]);
}

#[test]
fn the_end_stops_all_starts_nothing_and_a_second_one_kills() {
    let mut world = World::of("", "<min>3</min><max>3</max>");
    world.ready(1);
    world.ready(2);
    world.died(2);
    world.done.clear();
    world.act(Supervisor::end);
    assert_eq!(world.until(1), [(0, Action::Stop { id: 1 }), (0, Action::Stop { id: 3 })]);
    assert_eq!(world.state(2), State::Down);
    world.died(1);
    assert!(!world.supervisor.is_empty());
    world.act(Supervisor::end_now);
    assert_eq!(world.until(1), [(1, Action::Signal { id: 3, signal: 9 })]);
    world.died(3);
    assert!(world.supervisor.is_empty());
    assert_eq!(world.until(100), []);
}

#[test]
fn a_reload_stops_what_is_gone_starts_what_is_new_and_takes_new_limits() {
    let old = "<server name=\"a\"><srvid>1</srvid><min>2</min><max>2</max></server>\
               <server name=\"b\"><srvid>10</srvid></server>";
    let mut world = World::unbegun("", old);
    world.act(|s, now, out| s.begin(&[], now, out));
    for id in [1, 2, 10] {
        world.ready(id);
    }
    world.done.clear();
    let new = "<server name=\"a\"><srvid>1</srvid><min>1</min><max>1</max><pingtime>1</pingtime><ping_max>1</ping_max>\
               </server><server name=\"c\"><srvid>20</srvid></server>";
    let new = config("", new);
    world.act(|s, now, out| s.reload(&new, now, out));
    let done: Vec<Action> = world.until(0).into_iter().map(|(_, action)| action).collect();
    assert_eq!(done, [Action::Stop { id: 2 }, Action::Stop { id: 10 }, Action::Spawn { id: 20 }]);
    world.died(2);
    world.died(10);
    let ids: Vec<u32> = world.supervisor.members(world.now).map(|member| member.id).collect();
    assert_eq!(ids, [1, 20]);
    let done = world.until(10);
    assert!(done.contains(&signal(10, 2)), "the new ping_max counts: {done:?}");
}

#[test]
fn a_reload_starts_what_is_new_in_min_and_restarts_what_has_another_program() {
    let server = |name: &str, min: u32| {
        format!("<server name=\"{name}\"><srvid>1</srvid><min>{min}</min><max>3</max></server>")
    };
    let mut world = World::unbegun("", &server("a", 1));
    world.act(|s, now, out| s.begin(&[], now, out));
    world.ready(1);
    world.done.clear();
    let reload = |world: &mut World, servers: &str| {
        let new = config("", servers);
        world.act(|s, now, out| s.reload(&new, now, out));
        std::mem::take(&mut world.done).into_iter().map(|(_, action)| action).collect::<Vec<_>>()
    };
    let done = reload(&mut world, &server("a", 3));
    assert_eq!(done, [Action::Spawn { id: 2 }, Action::Spawn { id: 3 }], "min was raised");
    world.ready(2);
    world.ready(3);
    assert_eq!(reload(&mut world, &server("a", 1)), [], "what runs beyond min stays");
    let done = reload(&mut world, &server("b", 1));
    assert_eq!(done, [1, 2, 3].map(|id| Action::Stop { id }), "another program");
    world.died(1);
    assert_eq!(world.spawned(), [1]);
    // Taken out and put in again before it is gone.
    world.ready(1);
    let other = "<server name=\"c\"><srvid>9</srvid></server>";
    reload(&mut world, other);
    reload(&mut world, &server("b", 1));
    world.done.clear();
    world.died(1);
    assert_eq!(world.spawned(), [1]);
}

#[test]
fn a_restart_waits_for_no_pause_and_starts_what_is_down_by_its_id() {
    let app = "<restart_min>9</restart_min><restart_max>9</restart_max>";
    let mut world = World::of(app, &format!("{QUIET}<min>2</min><max>3</max>"));
    world.ready(2);
    world.died(1);
    let view = world.supervisor.members(world.now).next().expect("one");
    assert_eq!((view.state, view.failures), (State::Waiting, 1));
    assert_eq!(view.next_start, Some(Duration::from_secs(9 * SANITY_S)));
    assert_eq!(world.spawned(), [1, 2]);
    assert_eq!(world.act(|s, now, out| s.restart(&Selection::Id(1), now, out)), Ok(1));
    assert_eq!(world.spawned(), [1]);
    assert_eq!(world.act(|s, now, out| s.restart(&Selection::Id(3), now, out)), Ok(1));
    assert_eq!(world.spawned(), [3]);
    world.act(|s, now, out| s.stop(&Selection::Id(2), now, out)).expect("one");
    let view = world.supervisor.members(world.now).nth(1).expect("three");
    assert!(view.state == State::Stopping && !view.starts_again);
    assert_eq!(world.act(|s, now, out| s.start(&Selection::Id(2), now, out)), Ok(1));
    let view = world.supervisor.members(world.now).nth(1).expect("three");
    assert!(view.state == State::Stopping && view.starts_again, "{view:?}");
}

#[test]
fn an_orphan_that_is_to_stop_may_report_before_it_is_killed() {
    let mut world = World::unbegun("", "<server name=\"a\"><srvid>1</srvid></server>");
    world.act(|s, now, out| s.begin(&[1], now, out));
    world.act(Supervisor::end);
    assert_eq!((world.until(1), world.state(1)), (vec![], State::Stopping));
    assert!(
        !world.act(|s, now, out| s.adopt(1, "a", now, out)),
        "one that reports is asked to end"
    );
    let done = world.until(30);
    assert!(done.contains(&signal(25, 2)) || done.contains(&signal(30, 2)), "{done:?}");
}

#[test]
fn an_orphan_that_cant_be_taken_over_is_replaced_without_a_pause() {
    let app = "<restart_min>9</restart_min><restart_max>9</restart_max>";
    let mut world = World::unbegun(app, "<server name=\"a\"><srvid>1</srvid></server>");
    world.act(|s, now, out| s.begin(&[1], now, out));
    assert!(!world.act(|s, now, out| s.adopt(1, "b", now, out)), "another program");
    world.act(|s, now, out| s.replace(1, now, out));
    assert!(!world.supervisor.is_learning(), "it has reported");
    world.died(1);
    assert_eq!(world.spawned(), [1]);
    world.act(|s, now, out| s.replace(1, now, out));
    assert_eq!(world.state(1), State::Starting, "it has a manager");
}

#[test]
fn an_orphan_that_may_not_be_killed_is_silent_until_it_reports() {
    let servers = "<server name=\"a\"><srvid>1</srvid><autokill>0</autokill></server>";
    let mut world = World::unbegun("", servers);
    world.act(|s, now, out| s.begin(&[1], now, out));
    assert_eq!((world.until(60), world.state(1)), (vec![], State::Silent));
    assert!(!world.supervisor.is_learning());
    assert!(world.act(|s, now, out| s.adopt(1, "a", now, out)));
    assert_eq!(world.state(1), State::Up);
}
