//! What of the settings an exchange keeps to its end, whatever is reloaded meanwhile; there is one for each epoch
//! (`crate::epochs`).

use std::time::Duration;

use crate::config::{ProxyConfig, ProxyLimits};
use crate::epochs::Epochs;
use crate::exchange::table::Exchange;
use crate::fields::FieldRule;
use crate::head::changed::AnswerChanges;
use crate::head::rules::Rules;
use crate::head::sets::FieldSet;
use crate::ids::RouteCountId;
use crate::route::request_id::RequestIdConfig;
use crate::route::rewrite::Rewrite;

/// How requests are passed on, and their answers.
#[derive(Debug)]
pub(crate) struct PassingSettings {
    /// What is done to fields, of each set.
    pub(crate) fields: Box<[SetRules]>,
    /// What the routes of sites change of paths, by their numbers.
    pub(super) rewrites: Box<[Rewrite]>,
    /// The field with the id of requests, where they have one.
    pub(super) request_id: Option<RequestIdConfig>,
    /// How long nothing may be said in tunnels of theirs.
    pub(super) tunnel_timeouts: Box<[Duration]>,
    /// Where their answers are counted.
    pub(crate) counted: Box<[RouteCountId]>,
    pub(super) limits: ProxyLimits,
}

/// What is done to fields of requests that are passed on, and of their answers.
#[derive(Debug)]
pub(crate) struct SetRules {
    pub(super) request: Box<[FieldRule]>,
    pub(crate) response: Rules,
    /// What becomes of answers beside.
    pub(crate) changes: AnswerChanges,
}

impl SetRules {
    fn of(set: &FieldSet) -> Self {
        let changes = AnswerChanges::of(&set.passed, &set.pages);
        Self { request: set.request.clone().into(), response: Rules::new(&set.response), changes }
    }
}

impl PassingSettings {
    /// Those of a configuration, whose routes are counted at these places.
    pub(crate) fn new(config: &ProxyConfig, counted: Box<[RouteCountId]>) -> Self {
        let all = config.limits.tunnel_timeout;
        let tunnel_timeouts = config.sites.routes().map(|it| it.tunnel_timeout.unwrap_or(all));
        Self {
            fields: FieldSet::all(config).0.iter().map(SetRules::of).collect(),
            rewrites: config.sites.routes().map(|route| route.rewrite.clone()).collect(),
            request_id: config.sites.request_id.clone(),
            tunnel_timeouts: tunnel_timeouts.collect(),
            counted,
            limits: config.limits.clone(),
        }
    }
}

impl PassingSettings {
    /// The field with the id of a request, where clients get it too.
    #[inline]
    pub(super) fn answered_id(&self) -> Option<&str> {
        let config = self.request_id.as_ref().filter(|config| config.is_answered)?;
        Some(&config.name)
    }
}

impl Exchange {
    /// The id of the request; empty where it has none.
    pub(crate) fn request_id(&self) -> &str {
        str::from_utf8(&self.id).unwrap_or_default()
    }

    /// The settings that it goes by: a tunnel, of which nothing is asked any more but its timeout, by those of now.
    #[inline]
    pub(super) fn settings<'e>(&self, epochs: &'e Epochs<PassingSettings>) -> &'e PassingSettings {
        match self.epoch {
            Some(epoch) => epochs.of(epoch),
            None => epochs.now(),
        }
    }

    /// It needs them no more.
    #[inline]
    pub(super) fn leave_epoch(&mut self, epochs: &Epochs<PassingSettings>) {
        if let Some(epoch) = self.epoch.take() {
            epochs.release(epoch);
        }
    }
}
