//! Numbers by which things of one loop, or of one configuration, know each other: a type for each table, so that the
//! compiler sees a swap.
//!
//! A table makes its ids and is asked by them; nothing else turns a number into one, but for what carries ids between
//! threads as plain numbers (`Ticket`, `Pooled`).

/// Declares ids, each with the type of its number. A macro, as no function declares a type.
macro_rules! ids {
    ($($(#[$attribute:meta])* $name:ident: $number:ty;)*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) struct $name($number);

        impl $name {
            /// That of the place in its table.
            ///
            /// # Panics
            /// When the place is beyond what the type counts: tables are bounded.
            #[inline]
            pub(crate) fn of_place(place: usize) -> Self {
                Self(<$number>::try_from(place).expect("tables are bounded"))
            }

            /// Its place in its table.
            #[inline]
            pub(crate) const fn place(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A request that is answered later, in [`Exchanges`](crate::exchange::table::Exchanges).
    ExchangeId: u32;
    /// An upstream connection, in [`Links`](crate::exchange::table::Links).
    UpstreamId: u32;
    /// The streams of a client's connection of HTTP/2, in [`ReadyStreams`](crate::exchange::asker::ReadyStreams).
    StreamsId: u32;
    /// The two sides of a stream of TCP mode, in [`Pairs`](crate::exchange::pair::Pairs).
    PairId: u32;
    /// A group of backends, in the order of the settings; by default the first one.
    #[derive(Default)]
    GroupId: u16;
    /// A backend, among those of all groups.
    BackendId: u16;
    /// A front end, in [`FrontendTable`](crate::backends::groups::FrontendTable); by default the first one.
    #[derive(Default)]
    FrontId: u16;
    /// A site, in the order of the settings.
    SiteId: u16;
    /// A route, in the order of the settings, of all sites.
    RouteId: u16;
}
