//! What of the settings the requests of clients are decided and answered by: one for each epoch (`crate::epochs`). Those of now
//! are the loop's own fields; those of before stand beside them while a request needs them, and take their place for as long
//! as it is looked at ([`LoopState::under`]).
//!
//! ```text
//!  main thread: NewSettings for each loop ─► Replacements ─► begin_turn ─► the newest epoch
//! ```

use std::mem::swap;
use std::sync::Arc;

use pollux_engine::{Actions, ListenAddress};
use pollux_http::Request;
use pollux_http::h2::Settings;

use crate::ServerError;
use crate::backends::groups::FrontendTable;
use crate::backends::shared_upstreams::SharedUpstreams;
use crate::certificates::FrontCertificates;
use crate::config::{Limits, LogFormat, ProxyConfig};
use crate::counters::ServerCounters;
use crate::exchange::epoch::PassingSettings;
use crate::front::kept::Kept;
use crate::front::peer::Client;
use crate::front::state::LoopState;
use crate::handlers::SHORT_ROOM_BYTES;
use crate::handlers::sites::SiteHandlers;
use crate::head::shared_fields::Common;
use crate::ids::EpochId;
use crate::log::{AccessLog, Logs};
use crate::rates::Rates;
use crate::site_orders::SiteOrders;

/// What requests are decided and answered by, of a proxy.
#[derive(Debug)]
pub(super) struct FrontSettings {
    pub(super) limits: Limits,
    pub(super) head_limits: pollux_http::Limits,
    pub(super) room_bytes_min: usize,
    pub(super) commons: Vec<Common>,
    pub(super) sites: Option<Box<SiteHandlers>>,
    pub(super) rates: Option<Arc<Rates>>,
    pub(super) frontends: FrontendTable,
}

impl FrontSettings {
    /// Those of a configuration; without what clients speak TLS with, and limits.
    ///
    /// # Errors
    /// A folder of a site, or a page, can't be opened.
    pub(super) fn new(
        config: &ProxyConfig,
        addresses: &[(ListenAddress, usize)],
        orders: &Arc<SiteOrders>,
        counters: &Arc<ServerCounters>,
        logs: &Logs,
    ) -> Result<Self, ServerError> {
        let limits = config.limits.clients.clone();
        let mut head_limits = limits.heads.with_body(limits.passed_body_bytes_max());
        let commons = Common::all(config)?;
        let sites = SiteHandlers::open(config, logs, counters)?;
        let sites = sites.map(|sites| Box::new(sites.ordered(Arc::clone(orders))));
        let mut room_bytes_min = 0;
        if let Some(sites) = &sites {
            // Each route has its own, which is known once the head was read.
            head_limits.body_bytes = head_limits.body_bytes.max(sites.body_bytes_max());
            let of_fields = commons.iter().map(Common::room_bytes).max().unwrap_or(0);
            room_bytes_min = sites.room_bytes_min().max(SHORT_ROOM_BYTES + of_fields);
        }
        let frontends = FrontendTable::new(config, addresses);
        Ok(Self { limits, head_limits, room_bytes_min, commons, sites, rates: None, frontends })
    }
}

/// What a loop takes at a reload.
#[derive(Debug)]
pub(crate) struct NewSettings {
    front: FrontSettings,
    passing: PassingSettings,
    answer_limits: pollux_http::Limits,
    streams: Option<Settings>,
    log: Option<AccessLog>,
    /// The log of the settings before stays open, and has lines of this form from then on.
    kept_log: Option<LogFormat>,
}

/// What a reload has of the settings before, and for all loops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried<'c> {
    pub(crate) addresses: &'c [(ListenAddress, usize)],
    pub(crate) shared: &'c SharedUpstreams,
    /// For the new sites.
    pub(crate) orders: &'c Arc<SiteOrders>,
    pub(crate) certificates: &'c [Option<FrontCertificates>],
    pub(crate) rates: &'c Arc<Rates>,
    pub(crate) logs: &'c Logs,
    /// The access log is the one of before.
    pub(crate) keeps_log: bool,
}

