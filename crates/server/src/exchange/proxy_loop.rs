//! What one loop has of backends and of what is under way to them, and what changes for both sides at once.
//!
//! Each loop makes its own, so nothing here is locked; the counters are read from other threads.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{Actions, Command, ConnectTo, Moment, Now};
use pollux_http::h2::Scratch;
use pollux_http::{DateCache, NoProxyHeader, ProxyHeader};
use pollux_tls::SharedTls;

use crate::backends::groups::{FrontendTable, Group, Secrets, why};
use crate::backends::shared_upstreams::SharedUpstreams;
use crate::backends::{Backend, HealthChange, Schedule, Target};
use crate::coding::Encoders;
use crate::config::{Balance, Check, Frontend, Mode, ProxyConfig, ProxyLimits};
use crate::counters::{ServerCounter, ServerCounters};
use crate::epochs::Epochs;
use crate::exchange::asker::ReadyStreams;
use crate::exchange::assign::Handover;
use crate::exchange::connections::{Outgoing, Purpose, UpstreamConnections};
use crate::exchange::epoch::PassingSettings;
use crate::exchange::pipes::Pipes;
use crate::exchange::table::{Exchange, Exchanges};
use crate::exchange::tcp_pair::TcpPairs;
use crate::fault::{Fault, ProxyCounter, ProxyCounters};
use crate::head::cache::Repeats;
use crate::head::changed::AnswerChanges;
use crate::head::rules::Rules;
use crate::ids::{BackendId, ExchangeId, FieldSetId, FrontId, GroupId, UpstreamId};
use crate::log::{Event, Logs};

/// What one loop has of backends and of what is under way to them; only loops of a proxy have it.
#[derive(Debug)]
pub(crate) struct ProxyLoop {
    pub(crate) backends: Arc<[Backend]>,
    /// Where they are, as this loop knows it.
    pub(crate) targets: Box<[Option<Arc<Target>>]>,
    pub(crate) are_there: Box<[bool]>,
    pub(crate) groups: Box<[Group]>,
    pub(crate) frontends: FrontendTable,
    /// What of the settings each exchange keeps.
    pub(crate) epochs: Epochs<PassingSettings>,
    /// Of the one loop that looks at backends.
    schedule: Option<Schedule>,
    pub(crate) limits: ProxyLimits,
    /// Of answers.
    pub(crate) answer_limits: pollux_http::Limits,
    pub(crate) date: DateCache,
    pub(crate) now: Now,
    pub(crate) exchanges: Exchanges,
    /// Bytes that the exchanges of streams hold together.
    pub(super) held_bytes: usize,
    /// Askers that are streams, and have to be called.
    pub(crate) ready: ReadyStreams,
    pub(crate) repeats: Repeats,
    pub(crate) connections: UpstreamConnections,
    pub(crate) logs: Logs,
    pub(crate) counters: Arc<ServerCounters>,
    pub(crate) proxied: Arc<ProxyCounters>,
    pub(crate) is_draining: bool,
    /// By when requests have to end, once the loop drains.
    pub(crate) drain_end: Moment,
    pub(crate) commands: VecDeque<Command<Outgoing>>,
    pub(crate) handover: Handover,
    pub(crate) pairs: TcpPairs,
    pub(crate) pipes: Pipes,
    /// What compresses answers.
    pub(super) encoders: Encoders,
    /// Room for heads that come by HTTP/2.
    pub(crate) scratch: Scratch,
}

impl ProxyLoop {
    /// What the loop number `index` of a proxy configured so needs, which has these front ends; what passes between loops, and
    /// counters are kept by the caller too. The first loop looks at the backends.
    pub(crate) fn new(
        index: usize,
        config: &ProxyConfig,
        frontends: FrontendTable,
        shared: Arc<SharedUpstreams>,
        counters: Arc<ServerCounters>,
        proxied: Arc<ProxyCounters>,
        logs: &Logs,
    ) -> Self {
        let is_checked =
            |backend: &Backend| config.groups[backend.group.place()].health.check != Check::None;
        let backends = Arc::clone(&shared.backends);
        let has_checks = index == 0 && backends.iter().any(is_checked);
        let is_checked = |backend: &Backend| backend.is_there() && is_checked(backend);
        let counted = shared.routes.places(&config.sites.names());
        let checked: Vec<bool> = backends.iter().map(is_checked).collect();
        Self {
            groups: Group::all(config, index as u64 + 1),
            frontends,
            epochs: Epochs::new(PassingSettings::new(config, counted)),
            schedule: has_checks.then(|| Schedule::new(&checked)),
            connections: UpstreamConnections::new(backends.len()),
            targets: backends.iter().map(Backend::target).collect(),
            are_there: backends.iter().map(Backend::is_there).collect(),
            backends,
            limits: config.limits.clone(),
            // An answer is passed on piece by piece, however long it is.
            answer_limits: config.limits.clients.heads.with_body(u64::MAX),
            date: DateCache::new(0),
            now: Now::default(),
            exchanges: Exchanges::default(),
            held_bytes: 0,
            ready: ReadyStreams::default(),
            repeats: Repeats::default(),
            logs: logs.clone(),
            counters,
            encoders: Encoders::new(Arc::clone(&proxied)),
            proxied,
            is_draining: false,
            drain_end: Moment::NEVER,
            pairs: TcpPairs::default(),
            pipes: Pipes::new(config.pipes_max(), config.loops.threads),
            commands: VecDeque::new(),
            handover: Handover::new(index as u32, shared),
            scratch: Scratch::default(),
        }
    }

