//! The services that a worker offers: names, functions, and the rules for both.
//!
//! The registry changes it, the dispatch looks functions up. Pure: no queue is opened here. An
//! entry's number is the one in the worker's slot and in the poller's tokens, so it stays while
//! the service is offered.

use std::cell::RefCell;
use std::rc::Rc;

use super::service::Handler;
use crate::error::{Code, Error};
use crate::link::Advert;
use crate::queue::ServiceName;
use crate::slots::SERVICES_MAX;

/// A function that can be called while the table that holds it changes.
pub(super) type SharedHandler = Rc<RefCell<Handler>>;

/// One service on offer.
#[derive(Clone)]
pub(super) struct Offer {
    pub(super) name: ServiceName,
    pub(super) function: Rc<str>,
    pub(super) handler: SharedHandler,
}

/// All services of a worker; at most [`SERVICES_MAX`].
#[derive(Default)]
pub(super) struct Offers {
    entries: Vec<Option<Offer>>,
}

/// What `name` is to a table that is asked to offer it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It can be offered.
    New(ServiceName),
    /// It is, with the same function: nothing to do.
    Same,
}

impl Offers {
    /// Whether `name` can be offered with `function`.
    ///
    /// # Errors
    /// TPEINVAL for a name that can't be offered, TPEMATCH where another function has it,
    /// TPELIMIT at the bound.
    pub(super) fn standing(&self, name: &str, function: &str) -> Result<Standing, Error> {
        let name = service_name(name)?;
        if let Some(entry) = self.find(&name) {
            let offered = self.get(entry).map_or("", |offer| &offer.function);
            if offered == function {
                return Ok(Standing::Same);
            }
            let detail = format!("service {name} is offered already, by function {offered}");
            return Err(Error::new(Code::Match, detail));
        }
        if self.len() == SERVICES_MAX {
            let detail = format!("{name} would be one more than the {SERVICES_MAX} of a server");
            return Err(Error::new(Code::Limit, detail));
        }
        Ok(Standing::New(name))
    }

    /// Adds an offer that [`Offers::standing`] found to be new; returns its entry.
    pub(super) fn insert(&mut self, offer: Offer) -> usize {
        let free = self.entries.iter().position(Option::is_none);
        let entry = free.unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[entry] = Some(offer);
        entry
    }

    pub(super) fn remove(&mut self, entry: usize) {
        self.entries[entry] = None;
    }

    pub(super) fn find(&self, name: &ServiceName) -> Option<usize> {
        self.iter().find(|(_, offer)| offer.name == *name).map(|(entry, _)| entry)
    }

    pub(super) fn get(&self, entry: usize) -> Option<&Offer> {
        self.entries.get(entry)?.as_ref()
    }

    pub(super) fn len(&self) -> usize {
        self.iter().count()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Offer)> {
        self.entries.iter().enumerate().filter_map(|(entry, offer)| Some((entry, offer.as_ref()?)))
    }

    pub(super) fn adverts(&self) -> Vec<Advert> {
        self.iter().map(|(_, offer)| offer.advert()).collect()
    }
}

impl Offer {
    pub(super) fn advert(&self) -> Advert {
        Advert { name: self.name.as_str().to_owned(), function: self.function.to_string() }
    }
}

/// The name of a service that a program may offer.
///
/// # Errors
/// TPEINVAL.
pub(super) fn service_name(name: &str) -> Result<ServiceName, Error> {
    match ServiceName::new(name) {
        Some(name) if !name.is_reserved() => Ok(name),
        Some(name) => {
            let detail = format!("service {name}: names with @ or a dot in front are the system's");
            Err(Error::new(Code::Invalid, detail))
        }
        None => {
            let (name, most) = (name.escape_debug(), ServiceName::LEN_BYTES_MAX);
            let detail = format!(
                "`{name}` is no name of a service: give 1 to {most} signs without comma, slash \
                 and blank"
            );
            Err(Error::new(Code::Invalid, detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::Done;

    fn offer(name: &str) -> Offer {
        let handler: Handler = Box::new(|_| Done::NoReturn);
        Offer {
            name: ServiceName::new(name).expect("a name"),
            function: "f".into(),
            handler: Rc::new(RefCell::new(handler)),
        }
    }

    #[test]
    fn one_function_for_a_name_and_a_bound_for_all() {
        let mut offers = Offers::default();
        for number in 0..SERVICES_MAX {
            assert_eq!(offers.insert(offer(&format!("S{number}"))), number);
        }
        assert_eq!(offers.standing("S7", "f").expect("the same"), Standing::Same);
        assert_eq!(offers.standing("S7", "g").expect_err("another").code(), Code::Match);
        assert_eq!(offers.standing("MORE", "f").expect_err("full").code(), Code::Limit);
        offers.remove(7);
        let name = ServiceName::new("MORE").expect("a name");
        assert_eq!(offers.standing("MORE", "f").expect("room"), Standing::New(name));
        assert_eq!(offers.insert(offer("MORE")), 7);
        assert_eq!((offers.find(&name), offers.len()), (Some(7), SERVICES_MAX));
    }

    #[test]
    fn names_of_the_system_and_impossible_ones_are_refused() {
        let offers = Offers::default();
        for bad in ["", ".hidden", "A@B", "A,B", "A/B", "A B", &"N".repeat(31)] {
            let error = offers.standing(bad, "f").expect_err(bad);
            assert_eq!(error.code(), Code::Invalid, "{bad:?}");
        }
        assert!(offers.standing(&"N".repeat(30), "f").is_ok());
    }
}