impl NewSettings {
    /// For one loop, with these counters.
    ///
    /// # Errors
    /// The log, a folder of a site, or a page can't be opened.
    pub(crate) fn new(
        config: &ProxyConfig,
        counters: &Arc<ServerCounters>,
        carried: Carried<'_>,
    ) -> Result<Self, ServerError> {
        let Carried { addresses, shared, orders, certificates, rates, logs, keeps_log } = carried;
        let mut front = FrontSettings::new(config, addresses, orders, counters, logs)?;
        front.frontends.secure(certificates.to_vec());
        front.rates = Some(Arc::clone(rates));
        let format = config.monitoring.access_log_format;
        let open = |target| AccessLog::open(target, format, logs.clone());
        let target = config.monitoring.access_log.as_ref().filter(|_| !keeps_log);
        Ok(Self {
            front,
            passing: PassingSettings::new(config, shared.routes.places(&config.sites.names())),
            answer_limits: config.limits.clients.heads.with_body(u64::MAX),
            streams: streams_of(config),
            log: target.map(open).transpose()?,
            kept_log: keeps_log.then_some(format),
        })
    }
}

/// What a proxy announces to clients of HTTP/2; none where it is not spoken.
pub(super) fn streams_of(config: &ProxyConfig) -> Option<Settings> {
    let settings = config.http2.settings(&config.limits.clients);
    settings.map(|settings| Settings { has_connect_protocol: true, ..settings })
}

impl LoopState {
    /// Requests are decided and answered by these settings from now on; what is under way keeps those that it has.
    #[cold]
    pub(super) fn begin_epoch(&mut self, new: NewSettings) {
        self.forget_epochs();
        let NewSettings { mut front, passing, answer_limits, streams, log, kept_log } = new;
        let proxy = self.proxy();
        let before = proxy.epochs.newest();
        let frontends = std::mem::replace(&mut front.frontends, proxy.frontends.clone());
        proxy.begin_epoch(passing, frontends, answer_limits);
        swap(&mut self.limits, &mut front.limits);
        swap(&mut self.head_limits, &mut front.head_limits);
        // There is room as well for what those of before answer.
        self.room_bytes_min = self.room_bytes_min.max(front.room_bytes_min);
        swap(&mut self.commons, &mut front.commons);
        swap(&mut self.sites, &mut front.sites);
        swap(&mut self.rates, &mut front.rates);
        self.share_ids();
        self.epochs_before.push((before, Box::new(front)));
        match (kept_log, &mut self.log) {
            (Some(format), Some(log)) => log.set_format(format),
            // The old one goes with its last lines.
            _ => self.replace_log(log),
        }
        self.streams.settings = streams;
        self.set_date();
        self.forget_epochs();
    }

    /// Drops the settings by which nothing goes any more.
    #[cold]
    pub(super) fn forget_epochs(&mut self) {
        let Self { proxy, epochs_before, .. } = self;
        let Some(proxy) = proxy else { return };
        proxy.epochs.forget_unused();
        epochs_before.retain(|(epoch, _)| proxy.epochs.is_in_use(*epoch));
    }

    /// Ids of requests are those of this loop.
    pub(super) fn share_ids(&mut self) {
        let Self { sites, commons, current_id, .. } = self;
        if let Some(sites) = sites {
            sites.share_ids(current_id);
        }
        commons.iter_mut().for_each(|common| common.share_ids(current_id));
    }

    /// Gives the request that has come its id, where requests have some.
    #[inline]
    pub(super) fn identify(
        &mut self,
        client: &mut Client,
        actions: &Actions<'_>,
        request: &Request<'_>,
    ) {
        if let Some(sites) = self.sites.as_mut().filter(|sites| sites.has_ids()) {
            let peer = || client.peer(actions).address.parse().ok();
            sites.identify(peer, request, self.now.unix_s);
        }
    }