    /// Requests go by these settings from now on, and connections to backends by these limits; those that have begun keep
    /// what they have.
    pub(crate) fn begin_epoch(
        &mut self,
        passing: PassingSettings,
        frontends: FrontendTable,
        answer_limits: pollux_http::Limits,
    ) {
        self.limits = passing.limits.clone();
        let begun = self.epochs.begin(passing);
        assert!(begun.is_ok(), "a reload looks for a place before it offers anything");
        (self.frontends, self.answer_limits) = (frontends, answer_limits);
        // What was made of heads is made in another way now.
        self.repeats = Repeats::default();
    }

    /// The rules of a set for fields of answers.
    #[inline]
    pub(crate) fn rules(&self, set: FieldSetId) -> &Rules {
        &self.epochs.now().fields[set.place()].response
    }

    /// What a set does to answers beside.
    #[inline]
    pub(crate) fn changes(&self, set: FieldSetId) -> &AnswerChanges {
        &self.epochs.now().fields[set.place()].changes
    }

    /// Requests under way, and upstream connections.
    pub(crate) fn open(&self) -> (usize, usize) {
        (self.exchanges.open() + self.pairs.open(), self.connections.open())
    }

    /// Upstream connections without a request, to the backend at this place.
    pub(crate) fn idle(&self, backend: usize) -> usize {
        self.handover.idle(backend)
    }

    pub(crate) fn begin_turn(&mut self, now: Now) {
        if now.unix_s != self.now.unix_s {
            self.date.at(now.unix_s);
        }
        self.now = now;
    }

    pub(crate) fn end_turn(&mut self) {
        self.release();
    }

    pub(crate) fn next_command(&mut self) -> Option<Command<Outgoing>> {
        self.read_messages();
        self.commands.pop_front().or_else(|| self.next_check())
    }

    /// When the next check is due.
    pub(crate) fn next_command_at(&self) -> Moment {
        match &self.schedule {
            Some(schedule) if !self.is_draining => schedule.next(),
            _ => Moment::NEVER,
        }
    }

    /// The loop drains: its sessions are called, one after the other.
    pub(crate) fn drain(&mut self) {
        if !std::mem::replace(&mut self.is_draining, true) {
            self.drain_end = self.deadline(self.limits.clients.drain_timeout);
        }
    }

    fn next_check(&mut self) -> Option<Command<Outgoing>> {
        let now = self.now.at;
        // Before the first turn the time is not known.
        let can_check = !self.is_draining && now != Moment::default();
        let schedule = self.schedule.as_mut().filter(|_| can_check)?;
        let backend = schedule.take(now)?;
        self.proxied.count(ProxyCounter::Checks);
        let to = self.to(backend);
        let check_timeout = self.group_of(backend).check_timeout;
        let tls = self.tls_to(backend, Mode::Http);
        let session = Outgoing { purpose: Purpose::Check(backend), tls };
        let deadline = now + check_timeout;
        Some(Command::Connect { to, session, deadline })
    }

    /// A check has ended; none says that it was not a check of the backend.
    pub(crate) fn checked(&mut self, backend: BackendId, verdict: Option<bool>) {
        if !self.backends[backend.place()].is_there() {
            return;
        }
        let now = self.now.at;
        let interval = self.group_of(backend).check_interval;
        if let Some(schedule) = &mut self.schedule {
            schedule.again(backend, now + interval);
        }
        let state = &self.backends[backend.place()];
        let change = match verdict {
            Some(true) => state.passed_check(now),
            Some(false) => state.failed(now),
            None => None,
        };
        if verdict == Some(false) {
            self.may_have_moved(backend);
        }
        if let Some(change) = change {
            self.report_health_change(backend, change);
        }
    }

