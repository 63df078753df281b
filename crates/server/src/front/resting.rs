//! Connections of HTTP/2 that rest, of one loop: what is left of each lies beside that of the others, and its session knows
//! the place. Those that do not rest are counted: when many have come to rest, the loop gives memory back.

use pollux_engine::Moment;
use pollux_http::h2::{Connection, RestingBytes, RestingConnection};
use pollux_tls::ShownId;

use crate::ids::{FrontId, RestingId, StreamsId};
use crate::places::Places;

/// All of them.
#[derive(Default, Debug)]
pub(crate) struct RestingTable {
    all: Places<RestingId, Option<(RestingConnection, Rested)>>,
    bytes: RestingBytes,
    /// Connections that do not rest.
    awake: u32,
}

/// What the session above a connection of HTTP/2 keeps of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rested {
    pub(super) front: FrontId,
    /// The certificate that its client has seen, where there are several by name.
    pub(super) shown: Option<ShownId>,
    pub(super) ready: Option<StreamsId>,
    /// Since when there is no stream.
    pub(super) since: Moment,
}

impl RestingTable {
    /// A connection begins.
    pub(super) fn begin(&mut self) {
        self.awake += 1;
    }

    /// One that does not rest has ended.
    pub(super) fn end(&mut self) {
        self.awake -= 1;
    }

    /// How many do not rest.
    #[inline]
    pub(crate) fn awake(&self) -> u32 {
        self.awake
    }

    /// One comes to rest, which has no streams.
    pub(super) fn rest<T>(&mut self, connection: Connection<T>, rested: Rested) -> RestingId {
        self.awake -= 1;
        let resting = Some((connection.rest(&mut self.bytes), rested));
        self.all.put(resting)
    }

    /// It rests no more.
    pub(super) fn wake<T>(&mut self, at: RestingId) -> (Connection<T>, Rested) {
        self.awake += 1;
        self.all.free(at);
        let (connection, rested) = self.all.get_mut(at).take().expect("its session alone names it");
        (connection.wake(&mut self.bytes), rested)
    }

    /// Drops the places behind the last one that is in use.
    pub(crate) fn release_memory(&mut self) {
        self.all.release_memory(|_| {});
        self.bytes.release_memory();
    }
}

#[cfg(test)]
mod tests {
    use pollux_http::h2::{Role, Settings};

    use super::*;

    #[test]
    fn places_of_connections_that_were_woken_are_used_again_and_given_back() {
        let mut table = RestingTable::default();
        let of_front = |place: usize| {
            let ready = None;
            let since = Moment::from_nanos(place as u64);
            Rested { front: FrontId::of_place(place), shown: None, ready, since }
        };
        let rest = |table: &mut RestingTable, place: usize| {
            table.begin();
            table.rest(Connection::<()>::new(Role::Server, Settings::DEFAULT), of_front(place))
        };
        let all: Vec<_> = (0..100).map(|place| rest(&mut table, place)).collect();
        assert_eq!(table.awake(), 0);
        for at in all.iter().skip(10).rev() {
            let (_, rested) = table.wake::<()>(*at);
            assert_eq!((rested.front.place(), table.awake()), (at.place(), 1));
            table.end();
        }
        assert_eq!(rest(&mut table, 7), all[10]);
        table.release_memory();
        assert_eq!(table.all.size(), (11, 0));
        for at in &all[..11] {
            table.wake::<()>(*at);
        }
        assert_eq!(table.awake(), 11);
        table.release_memory();
        assert_eq!(table.all.size(), (0, 0));
    }
}