    /// The same of one that can't be read.
    pub(super) fn identify_unread(&mut self) {
        if let Some(sites) = &mut self.sites {
            sites.identify_again(self.now.unix_s);
        }
    }

    /// What the request that is looked at keeps for later.
    pub(super) fn keep(&self) -> Kept {
        // Without a proxy no reload replaces settings so.
        let Some(proxy) = &self.proxy else { return Kept::default() };
        Kept::new(proxy.epochs.hold_for_later(), &self.current_id)
    }

    /// Calls this with the settings of an epoch that is in use in the place of those of now.
    #[inline]
    pub(super) fn under<R>(
        &mut self,
        epoch: Option<EpochId>,
        call: impl FnOnce(&mut Self) -> R,
    ) -> R {
        match epoch {
            Some(epoch) if !self.is_now(epoch) => {
                let before = self.switch(epoch);
                let result = call(self);
                self.switch(before);
                result
            }
            _ => call(self),
        }
    }

    #[inline]
    fn is_now(&self, epoch: EpochId) -> bool {
        self.proxy.as_ref().is_none_or(|proxy| proxy.epochs.current() == epoch)
    }

    /// Puts the settings of this epoch in the place of those of now; says which those were.
    #[cold]
    fn switch(&mut self, to: EpochId) -> EpochId {
        let at = self.epochs_before.iter().position(|(epoch, _)| *epoch == to);
        let (_, mut other) =
            self.epochs_before.swap_remove(at.expect("what is in use was not forgotten"));
        let proxy = self.proxy.as_mut().expect("a proxy has backends");
        let before = proxy.epochs.current();
        proxy.epochs.set_current(to);
        swap(&mut proxy.frontends, &mut other.frontends);
        swap(&mut self.limits, &mut other.limits);
        swap(&mut self.head_limits, &mut other.head_limits);
        swap(&mut self.commons, &mut other.commons);
        swap(&mut self.sites, &mut other.sites);
        swap(&mut self.rates, &mut other.rates);
        self.epochs_before.push((before, other));
        self.set_date();
        before
    }
}

#[cfg(test)]
pub(super) mod play {
    //! A loop of a proxy in the hands of a test, whose settings are read anew.

    use pollux_settings::Given;

    use super::*;
    use crate::backends::backends_of;
    use crate::fault::ProxyCounters;

    fn read(text: &str) -> ProxyConfig {
        Given::from_toml(text, "p.toml").read().unwrap_or_else(|wrong| panic!("{wrong}\n{text}"))
    }

    /// That of these settings.
    pub(crate) fn state(text: &str) -> LoopState {
        let config = read(text);
        let shared = SharedUpstreams::new(&config, backends_of(&config));
        let proxied = Arc::new(ProxyCounters::new(config.servers().count()));
        let logs = Logs::default();
        LoopState::for_proxy(0, &config, &[], shared, Arc::default(), proxied, &logs)
            .expect("a state")
    }

    /// Has it go by other settings from its next turn on.
    pub(crate) fn reload(state: &mut LoopState, text: &str) {
        let config = read(text);
        let shared = SharedUpstreams::new(&config, backends_of(&config));
        let carried = Carried {
            addresses: &[],
            shared: &shared,
            orders: &shared.site_orders(),
            certificates: &[None],
            rates: &Arc::new(Rates::new(&[], Vec::new())),
            logs: &Logs::default(),
            keeps_log: false,
        };
        let counters = Arc::clone(state.counters());
        let new = NewSettings::new(&config, &counters, carried).expect("settings");
        state.begin_epoch(new);
    }

    /// How many settings it has.
    pub(crate) fn epochs(state: &mut LoopState) -> usize {
        state.forget_epochs();
        state.epochs_before.len() + 1
    }
}