    /// A backend has begun to answer a request.
    pub(crate) fn backend_answered(&mut self, backend: BackendId) {
        let change = self.backends[backend.place()].answered(self.now.at);
        if let Some(change) = change {
            self.report_health_change(backend, change);
        }
    }

    pub(crate) fn backend_failed(&mut self, backend: BackendId) {
        self.proxied.backends()[backend.place()].failed.add(1);
        self.may_have_moved(backend);
        let change = self.backends[backend.place()].failed(self.now.at);
        if let Some(change) = change {
            self.report_health_change(backend, change);
        }
    }

    /// The backend failed: where it has a name, that is looked up earlier.
    #[cold]
    fn may_have_moved(&self, backend: BackendId) {
        if let Some(names) = self.handover.names() {
            names.hurry(backend.place());
        }
    }

    /// Looks where backends are. A backend that is gone gets nothing more: what is idle ends, what waits goes elsewhere,
    /// and what is under way comes to its end.
    #[cold]
    pub(crate) fn addresses_changed(&mut self) {
        for backend in (0..self.backends.len()).map(BackendId::of_place) {
            // In this order: one that is there has its address.
            let is_there = self.backends[backend.place()].is_there();
            let target = self.backends[backend.place()].target();
            let address = |of: &Option<Arc<Target>>| of.as_ref().map(Arc::as_ptr);
            let is_new = address(&target) != address(&self.targets[backend.place()]);
            let was_there = std::mem::replace(&mut self.are_there[backend.place()], is_there);
            self.targets[backend.place()] = target;
            if was_there && (is_new || !is_there) {
                self.drop_idle(backend);
                self.reassign_all(backend);
            }
            let is_checked = self.group_of(backend).check != Check::None;
            if let Some(schedule) = self.schedule.as_mut().filter(|_| is_checked) {
                if !is_there {
                    schedule.never(backend);
                } else if is_new || !was_there {
                    schedule.again(backend, self.now.at);
                }
            }
        }
    }

    /// Where a connection to the backend goes.
    pub(crate) fn to(&self, backend: BackendId) -> ConnectTo {
        self.targets[backend.place()]
            .as_ref()
            .expect("only a backend with an address is chosen")
            .to
            .clone()
    }

    /// What the backend is called.
    pub(crate) fn name(&self, backend: BackendId) -> &str {
        self.targets[backend.place()].as_ref().map_or("", |target| &target.name)
    }

    /// How many backends of the group are there.
    pub(crate) fn members_there(&self, group: GroupId) -> usize {
        let members = self.groups[group.place()].members();
        members.filter(|member| self.are_there[member.place()]).count()
    }

    /// Reports that a backend came up or went down; requests that wait for one that is down go
    /// elsewhere.
    #[cold]
    fn report_health_change(&mut self, backend: BackendId, change: HealthChange) {
        if change == HealthChange::Down {
            self.reassign_all(backend);
        }
        let name = self.name(backend);
        let text = || match change {
            HealthChange::Down => format!("the backend {name} is down: it gets no more requests"),
            HealthChange::Up => format!("the backend {name} is up again"),
        };
        self.logs.errors.report(Event::BackendHealth, self.now.unix_s, text);
    }

    /// The exchange of this number.
    pub(crate) fn exchange(&mut self, at: ExchangeId) -> &mut Exchange {
        self.exchanges.get_mut(at)
    }

    /// With what clients and backends speak TLS with.
    pub(crate) fn secure(&mut self, secrets: Secrets) {
        self.frontends.secure(secrets.clients);
        for (group, servers) in self.groups.iter_mut().zip(secrets.servers) {
            group.tls = servers;
        }
    }

    /// The encryption of a new connection to the backend, where it has any; for what goes through it.
    pub(crate) fn tls_to(&self, backend: BackendId, mode: Mode) -> Option<SharedTls> {
        let group = self.group_of(backend);
        Some(group.tls.as_ref()?.connection(self.backends[backend.place()].server, mode))
    }

    /// The front end of a connection that was just accepted.
    pub(crate) fn front(&self, actions: &Actions<'_>) -> (FrontId, &Frontend) {
        let place = self.frontends.of_connection(actions);
        (place, self.frontends.get(place))
    }

    /// Says on a new connection to a backend whose it is, where the group wants that.
    pub(crate) fn announce(&self, group: GroupId, header: ProxyHeader, actions: &mut Actions<'_>) {
        if let Some(version) = self.groups[group.place()].sends_header {
            let mut bytes = Vec::new();
            header.write(version, &mut bytes);
            actions.send(&bytes);
        }
    }

    /// Counts a client of TCP mode whose TLS is none, or none that both sides can speak. One that ended the
    /// connection in the handshake, without an error, may only have looked whether the port is open.
    #[cold]
    pub(crate) fn refuse_tls(&self, client: &str, wrong: Option<&pollux_tls::Error>) {
        let Some(wrong) = wrong else { return };
        self.counters.add(ServerCounter::TlsFailed, 1);
        let text = || match wrong {
            pollux_tls::Error::InvalidMessage(_) => {
                format!("{client} does not speak TLS, which this address expects")
            }
            wrong => format!("{client}: {wrong}"),
        };
        self.logs.errors.report(Event::RequestRefused, self.now.unix_s, text);
    }

    /// Counts a connection that says nothing of whose it is.
    #[cold]
    pub(crate) fn refuse_header(&self, actions: &Actions<'_>, wrong: &NoProxyHeader) {
        self.proxied.count(ProxyCounter::HeadersRefused);
        let text = || format!("{}: {wrong}", client_name(actions, None));
        self.logs.errors.report(Event::RequestRefused, self.now.unix_s, text);
    }

    /// The group of the backend at this place.
    pub(crate) fn group_of(&self, backend: BackendId) -> &Group {
        &self.groups[self.backends[backend.place()].group.place()]
    }

    /// How backends of the group at this place are chosen.
    pub(crate) fn balance(&self, group: GroupId) -> Balance {
        self.groups[group.place()].balancer.how()
    }

    /// Has the upstream connection of the exchange look at it, if it is connected.
    pub(crate) fn wake_upstream(&mut self, at: ExchangeId, actions: &mut Actions<'_>) {
        self.make_ready(at);
        let Some(upstream) = self.exchanges.get_mut(at).upstream else { return };
        let upstream = self.connections.get_mut(upstream);
        if let Some(id) = upstream.id
            && !std::mem::replace(&mut upstream.is_woken, true)
        {
            actions.wake(id);
        }
    }

    /// Has the asker look at the exchange.
    pub(crate) fn wake_asker(&mut self, at: ExchangeId, actions: &mut Actions<'_>) {
        let exchange = self.exchanges.get_mut(at);
        if !std::mem::replace(&mut exchange.is_asker_woken, true) {
            exchange.asker.wake(&mut self.ready, actions);
        }
    }

    /// The same where no session is called.
    pub(crate) fn wake_asker_later(&mut self, at: ExchangeId) {
        let exchange = self.exchanges.get_mut(at);
        exchange.is_asker_woken = true;
        exchange.asker.wake_later(&mut self.ready, &mut self.commands);
    }

    /// Parts the exchange and its upstream connection, where another one may have its place.
    pub(crate) fn detach(&mut self, at: ExchangeId) {
        if let Some(upstream) = self.part_upstream(at) {
            self.place_is_free(upstream);
        }
    }

    /// The same, but for its place. Returns the connection.
    fn part_upstream(&mut self, at: ExchangeId) -> Option<UpstreamId> {
        let exchange = self.exchanges.get_mut(at);
        let upstream = exchange.upstream.take()?;
        exchange.stream = 0;
        let was_ready = std::mem::take(&mut exchange.is_ready);
        let parted = self.connections.get_mut(upstream);
        match &mut parted.streams {
            None => parted.exchange = None,
            Some(streams) => {
                let ready = &mut streams.ready;
                if was_ready && let Some(place) = ready.iter().rposition(|each| *each == at) {
                    ready.remove(place);
                }
            }
        }
        Some(upstream)
    }

    /// The connection has one request less.
    pub(super) fn place_is_free(&mut self, upstream: UpstreamId) {
        let parted = self.connections.get_mut(upstream);
        let backend = parted.backend;
        self.proxied.backends()[backend.place()].ended.add(1);
        if let Some(streams) = &mut parted.streams {
            streams.carried -= 1;
            self.may_open_another(backend);
        }
    }

    /// Takes the exchange from its upstream connection before the answer is whole: that connection ends,
    /// for the bytes that still come belong to no request. Of one that carries others its stream alone does: its backend works
    /// on it until it knows, and so long another request has not its place.
    pub(crate) fn take_back(&mut self, at: ExchangeId) {
        let stream = self.exchanges.get(at).stream;
        let Some(at) = self.part_upstream(at) else { return };
        if stream == 0 {
            self.place_is_free(at);
        }
        let upstream = self.connections.get_mut(at);
        if upstream.streams.is_some() {
            return self.drop_stream(at, stream);
        }
        match upstream.id {
            Some(id) => {
                upstream.is_cut = true;
                self.commands.push_back(Command::Wake(id));
            }
            // One that is being opened has seen nothing and can serve another request.
            None => self.forget_connect(at),
        }
    }

    /// A connection that was to be opened in this turn is opened for nobody: a client may ask and give up as often as it likes.
    pub(super) fn forget_connect(&mut self, upstream: UpstreamId) {
        let opens_it = |command: &Command<Outgoing>| match command {
            Command::Connect { session, .. } => {
                matches!(session.purpose, Purpose::Http1(of) | Purpose::Http2(of) if of == upstream)
            }
            _ => false,
        };
        if let Some(place) = self.commands.iter().rposition(opens_it) {
            self.commands.remove(place);
            match self.connections.get(upstream).streams {
                None => self.end_upstream(upstream, false),
                Some(_) => self.end_multiplexed(upstream),
            }
        }
    }

    /// Has the asker continue with the body of its request, of which some has left; of a connection, where that makes room.
    pub(crate) fn wake_paused_asker(&mut self, at: ExchangeId, actions: &mut Actions<'_>) {
        if self.exchanges.get_mut(at).is_asker_paused {
            self.wake_asker(at, actions);
        }
    }

    /// Reports why a backend could not be reached.
    #[cold]
    pub(crate) fn report_connect(&self, backend: BackendId, error: &io::Error) {
        let name = self.name(backend);
        let text = || format!("no connection to the backend {name}: {error}");
        self.logs.errors.report(Event::BackendLost, self.now.unix_s, text);
    }

    /// Reports why TLS with a backend failed; without an error, that it ended the connection in the
    /// handshake.
    #[cold]
    pub(crate) fn report_tls(&self, backend: BackendId, error: Option<&pollux_tls::Error>) {
        let name = self.name(backend);
        let text = || format!("TLS with the backend {name} failed: {}", why(error));
        self.logs.errors.report(Event::BackendLost, self.now.unix_s, text);
    }

    /// Reports why the bytes of a backend are not an answer.
    #[cold]
    pub(crate) fn report_answer(&self, backend: BackendId, why: &str) {
        let name = self.name(backend);
        let text = || format!("the backend {name}: {}: {why}", Fault::BadAnswer.about());
        self.logs.errors.report(Event::BackendFailed, self.now.unix_s, text);
    }

    /// Reports why the bytes of a backend are not an answer by HTTP/2.
    #[cold]
    pub(crate) fn report_http2(&self, backend: BackendId, why: &str) {
        let name = self.name(backend);
        let text = || format!("the backend {name}: HTTP/2: {why}");
        self.logs.errors.report(Event::BackendFailed, self.now.unix_s, text);
    }

    /// Reports what was wrong with a backend.
    #[cold]
    pub(crate) fn report_fault(&self, at: ExchangeId, fault: Fault) {
        let exchange = self.exchanges.get(at);
        let Some(backend) = exchange.backend else { return };
        let name = self.name(backend);
        let text = || format!("the backend {name}: {}", fault.about());
        self.logs.errors.report(Event::BackendFailed, self.now.unix_s, text);
    }

    /// The deadline `after` from now.
    pub(crate) fn deadline(&self, after: Duration) -> Moment {
        self.now.at + after
    }

    /// Ends what the exchange has with backends: its place in a queue, and its upstream connection, which loses it.
    pub(crate) fn part(&mut self, at: ExchangeId) {
        if self.exchanges.get(at).ticket.is_some() {
            self.leave_queue(at);
        }
        self.take_back(at);
    }

    /// Ends the exchange.
    pub(crate) fn end(&mut self, at: ExchangeId) {
        self.part(at);
        let exchange = self.exchanges.get_mut(at);
        exchange.request.drop_piped(&mut self.pipes);
        exchange.response.drop_piped(&mut self.pipes);
        exchange.leave_epoch(&self.epochs);
        self.forget_held(at);
        self.exchanges.end(at);
    }
}

/// A client of bytes as the error log names it: by the head that said whose connection it is, else by its address.
pub(crate) fn client_name(actions: &Actions<'_>, header: Option<&ProxyHeader>) -> Box<str> {
    let said = header.and_then(|header| match header {
        ProxyHeader::Of { source, .. } => Some(source.ip()),
        _ => None,
    });
    match said.or_else(|| actions.peer().map(|peer| peer.ip())) {
        Some(ip) => ip.to_canonical().to_string().into(),
        None => "a client of a unix socket".into(),
    }
}
